"""A person reviews examples: decisions become a mask that training takes; they can be undone, saved, gone on with."""

import io
import sys

import numpy as np
import pytest
from PIL import Image

from dolb import data, results
from dolb.filtering import masks, noise, review
from dolb.training.config import RunConfig
from dolb.training.sweep import sweep


@pytest.fixture(scope="module")
def digits():
    return data.load("digits")


@pytest.fixture(scope="module")
def coordinates(digits):
    """A map that needs no training: the first two principal components of the pixels."""
    pixels = digits.train_images.reshape(len(digits.train_labels), -1).astype(float)
    centred = pixels - pixels.mean(axis=0)
    return centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T


@pytest.fixture
def started(digits, coordinates):
    return review.Review(digits, coordinates)


def test_what_is_dropped_is_dropped_and_what_is_kept_again_is_kept(started):
    assert started.decide([3, 5, 7], keep=False) == 3
    assert started.decide([5], keep=True) == 1
    assert np.flatnonzero(~started.keep).tolist() == [3, 7]


def test_undo_takes_back_one_decision_at_a_time_and_no_more_than_it_changed(started):
    started.decide([1, 2], keep=False)
    started.decide([2, 3], keep=False)  # 2 was dropped already
    assert started.undo() == 1
    assert np.flatnonzero(~started.keep).tolist() == [1, 2]
    assert started.undo() == 2
    assert started.keep.all()


def test_an_example_that_is_not_there_is_refused_and_changes_nothing(started):
    with pytest.raises(ValueError, match="0 to 1436"):
        started.decide([4, 5000], keep=False)
    assert started.keep.all()


def test_a_review_is_saved_and_gone_on_with(started, digits, coordinates, tmp_path):
    until = noise.noise_until(coordinates, digits.train_labels)
    first = review.Review(
        digits, coordinates, until <= np.quantile(until, 0.9), until, about={"arch": "resnet18", "seed": 3}
    )
    dropped = np.flatnonzero(first.keep)[:4]
    first.decide(dropped, keep=False)
    again = review.Review.load(first.save(tmp_path / "keep.nc"), digits)
    assert (again.keep == first.keep).all()
    again.decide(dropped[:1], keep=True)
    ds = results.load(again.save(tmp_path / "keep.nc"))
    assert (ds["keep"].values != first.keep).sum() == 1
    assert ds["subset"].item() == "reviewed"
    assert (ds["arch"].item(), ds["seed"].item()) == ("resnet18", 3)
    assert (ds["noise_until"].values == until).all()


def test_training_takes_the_reviewed_mask_as_a_subset(started, digits, tmp_path):
    started.decide(range(100), keep=False)
    keep = masks.load_keep(started.save(tmp_path / "keep.nc"), digits)
    config = RunConfig(data="digits", subset="reviewed", arch="smallnet-4", batch_size=256, epochs=1)
    trained = sweep([config], subsets={"reviewed": keep}, device="cpu", store=tmp_path / "store")
    assert trained["training_examples"].item() == len(digits.train_labels) - 100


def test_a_mask_of_other_data_or_without_a_map_is_refused(digits, coordinates, tmp_path):
    keep = np.ones(len(digits.train_labels), dtype=bool)
    bare = masks.save_keep(tmp_path / "bare.nc", keep, digits, "bare")
    with pytest.raises(masks.MaskError, match="no map"):
        review.Review.load(bare, digits)
    other = digits.subset(np.arange(len(keep)) > 9, "fewer")
    path = masks.save_keep(tmp_path / "other.nc", keep[10:], other, "other", coordinates=coordinates[10:])
    with pytest.raises(masks.MaskError, match="other data"):
        review.Review.load(path, digits)


def test_a_class_cannot_be_dropped_whole(started, digits, tmp_path):
    started.decide(np.flatnonzero(digits.train_labels == 4), keep=False)
    with pytest.raises(noise.EmptyClassError, match="every example of 4"):
        started.save(tmp_path / "keep.nc")
    assert not (tmp_path / "keep.nc").exists()


def test_the_sheet_shows_the_images_and_frames_the_dropped_ones(started, digits):
    started.decide([7], keep=False)
    sheet = np.asarray(Image.open(io.BytesIO(started.sheet([6, 7], columns=2))))
    height, width = sheet.shape[0], sheet.shape[1] // 2
    for position, example in enumerate((6, 7)):
        tile = sheet[:, position * width : (position + 1) * width]
        inside = tile[3:-3, 3:-3]
        scale = inside.shape[0] // digits.image_size[0]
        assert (inside[::scale, ::scale, :1] == digits.train_images[example]).all()
    assert tuple(sheet[0, 0]) != tuple(sheet[0, width])
    assert height == width


# --- The widget, with real comm objects and no browser


@pytest.fixture
def parts(started, tmp_path):
    box = review.widget(started, tmp_path / "keep.nc")
    controls, plot, buttons, said, images = box.children
    by_name = {button.description: button for button in buttons.children}
    scatter = plot if hasattr(plot, "selection") else next(child for child in _all(plot) if hasattr(child, "selection"))
    return scatter, by_name, said, images, controls


def _all(widget):
    for child in getattr(widget, "children", ()):
        yield child
        yield from _all(child)


def test_lassoed_points_show_their_images_and_are_dropped_by_a_button(parts, started, digits, tmp_path):
    scatter, buttons, said, images, _ = parts
    scatter.selection = np.array([10, 11, 12])  # what the lasso of the browser sets
    assert images.value == started.sheet([10, 11, 12])
    buttons["Drop"].click()
    assert np.flatnonzero(~started.keep).tolist() == [10, 11, 12]
    assert images.value == started.sheet([10, 11, 12])
    assert "3 of 1,437" in said.value
    buttons["Save"].click()
    assert (masks.load_keep(tmp_path / "keep.nc", digits) == started.keep).all()
    buttons["Undo"].click()
    assert started.keep.all()


def test_what_the_map_no_longer_shows_is_not_decided_about(parts, started, digits):
    scatter, buttons, said, images, controls = parts
    class_choice, _ = controls.children
    scatter.selection = np.arange(200)
    class_choice.value = 3
    threes = np.flatnonzero(digits.train_labels[:200] == 3)
    assert f"{len(threes)} chosen" in said.value
    assert images.value == started.sheet(threes)
    buttons["Drop"].click()
    assert np.flatnonzero(~started.keep).tolist() == threes.tolist()
    class_choice.value = -1
    assert "200 chosen" in said.value


def test_without_jupyter_scatter_the_error_says_how_to_get_it(started, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jscatter", None)
    with pytest.raises(ImportError, match=r'pip install "dolb\[review\]"'):
        review.widget(started, tmp_path / "keep.nc")
