"""Decisions saved on the page of `dolb view`: they become the mask they say, and serve no other data."""

import codecs
import json

import numpy as np
import pytest

from dolb.filtering import decisions, masks


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
