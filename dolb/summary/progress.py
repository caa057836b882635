"""Accuracy while runs go on: by updates made and device time spent, so that batch sizes meet at equal updates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from dolb.summary import batch_size as study
from dolb.summary.coverage import listed

# Epochs that are drawn, of a run however long: more of them early, where a curve is steep.
_DRAWN = 16


def by_epoch(ds: xr.Dataset, costs: pd.DataFrame) -> pd.DataFrame:
    """Return the test accuracy of every cell of the curves after some of its epochs, mean over seeds.

    Columns are arch, lr, batch_size, epoch, accuracy, n, updates and seconds so far, and ``last`` at the end of a run.
    ``costs`` are the cells with the ``run_seconds`` of a whole run, as ``cost.priced`` returns; without a price there
    are no seconds. Runs that diverged are left out.
    """
    runs = study.curve_runs(ds)
    runs = runs[~runs["diverged"].astype(bool)]
    series = ds["test_accuracy"].to_numpy()[[list(ds["key"].values).index(key) for key in runs["key"]]]
    rows = []
    for cell, group in runs.reset_index(drop=True).groupby(list(study.CELL), sort=True):
        epochs = int(group["epochs"].iloc[0])
        shown = np.unique(np.round(np.geomspace(1, epochs, _DRAWN)).astype(int))
        means = np.nanmean(series[group.index], axis=0)
        told: dict[str, Any] = dict(zip(study.CELL, cell, strict=True))
        told |= {"epoch": shown, "accuracy": means[shown - 1], "n": len(group), "last": shown == epochs}
        told |= {"updates": shown * (int(group["updates"].iloc[0]) / epochs), "share": shown / epochs}
        rows.append(pd.DataFrame(told))
    table = pd.concat(rows, ignore_index=True)
    prices = costs.drop_duplicates(list(study.CELL))[[*study.CELL, "run_seconds"]]
    table = table.merge(prices, on=list(study.CELL), how="left")
    return table.assign(seconds=table["share"] * table["run_seconds"]).drop(columns=["share", "run_seconds"])


def at_equal_updates(table: pd.DataFrame) -> pd.DataFrame:
    """Return accuracies of every curve after as many updates as its largest batch makes in all.

    Between the epochs of `by_epoch` they are interpolated over the logarithm of the updates. Batch sizes whose first
    epoch makes more are left out.
    """
    rows = []
    for curve, group in table.groupby(list(study.CURVE), sort=True):
        updates = group.loc[group["batch_size"] == group["batch_size"].max(), "updates"].max()
        for size, own in group.groupby("batch_size"):
            own = own.sort_values("updates")
            if own["updates"].min() <= updates:
                reached = np.interp(np.log(updates), np.log(own["updates"]), own["accuracy"])
                rows.append((*curve, size, updates, float(reached)))
    return pd.DataFrame(rows, columns=[*study.CURVE, "batch_size", "updates", "accuracy"])


def in_words(table: pd.DataFrame) -> str:
    """Say how batch sizes compare after equally many updates, for the first network and over all curves."""
    equal = at_equal_updates(table)
    several = equal[equal.groupby(list(study.CURVE))["batch_size"].transform("size") > 1]
    if several.empty:
        return "No two batch sizes of a curve meet at equal updates."
    ends = [
        (group.iloc[0], group.iloc[-1])
        for _, group in several.sort_values("batch_size").groupby(list(study.CURVE), sort=True)
    ]
    ahead = [large["accuracy"] > small["accuracy"] for small, large in ends]
    first = study.by_depth(several["arch"])[0]
    rates = sorted(several.loc[several["arch"] == first, "lr"].unique())
    one = several[(several["arch"] == first) & (several["lr"] == rates[len(rates) // 2])].sort_values("batch_size")
    told = listed([f"{row['accuracy']:.1%} with batches of {row['batch_size']:,}" for row in one.to_dict("records")])
    met = (
        f"After the {one['updates'].iloc[0]:,.0f} updates that the largest batch makes in all, {first} at rate "
        f"{one['lr'].iloc[0]:g} is at {told}. Of {len(ends)} curves the largest batch is ahead of the smallest that "
        f"meets it there in {sum(ahead)}"
    )
    best = table[table["last"]].sort_values("accuracy").groupby(list(study.CURVE)).tail(1)
    there = best.merge(equal[list(study.CELL)], on=list(study.CELL))
    met += f"; the best size of a curve is among those that meet in {len(there)} of {len(best)}"
    if 2 * sum(ahead) > len(ends):
        return (
            f"{met}. What large batches lose in a fixed number of epochs to the sizes that they meet is what they lack "
            "in updates; of smaller ones this does not tell."
        )
    return f"{met}. That large batches lose is not their lack of updates alone."
