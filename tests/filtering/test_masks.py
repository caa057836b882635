"""Masks on disk: they come back as they were, with what made them, and serve no other data."""

import numpy as np
import pytest

from dolb import results
from dolb.filtering import masks


@pytest.fixture
def keep(digits):
    return np.random.default_rng(0).random(len(digits.train_labels)) < 0.9


def test_a_mask_is_refused_by_other_data_of_the_same_size(digits, keep, tmp_path):
    one_less, another = np.ones((2, len(keep)), dtype=bool)
    one_less[0], another[1] = False, False
    first, second = digits.subset(one_less, "less"), digits.subset(another, "other")
    path = masks.save_keep(tmp_path / "keep.nc", keep[1:], first, "network")
    with pytest.raises(masks.MaskError, match="a mask of other data"):
        masks.load_keep(path, second)


def test_a_mask_comes_back_with_where_it_came_from(digits, keep, tmp_path):
    coordinates = np.random.default_rng(1).normal(size=(len(keep), 2))
    more = {"noise_until": np.full(len(keep), 0.25), "about": {"arch": "smallnet-4", "seed": 3, "seconds": 1.5}}
    path = masks.save_keep(tmp_path / "keep.nc", keep, digits, "network", coordinates=coordinates, **more)
    np.testing.assert_array_equal(masks.load_keep(path, digits), keep)
    ds = results.load(path)
    np.testing.assert_array_equal(np.stack([ds["x"], ds["y"]], axis=1), coordinates)
    np.testing.assert_array_equal(ds["label"], digits.train_labels)
    assert (ds["noise_until"] == 0.25).all()
    said = [ds[name].item() for name in ("data", "subset", "arch", "seed", "data_fingerprint", "source")]
    assert said == ["digits", "network", "smallnet-4", 3, digits.fingerprint, "measured"]
    assert results.provenance_of(ds)["commit"] == results.commit()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"coordinates": np.zeros((5, 2))}, ValueError, "length 5 on 'x' and length 1437"),
        ({"about": {"colour": "red"}}, results.SchemaError, "colour is not a name of the schema"),
    ],
)
def test_what_does_not_fit_the_data_or_the_schema_is_not_saved(digits, keep, tmp_path, change, error, message):
    assert len(keep) == 1437
    with pytest.raises(error, match=message):
        masks.save_keep(**{"path": tmp_path / "keep.nc", "keep": keep, "data": digits, "name": "network"} | change)
    assert not list(tmp_path.iterdir())


def test_a_set_of_ones_own_is_called_by_its_name_and_its_mask(digits, keep, tmp_path):
    path = masks.save_keep(tmp_path / "keep.nc", keep, digits, "reviewed")
    (name, mask), *_ = masks.own_sets({"mine": path}, digits).items()
    np.testing.assert_array_equal(mask, keep)
    assert name.startswith("mine-")
    assert masks.own_sets({"mine": path}, digits).keys() == {name}
    changed = keep.copy()
    changed[0] = not changed[0]
    other = masks.own_sets({"mine": masks.save_keep(tmp_path / "other.nc", changed, digits, "reviewed")}, digits)
    assert name not in other
