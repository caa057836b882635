"""Accuracy while runs go on: by updates made and device time spent, so that batch sizes meet at equal updates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from dolb import findings as summary
from dolb.findings import batch_size as study
from dolb.findings.coverage import listed

# Epochs that are drawn, of a run however long: more of them early, where a curve is steep.
_DRAWN = 16


def by_epoch(ds: xr.Dataset, costs: pd.DataFrame) -> pd.DataFrame:
    """Return the test accuracy of every cell of the curves after each of its epochs, mean over seeds.

    Columns are arch, lr, batch_size, epoch, accuracy, n, updates and seconds so far, ``last`` at the end of a run, and
    ``drawn`` at some of the epochs, which are enough for a figure. ``costs`` are the cells with the ``run_seconds`` of
    a whole run, as ``cost.priced`` returns; without a price there are no seconds. Runs that diverged are left out.
    """
    runs = study.curve_runs(ds)
    runs = runs[~runs["diverged"].astype(bool)]
    series = ds["test_accuracy"].to_numpy()[[list(ds["key"].values).index(key) for key in runs["key"]]]
    rows = []
    for cell, group in runs.reset_index(drop=True).groupby(list(study.CELL), sort=True):
        epochs = int(group["epochs"].iloc[0])
        every = np.arange(1, epochs + 1)
        drawn = np.isin(every, np.round(np.geomspace(1, epochs, _DRAWN)).astype(int))
        means = np.nanmean(series[group.index], axis=0)[:epochs]
        told: dict[str, Any] = dict(zip(study.CELL, cell, strict=True))
        told |= {"epoch": every, "accuracy": means, "n": len(group), "last": every == epochs, "drawn": drawn}
        told |= {"updates": every * (int(group["updates"].iloc[0]) / epochs), "share": every / epochs}
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


def in_words(table: pd.DataFrame, cells: pd.DataFrame) -> str:
    """Say how batch sizes compare after equally many updates, for the first network and over all curves.

    ``cells`` are those of `batch_size.curve_cells`, by whose accuracy a curve has its best size.
    """
    equal = at_equal_updates(table)
    several = equal[equal.groupby(list(study.CURVE))["batch_size"].transform("size") > 1]
    if several.empty:
        return "No two batch sizes of a curve meet at equal updates."
    curves = [group for _, group in several.sort_values("batch_size").groupby(list(study.CURVE), sort=True)]
    learned = [group["accuracy"].to_numpy() for group in curves if group["accuracy"].max() > summary.AT_CHANCE]
    ahead = sum(met[-1] > met[0] for met in learned)
    highest = sum(met[-1] == met.max() for met in learned)
    first = study.by_depth(several["arch"])[0]
    rates = sorted(several.loc[several["arch"] == first, "lr"].unique())
    one = several[(several["arch"] == first) & (several["lr"] == rates[len(rates) // 2])].sort_values("batch_size")
    told = listed([f"{row['accuracy']:.1%} with batches of {row['batch_size']:,}" for row in one.to_dict("records")])
    best = cells.sort_values("accuracy").groupby(list(study.CURVE)).tail(1)
    there = best.merge(equal[list(study.CELL)], on=list(study.CELL))
    met = (
        f"After the {one['updates'].iloc[0]:,.0f} updates that the largest batch makes in all, {first} at rate "
        f"{one['lr'].iloc[0]:g} is at {told}, by single epochs. Of {len(learned)} curves that are off chance by "
        f"then the largest batch is ahead of the smallest that meets it there in {ahead}, and of all that do in "
        f"{highest}; the best size of a curve is among those that meet in {len(there)} of {len(best)}."
    )
    if 2 * ahead > len(learned):
        return (
            f"{met} Much of what large batches lose in a fixed number of epochs to the sizes that they meet is then "
            "what they lack in updates; of smaller ones this does not tell."
        )
    return f"{met} That large batches lose is not their lack of updates alone."
