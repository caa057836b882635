"""Results, and how they are kept: saved whole or not at all, found by key, merged, validated by the schema.

A result is an xarray Dataset over ``run`` (and ``epoch``, ``event``, ``example``): every config field is a coordinate
on ``run``, measurements are variables. One run is one file in a store, named by the run's key; ``results/<slug>.nc``
holds many, merged.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray as xr

from dolb import __version__
from dolb.results import sealed
from dolb.results.schema import LATER, NUMBERED, REQUIRED, SCHEMA, SchemaError, describe, dims_of, validate

__all__ = [
    "LATER", "REQUIRED", "SCHEMA", "RunStore", "SchemaError", "StoreError", "commit", "describe", "device_seconds",
    "load", "merge", "provenance", "provenance_of", "published", "published_file", "published_folder", "published_or_none",
    "run_dataset", "save", "split", "validate",
]  # fmt: skip

ENGINE: Any = "h5netcdf"


class StoreError(RuntimeError):
    """A store that cannot be used as asked; the message says why."""


def run_dataset(run: Mapping[str, Any], by_epoch: Mapping[str, np.ndarray]) -> xr.Dataset:
    """Make the Dataset of one training run from its ``run`` values and its per-epoch series."""
    epochs = len(next(iter(by_epoch.values())))
    values = {name: ("run", np.array([value])) for name, value in run.items()}
    coords = {name: value for name, value in values.items() if SCHEMA[name].role == "config" or name == "key"}
    series = {name: (("run", "epoch"), np.asarray(row, dtype="float32")[None]) for name, row in by_epoch.items()}
    measured = {name: value for name, value in values.items() if name not in coords}
    return describe(xr.Dataset({**series, **measured}, {**coords, "epoch": np.arange(1, epochs + 1)}))


def merge(parts: Iterable[xr.Dataset]) -> xr.Dataset:
    """Join runs into one Dataset; of two runs with one key the later wins, and shorter runs are padded with NaN.

    Runs from before a text of their config had its name have it empty, as by its default, and masks what they were
    made with (``schema.LATER``).
    """
    parts = list(parts)
    where: dict[str, tuple[int, int]] = {}  # part and position of each run, in the order in which keys first come
    for number, part in enumerate(parts):
        where |= {str(key): (number, position) for position, key in enumerate(part["key"].to_numpy())}
    if not where:
        raise SchemaError("there is no run to merge")
    chosen = [[position for at, position in where.values() if at == number] for number in range(len(parts))]
    # Whole parts at a time: run by run, a thousand take a minute.
    blocks = [part.isel(run=positions) for part, positions in zip(parts, chosen, strict=True) if positions]
    blocks = _with_all_names([block.drop_dims("event", errors="ignore") for block in blocks])
    merged = xr.concat(blocks, "run", join="outer", coords="minimal", compat="equals", data_vars="all")
    came = [(number, position) for number, positions in enumerate(chosen) for position in positions]
    rank = {place: k for k, place in enumerate(came)}
    merged = merged.isel(run=[rank[place] for place in where.values()])
    if any("event" in part.dims for part in parts):
        merged = merged.assign(_joined_events(parts, list(where.values())))
    return describe(merged)


def _with_all_names(blocks: list[xr.Dataset]) -> list[xr.Dataset]:
    """Return the runs, each with every text over ``run`` that one of them has as a coordinate, and what came later."""
    names = {str(name) for one in blocks for name, values in one.coords.items() if values.dims == ("run",)}
    known: dict[str, Any] = {name: "" for name in names if name in SCHEMA and SCHEMA[name].kind == "text"}
    known |= {name: value for name, value in LATER.items() if name in names}
    return [
        one.assign_coords({name: ("run", [known[name]] * one.sizes["run"]) for name in known if name not in one})
        for one in blocks
    ]


def split(ds: xr.Dataset) -> list[xr.Dataset]:
    """Return every run as a Dataset of its own, with the events that are its own."""
    if "run_number" not in ds:
        return [ds.isel(run=[position]) for position in range(ds.sizes["run"])]
    numbers = ds["run_number"].to_numpy()
    runs = [ds.isel(run=[k], event=np.flatnonzero(numbers == k)) for k in range(ds.sizes["run"])]
    return [one.assign(run_number=one["run_number"] * 0) for one in runs]  # each is the first of its own Dataset


def _joined_events(parts: Sequence[xr.Dataset], places: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Return the events of the runs at these places, a part and a position in it, each with the number of its run."""
    tables = []
    for number, (at, position) in enumerate(places):
        if "event" not in parts[at].dims:
            continue
        events = parts[at].drop_dims(set(parts[at].dims) - {"event"})
        if "run_number" in events:
            events = events.isel(event=np.flatnonzero(events["run_number"].to_numpy() == position))
        tables.append(events.assign(run_number=("event", np.full(events.sizes["event"], number))))
    joined = xr.concat(tables, "event")
    return {str(name): variable for name, variable in joined.data_vars.items()}


def save(ds: xr.Dataset, path: str | Path) -> Path:
    """Validate and write a Dataset so that ``path`` holds all of it or is untouched."""
    validate(ds)
    path = Path(path)
    encoding = {
        str(name): {"zlib": True, "complevel": 6, "fletcher32": True}
        for name, variable in ds.variables.items()
        if variable.dtype.kind in "iufb" and variable.ndim
    }
    sealed.write(path, lambda temporary: ds.to_netcdf(temporary, engine=ENGINE, encoding=encoding))
    return path


def load(path: str | Path) -> xr.Dataset:
    """Read a Dataset whole into memory and validate it."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"no results at {path}; make them with `dolb sweep` and `dolb publish`")
    sealed.check(Path(path))
    return validate(_read(Path(path)))


def _read(path: Path) -> xr.Dataset:
    """Read a file with h5py: the schema knows the dimensions, and xarray's own way takes four times as long."""
    variables, coordinates = {}, set(NUMBERED)
    with h5py.File(path) as file:
        for name, item in file.items():
            if item.attrs.get("NAME", b"").startswith(b"This is a netCDF dimension but not a netCDF variable"):
                continue
            if name not in NUMBERED and name not in SCHEMA:
                return xr.load_dataset(path, engine=ENGINE)  # not one of ours; `validate` says why
            values = np.array(item.asstr()[...], dtype=str) if h5py.check_string_dtype(item.dtype) else item[...]
            values = values.astype(bool) if item.attrs.get("dtype") == "bool" else values
            variables[name] = (dims_of(name, values.ndim) if name in SCHEMA else (name,), values)
            coordinates.update(str(item.attrs.get("coordinates", "")).split())
        coordinates.update(str(file.attrs.get("coordinates", "")).split())
        attributes = {key: value for key, value in file.attrs.items() if key not in ("_NCProperties", "coordinates")}
    return describe(xr.Dataset(variables, attrs=attributes).set_coords(coordinates & set(variables)))


def published(slug: str) -> xr.Dataset:
    """Load ``results/<slug>.nc`` from where ``published_file`` finds it."""
    return load(published_file(f"{slug}.nc"))


def published_or_none(slug: str) -> xr.Dataset | None:
    """Load ``results/<slug>.nc``, or return None where there is none yet."""
    return published(slug) if published_file(f"{slug}.nc").is_file() else None


def published_file(name: str) -> Path:
    """Return a file of ``results``: of ``DOLB_RESULTS``, here, in the folder above, or in this package's checkout.

    If there is none, it is the path at which it was looked for first.
    """
    return next((folder / name for folder in _folders() if (folder / name).is_file()), _folders()[0] / name)


def published_folder() -> Path:
    """Return the folder of published results: that of ``DOLB_RESULTS``, here, above, or this package's checkout's."""
    return next((folder for folder in _folders() if any(folder.glob("*.nc"))), _folders()[0])


def _folders() -> list[Path]:
    named = [Path(os.environ["DOLB_RESULTS"])] if os.environ.get("DOLB_RESULTS") else []
    return [*named, Path("results"), Path("../results"), Path(__file__).resolve().parents[2] / "results"]


def device_seconds(ds: xr.Dataset) -> xr.DataArray:
    """Return the seconds for which each run had the device, with others its part of the time; set-up left out.

    The part is ``device_share`` where that was recorded. Where not, the runs that had the device count alike, which
    takes from a large run what it had beside small ones.
    """
    alike = 1 / ds["concurrent_runs"]
    return ds["seconds"] * (ds["device_share"].fillna(alike) if "device_share" in ds else alike)


def provenance_of(ds: xr.Dataset) -> dict[str, str]:
    """Say in words what was run, for the panel under a figure."""

    def values(name: str) -> str:
        return ", ".join(sorted(set(map(str, np.unique(ds[name].values))))) if name in ds else "not recorded"

    info = {
        "runs": f"{ds.sizes['run']} ({values('source')})",
        "device": values("device"),
        "torch": values("torch_version"),
        "dolb": values("dolb_version"),
        "commit": values("commit"),
    }
    if {"epoch", "example"} & set(ds.dims) or "library" in ds:
        info |= {
            "networks": values("arch"),
            "data": f"{values('data')} ({values('data_fingerprint')})",
            "seeds": values("seed"),
        }
    if "map_seed" in ds:
        spent = f"{np.nansum(ds['seconds']):,.0f} s without training; what several share counts for each"
        info |= {"seeds of t-SNE": values("map_seed"), "time": spent}
    if "epoch" in ds.dims:
        info |= {
            "device time": f"{float(device_seconds(ds).sum()):,.0f} s in training and evaluation",
            "engine": values("engine"),
            "precision": values("precision"),
        }
    return info


class RunStore:
    """A folder with one file per finished run, which several processes may use at once."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)

    def path(self, key: str) -> Path:
        """Return where the run of that key is, or would be."""
        return self.folder / f"{key}.nc"

    def keys(self) -> list[str]:
        """Return the keys of the finished runs."""
        return sorted(path.stem for path in self.folder.glob("*.nc"))

    def get(self, key: str, data_fingerprint: str | None = None) -> xr.Dataset | None:
        """Return a finished run, or None; a file that does not read back, or is of other data, is set aside."""
        path = self.path(key)
        if not path.exists():
            return None
        try:
            ds = load(path)
            if list(map(str, ds["key"].values)) != [key]:
                raise SchemaError(f"the file holds runs {list(ds['key'].values)}")
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
        for row, key in enumerate(map(str, ds["key"].values)):
            measured = "source" not in ds or str(ds["source"].values[row]) == "measured"
            if measured and (keys is None or key in keys) and not self.path(key).exists():
                self.put(ds.isel(run=[row]))
                new += 1
        return new

    def check_writable(self) -> None:
        """Raise a ``StoreError`` now if runs could not be saved later."""
        try:
            (self.folder / "locks").mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, prefix=".probe."):
                pass
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


@lru_cache(maxsize=1)
def commit() -> str:
    """Return this package's commit, with ``+changes`` where the tree differs from it; ``DOLB_COMMIT`` overrides."""
    if os.environ.get("DOLB_COMMIT"):
        return os.environ["DOLB_COMMIT"]
    here = Path(__file__).resolve().parents[1]
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=True)
        dirty = subprocess.run(["git", "status", "--porcelain", "--", "."], cwd=here, capture_output=True, text=True)
        return head.stdout.strip() + ("+changes" if dirty.stdout.strip() else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def provenance(*, torch_version: str, device: str, engine: str, data_fingerprint: str, world_size: int = 1) -> dict:
    """Return the provenance values of a run that was measured here."""
    return {
        "dolb_version": __version__,
        "commit": commit(),
        "torch_version": torch_version,
        "device": device or platform.processor() or platform.machine(),
        "engine": engine,
        "world_size": world_size,
        "data_fingerprint": data_fingerprint,
        "source": "measured",
    }
