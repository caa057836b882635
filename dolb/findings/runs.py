"""From a Dataset of runs to a table of runs: which of them, their final accuracy, how many updates they made."""

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
    """Keep the runs whose config has one of these values, by the schema's names; None keeps all.

    A value that no measured run has is refused.
    """
    kept, measured = np.ones(ds.sizes["run"], dtype=bool), ds["source"].to_numpy() == "measured"
    asked = {name: np.atleast_1d(value) for name, value in values.items() if value is not None}
    for name, accepted in asked.items():
        kept &= np.isin(ds[name].to_numpy(), accepted)
    there = {name: np.isin(accepted, ds[name].to_numpy()[measured]) for name, accepted in asked.items()}
    lacking = {name: asked[name][~found] for name, found in there.items() if not found.all()}
    if lacking or not (kept & measured).any():
        words = ", ".join(f"{name} {accepted.tolist()}" for name, accepted in (lacking or asked).items())
        known = "; ".join(
            f"{name} {', '.join(map(str, np.unique(ds[name].to_numpy()[measured])))}" for name in lacking or asked
        )
        raise ValueError(f"no published run has {words}; published: {known}")
    return keep(ds, kept)


def keep(ds: xr.Dataset, kept: np.ndarray) -> xr.Dataset:
    """Keep these runs, with their events if there are any."""
    if "run_number" in ds:
        number = ds["run_number"].to_numpy()
        ds = ds.assign(run_number=("event", np.cumsum(kept)[number] - 1)).isel(event=np.flatnonzero(kept[number]))
    return ds.isel(run=np.flatnonzero(kept))


def table(ds: xr.Dataset, dim: str = "run") -> pd.DataFrame:
    """Return all that a Dataset has for each of its runs, or events, as a table."""
    return pd.DataFrame({str(name): one.to_numpy() for name, one in ds.variables.items() if one.dims == (dim,)})


def final_accuracy(ds: xr.Dataset, last: int = LAST_EPOCHS) -> pd.DataFrame:
    """Return a row per run with ``accuracy``, ``late_drop``, ``updates``, ``epochs_done`` and ``device_seconds``.

    The accuracy is the mean over its last epochs, as with a constant rate it jumps from one to the next; of a run that
    diverged, that of its last. ``late_drop`` says whether one of its last `LATE_EPOCHS` epochs lies more than
    `LATE_DROP` below the best before it: the accuracy then says as much of that one accident as of the setting.
    """
    frame = table(ds)
    rows = [row[np.isfinite(row)] for row in ds["test_accuracy"].to_numpy()]
    window = np.where(frame["diverged"], 1, last)
    frame["accuracy"] = [float(row[-width:].mean()) for row, width in zip(rows, window, strict=True)]
    below = [np.maximum.accumulate(row) - row for row in rows]
    frame["late_drop"] = [bool((row[-LATE_EPOCHS:] > LATE_DROP).any()) for row in below]
    frame["jitter"] = np.where(frame["diverged"], 0.0, [jitter(row, last) for row in rows])
    frame["epochs_done"] = [len(row) for row in rows]  # fewer than its epochs where it diverged
    frame["device_seconds"] = results.device_seconds(ds).to_numpy()
    frame["updates"] = frame["epochs"] * epoch_updates(frame)
    return frame


def epoch_updates(frame: pd.DataFrame) -> pd.Series:
    """Return the updates of an epoch: the rest of the data is a batch, unless it is one example or is dropped."""
    full, rest = frame["training_examples"] // frame["batch_size"], frame["training_examples"] % frame["batch_size"]
    dropped = frame.get("drop_last", False)
    return (full + ((rest > 1) & ~np.asarray(dropped, dtype=bool))).astype(int)


def reached(ds: xr.Dataset) -> dict[str, float]:
    """Return the accuracy of each run's last epoch by the run's key, 0 for one that diverged."""
    frame = final_accuracy(ds, last=1)
    accuracy = frame["accuracy"].mask(frame["diverged"].astype(bool), 0.0)
    return dict(zip(map(str, frame["key"]), map(float, accuracy), strict=True))


def jitter(accuracy: np.ndarray, averaged: int) -> float:
    """Return by how much the mean of a run's last epochs differs by chance, as its epochs differ from one another.

    The deviation of an epoch is taken from differences of neighbours among twice as many, which a trend hardly moves.
    """
    steps = np.diff(accuracy[-2 * averaged :])
    return float(np.sqrt(np.mean(np.square(steps)) / 2 / averaged)) if len(steps) else 0.0
