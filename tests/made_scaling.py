"""Measurements made for tests: rows as `profiling.workers` returns them, with throughputs that a test chooses."""

from __future__ import annotations

import numpy as np
import xarray as xr

from dolb import results
from dolb.profiling import curves
from dolb.profiling.config import ScalingConfig


def made_measurement(images_per_second=100.0, device="a machine", **changes) -> xr.Dataset:
    """Make the row of one measurement."""
    config = ScalingConfig(**{"experiment": "ddp-vs-horovod", "steps": 1, "warmup_steps": 0} | changes)
    values = {
        **config.as_dict(),
        "batch_size": config.batch_size,
        "key": config.key,
        "images_per_second": images_per_second,
        "step_seconds": config.batch_size / images_per_second,
        "parameters": 1000,
        "peak_memory_bytes": 1,
        **results.provenance(torch_version="2", device=device, engine="eager", data_fingerprint="sha256:made"),
    }
    row = xr.Dataset({name: ("run", np.array([value])) for name, value in values.items()})
    return row.set_coords([*config.as_dict(), "batch_size", "key"])


def made_measurements(speed, ranks=(1, 2, 4), repeats=3, libraries=("ddp", "horovod"), **changes) -> list[xr.Dataset]:
    """Make a row for every library, number of ranks and repetition, by a function of the three."""
    return [
        made_measurement(speed(library, count, repeat), library=library, ranks=count, repeat=repeat, **changes)
        for repeat in range(repeats)
        for library in libraries
        for count in ranks
    ]


def small_simulation() -> xr.Dataset:
    """Simulate the curves at every doubling, with a band of a few draws."""
    return curves.simulated(points_per_doubling=1, draws=4)
