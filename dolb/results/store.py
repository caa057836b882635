"""A store of finished runs: a folder with a file for each, found by the run's key, which processes may share."""

import contextlib
import fcntl
import re
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

import xarray as xr

from dolb.results.files import StoreError, load, remove_abandoned, save
from dolb.results.merging import split
from dolb.results.schema import SchemaError

_KEY = re.compile(r"[0-9a-f]{16}")


class RunStore:
    """A folder with one file per finished run, which several processes may use at once."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)

    def path(self, key: str) -> Path:
        """Return where the run of that key is, or would be."""
        return self.folder / f"{key}.nc"

    def keys(self) -> list[str]:
        """Return the keys of the finished runs."""
        return sorted(path.stem for path in self.folder.glob("*.nc") if _KEY.fullmatch(path.stem))

    def foreign(self) -> list[Path]:
        """Return the files of results that are not named by a key: they are not the store's own, and left alone."""
        return sorted(path for path in self.folder.glob("*.nc") if not _KEY.fullmatch(path.stem))

    def get(self, key: str, data_fingerprint: str | None = None) -> xr.Dataset | None:
        """Return a finished run, or None; a file that does not read back, or is of other data, is set aside."""
        path = self.path(key)
        if not path.exists():
            return None
        try:
            ds = load(path)
            if list(map(str, ds["key"].values)) != [key]:
                raise SchemaError(f"the file holds runs {list(ds['key'].values)}")
        except StoreError:
            raise  # a later version wrote it
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            self.set_aside(path, f"cannot be read back ({error})")
            return None
        if data_fingerprint is not None and str(ds["data_fingerprint"].item()) != data_fingerprint:
            self.set_aside(path, "was made from other data")
            return None
        return ds

    def put(self, ds: xr.Dataset) -> Path:
        """Save one finished run under its key."""
        return save(ds, self.path(str(ds["key"].item())))

    def take(self, ds: xr.Dataset, keys: Collection[str] | None = None) -> int:
        """Save the runs of a Dataset that were measured, or those of some keys, and return how many were not here."""
        new = 0
        for one in split(ds):
            key, measured = str(one["key"].item()), "source" not in one or str(one["source"].item()) == "measured"
            if measured and (keys is None or key in keys) and not self.path(key).exists():
                self.put(one)
                new += 1
        return new

    def check_writable(self) -> None:
        """Raise a ``StoreError`` now if runs could not be saved later; remove what killed processes left unfinished."""
        try:
            (self.folder / "locks").mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, prefix=".probe."):
                pass
            remove_abandoned(self.folder)
        except OSError as error:
            raise StoreError(f"the store {self.folder} cannot be written ({error.strerror}); give another") from error

    @contextlib.contextmanager
    def claim(self, key: str) -> Iterator[bool]:
        """Hold the run of that key while in the block; yields False where another process holds it.

        The claim is a file lock: the system lets go of it when the process ends, however it ends.
        """
        with open(self.folder / "locks" / f"{key}.lock", "a") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
                return
            yield True

    def held(self, key: str) -> bool:
        """Return whether some process, on whatever machine, is making the run of that key."""
        if not (self.folder / "locks" / f"{key}.lock").exists():
            return False
        with self.claim(key) as mine:
            return not mine

    def set_aside(self, path: Path, reason: str, what: str = "the run") -> None:
        """Rename a file of the store that cannot be used, and say so; what it was of will be done again."""
        target = next(p for i in range(1, 10**6) if not (p := path.with_name(f"{path.name}.aside-{i}")).exists())
        try:
            path.rename(target)
        except FileNotFoundError:
            return  # another process set it aside first
        except OSError as error:
            raise StoreError(f"{path} {reason}, and cannot be set aside ({error.strerror})") from error
        print(f"notice: {path.name} {reason}; set aside as {target.name}, {what} will be done again", flush=True)
