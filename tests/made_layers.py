"""Layer times made by hand, in the shape of measured ones: for tests of what reads them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from benchmarks import layer_times
from dolb import results
from dolb.profiling.simulator import tensors


def made_times(
    archs: Sequence[str], device: str = "NVIDIA H200", batch: int = 32, precision: str = "fp32"
) -> xr.Dataset:
    """Return times of networks that train 1,000 images a second, spread at random over tensors, 40% of them forward."""
    return layer_times.replace(None, [_made(arch, device, batch, precision) for arch in archs])


def _made(arch: str, device: str, batch: int, precision: str) -> xr.Dataset:
    table, whole = tensors.work(arch), batch / 1000
    rng = np.random.default_rng(len(table))
    forward, backward = (part / part.sum() for part in rng.exponential(size=(2, len(table))))
    step = tensors.Tensors(
        tuple(table["name"]), table["bytes"].to_numpy(), 0.4 * whole * forward, 0.6 * whole * backward
    )
    about = {
        "arch": arch, "batch_size_per_rank": batch, "image_size": 224, "num_classes": 1000, "precision": precision,
        "images_per_second": batch / whole, "passes": 1,
        **results.provenance(torch_version="2", device=device, engine="eager", data_fingerprint="none: made"),
    }  # fmt: skip
    return layer_times.to_dataset(layer_times.Timing(step, np.zeros(len(step)), whole, 0.0, whole), about)
