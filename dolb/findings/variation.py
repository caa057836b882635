"""How far accuracies of one setting differ from seed to seed: by batch size, and as an error bar of a figure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from dolb import findings as summary
from dolb.findings import filtered

_CELL = (*filtered.CELL, "epochs")


class Variation(NamedTuple):
    """The ratio of two variances with its interval, each with its degrees of freedom, and deviations by batch size."""

    ratio: float
    low: float
    high: float
    large: float  # the standard deviation of the large batches
    small: float
    freedom: tuple[int, int]  # of the large, of the small
    by_size: dict[int, float]


def variation(ds: xr.Dataset, border: int) -> Variation | None:
    """Return how much more accuracy varies between seeds from batch size ``border`` on than below it; None of one side.

    A variance is of the runs of one set, batch size, weight decay and number of epochs, so that each run counts once,
    and pooled over these cells; the interval of the ratio is that of the F distribution.
    """
    grouped = filtered.every_run(ds).groupby(list(_CELL))["accuracy"]
    table = pd.DataFrame({"variance": grouped.var(ddof=1), "freedom": grouped.size() - 1}).reset_index()
    table = table[table["freedom"] > 0]
    is_large = table["batch_size"] >= border
    if is_large.all() or not is_large.any():
        return None
    (large, above), (small, below) = _pooled(table[is_large]), _pooled(table[~is_large])
    ratio = large / small if small > 0 else float("nan")
    tails = (1 + summary.CONFIDENCE) / 2, (1 - summary.CONFIDENCE) / 2
    low, high = (ratio / float(stats.f.ppf(tail, above, below)) for tail in tails)
    sizes = sorted(set(table["batch_size"].astype(int)))
    by_size = {size: float(np.sqrt(_pooled(table[table["batch_size"] == size])[0])) for size in sizes}
    return Variation(ratio, low, high, float(np.sqrt(large)), float(np.sqrt(small)), (above, below), by_size)


def _pooled(table: pd.DataFrame) -> tuple[float, int]:
    return float(np.average(table["variance"], weights=table["freedom"])), int(table["freedom"].sum())


def beside_bars(frame: pd.DataFrame, one: str, other: str) -> pd.DataFrame:
    """Return by batch size the mean accuracy on one set less that on the other, and the other's error bar.

    ``bar`` is the standard deviation over its runs, of which there are ``n``, two at the least. ``by_chance`` is how
    often a mean of as many runs would lie outside it if the two sets were alike.
    """
    by_size = frame[frame["set"] == other].groupby("batch_size")["accuracy"].agg(mean="mean", bar="std", n="size")
    means = frame[frame["set"] == one].groupby("batch_size")["accuracy"].mean()
    table = by_size[by_size["n"] > 1].join(means.rename("one"), how="inner").reset_index()
    # The difference of two means of n runs, over the deviation of n: Student's, but for the root of 2 / n.
    outside = 2 * stats.t.sf(np.sqrt(table["n"] / 2), table["n"] - 1)
    return table.assign(difference=table["one"] - table["mean"], by_chance=outside).drop(columns=["one", "mean"])
