"""From a Dataset of runs to a table of runs: which of them, their final accuracy, how many updates they made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from dolb import results

LAST_EPOCHS = 5
LATE_EPOCHS = 10  # the last epochs, in which a run that collapses has little time to recover
LATE_DROP = 0.15  # of accuracy, below the best epoch before: several times what one epoch differs from the next
AT_CHANCE = 0.12  # an accuracy at which a network of ten classes has learned next to nothing


def narrow(ds: xr.Dataset, **values: Any) -> xr.Dataset:
    """Keep the runs whose config has one of these values, by the schema's names; None keeps all."""
    kept = np.ones(ds.sizes["run"], dtype=bool)
    asked = {name: np.atleast_1d(value) for name, value in values.items() if value is not None}
    for name, accepted in asked.items():
        kept &= np.isin(ds[name].to_numpy(), accepted)
    if not kept.any():
        words = ", ".join(f"{name} {accepted.tolist()}" for name, accepted in asked.items())
        known = "; ".join(f"{name} {', '.join(map(str, np.unique(ds[name])))}" for name in asked)
        raise ValueError(f"no published run has {words}; published: {known}")
    return ds.isel(run=np.flatnonzero(kept))


def final_accuracy(ds: xr.Dataset, last: int = LAST_EPOCHS) -> pd.DataFrame:
    """Return a row per run with ``accuracy``, ``late_drop``, ``updates``, ``epochs_done`` and ``device_seconds``.

    The accuracy is the mean over its last epochs: with a constant rate it jumps from epoch to epoch, and the mean over
    a few tells more than the last one. A run that diverged has the accuracy it had in the epoch in which it did, the
    last that counts as done. ``late_drop`` says whether one of its last `LATE_EPOCHS` epochs lies more than `LATE_DROP`
    below the best epoch before it: the accuracy is then that of a run on its way back, and says as much of that one
    accident as of the setting. Device seconds are those of `results.device_seconds`.
    """
    names = [str(name) for name, variable in ds.variables.items() if variable.dims == ("run",)]
    frame = pd.DataFrame({name: ds[name].to_numpy() for name in names})
    series = ds["test_accuracy"].to_numpy()
    rows = [row[np.isfinite(row)] for row in series]
    window = np.where(frame["diverged"], 1, last)
    frame["accuracy"] = [float(row[-width:].mean()) for row, width in zip(rows, window, strict=True)]
    frame["late_drop"] = [_drops_late(row) for row in rows]
    frame["jitter"] = np.where(frame["diverged"], 0.0, [jitter(row, last) for row in rows])
    frame["epochs_done"] = [len(row) for row in rows]  # fewer than its epochs where it diverged
    frame["device_seconds"] = results.device_seconds(ds).to_numpy()
    # The rest of the data is a batch of its own, unless it is one example, which joins the last.
    full, rest = frame["training_examples"] // frame["batch_size"], frame["training_examples"] % frame["batch_size"]
    frame["updates"] = (frame["epochs"] * (full + (rest > 1))).astype(int)
    return frame


def reached(ds: xr.Dataset) -> dict[str, float]:
    """Return the accuracy of each run's last epoch by the run's key, 0 for one that diverged."""
    frame = final_accuracy(ds, last=1)
    accuracy = frame["accuracy"].mask(frame["diverged"].astype(bool), 0.0)
    return dict(zip(map(str, frame["key"]), map(float, accuracy), strict=True))


def _drops_late(accuracy: np.ndarray) -> bool:
    below = np.maximum.accumulate(accuracy) - accuracy
    return bool((below[-LATE_EPOCHS:] > LATE_DROP).any())


def jitter(accuracy: np.ndarray, averaged: int) -> float:
    """Return by how much the mean of a run's last epochs differs by chance, as its epochs differ from one another.

    The deviation of an epoch is taken from differences of neighbours among twice as many, which a trend hardly moves.
    """
    steps = np.diff(accuracy[-2 * averaged :])
    return float(np.sqrt(np.mean(np.square(steps)) / 2 / averaged)) if len(steps) else 0.0
