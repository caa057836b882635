"""A person reviews examples in a notebook: decisions become a mask that can be undone, saved, gone on with.

The widget has real comm objects, and no browser.
"""

import io
import sys

import numpy as np
import pytest
from PIL import Image

from dolb import results
from dolb.filtering import masks, noise, review


@pytest.fixture
def file(digits, tmp_path):
    """A mask that keeps all, with a map that needs no training: the first two principal components of the pixels."""
    pixels = digits.train_images.reshape(len(digits.train_labels), -1).astype(float)
    centred = pixels - pixels.mean(axis=0)
    place = centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T
    keep, until = np.ones(len(place), dtype=bool), noise.noise_until(place, digits.train_labels)
    return masks.save_keep(tmp_path / "keep.nc", keep, digits, "all", coordinates=place, noise_until=until)


class Parts:
    """The widget's parts, as a person meets them."""

    def __init__(self, box):
        self.plot, buttons, self.said, self.images = box.children
        self.buttons = {button.description: button for button in buttons.children}

    def lasso(self, examples):
        """Set what the lasso of the browser sets."""
        found = [self.plot]
        while not hasattr(found[0], "selection"):
            found = [*found[1:], *getattr(found[0], "children", ())]
        found[0].selection = np.asarray(examples)

    def press(self, name):
        self.buttons[name].click()


def dropped(file, digits):
    return np.flatnonzero(~masks.load_keep(file, digits)).tolist()


def test_lassoed_points_show_their_images_and_are_dropped_kept_again_and_saved(file, digits):
    parts = Parts(review.widget(file, digits))
    parts.lasso([10, 11, 12])
    assert parts.images.value == review.sheet(digits.train_images[10:13])
    parts.press("Drop")
    assert "3 of 1,437 are dropped. 3 chosen." in parts.said.value
    parts.lasso([12])
    parts.press("Keep")
    parts.press("Save")
    assert dropped(file, digits) == [10, 11]
    assert "noise_until" in results.load(file)


def test_a_saved_review_is_gone_on_with_and_undone_a_decision_at_a_time(file, digits, tmp_path):
    first = Parts(review.widget(file, digits))
    first.lasso([1, 2])
    first.press("Drop")
    first.press("Save")
    parts = Parts(review.widget(file, digits, tmp_path / "more.nc"))
    for example in (3, 4):
        parts.lasso([example])
        parts.press("Drop")
    parts.press("Undo")
    parts.press("Save")
    assert dropped(file, digits) == [1, 2]
    assert dropped(tmp_path / "more.nc", digits) == [1, 2, 3]


def test_a_class_cannot_be_dropped_whole(file, digits):
    parts = Parts(review.widget(file, digits))
    parts.lasso(np.flatnonzero(digits.train_labels == 4))
    parts.press("Drop")
    parts.press("Save")
    assert "Not saved: the review drops every example of 4" in parts.said.value
    assert dropped(file, digits) == []


def test_a_mask_of_other_data_or_without_a_map_is_refused(file, digits, tmp_path):
    keep = np.ones(len(digits.train_labels), dtype=bool)
    with pytest.raises(masks.MaskError, match="holds no map: it lacks x, y"):
        review.widget(masks.save_keep(tmp_path / "bare.nc", keep, digits, "bare"), digits)
    with pytest.raises(masks.MaskError, match="other data"):
        review.widget(file, digits.subset(np.arange(len(keep)) > 9, "fewer"))


@pytest.mark.parametrize("channels", [1, 3])
def test_the_sheet_shows_the_images(channels):
    images = np.random.default_rng(0).integers(0, 256, (14, 8, 8, channels), dtype=np.uint8)
    pixels = np.asarray(Image.open(io.BytesIO(review.sheet(images)))).reshape(2, 42, 12, 42, channels)
    for k, image in enumerate(images):
        assert (pixels[k // 12, 1:-1, k % 12, 1:-1][::5, ::5] == image).all()


def test_without_jupyter_scatter_the_error_says_how_to_get_it(file, digits, monkeypatch):
    monkeypatch.setitem(sys.modules, "jscatter", None)
    with pytest.raises(ImportError, match=r'pip install "dolb\[review\]"'):
        review.widget(file, digits)
