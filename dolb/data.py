"""A name becomes images, labels and a fingerprint: digits, CIFAR-10, a folder of images, or small volumes of lung."""

from __future__ import annotations

import difflib
import importlib.util
import os
import threading
from pathlib import Path

import numpy as np
from tqdm import tqdm

from dolb import cifar10, volumes
from dolb.images import DataError, ImageData, Splits, assemble, digests_of

__all__ = ["IMAGEFOLDER", "DataError", "ImageData", "class_names", "load", "names"]

IMAGEFOLDER = "imagefolder:"

_LOADED: dict[tuple[str, Path], ImageData] = {}
_LOADED_AT_MOST = 4
_LOADING = threading.Lock()


def names() -> tuple[str, ...]:
    """Return the data set names that `load` accepts; the last is a pattern."""
    return ("digits", "cifar10", *volumes.names(), f"{IMAGEFOLDER}NAME_OR_PATH")


def class_names(name: str) -> tuple[str, ...]:
    """Return the classes of a data set, in the order of the labels, without the images of those known by name."""
    known = {"cifar10": cifar10.CLASSES, "digits": tuple(map(str, range(10)))}
    known |= dict.fromkeys(volumes.names(), volumes.CLASSES)
    return known[name] if name in known else load(name).classes


def load(name: str, data_dir: str | Path | None = None, *, download: bool = True, progress: bool = True) -> ImageData:
    """Return a data set by name, from memory if this process has loaded it from the same place before.

    ``data_dir`` defaults to the environment's ``DOLB_DATA``, then to ``dolb`` in the user's cache folder.
    """
    cache_home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(data_dir or os.environ.get("DOLB_DATA") or Path(cache_home) / "dolb").expanduser().resolve()
    if name.startswith(IMAGEFOLDER):
        folder = _find_imagefolder(name, folder)
    elif name not in names():
        close = difflib.get_close_matches(name.lower(), names(), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise DataError(f"unknown data set {name!r}; accepted: {', '.join(names())}{hint}")
    with _LOADING:
        if (name, folder) not in _LOADED:
            if name == "digits":
                data = _load_digits()
            elif name == "cifar10":
                data = cifar10.load(folder, download, progress)
            elif name in volumes.names():
                data = volumes.load(name, folder)
            else:
                data = _load_imagefolder(name, folder, progress)
            while len(_LOADED) >= _LOADED_AT_MOST:
                del _LOADED[next(iter(_LOADED))]
            _LOADED[name, folder] = data
        return _LOADED[name, folder]


def _load_digits() -> ImageData:
    # The file of `sklearn.datasets.load_digits`; to import sklearn takes every process two seconds.
    package = Path(str(importlib.util.find_spec("sklearn").origin)).parent  # type: ignore[union-attr]
    rows = np.loadtxt(package / "datasets" / "data" / "digits.csv.gz", delimiter=",").astype(np.int64)
    images, labels = ((rows[:, :-1] * 255 + 8) // 16).astype(np.uint8).reshape(-1, 8, 8, 1), rows[:, -1]
    # Every fifth example of the list sorted by class: stratified, and no generator whose stream could change.
    test = np.zeros(len(labels), dtype=bool)
    test[np.argsort(labels, kind="stable")[::5]] = True
    splits = Splits(images[~test], labels[~test], images[test], labels[test])
    return assemble("digits", splits, class_names("digits"), digests_of(splits))


def _find_imagefolder(name: str, data_dir: Path) -> Path:
    given = name.removeprefix(IMAGEFOLDER)
    candidates = [data_dir / given, Path(given).expanduser().resolve()]
    for folder in candidates:
        if given and folder.is_dir():
            return folder
    places = " nor ".join(dict.fromkeys(map(str, candidates)))
    raise DataError(f"{name!r} is neither {places}; accepted: a folder with train/<class>/* and test/<class>/*")


def _load_imagefolder(name: str, folder: Path, progress: bool) -> ImageData:
    from torchvision.datasets import ImageFolder
    from torchvision.datasets.folder import pil_loader

    found = {}
    for split in ("train", "test"):
        if not (folder / split).is_dir():
            raise DataError(f"{name!r} has no folder {folder / split}; accepted: train/<class>/* and test/<class>/*")
        try:
            found[split] = ImageFolder(folder / split)
        except FileNotFoundError as error:
            raise DataError(f"{folder / split} is not a folder of <class>/<image>: {error}") from error
    classes = found["train"].classes
    if odd := sorted(set(classes) ^ set(found["test"].classes)):
        raise DataError(f"{folder} has classes {odd} in only one of train and test; accepted: the same in both")
    samples = found["train"].samples + found["test"].samples
    images = np.empty((0, 0, 0, 3), dtype=np.uint8)
    for k, (path, _) in enumerate(tqdm(samples, desc=name, unit="image", disable=not progress)):
        try:
            image = np.asarray(pil_loader(path))
        except (OSError, SyntaxError, ValueError) as error:
            raise DataError(f"{path} cannot be read as an image: {error}") from error
        if k == 0:
            images = np.empty((len(samples), *image.shape), dtype=np.uint8)
        if image.shape != images.shape[1:]:
            sizes = [f"{shape[1]}x{shape[0]} pixels" for shape in (image.shape, images.shape[1:])]
            raise DataError(f"{path} has {sizes[0]}, {samples[0][0]} has {sizes[1]}; accepted: one size for all images")
        images[k] = image
    labels = np.array([label for _, label in samples], dtype=np.int64)
    n = len(found["train"])
    splits = Splits(images[:n], labels[:n], images[n:], labels[n:])
    return assemble(name, splits, tuple(classes), digests_of(splits))
