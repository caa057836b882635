"""The verdicts on what Gahlot et al. say of training on filtered data: G7 to G15.

All are judged at equal epochs, as the paper has it. A difference between sets is over runs of one seed in pairs.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd
import xarray as xr

from dolb.claims.claim import Claim, Judge, outcome, sign
from dolb.summary import filtered as study

_NONE = "not yet measured", "", "Two seeds on both sets, at one batch size, are the least."
_PAIRED = (
    "A difference is between runs of one seed, with Student's interval over seeds; it counts if the interval does not "
    "hold zero."
)


def _best_accuracies(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    table = study.best(study.cells(ds))
    table = table[(table["equal"] == "epochs") & (table["n"] > 1)]
    said = {
        (int(size), name): value["accuracy"] / 100
        for size, sets in claims["G7"].reported.items()
        for name, value in sets.items()
    }
    return _values(table, said)


def _values(table: pd.DataFrame, said: Mapping[tuple[int, str], float]) -> tuple[str, str, str]:
    """Judge reported accuracies by batch size and set: each lies in our interval, or not."""
    ours = {(int(row["batch_size"]), str(row["set"])): row for row in table.to_dict("records")}
    there = [(name, size, ours[size, name], value) for (size, name), value in said.items() if (size, name) in ours]
    if not there:
        return _NONE
    holds: list[bool | None] = [bool(row["low"] <= value <= row["high"]) for _, _, row, value in there]
    told = "; ".join(
        f"{name} at batch {size:,} {row['accuracy']:.1%} ({row['low']:.1%} to {row['high']:.1%}, weight decay "
        f"{row['weight_decay']:g}; reported {value:.1%})"
        for name, size, row, value in there
    )
    reason = "A cell counts if the reported accuracy lies within our interval, by bootstrap over seeds and test set."
    return outcome(*holds, *[None] * (len(said) - len(there))), f"{told}.", reason


def _beats_random(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    return _every_size(ds, "random")


def _small_decays(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    frame = study.runs(ds)
    small = sorted(frame["weight_decay"].unique())[:2]
    frame = frame[frame["weight_decay"].isin(small)]
    parts = [study.differences(frame, "network", other, ["weight_decay"]) for other in ("full", "random")]
    table = _told_apart(pd.concat(parts, ignore_index=True))
    if table.empty:
        return _NONE
    rows = table.to_dict("records")
    told = "; ".join(f"over {row['other']} at weight decay {row['weight_decay']:g} {_points(row)}" for row in rows)
    reason = f"The smaller half of the weight decays, each the mean over batch sizes. {_PAIRED}"
    holds = [sign(row["low"], row["high"]) for row in rows]
    return outcome(*holds), f"Network filtered data gain {told}.", reason


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
    return outcome(sign(row["low"], row["high"])), ours, _PAIRED


def _large_gain(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    low, high = claims["G11"].setting["batch_size"]
    return _every_size(ds, "full", low, high)


def _large_accuracies(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    table = study.cells(ds)
    table = table[(table["equal"] == "epochs") & (table["n"] > 1)]
    size = claims["G12"].setting["batch_size"]
    return _values(table, {(size, name): value / 100 for name, value in claims["G12"].reported.items()})


def _as_good_below(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    rows = _by_size(ds, "full", high=claims["G13"].setting["below"] - 1)
    if not rows:
        return _NONE
    said = claims["G12"].reported
    gain = (said["network"] - said["full"]) / 100
    signs = [sign(row["low"], row["high"]) for row in rows]
    # Whether one set is better is told by the sign; whether both are alike, only by an interval that is narrow too.
    narrow = [max(-row["low"], row["high"]) < gain for row in rows]
    holds = [(True if enough else None) if one is None else False for one, enough in zip(signs, narrow, strict=True)]
    reason = (
        f"{_PAIRED} Two sets are alike at a size if the interval holds zero and no difference as large as the one "
        f"reported for larger batches, {100 * gain:.1f} points; one that holds both leaves it open."
    )
    return outcome(*holds), _gains(rows, "full"), reason


def _large_beats_random(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    return _every_size(ds, "random")


def _every_size(ds: xr.Dataset, other: str, low: int = 0, high: int | None = None) -> tuple[str, str, str]:
    """Judge whether network filtered data beat another set at each batch size."""
    rows = _by_size(ds, other, low, high)
    if not rows:
        return _NONE
    return outcome(*(sign(row["low"], row["high"]) for row in rows)), _gains(rows, other), _PAIRED


def _by_size(ds: xr.Dataset, other: str, low: int = 0, high: int | None = None) -> list[dict[Hashable, Any]]:
    table = _told_apart(study.differences(study.runs(ds), "network", other))
    return [row for row in table.to_dict("records") if low <= row["batch_size"] <= (high or row["batch_size"])]


def _gains(rows: list[dict[Hashable, Any]], other: str) -> str:
    told = "; ".join(f"{_points(row)} at batch {row['batch_size']:,}" for row in rows)
    return f"Accuracy on network filtered less that on {other} data: {told}."


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
    reason = "Variances over seeds, pooled over sets and batch sizes; the interval of their ratio must lie above one."
    return outcome(sign(found["low"] - 1, found["high"] - 1)), ours, reason


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
