"""What a data set is once it is loaded: images and labels of its splits, classes, fingerprint, statistics."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np


class DataError(RuntimeError):
    """A data set that cannot be had as asked, for a reason that the user can act on."""


class Splits(NamedTuple):
    """The four arrays of a data set: images uint8 (N, H, W, C), labels int64 (N,)."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


@dataclass(frozen=True, eq=False)
class ImageData:
    """Images and labels of one data set, with a fingerprint that says which.

    Images are uint8 (N, H, W, C), labels int64 (N,), both read-only. ``mean`` and ``std`` are per channel, of the full
    training set with pixels scaled to 0..1, also in a subset: every subset is normalised alike.
    """

    name: str
    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    classes: tuple[str, ...]
    fingerprint: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    subset_name: str = "full"

    def __post_init__(self) -> None:
        """Keep read-only views: a loaded data set is shared by everything in the process."""
        for name in Splits._fields:
            view = getattr(self, name).view()
            view.setflags(write=False)
            object.__setattr__(self, name, view)

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)

    @property
    def channels(self) -> int:
        """Colour channels of an image."""
        return int(self.train_images.shape[3])

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of an image in pixels."""
        return int(self.train_images.shape[1]), int(self.train_images.shape[2])

    def subset(self, keep: np.ndarray, name: str) -> ImageData:
        """Return the data with only those training examples for which the boolean mask ``keep`` is True."""
        n = len(self.train_labels)
        if not keep_mask(keep, n).any():
            raise ValueError(f"keep of subset {name!r} is False for all {n} training examples; at least one must stay")
        splits = Splits(self.train_images[keep], self.train_labels[keep], self.test_images, self.test_labels)
        return replace(self, **splits._asdict(), fingerprint=fingerprint(splits), subset_name=name)


def keep_mask(keep: np.ndarray, n: int) -> np.ndarray:
    """Return a mask unchanged if it is boolean with one entry for each of ``n`` examples, else raise an error."""
    keep = np.asarray(keep)
    if keep.dtype != np.bool_ or keep.shape != (n,):
        raise ValueError(f"keep has dtype {keep.dtype} and shape {keep.shape}; accepted: bool and ({n},)")
    return keep


def assemble(name: str, splits: Splits, classes: tuple[str, ...], digests: dict[str, str] | None = None) -> ImageData:
    """Make a data set of its splits; their ``digests_of`` are given where it has been hashed once already."""
    mean, std = _channel_statistics(splits.train_images)
    return ImageData(name, *splits, classes, fingerprint(splits, digests), mean, std)


def sha256(array: np.ndarray) -> str:
    """Hash an array's bytes in C order, little-endian on every machine."""
    return hashlib.sha256(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).data).hexdigest()


def digests_of(splits: Splits) -> dict[str, str]:
    """Return the hash of each of the four arrays, by name."""
    return {name: sha256(array) for name, array in splits._asdict().items()}


def fingerprint(splits: Splits, digests: dict[str, str] | None = None) -> str:
    """Return the hash of the shapes and digests of the four arrays."""
    digests = digests or digests_of(splits)
    lines = [f"{name} {array.shape} {digests[name]}" for name, array in splits._asdict().items()]
    return "sha256:" + hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _channel_statistics(images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation per channel from sums of whole numbers, so that every machine gets the same."""
    channels, pixels = images.shape[3], images[..., 0].size
    total, squares = np.zeros(channels, dtype=np.uint64), np.zeros(channels, dtype=np.uint64)
    rows = images.reshape(len(images), -1)
    step = max(1, 2**22 // rows.shape[1])
    for start in range(0, len(rows), step):
        part = rows[start : start + step].astype(np.uint16)  # 255 squared still fits
        total += part.sum(axis=0, dtype=np.uint64).reshape(-1, channels).sum(axis=0)
        squares += (part * part).sum(axis=0, dtype=np.uint64).reshape(-1, channels).sum(axis=0)
    mean = total / (255 * pixels)
    std = np.sqrt(np.maximum(squares / (255**2 * pixels) - mean**2, 0))
    return tuple(mean.tolist()), tuple(np.where(std > 0, std, 1.0).tolist())  # a constant channel divides by one
