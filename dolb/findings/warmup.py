"""What warmup does: accuracy by its length, which length is best, and how that grows with the batch size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import xarray as xr

from dolb.findings import intervals
from dolb.findings.intervals import Estimate
from dolb.findings.runs import final_accuracy

OWN_BATCHES = (7680, 30720)  # of the study on ImageNet; on CIFAR-10 they leave 7 and 2 updates an epoch
CELL = ["arch", "lr", "batch_size", "warmup_epochs"]
POWERS = ("0.5", "1")  # of the batch size: the study's best warmup (x4, x2), and LEGW's
LEAST = 1.0  # epochs: a best warmup below counts as this, so that it has a logarithm


def runs(ds: xr.Dataset) -> pd.DataFrame:
    """Return a row per run with its final accuracy, those at the study's own batch sizes left out."""
    frame = final_accuracy(ds)
    return frame[~frame["batch_size"].isin(OWN_BATCHES)]


def cells(ds: xr.Dataset) -> pd.DataFrame:
    """Return accuracy with its interval for every network, base rate, batch size and warmup."""
    return intervals.bootstrapped(runs(ds), CELL)[0]


def by_epoch(ds: xr.Dataset) -> pd.DataFrame:
    """Return mean test accuracy and training loss after every epoch, for every cell."""
    names = ["test_accuracy", "train_loss", *CELL]
    frame = ds[names].drop_vars([name for name in ds.coords if name not in (*CELL, "epoch")]).to_dataframe()
    frame = frame.reset_index()
    frame = frame[~frame["batch_size"].isin(OWN_BATCHES)]
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
    rows = []
    for size, group in frame.groupby("batch_size", sort=True):
        if (table := _complete(group)) is not None:
            drawn = np.array([_peak(table.iloc[chosen]) for chosen in _draws(len(table))])
            rows.append((size, _peak(table), *intervals.quantiles(drawn), len(table)))
    return pd.DataFrame(rows, columns=["batch_size", "best", "low", "high", "n"])


def exponent(frame: pd.DataFrame) -> Estimate | None:
    """Return the power of the batch size by which the best warmup grows, over the batch sizes of one network and rate.

    Seeds are drawn with replacement, the same at every batch size.
    """
    tables = {size: _complete(group) for size, group in frame.groupby("batch_size", sort=True)}
    whole = {size: table for size, table in tables.items() if table is not None}
    shared = sorted(set.intersection(*(set(table.index) for table in whole.values()))) if len(whole) > 1 else []
    if len(shared) < 2:
        return None
    sizes = np.log(np.array(list(whole), dtype=float))
    aligned = [table.loc[shared] for table in whole.values()]

    def slope(chosen: np.ndarray) -> float:
        return float(np.polyfit(sizes, np.log([_peak(table.iloc[chosen]) for table in aligned]), 1)[0])

    draws = np.array([slope(chosen) for chosen in _draws(len(shared))])
    return Estimate(slope(np.arange(len(shared))), *intervals.quantiles(draws), len(shared))


def _complete(group: pd.DataFrame) -> pd.DataFrame | None:
    """Return the table of a cell's seeds and lengths, if there are enough of both to see where a curve is highest."""
    lengths = sorted(set(group["warmup_epochs"]))
    return by_seed(group, lengths) if len(lengths) > 4 else None


def _peak(table: pd.DataFrame) -> float:
    """Return where a parabola in the logarithm of one and the length, through the means, is highest."""
    lengths = table.columns.to_numpy(dtype=float)
    curve = np.polyfit(np.log1p(lengths), table.mean().to_numpy(), 2)
    fine = np.geomspace(LEAST, lengths.max(), 200)
    return float(fine[np.argmax(np.polyval(curve, np.log1p(fine)))])


def _draws(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, count, (intervals.DRAWS, count))


def accuracies(table: pd.DataFrame) -> pd.DataFrame:
    """Return cells as a table for readers, a row each, with accuracy and its interval."""
    return pd.DataFrame(
        {
            "batch size": table["batch_size"].map("{:,}".format),
            "epochs of warmup": table["warmup_epochs"].map("{:g}".format),
            "test accuracy": intervals.written_rows(".1%", table[["accuracy", "low", "high"]]),
            "seeds": table["n"],
        }
    ).reset_index(drop=True)


def best_table(best: pd.DataFrame, grows: Estimate | None, reported: Mapping[int, float]) -> pd.DataFrame:
    """Return `best_lengths` and `exponent` for readers, beside the study's lengths by batch size, and the powers."""
    rows = [
        (
            f"best epochs of warmup at batch {row['batch_size']:,}",
            intervals.written(".0f", row["best"], row["low"], row["high"]),
            f"{reported[row['batch_size']]:g}" if row["batch_size"] in reported else "",
            "",
        )
        for row in best.to_dict("records")
    ]
    if grows is not None:
        rows.append(("grows as the batch size to the power", grows.written(".2f"), *POWERS))
    return pd.DataFrame(rows, columns=["", "ours", "McCord and Dash", "LEGW"])
