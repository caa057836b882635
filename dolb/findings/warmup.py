"""What warmup does: accuracy by its length, which length is best, and how that grows with the batch size."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from dolb.findings import intervals
from dolb.findings.intervals import Estimate
from dolb.findings.runs import final_accuracy

OWN_BATCHES = (7680, 30720)  # of the study on ImageNet; on CIFAR-10 they leave 7 and 2 updates an epoch
CELL = ["arch", "lr", "batch_size", "warmup_epochs"]
_AT, _GROWS = "best at batch {:,}, epochs", "exponent in the batch size"


def cells(ds: xr.Dataset) -> pd.DataFrame:
    """Return accuracy with its interval for every network, base rate, batch size and warmup."""
    return intervals.bootstrapped(final_accuracy(ds), CELL)[0]


def by_epoch(ds: xr.Dataset) -> pd.DataFrame:
    """Return mean test accuracy and training loss after every epoch, for every cell."""
    names = ["test_accuracy", "train_loss", *CELL]
    frame = ds[names].drop_vars([name for name in ds.coords if name not in (*CELL, "epoch")]).to_dataframe()
    frame = frame.reset_index()
    return frame.groupby([*CELL, "epoch"], as_index=False)[["test_accuracy", "train_loss"]].mean()


def by_update(ds: xr.Dataset) -> pd.DataFrame:
    """Return loss, gradient norm and rate of every recorded update, by warmup and seed."""
    frame = ds[["update_loss", "update_gradient_norm", "update_rate", "warmup_epochs", "seed"]].to_dataframe()
    frame = frame.reset_index().rename(columns={"update_loss": "loss", "update_gradient_norm": "gradient_norm"})
    return frame[["warmup_epochs", "seed", "update", "loss", "gradient_norm", "update_rate"]]


def by_seed(frame: pd.DataFrame, lengths: Sequence[float]) -> pd.DataFrame | None:
    """Return accuracy by seed and warmup, of the seeds that have all these lengths; None where two do not."""
    table = frame.pivot_table(index="seed", columns="warmup_epochs", values="accuracy")
    if not set(lengths) <= set(table.columns):
        return None
    table = table[list(lengths)].dropna()
    return table if len(table) > 1 else None


def best_lengths(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the best warmup of every batch size of one network and base rate, with its interval by bootstrap."""
    rows = [(size, best[0], *intervals.quantiles(best[1:]), seeds) for size, (best, seeds) in _peaks(frame).items()]
    return pd.DataFrame(rows, columns=["batch_size", "best", "low", "high", "n"])


def exponent(frame: pd.DataFrame) -> Estimate | None:
    """Return the power of the batch size by which the best warmup grows, for one network and rate."""
    peaks = _peaks(frame)
    seeds = min((seeds for _, seeds in peaks.values()), default=0)
    if len(peaks) < 2 or seeds < 2:
        return None
    slopes = np.polyfit(np.log(list(peaks)), np.log([best for best, _ in peaks.values()]), 1)[0]
    return Estimate(float(slopes[0]), *intervals.quantiles(slopes[1:]), seeds)


def _peaks(frame: pd.DataFrame) -> dict[Any, tuple[np.ndarray, int]]:
    """Return for every batch size with enough lengths the best warmup, then that of every draw, and the fewest seeds.

    The best is where a parabola in the logarithm of the length, through the means by their seeds, is highest. No warmup
    has no part in it: how far accuracy falls there says nothing of where it is highest.
    """
    table, draws = intervals.bootstrapped(frame, CELL)
    found = {}
    for size, group in table[table["warmup_epochs"] > 0].groupby("batch_size", sort=True):
        if len(group) > 3:
            lengths, means = group["warmup_epochs"], np.vstack([group["accuracy"], draws[:, group.index]])
            curves = np.polyfit(np.log(lengths), means.T, 2, w=np.sqrt(group["n"]))
            fine = np.geomspace(lengths.min(), lengths.max(), 200)
            highest = np.vander(np.log(fine), 3) @ curves
            found[size] = fine[highest.argmax(axis=0)], int(group["n"].min())
    return found


def by_batch(cells: pd.DataFrame) -> pd.DataFrame:
    """Return accuracy by network, base rate and batch size for readers.

    It has a column for each length of warmup that half of the rows have.
    """
    table = cells.pivot_table(index=["arch", "lr", "batch_size"], columns="warmup_epochs", values="accuracy")
    table = table.dropna(axis=1, thresh=(len(table) + 1) // 2).map("{:.1%}".format, na_action="ignore").fillna("")
    rows = ["network", "rate", "batch size"]
    named = table.rename(columns="{:g}".format).rename_axis(index=rows, columns=None).reset_index()
    shown = named.sort_values(rows, ascending=[True, False, True], ignore_index=True)
    return shown.assign(rate=shown["rate"].map("{:g}".format), **{"batch size": shown["batch size"].map("{:,}".format)})


def best_table(frame: pd.DataFrame, reported: Mapping[int, float]) -> pd.DataFrame:
    """Return `best_lengths` and `exponent` of every network for readers, beside the study's lengths, and the powers."""
    columns: dict[str, dict[str, str]] = {}
    for arch in sorted(set(frame["arch"])):
        one = frame[frame["arch"] == arch]
        grows, own = exponent(one), {}
        for row in best_lengths(one).to_dict("records"):
            own[_AT.format(row["batch_size"])] = intervals.written(".0f", row["best"], row["low"], row["high"])
        columns[arch] = own | ({_GROWS: grows.written(".2f")} if grows is not None else {})
    columns["McCord and Dash"] = {_AT.format(size): f"{length:g}" for size, length in reported.items()} | {
        _GROWS: "0.5"
    }  # x4, x2
    columns["LEGW"] = {_GROWS: "1"}
    return pd.DataFrame(columns, dtype=object).fillna("")
