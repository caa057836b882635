"""What a user gets from `dolb.data`: the same images everywhere, subsets, folders of images, names that are known."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dolb import data

pytestmark = pytest.mark.usefixtures("nothing_loaded_yet")


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


def test_classes_alone_have_a_fifth_of_each_held_out_by_name_wherever_they_lie(tmp_path, capsys):
    random = np.random.default_rng(0)
    for kind, n in (("große Katze", 10), ("狗", 3)):
        for k in range(n):
            write_image(tmp_path / "here" / kind / f"{k}.png", random.integers(0, 256, (4, 4, 3), dtype=np.uint8))
    pets = data.load(f"imagefolder:{tmp_path / 'here'}")
    assert "3 of its 13 images, by their names, are the test set" in capsys.readouterr().err
    assert np.bincount(pets.test_labels).tolist() == [2, 1]
    assert np.bincount(pets.train_labels).tolist() == [8, 2]
    both = [image.tobytes() for image in np.concatenate([pets.train_images, pets.test_images])]
    assert len(set(both)) == 13
    for image, file in zip(pets.train_images, data.train_files(f"imagefolder:{tmp_path / 'here'}"), strict=True):
        assert np.array_equal(image, np.asarray(Image.open(file)))
    (tmp_path / "here").rename(tmp_path / "there")
    assert data.load(f"imagefolder:{tmp_path / 'there'}", progress=False).fingerprint == pets.fingerprint


def test_images_are_the_same_with_a_test_set_called_val_and_where_they_are_too_many_for_memory(tmp_path, monkeypatch):
    write_folder(tmp_path)
    pets = data.load(f"imagefolder:{tmp_path}", progress=False)
    data._LOADED.clear()
    (tmp_path / "test").rename(tmp_path / "val")
    monkeypatch.setattr(data.imagefolder, "IN_MEMORY", 100)
    assert data.load(f"imagefolder:{tmp_path}", progress=False).fingerprint == pets.fingerprint


def test_reading_images_says_so_in_a_few_plain_lines_where_no_bar_can_move(tmp_path, capsys):
    write_folder(tmp_path)
    data.load(f"imagefolder:{tmp_path}")
    said = capsys.readouterr().err
    assert "10 of 10 (image)" in said
    assert "\r" not in said
    assert len(said.splitlines()) <= 3


def test_files_that_are_no_images_are_named_together_the_first_ten_and_how_many_more(tmp_path):
    write_folder(tmp_path)
    for k in range(12):
        (tmp_path / f"train/dog/{k + 2:02}.png").write_bytes(b"no image")
    with pytest.raises(data.DataError) as error:
        data.load(f"imagefolder:{tmp_path}", progress=False)
    *named, more = str(error.value).splitlines()
    assert [f"dog/{k + 2:02}.png cannot be read as an image" in line for k, line in enumerate(named)] == [True] * 10
    assert more == "and 2 more"


def one_image(root: Path, name: str, image: Image.Image, **how: object) -> np.ndarray:
    """Return the pixels that an image has as the only one of its kind in a folder."""
    for split in ("train", "test"):
        (root / split / "kind").mkdir(parents=True, exist_ok=True)
        image.save(root / split / "kind" / name, **how)
    return data.load(f"imagefolder:{root}", progress=False).train_images[0]


def test_sixteen_bits_of_gray_are_scaled_to_eight(tmp_path):
    levels = np.arange(0, 65536, 257, dtype=np.uint16).reshape(16, 16)
    for k, ending in enumerate(("png", "tif", "pgm")):
        got = one_image(tmp_path / str(k), f"x.{ending}", Image.fromarray(levels))
        assert np.array_equal(got, np.repeat(np.arange(256).reshape(16, 16, 1), 3, axis=2))


def test_images_of_every_mode_show_the_colours_that_a_person_sees(tmp_path):
    red = Image.new("RGB", (8, 8), (255, 0, 0))
    for k, mode in enumerate(("RGBA", "P", "CMYK", "RGB")):
        ending = "tif" if mode == "CMYK" else "png"
        assert (one_image(tmp_path / str(k), f"x.{ending}", red.convert(mode)) == (255, 0, 0)).all()
    for mode in ("L", "LA", "1"):
        assert (one_image(tmp_path / mode, "x.png", Image.new("L", (8, 8), 255).convert(mode)) == 255).all()
    glass = Image.new("RGBA", (8, 8), (9, 9, 9, 0))  # what is transparent lies on white
    assert (one_image(tmp_path / "glass", "x.png", glass) == 255).all()


def test_a_photograph_is_turned_as_its_exif_says(tmp_path):
    image, exif = Image.new("RGB", (40, 20)), Image.Exif()
    image.paste((255, 255, 255), (0, 0, 20, 20))
    exif[0x0112] = 6  # its first row is to be seen on the right
    got = one_image(tmp_path, "x.jpg", image, exif=exif, quality=100)
    assert got.shape == (40, 20, 3)
    assert got[:18].min() > 200
    assert got[22:].max() < 50


def test_images_of_several_sizes_are_brought_to_the_middle_one_and_that_is_said(tmp_path):
    write_folder(tmp_path)
    wide = np.zeros((6, 50, 3), dtype=np.uint8)
    wide[:, 20:30] = 255  # the middle, which stays
    write_image(tmp_path / "train/dog/0.png", wide)
    with pytest.warns(UserWarning, match="10 images of 2 sizes are resized and cropped in the middle to 5x6 pixels"):
        pets = data.load(f"imagefolder:{tmp_path}", progress=False)
    assert pets.image_size == (6, 5)
    assert (pets.train_images[3] == 255).all()


def test_large_images_are_made_smaller(tmp_path):
    with pytest.warns(UserWarning, match="2 images of 1 size are resized .* to 256x128 pixels"):
        assert one_image(tmp_path, "x.png", Image.new("RGB", (1024, 512))).shape == (128, 256, 3)


def test_hidden_files_and_those_of_macos_are_left_out(tmp_path):
    write_folder(tmp_path)
    for name in ("train/cat/._0.png", "train/.DS_Store", "train/__MACOSX/x.png", "test/cat/.cache/x.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"no image")
    pets = data.load(f"imagefolder:{tmp_path}", progress=False)
    assert (len(pets.train_labels), len(pets.test_labels), pets.num_classes) == (6, 4, 2)


@pytest.mark.parametrize(
    ("link", "target"),
    [("cat/again", ".."), ("cat/again", "../.."), ("cat/dogs", "../dog"), ("cat/self", "."), ("again", "."),
     ("up", ".."), ("kitten", "cat"), ("cat/deep/up", "../..")],
)  # fmt: skip
def test_a_link_back_into_the_folder_adds_no_image(tmp_path, link, target):
    write_folder(tmp_path)
    plain = data.load(f"imagefolder:{tmp_path}", progress=False)
    (tmp_path / "train" / link).parent.mkdir(exist_ok=True)
    (tmp_path / "train" / link).symlink_to(target, target_is_directory=True)
    data._LOADED.clear()
    assert data.load(f"imagefolder:{tmp_path}", progress=False).fingerprint == plain.fingerprint


def test_images_behind_a_link_out_of_the_folder_are_there_once(tmp_path):
    write_folder(tmp_path / "pets")
    plain = data.load(f"imagefolder:{tmp_path / 'pets'}", progress=False)
    (tmp_path / "pets/train/cat").rename(tmp_path / "cats")
    (tmp_path / "cats/round").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "pets/train/cat").symlink_to(tmp_path / "cats")
    assert data.load("imagefolder:pets", tmp_path, progress=False).fingerprint == plain.fingerprint


def test_each_training_example_has_the_name_of_its_file(tmp_path):
    pictures = write_folder(tmp_path)
    pets, files = data.load(f"imagefolder:{tmp_path}", progress=False), data.train_files(f"imagefolder:{tmp_path}")
    for image, file in zip(pets.train_images, files, strict=True):
        assert np.array_equal(image, pictures[str(Path(file).relative_to(tmp_path))])


@pytest.mark.parametrize("classes", [1, 1000])
def test_a_folder_may_have_one_class_or_a_thousand(tmp_path, classes):
    for split in ("train", "test"):
        for k in range(classes):
            write_image(tmp_path / split / f"{k:04}" / "x.png", np.full((2, 2, 3), k % 256, dtype=np.uint8))
    many = data.load(f"imagefolder:{tmp_path}", progress=False)
    assert np.array_equal(many.train_labels, np.arange(classes))
    assert np.array_equal(many.train_images[:, 0, 0, 0], np.arange(classes) % 256)
