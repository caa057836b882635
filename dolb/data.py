"""A name becomes images, labels and a fingerprint: digits, CIFAR-10, Fashion-MNIST, a folder, or small volumes."""

import difflib
import importlib.util
import os
import threading
from pathlib import Path

import numpy as np

from dolb import cifar10, fashion_mnist, imagefolder, volumes
from dolb.images import DataError, ImageData, Splits, assemble, keep_mask

__all__ = [
    "IMAGEFOLDER", "DataError", "ImageData", "class_names", "keep_mask", "load", "names", "require", "train_files",
]  # fmt: skip

IMAGEFOLDER = "imagefolder:"
_VERIFIED = {one.name: one for one in (cifar10.CIFAR10, fashion_mnist.FASHION_MNIST)}

_LOADED: dict[tuple[str, Path], ImageData] = {}
_LOADED_AT_MOST = 4
_LOADING = threading.Lock()


def names() -> tuple[str, ...]:
    """Return the data set names that `load` accepts; the last is a pattern."""
    return ("digits", *_VERIFIED, *volumes.names(), f"{IMAGEFOLDER}NAME_OR_PATH")


def class_names(name: str) -> tuple[str, ...]:
    """Return the classes of a data set, in the order of the labels, without the images of those known by name."""
    known = {"digits": tuple(map(str, range(10)))} | {one.name: one.classes for one in _VERIFIED.values()}
    known |= dict.fromkeys(volumes.names(), volumes.CLASSES)
    return known[name] if name in known else load(name).classes


def load(name: str, data_dir: str | Path | None = None, *, download: bool = True, progress: bool = True) -> ImageData:
    """Return a data set by name, from memory if this process has loaded it from the same place before.

    ``data_dir`` defaults to the environment's ``DOLB_DATA``, then to ``dolb`` in the user's cache folder.
    """
    folder = require(name, data_dir)
    with _LOADING:
        if (name, folder) not in _LOADED:
            if name == "digits":
                data = _load_digits()
            elif name in _VERIFIED:
                data = _VERIFIED[name].load(folder, download, progress)
            elif name in volumes.names():
                data = volumes.load(name, folder)
            else:
                data = imagefolder.load(name, folder, progress)
            while len(_LOADED) >= _LOADED_AT_MOST:
                del _LOADED[next(iter(_LOADED))]
            _LOADED[name, folder] = data
        return _LOADED[name, folder]


def require(name: str, data_dir: str | Path | None = None) -> Path:
    """Return the folder of a data set, or raise a ``DataError`` if there is none of that name, unseen."""
    folder = _folder(data_dir)
    if name.startswith(IMAGEFOLDER):
        return imagefolder.find(name, folder)
    if name not in names():
        close = difflib.get_close_matches(name.lower(), names(), n=1)
        close = [f"{IMAGEFOLDER}{name}"] if os.path.isdir(name) else close  # False for whatever is no path
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise DataError(f"unknown data set {name!r}; accepted: {', '.join(names())}{hint}")
    return folder


def train_files(name: str, data_dir: str | Path | None = None) -> list[str]:
    """Return the file of each training example of a folder of images, or its place in another data set."""
    if not name.startswith(IMAGEFOLDER):
        return list(map(str, range(len(load(name, data_dir).train_labels))))
    train, _ = imagefolder.splits(imagefolder.find(name, _folder(data_dir)))
    return [str(path) for images in train.values() for path in images]


def _folder(data_dir: str | Path | None) -> Path:
    cache_home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(data_dir or os.environ.get("DOLB_DATA") or Path(cache_home) / "dolb").expanduser().resolve()


def _load_digits() -> ImageData:
    # The file of `sklearn.datasets.load_digits`; to import sklearn takes every process two seconds.
    package = Path(str(importlib.util.find_spec("sklearn").origin)).parent  # type: ignore[union-attr]
    rows = np.loadtxt(package / "datasets" / "data" / "digits.csv.gz", delimiter=",").astype(np.int64)
    images, labels = ((rows[:, :-1] * 255 + 8) // 16).astype(np.uint8).reshape(-1, 8, 8, 1), rows[:, -1]
    # Every fifth example of the list sorted by class: stratified, and no generator whose stream could change.
    test = np.zeros(len(labels), dtype=bool)
    test[np.argsort(labels, kind="stable")[::5]] = True
    splits = Splits(images[~test], labels[~test], images[test], labels[test])
    return assemble("digits", splits, class_names("digits"))
