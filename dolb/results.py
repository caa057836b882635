"""The schema of results, and how they are kept: saved whole or not at all, found by key, merged, validated.

A result is an xarray Dataset over ``run`` (and ``epoch``, ``event``, ``example``): every config field is a coordinate
on ``run``, measurements are variables. One run is one file in a store, named by the run's key; ``results/<slug>.nc``
holds many, merged. The names below are the only ones allowed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from dolb import __version__, sealed

ENGINE: Any = "h5netcdf"


class SchemaError(ValueError):
    """A Dataset that does not follow the schema; the message lists every fault."""


class StoreError(RuntimeError):
    """A store that cannot be used as asked; the message says why."""


@dataclass(frozen=True)
class Variable:
    """One name of the schema: where it lives, what kind of value it holds, and what it means."""

    dims: tuple[str, ...]
    kind: str  # "text", "int", "float" or "bool"
    meaning: str
    unit: str = ""
    role: str = "measured"  # "config", "measured", "provenance" or "benchmark"


def _on(dims: tuple[str, ...], role: str, rows: Mapping[str, tuple[str, ...]]) -> dict[str, Variable]:
    return {name: Variable(dims, kind, meaning, "".join(unit), role) for name, (kind, meaning, *unit) in rows.items()}


SCHEMA: dict[str, Variable] = {
    **_on(
        ("run",),
        "config",
        {
            "experiment": ("text", "slug of the experiment the run belongs to"),
            "data": ("text", "name of the data set"),
            "subset": ("text", "which training examples were used; `full` is all"),
            "arch": ("text", "name of the network"),
            "batch_size": ("int", "global batch size: examples in one update", "examples"),
            "lr": ("float", "base learning rate, before scaling with the batch"),
            "lr_scaling": ("text", "how the rate grows with the batch: none, linear, sqrt"),
            "base_batch_size": ("int", "batch size at which scaling leaves the rate as it is", "examples"),
            "warmup_epochs": ("float", "length of the gradual warmup", "epochs"),
            "decay": ("text", "how the rate falls after warmup"),
            "optimizer": ("text", "update rule"),
            "momentum": ("float", "momentum coefficient"),
            "weight_decay": ("float", "L2 coefficient"),
            "label_smoothing": ("float", "share of the target spread over all classes"),
            "epochs": ("int", "passes over the training set", "epochs"),
            "bn_workers": ("int", "shares of the batch over which batch-norm statistics are taken"),
            "augment": ("text", "random changes to training images"),
            "precision": ("text", "arithmetic of the network: fp32, or bf16 with fp32 weights"),
            "seed": ("int", "seed of initial weights, order and augmentation"),
        },
    ),
    **_on(
        ("run",),
        "measured",
        {
            "diverged": ("bool", "the training loss stopped being finite; the run was ended there"),
            "images_per_second": ("float", "training throughput of this run, evaluation left out", "images/s"),
            "seconds": ("float", "wall-clock time of training and evaluation, set-up left out", "s"),
            "peak_memory_bytes": ("int", "peak memory: of the device per run, or of the process on a CPU", "bytes"),
            "concurrent_runs": ("float", "runs on the device meanwhile, this one counted, mean over epochs"),
            "parameters": ("int", "trainable parameters of the network"),
            "training_examples": ("int", "examples in the training set after the subset was taken", "examples"),
            "test_examples": ("int", "examples in the test set", "examples"),
        },
    ),
    **_on(
        ("run",),
        "provenance",
        {
            "key": ("text", "hash of the config fields that differ from their defaults"),
            "dolb_version": ("text", "version of this package"),
            "commit": ("text", "commit of this package"),
            "torch_version": ("text", "version of torch"),
            "device": ("text", "name of the device"),
            "engine": ("text", "how steps were run: eager, or graph for captured CUDA graphs"),
            "world_size": ("int", "processes that trained together"),
            "data_fingerprint": ("text", "sha256 of the training and test examples"),
            "source": ("text", "measured or simulated"),
        },
    ),
    **_on(
        ("run",),
        "benchmark",
        {
            "benchmark": ("text", "what is timed, such as `training step`"),
            "program": ("text", "which implementation was timed"),
            "repeat": ("int", "number of the repetition, from 0"),
            "step_seconds": ("float", "wall-clock time of one step, median over the steps of the repetition", "s"),
        },
    ),
    **_on(
        ("run", "epoch"),
        "measured",
        {
            "train_loss": ("float", "mean training loss over the epoch, as the weights moved", "nats"),
            "test_loss": ("float", "mean test loss after the epoch", "nats"),
            "test_accuracy": ("float", "share of test examples classified correctly after the epoch, 0 to 1"),
            "learning_rate": ("float", "rate of the last update of the epoch"),
        },
    ),
    **_on(
        ("example",),
        "measured",
        {
            "label": ("int", "class of the example"),
            "keep": ("bool", "the example stays in the training set"),
            "x": ("float", "first coordinate on the map"),
            "y": ("float", "second coordinate on the map"),
        },
    ),
    **_on(
        ("event",),
        "measured",
        {
            "rank": ("int", "process"),
            "lane": ("text", "track of the event: compute, communication, negotiation, ..."),
            "name": ("text", "what ran"),
            "start_us": ("float", "start", "us"),
            "end_us": ("float", "end", "us"),
            "bytes": ("int", "bytes moved", "bytes"),
        },
    ),
}

_PROVENANCE = ("dolb_version", "commit", "torch_version", "device", "source")

# What a Dataset must hold, by the dimension or name that tells what it is; a Dataset may be several of these.
REQUIRED: dict[str, tuple[str, ...]] = {
    "epoch": tuple(
        name
        for name, variable in SCHEMA.items()
        if variable.dims in (("run",), ("run", "epoch")) and variable.role != "benchmark"
    ),
    "benchmark": ("program", "repeat", "arch", "batch_size", "precision", "images_per_second", *_PROVENANCE),
    "example": ("label", "keep"),
    "event": ("rank", "lane", "name", "start_us", "end_us"),
}
_KINDS = {"text": "UOTS", "int": "iu", "float": "f", "bool": "b"}


def validate(ds: xr.Dataset) -> xr.Dataset:
    """Return ``ds`` unchanged if it follows the schema, else raise a ``SchemaError`` with every fault."""
    faults = []
    kinds = [kind for kind in REQUIRED if kind in ds.dims or kind in ds]
    for kind in kinds:
        faults += [f"{name} is missing (a Dataset with {kind!r} needs it)" for name in REQUIRED[kind] if name not in ds]
    if not kinds:
        faults.append(f"dims {sorted(map(str, ds.dims))} tell no kind of result; expected one of {sorted(REQUIRED)}")
    for name in map(str, ds.variables):
        if name in ds.dims:
            continue
        if name not in SCHEMA:
            faults.append(f"{name} is not a name of the schema")
            continue
        want, have = SCHEMA[name], ds[name]
        if tuple(have.dims) != want.dims:
            faults.append(f"{name} has dims {tuple(have.dims)}, expected {want.dims}")
        if have.dtype.kind not in _KINDS[want.kind]:
            faults.append(f"{name} has dtype {have.dtype}, expected {want.kind}")
    if not faults and "epoch" in ds.dims:
        faults += _range_faults(ds)
    if faults:
        raise SchemaError("; ".join(faults))
    return ds


def _range_faults(ds: xr.Dataset) -> list[str]:
    faults = []
    accuracy = ds["test_accuracy"].values
    if np.nanmin(accuracy, initial=0.0) < 0 or np.nanmax(accuracy, initial=0.0) > 1:
        faults.append("test_accuracy lies outside 0 to 1 (it is a fraction, not a percentage)")
    bad = sorted(set(map(str, ds["source"].values)) - {"measured", "simulated"})
    if bad:
        faults.append(f"source has {bad}; accepted: measured, simulated")
    keys = list(map(str, ds["key"].values))
    if len(set(keys)) != len(keys):
        faults.append("two runs have the same key")
    if not np.isfinite(ds["test_accuracy"].isel(epoch=0).values).all():
        faults.append("a run has no accuracy for its first epoch")
    return faults


def run_dataset(run: Mapping[str, Any], by_epoch: Mapping[str, np.ndarray]) -> xr.Dataset:
    """Make the Dataset of one training run from its ``run`` values and its per-epoch series."""
    epochs = len(next(iter(by_epoch.values())))
    values = {name: ("run", np.array([value])) for name, value in run.items()}
    coords = {name: value for name, value in values.items() if SCHEMA[name].role == "config" or name == "key"}
    series = {name: (("run", "epoch"), np.asarray(row, dtype="float32")[None]) for name, row in by_epoch.items()}
    measured = {name: value for name, value in values.items() if name not in coords}
    return describe(xr.Dataset({**series, **measured}, {**coords, "epoch": np.arange(1, epochs + 1)}))


def describe(ds: xr.Dataset) -> xr.Dataset:
    """Write the schema's meaning and unit into the attributes of every variable."""
    for name in map(str, ds.variables):
        if name in SCHEMA:
            ds[name].attrs = {"long_name": SCHEMA[name].meaning, "units": SCHEMA[name].unit or "1"}
    return ds


def merge(parts: Iterable[xr.Dataset]) -> xr.Dataset:
    """Join runs into one Dataset; of two runs with one key the later wins, and shorter runs are padded with NaN."""
    by_key: dict[str, xr.Dataset] = {}
    for part in parts:
        for position, key in enumerate(map(str, np.atleast_1d(part["key"].values))):
            by_key[key] = part.isel(run=[position])
    if not by_key:
        raise SchemaError("there is no run to merge")
    merged = xr.concat(by_key.values(), "run", join="outer", coords="minimal", compat="equals", data_vars="all")
    return describe(merged)


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
    return validate(xr.load_dataset(path, engine=ENGINE))


def published(slug: str) -> xr.Dataset:
    """Load ``results/<slug>.nc`` from ``DOLB_RESULTS``, from here, the folder above, or this package's checkout."""
    folders = [Path("results"), Path("../results"), Path(__file__).resolve().parents[1] / "results"]
    if os.environ.get("DOLB_RESULTS"):
        folders.insert(0, Path(os.environ["DOLB_RESULTS"]))
    found = next((folder / f"{slug}.nc" for folder in folders if (folder / f"{slug}.nc").is_file()), None)
    return load(found or folders[0] / f"{slug}.nc")


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
    if "epoch" in ds.dims:
        device_seconds = float((ds["seconds"] / ds["concurrent_runs"]).sum())
        info |= {
            "networks": values("arch"),
            "data": f"{values('data')} ({values('data_fingerprint')})",
            "seeds": values("seed"),
            "device time": f"{device_seconds:,.0f} s in training and evaluation",
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
            self._set_aside(path, f"cannot be read back ({error})")
            return None
        if data_fingerprint is not None and str(ds["data_fingerprint"].item()) != data_fingerprint:
            self._set_aside(path, "was made from other data")
            return None
        return ds

    def put(self, ds: xr.Dataset) -> Path:
        """Save one finished run under its key."""
        return save(ds, self.path(str(ds["key"].item())))

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

    def _set_aside(self, path: Path, reason: str) -> None:
        target = next(p for i in range(1, 10**6) if not (p := path.with_name(f"{path.name}.aside-{i}")).exists())
        try:
            path.rename(target)
        except FileNotFoundError:
            return  # another process set it aside first
        except OSError as error:
            raise StoreError(f"{path} {reason}, and cannot be set aside ({error.strerror})") from error
        print(f"notice: {path.name} {reason}; set aside as {target.name}, the run will be done again", flush=True)


@lru_cache(maxsize=1)
def commit() -> str:
    """Return this package's commit, with ``+changes`` where the tree differs from it; ``DOLB_COMMIT`` overrides."""
    if os.environ.get("DOLB_COMMIT"):
        return os.environ["DOLB_COMMIT"]
    here = Path(__file__).resolve().parent
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
