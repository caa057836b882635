"""The verdicts on what Gahlot et al. say of training on filtered data: G7 to G15.

All are judged at equal epochs, as the paper has it. A difference between sets is over runs of one seed in pairs. That a
difference is not seen says little by itself: it counts against a claim only where an interval is narrow enough to rule
out half of what the paper reports, of the same difference or of the nearest that it gives a number for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from dolb.claims.claim import MARGIN, Claim, Judge, agrees, beyond, outcome, reaches
from dolb.summary import CONFIDENCE
from dolb.summary import filtered as study

_NONE = "not yet measured", "", "Two seeds on both sets, at one batch size, are the least."
_PAIRED = "A difference is between runs of one seed, with Student's interval over seeds."
_NULL = (
    "It counts for the claim if the interval lies above zero and reaches half of what the paper reports, and against "
    "it if the interval holds zero, or less, and does not reach that half. One that lies above zero and does not reach "
    "it shows a smaller gain than the one reported, and one that holds both is too wide to tell; neither counts."
)
# A ratio of variances that two times four runs, as many as the paper has of a cell, would not show: it would have to be
# nine for an F-test to see it.
_LEAST_RATIO = 2.0
_FEWEST_DECAYS = 2  # the smaller ones of the paper's four


def _best_accuracies(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    # The paper does not say of how many runs its figure is, so it may be one.
    table = study.best(study.predicted(ds, of_runs=1))
    said = {
        (int(size), name): value["accuracy"] / 100
        for size, sets in claims["G7"].reported.items()
        for name, value in sets.items()
    }
    return _values(table, said, 1, min(_reported_gains(claims, "random").values()))


def _values(
    table: pd.DataFrame, said: Mapping[tuple[int, str], float], of_runs: int, gain: float
) -> tuple[str, str, str]:
    """Judge reported accuracies by batch size and set, each the mean of so many runs: it lies in our interval, or not.

    ``gain`` is the difference between two sets that the paper makes of them.
    """
    ours = {(int(row["batch_size"]), str(row["set"])): row for row in table.to_dict("records")}
    there = [(name, size, ours[size, name], value) for (size, name), value in said.items() if (size, name) in ours]
    there = [one for one in there if np.isfinite(one[2]["low"])]
    if not there:
        return _NONE
    holds = [agrees(value, row["low"], row["high"], MARGIN * gain) for _, _, row, value in there]
    told = "; ".join(
        f"{name} at batch {size:,} {row['accuracy']:.1%} ({row['low']:.1%} to {row['high']:.1%}, weight decay "
        f"{row['weight_decay']:g}; reported {value:.1%})"
        for name, size, row, value in there
    )
    runs = "one run" if of_runs == 1 else f"the mean of {of_runs} runs"
    reason = (
        "The recipe's rates were taken so that accuracies on full data come near the paper's: that these agree says "
        f"little, and the differences between sets more. The paper gives no error. Its accuracy is taken for {runs}, "
        "varying as ours do between seeds, pooled over the cells of a batch size; the interval is where such a number "
        "would lie, by Student. A cell counts if the reported accuracy lies within it, and is left open if it "
        f"reaches further than {100 * MARGIN * gain:.2f} points to either side, half of the difference that the paper "
        "finds between sets."
    )
    return outcome(*holds, *[None] * (len(said) - len(there))), f"{told}.", reason


def _beats_random(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    said = _reported_gains(claims, "random")
    gains, where = (lambda size: said.get(size, min(said.values()))), "reported for the batch size"
    return _every_size(ds, "random", gains, where, needed=said)


def _reported_gains(claims: Mapping[str, Claim], other: str) -> dict[int, float]:
    """Return by small batch size what network filtered data gain over another set, the best cell of each, in G7."""
    cells = {int(size): sets for size, sets in claims["G7"].reported.items() if {"network", other} <= set(sets)}
    return {size: (sets["network"]["accuracy"] - sets[other]["accuracy"]) / 100 for size, sets in cells.items()}


def _small_decays(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    frame = study.runs(ds)
    small = sorted(frame["weight_decay"].unique())[:_FEWEST_DECAYS]
    frame = frame[frame["weight_decay"].isin(small)]
    parts = [study.differences(frame, "network", other, ["weight_decay"]) for other in ("full", "random")]
    table = _told_apart(pd.concat(parts, ignore_index=True))
    if table.empty:
        return _NONE
    rows = table.to_dict("records")
    lacking = len(parts) * _FEWEST_DECAYS - len(rows)
    told = "; ".join(f"over {row['other']} at weight decay {row['weight_decay']:g} {_points(row)}" for row in rows)
    said = {other: float(np.mean(list(_reported_gains(claims, other).values()))) for other in ("full", "random")}
    holds = [reaches(row["low"], row["high"], MARGIN * said[row["other"]]) for row in rows]
    reason = (
        f"The smaller half of the weight decays, each the mean over batch sizes. {_PAIRED} {_NULL} That is, of "
        f"its best cells, {100 * said['full']:.1f} points over full and {100 * said['random']:.1f} over random data."
    )
    return outcome(*holds, *[None] * lacking), f"Network filtered data gain {told}.", reason


def _falls_with_batch(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    frame = study.runs(ds)
    frame = frame[frame["set"] == "network"]
    smallest, largest = frame["batch_size"].min(), frame["batch_size"].max()
    ends = frame[frame["batch_size"].isin((smallest, largest))]
    # The ends of the range in the place of two sets: the same pairs by seed.
    renamed = ends.assign(set=ends["batch_size"].map({smallest: "small", largest: "large"}), batch_size=0)
    table = _told_apart(study.differences(renamed, "large", "small"))
    if table.empty:
        return _NONE
    row = table.iloc[0]
    ours = (
        f"From batch {largest} to {smallest}, accuracy on network filtered data changes by "
        f"{-100 * row['difference']:+.1f} points ({-100 * row['high']:+.1f} to {-100 * row['low']:+.1f}), mean over "
        "weight decays."
    )
    by_size = sorted((int(size), sets["network"]["accuracy"] / 100) for size, sets in claims["G7"].reported.items())
    fall = by_size[-1][1] - by_size[0][1]
    reason = f"{_PAIRED} {_NULL} That is {100 * fall:.1f} points between its best cells."
    holds = reaches(row["low"], row["high"], MARGIN * fall)
    whole = smallest <= by_size[0][0] and largest >= by_size[-1][0]
    return outcome(holds, *([] if whole else [None])), ours, reason


def _large_gain(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    low, high = claims["G11"].setting["batch_size"]
    gain, where = _reported_large_gain(claims)
    return _every_size(ds, "full", lambda size: gain, where, low, high, needed=(low, high))


def _reported_large_gain(claims: Mapping[str, Claim]) -> tuple[float, str]:
    """Return what network filtered data gain over full data in G12, and where."""
    said = claims["G12"].reported
    return (said["network"] - said["full"]) / 100, f"reported at batch {claims['G12'].setting['batch_size']:,}"


def _large_accuracies(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    size, of_runs = claims["G12"].setting["batch_size"], claims["G11"].setting["runs"]  # both are of its Figure 7
    said = {(size, name): value / 100 for name, value in claims["G12"].reported.items()}
    return _values(study.predicted(ds, of_runs), said, of_runs, _reported_large_gain(claims)[0])


def _as_good_below(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    below = claims["G13"].setting["below"]
    rows, lacking = _by_size(ds, "full", high=below - 1, needed=_doublings(ds, below))
    if not rows:
        return _NONE
    gain, where = _reported_large_gain(claims)
    least = MARGIN * gain
    # An interval that zero lies in may be wide, so alike is also one within half the gain to either side.
    apart = study.holm(np.array([row["p"] for row in rows], dtype=float)) < 1 - CONFIDENCE
    holds = [
        False if unlike else True if max(-row["low"], row["high"]) < least else None
        for row, unlike in zip(rows, apart, strict=True)
    ]
    reason = (
        f"{_PAIRED} Two sets are unlike at a size if the paired test tells them apart, corrected for the number of "
        f"sizes (Holm). They are alike if it does not and the interval holds no difference of half the gain {where}, "
        f"{100 * gain:.1f} points; any other is too wide to tell. Sizes must be no more than a doubling apart."
    )
    return outcome(*holds, *[None] * len(lacking)), _gains(rows, "full", lacking), reason


def _large_beats_random(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    least = min(_reported_gains(claims, "random").values())
    where = "reported at small batches (the least of them, as there is no number for large ones)"
    low, high = claims["G11"].setting["batch_size"]
    return _every_size(ds, "random", lambda size: least, where, needed=(*_doublings(ds, low), low, high))


def _doublings(ds: xr.Dataset, below: int) -> list[int]:
    """Return the batch sizes below one that a claim about all of them needs: from the smallest run on, by doubling."""
    sizes = [int(ds["batch_size"].min())]
    while 2 * sizes[-1] < below:
        sizes.append(2 * sizes[-1])
    return [size for size in sizes if size < below]


def _every_size(
    ds: xr.Dataset,
    other: str,
    gain: Callable[[int], float],
    where: str,
    low: int = 0,
    high: int | None = None,
    needed: Iterable[int] = (),
) -> tuple[str, str, str]:
    """Judge whether network filtered data beat another set at each batch size; ``gain`` is what the paper has of it."""
    rows, lacking = _by_size(ds, other, low, high, needed)
    if not rows:
        return _NONE
    said = [gain(row["batch_size"]) for row in rows]
    holds = [reaches(row["low"], row["high"], MARGIN * value) for row, value in zip(rows, said, strict=True)]
    span = " to ".join(f"{100 * value:.1f}" for value in sorted({min(said), max(said)}))
    reason = f"{_PAIRED} {_NULL} The gain {where} is {span} points."
    return outcome(*holds, *[None] * len(lacking)), _gains(rows, other, lacking), reason


def _by_size(
    ds: xr.Dataset, other: str, low: int = 0, high: int | None = None, needed: Iterable[int] = ()
) -> tuple[list[dict[Hashable, Any]], list[int]]:
    """Return what can be told by batch size, and the sizes at which it cannot: run with one seed, or needed and not."""
    frame = study.runs(ds)
    frame = frame[frame["batch_size"].between(low, np.inf if high is None else high)]
    rows = _told_apart(study.differences(frame, "network", other)).to_dict("records")
    sizes = {*map(int, needed), *map(int, frame.loc[frame["set"].isin(("network", other)), "batch_size"])}
    return rows, sorted(sizes - {int(row["batch_size"]) for row in rows})


def _gains(rows: list[dict[Hashable, Any]], other: str, lacking: Iterable[int] = ()) -> str:
    told = "; ".join(f"{_points(row)} at batch {row['batch_size']:,}" for row in rows)
    missing = ", ".join(f"{size:,}" for size in lacking)
    return f"Accuracy on network filtered less that on {other} data: {told}." + (
        f" Two seeds on both sets lack at batch {missing}." if missing else ""
    )


def _varies_more(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    border = claims["G12"].setting["batch_size"]
    found = study.variation(ds, border)
    if not found:
        return "not yet measured", "", f"Two seeds of a cell on either side of batch {border:,} are the least."
    ours = (
        f"Between seeds accuracy has a standard deviation of {100 * found['large']:.2f} points from batch {border:,} "
        f"on and {100 * found['small']:.2f} below; the ratio of the variances is {found['ratio']:.1f} "
        f"({found['low']:.1f} to {found['high']:.1f})."
    )
    reason = (
        "Variances over seeds, pooled over sets and batch sizes. The interval of their ratio must lie above one; one "
        f"that lies below {_LEAST_RATIO:g} and not above one counts against the claim, as the paper's four runs would "
        "not show so small a ratio; one that holds both is too wide to tell."
    )
    return outcome(beyond(found["low"] - 1, found["high"] - 1, _LEAST_RATIO - 1)), ours, reason


def _told_apart(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["n"] > 1]


def _points(row: Mapping[Hashable, Any]) -> str:
    difference, low, high = (100 * row[name] for name in ("difference", "low", "high"))
    return f"{difference:+.2f} points ({low:+.2f} to {high:+.2f}, {row['n']} seeds)"


JUDGES: dict[str, Judge] = {
    "G7": _best_accuracies,
    "G8": _beats_random,
    "G9": _small_decays,
    "G10": _falls_with_batch,
    "G11": _large_gain,
    "G12": _large_accuracies,
    "G13": _as_good_below,
    "G14": _large_beats_random,
    "G15": _varies_more,
}
