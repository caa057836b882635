"""Volumes of lung: what the generator makes, and patches cut from scans written in LUNA16's format."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from dolb import data, volumes
from dolb.training.engine import subset_of


def test_the_generator_makes_as_many_volumes_as_luna16_has_scans_and_the_same_every_time():
    made = data.load("nodules-8")
    assert made.train_images.shape == (888, 8, 8, 8)
    assert volumes.load("nodules-8", None).fingerprint == made.fingerprint
    assert (made.mean, made.std) == ((0.0,) * 8, (1.0,) * 8)  # not normalised
    assert made.train_labels.sum() == 592  # two of three hold a nodule
    assert len({one.tobytes() for one in [*made.train_images, *made.test_images]}) == 999


def test_a_volume_with_a_nodule_differs_from_the_one_without_in_the_nodule_alone():
    without, with_one = (volumes._made_volume(16, 1, nodule).astype(int) for nodule in (False, True))
    brighter = with_one - without > 40
    assert 1 <= brighter.sum() < 16**3 / 8


def write_scan(folder, name, voxels, spacing, origin, **changes):
    """Write a scan as LUNA16 has it: a text header, and the voxels by z, y, x."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes = " ".join(map(str, voxels.shape[::-1]))
    header = {
        "ObjectType": "Image", "NDims": 3, "BinaryData": "True", "BinaryDataByteOrderMSB": "False",
        "CompressedData": "False", "Offset": " ".join(map(str, origin)), "ElementSpacing": " ".join(map(str, spacing)),
        "DimSize": sizes, "ElementType": "MET_SHORT", "ElementDataFile": f"{name}.raw",
    } | changes  # fmt: skip
    (folder / f"{name}.mhd").write_text("".join(f"{key} = {value}\n" for key, value in header.items()))
    voxels.astype("<i2").tofile(folder / f"{name}.raw")


@pytest.fixture
def luna16(tmp_path):
    """Make a folder of three scans of air, one with a ball of tissue where the annotations have a nodule."""
    spacing, origin, sizes = (0.8, 0.8, 2.0), (-40.0, -50.0, -60.0), (50, 120, 110)
    centre = np.array([10.0, -5.0, 0.0])
    z, y, x = (origin[axis] + spacing[axis] * np.arange(sizes[2 - axis]) for axis in (2, 1, 0))
    away = (z[:, None, None] - centre[2]) ** 2 + (y[:, None] - centre[1]) ** 2 + (x - centre[0]) ** 2
    ball = np.where(away < 10.0**2, 40, -1000)
    folder = tmp_path / "luna16"
    write_scan(folder / "subset0", "1.2.3", ball, spacing, origin)
    write_scan(folder / "subset1", "1.2.4", np.full(sizes, -1000), spacing, origin)
    write_scan(folder / "subset9", "1.2.5", np.full(sizes, 400), spacing, origin)
    lines = ["seriesuid,coordX,coordY,coordZ,diameter_mm", "1.2.3,-20,20,20,4.1", "1.2.3,10,-5,0,20"]
    (folder / "annotations.csv").write_text("\n".join(lines))
    return folder


def test_a_cube_is_cut_around_the_largest_nodule_of_a_scan(luna16, tmp_path):
    found = data.load("luna16-16", tmp_path)
    assert found.train_images.shape == (2, 16, 16, 16)
    assert found.train_labels.tolist() == [1, 0]
    bright = np.argwhere(found.train_images[0] > 128)
    assert np.allclose(bright.mean(axis=0), 7.5, atol=0.3)  # the middle of 16 voxels
    wide = np.ptp(bright, axis=0) + 1
    assert ((wide >= 4) & (wide <= 6)).all()  # 20 mm, of 4 mm a voxel
    assert (found.train_images[1] == 0).all()
    assert found.test_images.max() == 255


def test_what_is_no_scan_is_named(luna16, tmp_path):
    raw = luna16 / "subset1" / "1.2.4.raw"
    raw.write_bytes(raw.read_bytes()[:-2])
    with pytest.raises(data.DataError, match=r"1\.2\.4\.raw has 659999 voxels"):
        data.load("luna16-16", tmp_path)
    write_scan(luna16 / "subset1", "1.2.4", np.zeros((4, 4, 4)), (1, 1, 1), (0, 0, 0), CompressedData="True")
    with pytest.raises(data.DataError, match=r"1\.2\.4\.mhd is compressed"):
        data.load("luna16-16", tmp_path)
    (luna16 / "annotations.csv").unlink()
    with pytest.raises(data.DataError, match=r"annotations\.csv cannot be read"):
        data.load("luna16-16", tmp_path)
    with pytest.raises(data.DataError, match="has no subset"):
        data.load("luna16-16", tmp_path / "elsewhere")


def test_a_picture_has_volumes_above_what_was_made_of_them():
    picture = volumes.picture(np.ones((3, 8, 8, 8)), np.zeros((3, 8, 8, 8)))
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(picture))))
    assert pixels.shape == (16, 24)
    assert (pixels[:8] == 255).all()
    assert (pixels[8:] == 0).all()


def test_a_share_of_the_examples_is_a_share_of_each_class():
    digits = data.load("digits")
    fifth = subset_of(digits, "share-0.2", {})
    assert len(fifth.train_labels) == round(0.2 * len(digits.train_labels))
    counts, all_counts = (np.bincount(one.train_labels) for one in (fifth, digits))
    assert np.allclose(counts, 0.2 * all_counts, atol=1)
    with pytest.raises(ValueError, match="above 0"):
        subset_of(digits, "share-2", {})
