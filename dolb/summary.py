"""From runs to the numbers a figure or a verdict needs: final accuracies, intervals, the preferred batch size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

LAST_EPOCHS = 5
CONFIDENCE = 0.95
_Z = float(stats.norm.ppf(0.5 + CONFIDENCE / 2))


def select(ds: xr.Dataset, keys: Iterable[str]) -> xr.Dataset:
    """Keep the runs of these keys, in their order in ``ds``; keys that have no run yet are passed over."""
    found = np.flatnonzero(np.isin(ds["key"].to_numpy().astype(str), list(keys)))
    if not len(found):
        raise ValueError("none of these runs is among the results; run `dolb sweep` and `dolb publish` first")
    return ds.isel(run=found)


def final_accuracy(ds: xr.Dataset, last: int = LAST_EPOCHS) -> pd.DataFrame:
    """Return a row per run with ``accuracy``, the mean over its last epochs, its ``updates`` and ``device_seconds``.

    With a constant rate the accuracy jumps from epoch to epoch, and the mean over a few epochs tells more than the
    last one. A run that diverged has the accuracy it had in the epoch in which it did. Device seconds are the run's
    share of the time in which it had the device with others.
    """
    names = [str(name) for name, variable in ds.variables.items() if variable.dims == ("run",)]
    frame = pd.DataFrame({name: ds[name].to_numpy() for name in names})
    series = ds["test_accuracy"].to_numpy()
    rows = [row[np.isfinite(row)] for row in series]
    window = np.where(frame["diverged"], 1, last)
    frame["accuracy"] = [float(row[-width:].mean()) for row, width in zip(rows, window, strict=True)]
    frame["device_seconds"] = frame["seconds"] / frame["concurrent_runs"]
    frame["updates"] = frame["epochs"] * np.ceil(frame["training_examples"] / frame["batch_size"]).astype(int)
    return frame


def over_seeds(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return mean accuracy, 95% interval (``low``, ``high``) and number of seeds ``n`` for each group.

    Where there are several seeds the interval is Student's for their mean. Where there is one it is the normal
    interval of a share of the test set: it says how well the accuracy of that one network is known, not how much
    another seed would differ. The column ``interval`` says which.
    """
    rows = []
    for values, group in frame.groupby(list(by), sort=True):
        accuracy = group["accuracy"].to_numpy()
        n, mean = len(accuracy), float(accuracy.mean())
        if n > 1:
            half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, n - 1) * accuracy.std(ddof=1) / np.sqrt(n))
            interval = f"over {n} seeds"
        else:
            half = _Z * float(np.sqrt(mean * (1 - mean) / group["test_examples"].iloc[0]))
            interval = "of the test set, one seed"
        extra = {
            "diverged": int(group["diverged"].sum()),
            "updates": int(group["updates"].iloc[0]),
            "device_seconds": float(group["device_seconds"].mean()),
        }
        key = dict(zip(by, values, strict=True))
        bounds = {"accuracy": mean, "low": mean - half, "high": mean + half, "n": n, "interval": interval}
        rows.append({**key, **bounds, **extra})
    return pd.DataFrame(rows)


def preferred_batch_size(cells: pd.DataFrame, by: Sequence[str] = ("arch", "lr")) -> pd.DataFrame:
    """Return, for each curve of ``over_seeds``, the batch size of the highest accuracy and those that may equal it.

    ``smallest`` to ``largest`` spans the batch sizes whose accuracy cannot be told from the best at 95%. ``rise`` and
    ``fall`` are what is lost at the ends of the curve against the best; ``rises`` and ``falls`` say whether that loss
    is larger than its uncertainty.
    """
    rows = []
    for values, curve in cells.groupby(list(by), sort=True):
        curve = curve.sort_values("batch_size")
        half = (curve["high"] - curve["low"]).to_numpy() / 2
        accuracy, sizes = curve["accuracy"].to_numpy(), curve["batch_size"].to_numpy()
        best = int(accuracy.argmax())
        loss = accuracy[best] - accuracy
        unclear = np.hypot(half, half[best])
        equal = sizes[loss <= unclear]
        rows.append(
            {
                **dict(zip(by, values, strict=True)),
                "batch_size": int(sizes[best]),
                "smallest": int(equal.min()),
                "largest": int(equal.max()),
                "accuracy": float(accuracy[best]),
                "rise": float(loss[0]),
                "fall": float(loss[-1]),
                "rises": bool(best > 0 and loss[0] > unclear[0]),
                "falls": bool(best < len(sizes) - 1 and loss[-1] > unclear[-1]),
                "measured_from": int(sizes[0]),
                "measured_to": int(sizes[-1]),
                "points": len(sizes),
            }
        )
    return pd.DataFrame(rows)
