"""Which rate suits which batch size: accuracy by both, the ridge of that map, and what rules of scaling lose."""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr

from dolb.findings import intervals
from dolb.findings.intervals import Estimate
from dolb.findings.runs import final_accuracy

CELL = ["arch", "batch_size", "lr"]
RULES = {"none": 0.0, "square root": 0.5, "linear": 1.0}  # the power of the batch size by which the rate grows


def ladder(ds: xr.Dataset) -> pd.DataFrame:
    """Return a row with its final accuracy for every run of the ladder, whose runs are the shortest.

    A network of which fewer cells have run than of another is left out: its ridge would be of what ran first.
    """
    frame = final_accuracy(ds)
    frame = frame[frame["epochs"] == frame["epochs"].min()]
    count = frame.drop_duplicates(CELL).groupby("arch").size()
    return frame[frame["arch"].map(count) == count.max()]


def repeated(ds: xr.Dataset) -> pd.DataFrame:
    """Return the runs of the ladder of networks with the most seeds in every cell: the best rate of fewer is chance."""
    frame = ladder(ds)
    seeds = frame.groupby(CELL)["seed"].nunique().groupby("arch").min()
    return frame[frame["arch"].map(seeds) == seeds.max()]


def cells(ds: xr.Dataset) -> pd.DataFrame:
    """Return accuracy with its interval for every network, batch size and peak rate."""
    return intervals.bootstrapped(ladder(ds), CELL, "arch")[0]


def best_rates(ds: xr.Dataset) -> pd.DataFrame:
    """Return the best rate of every network and batch size, with its interval by bootstrap, and the accuracy there."""
    groups, draws = intervals.bootstrapped(repeated(ds), CELL, "arch")
    rows = []
    for values, group in groups.groupby(CELL[:2], sort=True):
        if len(group) < 3:
            continue
        rates, own = group["lr"].to_numpy(), draws[:, group.index]
        low, high = intervals.quantiles(np.array([_top(rates, draw)[0] for draw in own]))
        best, accuracy = _top(rates, group["accuracy"].to_numpy())
        edge = best in (rates.min(), rates.max())
        rows.append(
            dict(zip(CELL[:2], values, strict=True))
            | {"best": best, "low": low, "high": high, "accuracy": accuracy, "at_edge": edge, "n": group["n"].min()}
        )
    return pd.DataFrame(rows, columns=[*CELL[:2], "best", "low", "high", "accuracy", "at_edge", "n"])


def exponents(ds: xr.Dataset) -> dict[str, Estimate]:
    """Return for every network the power of the batch size by which its best rate grows."""
    groups, draws = intervals.bootstrapped(repeated(ds), CELL, "arch")
    found = {}
    for arch, network in groups.groupby("arch", sort=True):
        sizes = {size: own for size, own in network.groupby("batch_size", sort=True) if len(own) > 2}
        if len(sizes) < 3:
            continue
        logs = np.log(np.array(list(sizes), dtype=float))

        def slope(means: np.ndarray, sizes: dict = sizes, logs: np.ndarray = logs) -> float:
            best = [_top(own["lr"].to_numpy(), means[own.index])[0] for own in sizes.values()]
            return float(np.polyfit(logs, np.log(best), 1)[0])

        low, high = intervals.quantiles(np.array([slope(draw) for draw in draws]))
        least = int(min(own["n"].min() for own in sizes.values()))
        found[str(arch)] = Estimate(slope(groups["accuracy"].to_numpy()), low, high, least)
    return found


def by_rule(ds: xr.Dataset) -> pd.DataFrame:
    """Return what each rule of scaling reaches, from the rate that is best at the smallest batch.

    Accuracy between two rates of the ladder is interpolated in the logarithm of the rate; a rate beyond has none.
    ``lost`` is how many points it is below the best rate of that batch size. A network is left out where the interval
    of the rate to start from reaches an end of the ladder: any other would do as well.
    """
    rows = []
    best = best_rates(ds)
    for arch, network in cells(ds).groupby("arch", sort=True):
        tops = best[best["arch"] == arch].set_index("batch_size")
        first = tops.index.min()
        if (
            tops.empty
            or tops.loc[first, "low"] <= network["lr"].min()
            or network["lr"].max() <= tops.loc[first, "high"]
        ):
            continue
        for size, top in tops.iterrows():
            own = network[network["batch_size"] == size].sort_values("lr")
            for rule, power in RULES.items():
                rate = float(tops.loc[first, "best"] * (size / first) ** power)
                logs = np.log(own["lr"].to_numpy())
                reached = np.interp(np.log(rate), logs, own["accuracy"], left=np.nan, right=np.nan)
                lost = 100 * (top["accuracy"] - reached)
                rows.append({"arch": arch, "batch_size": size, "rule": rule, "lr": rate, "accuracy": reached,
                             "lost": lost})  # fmt: skip
    return pd.DataFrame(rows, columns=["arch", "batch_size", "rule", "lr", "accuracy", "lost"])


def _top(rates: np.ndarray, accuracy: np.ndarray) -> tuple[float, float]:
    """Return the best rate and its accuracy: the top of a parabola through the best of the ladder and its neighbours.

    At an end of the ladder it is that rate itself.
    """
    highest = int(np.argmax(accuracy))
    if highest in (0, len(rates) - 1):
        return float(rates[highest]), float(accuracy[highest])
    near = slice(highest - 1, highest + 2)
    curve = np.polyfit(np.log(rates[near]), accuracy[near], 2)
    if curve[0] >= 0:
        return float(rates[highest]), float(accuracy[highest])
    top = -curve[1] / (2 * curve[0])
    return float(np.exp(top)), float(np.polyval(curve, top))


def exponent_table(found: dict[str, Estimate]) -> pd.DataFrame:
    """Return `exponents` as a table for readers."""
    return pd.DataFrame(
        {
            "network": list(found),
            "the best rate grows as the batch size to the power": [one.written(".2f") for one in found.values()],
            "seeds": [one.n for one in found.values()],
        }
    )
