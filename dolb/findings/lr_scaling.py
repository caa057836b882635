"""Which rate suits which batch size: accuracy by both, the ridge of that map, and what rules of scaling lose."""

import numpy as np
import pandas as pd
import xarray as xr

from dolb.findings import intervals
from dolb.findings.intervals import Estimate
from dolb.findings.runs import final_accuracy

CELL = ["arch", "batch_size", "lr"]
RULES = {"none": 0.0, "square root": 0.5, "linear": 1.0}  # the power of the batch size by which the rate grows


def ladder(ds: xr.Dataset) -> pd.DataFrame:
    """Return a row with its final accuracy for every run of the ladder, whose runs are the shortest."""
    frame = final_accuracy(ds)
    return frame[frame["epochs"] == frame["epochs"].min()]


def cells(ds: xr.Dataset) -> pd.DataFrame:
    """Return accuracy with its interval for every network, batch size and peak rate."""
    return intervals.bootstrapped(ladder(ds), CELL)[0]


def _peaks(ds: xr.Dataset) -> pd.DataFrame:
    """Return the best rate of every network and batch size, that of every draw, and the accuracy there."""
    groups, draws = intervals.bootstrapped(ladder(ds), CELL)
    rows = []
    for values, group in groups.groupby(CELL[:2], sort=True):
        if len(group) > 2:
            rates = group["lr"].to_numpy()
            best, accuracy = _top(rates, group["accuracy"].to_numpy())
            drawn = np.array([_top(rates, draw)[0] for draw in draws[:, group.index]])
            edge = best in (rates.min(), rates.max())
            rows.append((*values, best, *intervals.quantiles(drawn), accuracy, edge, group["n"].min(), drawn))
    return pd.DataFrame(rows, columns=[*CELL[:2], "best", "low", "high", "accuracy", "at_edge", "n", "drawn"])


def best_rates(ds: xr.Dataset) -> pd.DataFrame:
    """Return the best rate of every network and batch size, with its interval by bootstrap, and the accuracy there."""
    return _peaks(ds).drop(columns="drawn")


def exponents(ds: xr.Dataset) -> dict[str, Estimate]:
    """Return for every network the power of the batch size by which its best rate grows."""
    found = {}
    for arch, own in _peaks(ds).groupby("arch", sort=True):
        if len(own) > 2:
            best = np.column_stack([own["best"], np.stack(own["drawn"].to_list())])
            slopes = np.polyfit(np.log(own["batch_size"].to_numpy(dtype=float)), np.log(best), 1)[0]
            found[str(arch)] = Estimate(float(slopes[0]), *intervals.quantiles(slopes[1:]), int(own["n"].min()))
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


def linear_or_none(ds: xr.Dataset, linear: xr.Dataset) -> pd.DataFrame:
    """Return, for readers, accuracy at one base rate without scaling and with linear scaling, of the seeds of both.

    ``linear`` has the runs with it; compared are those that agree in rate, warmup and epochs, too.
    """
    key = ["arch", "batch_size", "lr", "warmup_epochs", "epochs", "seed"]
    plain, scaled = (final_accuracy(one).set_index(key)["accuracy"] for one in (ds, linear))
    both = pd.DataFrame({"no scaling": plain, "linear scaling": scaled}).dropna()
    rows = []
    for (arch, size), own in both.groupby(level=key[:2], sort=True):
        gain = intervals.student(own["linear scaling"] - own["no scaling"]).points()
        means = own.mean().map("{:.1%}".format)
        rows.append({"network": arch, "batch size": f"{size:,}", **means, "gain, points": gain.written("+.1f")})
    return pd.DataFrame(rows, columns=["network", "batch size", *both, "gain, points"])


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
