"""Where results come from: recorded with each run, and gathered for the panel under a figure."""

import os
import platform
import subprocess
from functools import lru_cache
from pathlib import Path

import numpy as np
import xarray as xr

from dolb import __version__


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


def device_seconds(ds: xr.Dataset) -> xr.DataArray:
    """Return the seconds for which each run had the device, with others its part of the time; set-up left out.

    The part is ``device_share`` where that was recorded. Where not, the runs that had the device count alike, which
    takes from a large run what it had beside small ones. A landscape is measured alone, after the training.
    """
    alike = 1 / ds["concurrent_runs"]
    trained = ds["seconds"] * (ds["device_share"].fillna(alike) if "device_share" in ds else alike)
    return trained + ds["landscape_seconds"].fillna(0) if "landscape_seconds" in ds else trained


def provenance_of(ds: xr.Dataset) -> dict[str, str]:
    """Return what was run, by name, for the panel under a figure; several values with commas."""

    def values(name: str) -> str:
        return ", ".join(sorted(set(map(str, np.unique(ds[name].values))))) if name in ds else "not recorded"

    names = {
        "source": "source",
        "device": "device",
        "torch": "torch_version",
        "dolb": "dolb_version",
        "commit": "commit",
    }
    if {"epoch", "update", "example", "method"} & set(ds.dims) or "library" in ds or "storage" in ds:
        names |= {"networks": "arch", "data": "data", "data fingerprint": "data_fingerprint", "seeds": "seed"}
    if {"epoch", "update"} & set(ds.dims):
        names |= {"engine": "engine", "precision": "precision"}
    if "map_seed" in ds:
        names["seeds of t-SNE"] = "map_seed"
    info = {"runs": str(ds.sizes["run"])} | {shown: values(name) for shown, name in names.items()}
    if "map_seed" in ds:  # training left out; what several share counts for each
        info["seconds"] = f"{np.nansum(ds['seconds']):,.0f}"
    if "epoch" in ds.dims:
        info["device seconds"] = f"{float(device_seconds(ds).sum()):,.0f}"
    return info
