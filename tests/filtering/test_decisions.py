"""Decisions saved on the page of `dolb view`: they become the mask they say, and serve no other data."""

import codecs
import json

import numpy as np
import pytest

from dolb import data
from dolb.filtering import checks, decisions, masks


@pytest.fixture(scope="module")
def digits():
    return data.load("digits")


@pytest.fixture
def saved(digits, tmp_path):
    """Write a file of decisions, with changes, and return its path."""

    def write(**changes):
        said = decisions.header(digits) | {"dropped": [3, 5], "marked": {"keep": [], "drop": [5]}} | changes
        path = tmp_path / "decisions.json"
        path.write_text(json.dumps({name: value for name, value in said.items() if value is not None}))
        return path

    return write


def test_what_was_dropped_is_what_the_mask_drops(digits, saved):
    for load in (decisions.load, masks.load_keep):  # wherever a mask is taken, decisions are
        keep = load(saved(), digits)
        assert keep.dtype == np.bool_
        assert len(keep) == len(digits.train_labels)
        assert np.flatnonzero(~keep).tolist() == [3, 5]


@pytest.mark.parametrize("before", [codecs.BOM_UTF8, b"\r\n  ", codecs.BOM_UTF8 + b"\n"])
def test_what_an_editor_puts_before_the_text_does_not_matter(digits, saved, before):
    path = saved()
    path.write_bytes(before + path.read_bytes())
    assert np.flatnonzero(~masks.load_keep(path, digits)).tolist() == [3, 5]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data_fingerprint": "sha256:0"}, "other data: digits with sha256:0, not digits"),
        ({"examples": 1436}, "about 1436 examples; accepted: 1437"),
        ({"dropped": [3, 1437]}, "drops example 1437; accepted: 0 to 1436"),
        ({"dropped": [-1]}, "drops example -1; accepted: 0 to 1436"),
        ({"dropped": [2.5]}, "not a list of whole numbers"),
        ({"dropped": [True]}, "not a list of whole numbers"),
        ({"dropped": "3"}, "not a list of whole numbers"),
        ({"dropped": None}, "lacks dropped"),
        ({"format": "another"}, "has the format 'another'; accepted: 'dolb-decisions-1'"),
    ],
)
def test_what_does_not_fit_the_data_is_refused(digits, saved, changes, message):
    with pytest.raises(checks.MaskError, match=message):
        decisions.load(saved(**changes), digits)


def test_a_class_cannot_be_dropped_whole(digits, saved):
    with pytest.raises(checks.EmptyClassError, match="every example of 4"):
        decisions.load(saved(dropped=np.flatnonzero(digits.train_labels == 4).tolist()), digits)


@pytest.mark.parametrize("text", ["{", "{}", '["dropped"]'])
def test_a_file_that_is_none_of_ours_is_refused(digits, tmp_path, text):
    path = tmp_path / "decisions.json"
    path.write_text(text)
    with pytest.raises(checks.MaskError, match="accepted"):
        decisions.load(path, digits)
