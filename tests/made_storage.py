"""Measurements of storage made for tests: rows as `profiling.storage.sweep` returns them, with numbers of a test."""

import math

import numpy as np
import xarray as xr

from dolb import results
from dolb.profiling.config import FORMATS, StorageConfig


def made_measurement(
    images_per_second=math.nan, starved=math.nan, calls=math.nan, read=math.nan, **changes
) -> xr.Dataset:
    config = StorageConfig(**{"experiment": "data-pipeline"} | changes)
    values = {
        **config.as_dict(), "key": config.key, "images_per_second": images_per_second, "starved": starved,
        "trainer_images_per_second": images_per_second / (1 - starved), "syscalls_per_image": calls,
        "read_bytes_per_image": read, "image_bytes": 100.0, "cooled_by": "drop_caches", "file_system": "ext4",
        "cores": 2, "seconds": 1.0, "parameters": 0,
        **results.provenance(torch_version="2", device="a machine", engine="eager", data_fingerprint="sha256:made"),
    }  # fmt: skip
    row = xr.Dataset({name: ("run", np.array([value])) for name, value in values.items()})
    return results.validate(row.set_coords([*config.as_dict(), "key"]))


def made_reading(speed, formats=FORMATS, seeds=3, workers=(1, 4), **changes) -> list[xr.Dataset]:
    """Make a row for every form, order, cache, number of processes and seed, by a function of these."""
    return [
        made_measurement(
            speed(form, access, cache, count, seed),
            storage=form, access=access, cache=cache, loader_workers=count, seed=seed, **changes,
        )
        for seed in range(seeds) for access in ("random", "sequential") for cache in ("cold", "warm")
        for count in workers for form in formats
    ]  # fmt: skip


def made_training(share, formats=FORMATS, seeds=3, **changes) -> list[xr.Dataset]:
    """Make a row for every form, order and seed that a trainer was fed from, by a function of these."""
    return [
        made_measurement(
            100.0, share(form, access, seed), task="training", storage=form, access=access, seed=seed, **changes
        )
        for seed in range(seeds) for access in ("random", "sequential") for form in formats
    ]  # fmt: skip


def made_counts(formats=FORMATS) -> list[xr.Dataset]:
    """Make a row of counts for every form, and one of decoding."""
    counts = [made_measurement(task="counting", storage=form, calls=6.5, read=150.0) for form in formats]
    return [*counts, *(made_measurement(300.0, task="decoding", storage=form) for form in formats)]
