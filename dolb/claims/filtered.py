"""The verdicts on what Gahlot et al. say of training on filtered data: G7 to G15.

All are judged at equal epochs, as the paper has it. A difference between sets is over runs of one seed in pairs. Claims
that one set beats another are judged by the sign of differences, and how large these are is told beside what the paper
reports. That a difference is not seen says little by itself: it counts against a claim only where the interval of all
batch sizes together is narrow enough to rule out half of what the paper reports, of the same difference or of the
nearest that it gives a number for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from dolb.claims.claim import MARGIN, Claim, Judge, agrees, beyond, counted, ordered, outcome, signs, so_far
from dolb.findings import filtered as study
from dolb.findings import span
from dolb.findings.alike import with_one_spread
from dolb.findings.coverage import listed
from dolb.findings.variation import beside_bars, variation

_Row = Mapping[Hashable, Any]

_PAIRED = (
    "A difference is between runs of one seed, with Student's interval over seeds; their spread is pooled over all "
    "differences between the same two sets, as few seeds of one tell little of it."
)
_RULE = (
    "It speaks for the claim if its interval lies above zero, with no correction, as all have to; against it if below "
    "also after Holm's correction for the number of differences, as one is enough; and cannot tell otherwise. "
    "All together, each seed by its mean over them, speak against the claim if that interval holds zero, or less, and "
    "not half of what the paper reports. The claim is replicated if every difference speaks for it, and not replicated "
    "if all together speak against it, or one does and none for it. Anything else is mixed. While some are not run in "
    "full, what speaks against the claim so far counts, and what speaks for it or cannot tell waits for the rest. How "
    "large the gain is decides nothing else and is told as a share of the one reported."
)
# A ratio of variances that two times four runs, as many as the paper has of a cell, would not show: it would have to be
# nine for an F-test to see it.
_LEAST_RATIO = 2.0
_FEWEST_DECAYS = 2  # the smaller ones of the paper's four


def _best_accuracies(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    # The paper does not say of how many runs its figure is, so it may be one.
    table = study.best(study.at_every_decay(study.predicted(ds, of_runs=1)))
    said = {
        (int(size), name): value["accuracy"] / 100
        for size, sets in claims["G7"].reported.items()
        for name, value in sets.items()
    }
    tuned = (
        "The recipe's rates were taken at the smallest of the weight decays, so that accuracies on full data come near "
        "the paper's there; at the others nothing was fitted to the paper. Ours is the best of all of them."
    )
    return _values(table, said, 1, min(_reported_gains(claims, "random").values()), tuned)


def _values(
    table: pd.DataFrame, said: Mapping[tuple[int, str], float], of_runs: int, gain: float, tuned: str
) -> tuple[str, str, str]:
    """Judge reported accuracies by batch size and set, each the mean of so many runs: it lies in our interval, or not.

    ``gain`` is the difference between two sets that the paper makes of them, and ``tuned`` what the recipe has of it.
    """
    ours = {(int(row["batch_size"]), str(row["set"])): row for row in table.to_dict("records")}
    there = [(name, size, ours[size, name], value) for (size, name), value in said.items() if (size, name) in ours]
    there = [one for one in there if np.isfinite(one[2]["low"])]
    if not there:
        return _waits("Two seeds of a set at a batch size of which the paper reports the accuracy are the least.")
    holds = [agrees(value, row["low"], row["high"], MARGIN * gain) for _, _, row, value in there]
    lacking = len(said) - len(there)
    told = "; ".join(
        f"{name} at batch {size:,} {row['accuracy']:.1%} ({row['low']:.1%} to {row['high']:.1%}, weight decay "
        f"{row['weight_decay']:g}; reported {value:.1%})"
        for name, size, row, value in there
    )
    runs = "one run" if of_runs == 1 else f"the mean of {of_runs} runs"
    reason = (
        f"{tuned} The paper gives no error. Its accuracy is taken for {runs}, varying as ours do between seeds, pooled "
        "over the cells of a batch size; the interval is where such a number would lie, by Student. A reported one "
        "speaks for the claim if it lies within the interval, against it if outside, and cannot tell if the interval "
        f"reaches further than {100 * MARGIN * gain:.2f} points to either side, half of the difference that the paper "
        "finds between sets."
    )
    count = counted("reported accuracies", holds, lacking)
    return so_far(outcome(*holds), holds, lacking), f"{told}. {count}", reason


def _waits(least: str) -> tuple[str, str, str]:
    return "not yet measured", "", least


def _beats_random(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    said = _reported_gains(claims, "random")
    return _every_size(ds, "random", lambda size: said.get(size, min(said.values())), "for its best cells", needed=said)


def _reported_gains(claims: Mapping[str, Claim], other: str) -> dict[int, float]:
    """Return by small batch size what network filtered data gain over another set, the best cell of each, in G7."""
    cells = {int(size): sets for size, sets in claims["G7"].reported.items() if {"network", other} <= set(sets)}
    return {size: (sets["network"]["accuracy"] - sets[other]["accuracy"]) / 100 for size, sets in cells.items()}


def _small_decays(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    others = ("full", "random")
    frame = study.runs(ds)
    frame = frame[frame["weight_decay"].isin(sorted(frame["weight_decay"].unique())[:_FEWEST_DECAYS])]
    by = ["weight_decay", "batch_size"]
    pairs = [with_one_spread(study.differences(frame, "network", other, by)) for other in others]
    rows = _rows(pd.concat(pairs, ignore_index=True))
    if not rows:
        return _waits("Two seeds on network filtered and on full or random data, at one batch size, are the least.")
    lacking = len(others) * _FEWEST_DECAYS * len(claims["G7"].reported) - len(rows)
    told = "; ".join(
        f"over {row['other']} at weight decay {row['weight_decay']:g} and batch {row['batch_size']:,} {_points(row)}"
        for row in rows
    )
    said = {other: float(np.mean(list(_reported_gains(claims, other).values()))) for other in others}
    pooled = {row["other"]: row for other in others for row in _rows(study.differences(frame, "network", other, ()))}
    found = signs(rows)
    together = "; ".join(f"over {name} {_share(row, said[name])}" for name, row in pooled.items())
    refuted = any(_refutes(row, said[name]) for name, row in pooled.items())
    ours = f"Network filtered data gain {told}. {counted('differences', found, lacking)} Together they gain {together}."
    reason = (
        "The smaller half of the weight decays, at every batch size of the paper's figure, against both sets. "
        f"{_PAIRED} {_RULE} Reported is the difference between best cells, whatever their weight decay; over full data "
        "the paper has that at one batch size alone."
    )
    return ordered(found, refuted, lacking), ours, reason


def _falls_with_batch(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    every = study.at_every_decay(study.runs(ds))
    frame = every[every["set"] == "network"]
    smallest, largest = frame["batch_size"].min(), frame["batch_size"].max()
    # The ends of the range in the place of two sets: the same pairs by seed.
    ends = every.assign(end=every["batch_size"].map({smallest: "small", largest: "large"}), batch_size=0)
    rows, *beside = (
        _rows(study.differences(ends[ends["set"] == name].assign(set=lambda of: of["end"]), "large", "small"))
        for name in ("network", "full", "random")
    )
    by_size = sorted((int(size), sets["network"]["accuracy"] / 100) for size, sets in claims["G7"].reported.items())
    (first, lower), *_, (last, higher) = by_size
    if not rows:
        run = [f"{size:,}" for size in sorted(set(frame["batch_size"]))]
        known = f"; these were trained with batch {listed(run)}" if run else ""
        return _waits(
            f"Two seeds on network filtered data, at every weight decay of two batch sizes, are the least{known}."
        )
    (row,) = rows
    lacking = smallest > first or largest < last
    ours = (
        f"Accuracy on network filtered data at batch {largest} less that at {smallest}: "
        f"{_share(row, higher - lower)}, mean over weight decays."
        + "".join(
            f" On {name} data it is {_points(other)}."
            for name, found in zip(("full", "random"), beside, strict=True)
            for other in found
        )
        + (f" The claim is from {last} to {first}, which was not run in full." if lacking else "")
    )
    reason = f"{_PAIRED} {_RULE} Here there is one difference. Reported is that between the best cells of both batches."
    # Over a part of the way it is another difference, whichever way it goes.
    found = "not yet measured" if lacking else ordered(signs(rows), _refutes(row, higher - lower))
    return found, ours, reason


def _large_gain(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    low, high = claims["G11"].setting["batch_size"]
    gain, where = _reported_large_gain(claims)
    return _every_size(ds, "full", lambda size: gain, where, low, high, needed=(low, high))


def _reported_large_gain(claims: Mapping[str, Claim]) -> tuple[float, str]:
    """Return what network filtered data gain over full data in G12, and where."""
    said = claims["G12"].reported
    return (said["network"] - said["full"]) / 100, f"at batch {claims['G12'].setting['batch_size']:,}"


def _large_accuracies(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    size, of_runs = claims["G12"].setting["batch_size"], claims["G11"].setting["runs"]  # both are of its Figure 7
    said = {(size, name): value / 100 for name, value in claims["G12"].reported.items()}
    tuned = (
        "The recipe's rate at this batch was taken so that the accuracy on full data comes near the paper's: that it "
        "agrees would say little, and the difference between the sets says more."
    )
    return _values(study.predicted(ds, of_runs), said, of_runs, _reported_large_gain(claims)[0], tuned)


def _within_bars(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    below = claims["G13"].setting["below"]
    frame = study.runs(ds)
    frame = frame[frame["batch_size"] < below]
    rows = beside_bars(frame, "network", "full").to_dict("records")
    if not rows:
        return _waits(f"Two seeds on full and one on network filtered data, at a batch below {below:,}, are the least.")
    lacking = sorted({*_doublings(ds, below), *map(int, frame["batch_size"])} - {row["batch_size"] for row in rows})
    holds = [bool(abs(row["difference"]) <= row["bar"]) for row in rows]
    told = "; ".join(
        f"{100 * row['difference']:+.2f} points at batch {row['batch_size']:,}, where the bar is {100 * row['bar']:.2f}"
        for row in rows
    )
    pooled = _rows(study.differences(frame, "network", "full", ()))
    together = f" Together, each seed by its mean over the sizes, that is {_points(pooled[0])}." if pooled else ""
    ours = (
        f"Mean accuracy on network filtered less that on full data: {told}. "
        f"{counted('batch sizes', holds, len(lacking))}{_missing(lacking)}{together}"
    )
    reason = (
        "Within the error bars is taken at its word: at a batch size the mean on network filtered data lies no further "
        "from the mean on full data than the bar of the latter. The paper does not say what its bars are; the bar is "
        "taken to be the standard deviation over the runs on full data, here of "
        f"{listed(str(n) for n in sorted({int(row['n']) for row in rows}))}. It does not shrink with more runs, and is "
        "itself not well known from so few: if both sets were alike, a mean would lie outside by chance at "
        f"{span(100 * row['by_chance'] for row in rows)}% of the sizes. Replicated if it lies within at every size, "
        "not replicated if at none. Sizes must be no more than a doubling apart."
    )
    return so_far(outcome(*holds), holds, len(lacking)), ours, reason


def _large_beats_random(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    least = min(_reported_gains(claims, "random").values())
    where = "for small batches (the least of them, as there is no number for large ones)"
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
    """Judge whether network filtered data beat another set at each batch size; ``gain`` is what the paper has of it.

    A size that was run with one seed lacks, and so does one that is needed and was not run.
    """
    frame = study.runs(ds)
    frame = frame[frame["batch_size"].between(low, np.inf if high is None else high)]
    rows = _rows(with_one_spread(study.differences(frame, "network", other)))
    if not rows:
        return _waits(f"Two seeds on network filtered and on {other} data, at one batch size, are the least.")
    sizes = {*map(int, needed), *map(int, frame.loc[frame["set"].isin(("network", other)), "batch_size"])}
    lacking = sorted(sizes - {int(row["batch_size"]) for row in rows})
    found = signs(rows)
    reported = float(np.mean([gain(int(row["batch_size"])) for row in rows]))
    (pooled,) = _rows(study.differences(frame, "network", other, ()))
    told = "; ".join(f"{_points(row)} at batch {row['batch_size']:,}" for row in rows)
    ours = (
        f"Accuracy on network filtered less that on {other} data: {told}. "
        f"{counted('batch sizes', found, len(lacking))}{_missing(lacking)} Together, each seed by its mean over the "
        f"sizes, the gain is {_share(pooled, reported)}."
    )
    reason = f"{_PAIRED} {_RULE} Reported is the gain {where}."
    return ordered(found, _refutes(pooled, reported), len(lacking)), ours, reason


def _missing(lacking: Iterable[int]) -> str:
    sizes = [f"{size:,}" for size in lacking]
    return f" Not run with two seeds on both sets: batch {listed(sizes)}." if sizes else ""


def _refutes(row: _Row, reported: float) -> bool:
    """Return whether a difference holds zero, or less, and not half of the reported one."""
    return beyond(row["low"], row["high"], MARGIN * reported) is False


def _varies_more(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    border = claims["G12"].setting["batch_size"]
    found = variation(ds, border)
    if not found:
        return _waits(f"Two seeds of a cell on either side of batch {border:,} are the least.")
    by_size = "; ".join(f"{100 * deviation:.2f} at {size:,}" for size, deviation in found.by_size.items())
    ours = (
        f"Between seeds accuracy has a standard deviation of {100 * found.large:.2f} points from batch {border:,} on "
        f"and {100 * found.small:.2f} below; the ratio of the variances is {found.ratio:.2f} ({found.low:.2f} to "
        f"{found.high:.2f}, {found.freedom[0]} and {found.freedom[1]} degrees of freedom). By batch size, in points: "
        f"{by_size}."
    )
    reason = (
        "Variances over the seeds of one set, batch size and number of epochs, so that each run counts once, pooled "
        "over sets, and over the batch sizes on a side. The interval of their ratio must lie above one; one that lies "
        f"below {_LEAST_RATIO:g} and not above one counts against the claim, as the paper's four runs would not show "
        "so small a ratio; one that holds both is too wide to tell. The deviations by batch size stand beside "
        "it, for the claim is of a trend."
    )
    return outcome(beyond(found.low - 1, found.high - 1, _LEAST_RATIO - 1)), ours, reason


def _rows(table: pd.DataFrame) -> list[dict[Hashable, Any]]:
    """Return the differences of which there are two seeds."""
    return table[table["n"] > 1].to_dict("records")


def _points(row: _Row) -> str:
    difference, low, high = (100 * row[name] for name in ("difference", "low", "high"))
    return f"{difference:+.2f} points ({low:+.2f} to {high:+.2f}, {row['n']} seeds)"


def _share(row: _Row, reported: float) -> str:
    """Say how large a difference is, and beside it the reported one and what share of that it is."""
    share, low, high = (row[name] / reported for name in ("difference", "low", "high"))
    return f"{_points(row)}, {share:.0%} ({low:.0%} to {high:.0%}) of the {100 * reported:.1f} that the paper reports"


JUDGES: dict[str, Judge] = {
    "G7": _best_accuracies,
    "G8": _beats_random,
    "G9": _small_decays,
    "G10": _falls_with_batch,
    "G11": _large_gain,
    "G12": _large_accuracies,
    "G13": _within_bars,
    "G14": _large_beats_random,
    "G15": _varies_more,
}
