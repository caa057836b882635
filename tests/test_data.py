"""What a user gets from `dolb.data`: the same images everywhere, subsets, folders of images, names that are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dolb import data


@pytest.fixture(autouse=True)
def nothing_loaded_yet():
    data._LOADED.clear()
    yield
    data._LOADED.clear()


# Digits, subsets, names


def test_digits_are_all_there_split_by_class_and_scaled_to_bytes():
    from sklearn.datasets import load_digits

    digits, source = data.load("digits"), load_digits()
    assert digits.train_images.shape == (1437, 8, 8, 1)
    assert digits.test_images.shape == (360, 8, 8, 1)
    assert (digits.num_classes, digits.channels, digits.image_size) == (10, 1, (8, 8))
    together = np.concatenate([digits.train_images, digits.test_images])[..., 0]
    levels = np.floor(source.images * 255 / 16 + 0.5).astype(np.uint8)
    assert sorted(image.tobytes() for image in together) == sorted(image.tobytes() for image in levels)
    test_share = np.bincount(digits.test_labels) / np.bincount(source.target)
    assert np.abs(test_share - 0.2).max() < 1 / np.bincount(source.target).min()


def test_digits_are_the_same_in_every_load():
    first = data.load("digits")
    data._LOADED.clear()
    second = data.load("digits")
    assert first is not second
    assert second is data.load("digits", progress=False)  # from memory
    assert first.fingerprint == second.fingerprint
    # Frozen on purpose: published results carry it, and a new split or scaling must not pass for the old one.
    assert first.fingerprint == "sha256:c30276a17bdb0267b99feb58563e8283550454eb8ecfbb13cb643ab249a59c7d"


def test_a_subset_keeps_test_set_and_normalisation_and_has_its_own_fingerprint():
    digits = data.load("digits")
    keep = digits.train_labels != 3
    subset = digits.subset(keep, "no-threes")
    assert np.array_equal(subset.train_images, digits.train_images[keep])
    assert np.array_equal(subset.train_labels, digits.train_labels[keep])
    assert np.array_equal(subset.test_labels, digits.test_labels)
    assert (subset.mean, subset.std, subset.num_classes) == (digits.mean, digits.std, 10)
    assert (digits.subset_name, subset.subset_name) == ("full", "no-threes")
    assert subset.fingerprint != digits.fingerprint
    assert subset.fingerprint == digits.subset(keep, "another name").fingerprint


@pytest.mark.parametrize(
    ("keep", "says"),
    [
        (np.ones(1436, dtype=bool), r"\(1436,\).*\(1437,\)"),
        (np.ones(1437, dtype=np.int64), "int64.*bool"),
        (np.zeros(1437, dtype=bool), "'mine'.*False for all 1437"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(keep, says):
    with pytest.raises(ValueError, match=says):
        data.load("digits").subset(keep, "mine")


def test_an_unknown_name_is_answered_with_the_known_ones_and_a_guess():
    with pytest.raises(
        data.DataError, match=r"'CIFAR-10'; accepted: digits, cifar10, nodules-8, .*imagefolder:.*mean 'cifar10'\?"
    ):
        data.load("CIFAR-10")


# Folders of images


def write_image(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def write_folder(root: Path) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    pictures = {}
    for split, n in (("train", 3), ("test", 2)):
        for kind in ("cat", "dog"):
            for k in range(n):
                pictures[f"{split}/{kind}/{k}.png"] = rng.integers(0, 256, (6, 5, 3), dtype=np.uint8)
    for name, pixels in pictures.items():
        write_image(root / name, pixels)
    return pictures


def test_a_folder_of_images_comes_back_pixel_by_pixel(tmp_path):
    pictures = write_folder(tmp_path / "pets")
    pets = data.load("imagefolder:pets", tmp_path, progress=False)
    assert (pets.classes, pets.channels, pets.image_size) == (("cat", "dog"), 3, (6, 5))
    for split, images, labels in (
        ("train", pets.train_images, pets.train_labels),
        ("test", pets.test_images, pets.test_labels),
    ):
        expected = {name: pixels for name, pixels in sorted(pictures.items()) if name.startswith(split)}
        assert np.array_equal(images, np.stack(list(expected.values())))
        assert labels.tolist() == [int("/dog/" in name) for name in expected]
    assert data.load(f"imagefolder:{tmp_path / 'pets'}", progress=False).fingerprint == pets.fingerprint


def test_an_image_of_another_size_is_named_with_both_sizes(tmp_path):
    write_folder(tmp_path)
    write_image(tmp_path / "test/dog/0.png", np.zeros((7, 9, 3), dtype=np.uint8))
    with pytest.raises(data.DataError, match=r"dog/0\.png has 9x7 pixels, .*cat/0\.png has 5x6 pixels"):
        data.load(f"imagefolder:{tmp_path}", progress=False)


def test_a_file_that_is_no_image_is_named(tmp_path):
    write_folder(tmp_path)
    (tmp_path / "train/dog/2.png").write_bytes(b"no image")
    with pytest.raises(data.DataError, match=r"dog/2\.png cannot be read as an image"):
        data.load(f"imagefolder:{tmp_path}", progress=False)


def test_a_missing_split_or_class_or_folder_is_named(tmp_path):
    with pytest.raises(data.DataError, match=r"'imagefolder:pets' is neither .*pets nor .*pets; accepted: a folder"):
        data.load("imagefolder:pets", tmp_path)
    write_image(tmp_path / "pets/train/cat/0.png", np.zeros((4, 4, 3), dtype=np.uint8))
    with pytest.raises(data.DataError, match=r"no folder .*pets/test; accepted: train/<class>"):
        data.load("imagefolder:pets", tmp_path)
    write_image(tmp_path / "pets/test/dog/0.png", np.zeros((4, 4, 3), dtype=np.uint8))
    with pytest.raises(data.DataError, match=r"classes \['cat', 'dog'\] in only one"):
        data.load("imagefolder:pets", tmp_path)
