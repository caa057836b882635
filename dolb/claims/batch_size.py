"""The verdicts on what Gahlot et al. say of batch size: G1 to G4."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from dolb import findings as summary
from dolb.claims.claim import Claim, Judge, outcome, sign
from dolb.findings import batch_size as study
from dolb.findings import drops, shares
from dolb.findings.coverage import listed, one_seed_in_words, rate_in_words

_KINDS = ("shallow", "deep")  # networks of G3
_TOO_FEW = f"No curve has at least {study.FEWEST_POINTS} batch sizes."


def _optimum(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    curves = study.judged_curves(ds)
    if curves.empty:
        return "not yet measured", "", _TOO_FEW
    first, last = claims["G1"].setting["batch_size"]
    rises = _reached(curves["rises"], curves["measured_from"] <= first)
    falls = _reached(curves["falls"], curves["measured_to"] >= last)
    holds = [False if False in both else None if None in both else True for both in zip(rises, falls, strict=True)]
    notes = {True: "", False: "; no {} it", None: "; no {} it in what was run"}
    told = [
        f"{row['batch_size']:,} ({study.interval_in_words(row)}"
        + notes[rise].format("rise before")
        + notes[fall].format("fall after")
        + _dropped(row)
        + f") at rate {row['lr']:g}"
        for row, rise, fall in zip(curves.to_dict("records"), rises, falls, strict=True)
    ]
    by_network = "; ".join(
        f"{arch} " + ", ".join(words for words, of in zip(told, curves["arch"], strict=True) if of == arch)
        for arch in study.by_depth(curves["arch"])
    )
    ours = (
        f"{holds.count(True)} of {len(curves)} curves rise to an optimum inside the measured range and fall after it"
        f"{_from_drops(curves[[hold is True for hold in holds]])}. "
        f"Preferred batch size, with its interval: {by_network}."
    )
    reason = (
        "A curve counts if both its ends lie below its best cell: the bootstrap interval of each difference must lie "
        f"above zero. It counts against the claim if one end does not though it reaches the claim's, batch {first:,} "
        f"or {last:,}; otherwise it is open. {one_seed_in_words(study.judged_runs(ds))}"
    )
    return outcome(*holds), ours, reason.rstrip()


def _dropped(row: Mapping[Any, Any]) -> str:
    """Say at which batch sizes of a row of `preferred` a run dropped late: the best size may be another for it."""
    return f"; a run dropped late at batch {listed(f'{size:,}' for size in row['dropped'])}" if row["dropped"] else ""


def _from_drops(curves: pd.DataFrame) -> str:
    """Say how many of these curves have an end at which a run dropped late, and which; empty where none has."""
    ends = [
        f"{row['arch']} at rate {row['lr']:g}"
        for row in curves.to_dict("records")
        if {row["measured_from"], row["measured_to"]} & set(row["dropped"])
    ]
    return f", {len(ends)} of them from or to a batch at which a run dropped late ({listed(ends)})" if ends else ""


def _reached(seen: pd.Series, far_enough: pd.Series) -> list[bool | None]:
    """Return True where it is seen, False where it is not though the sizes go far enough, None where they do not."""
    return [True if yes else False if enough else None for yes, enough in zip(seen, far_enough, strict=True)]


def _spread(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    runs = study.judged_runs(ds)
    found = study.spread(runs) if len(runs) else pd.DataFrame()
    lacking = _lacking([] if found.empty else found.iloc[0]["networks"], claims["G2"].setting["networks"], runs)
    if found.empty:
        return (
            "not yet measured",
            "",
            f"Two networks at two rates, with batch sizes in common, are the least. {lacking}".rstrip(),
        )
    first, last = found.iloc[0], found.iloc[-1]
    curves = study.preferred(runs[runs["arch"].isin(first["networks"])])
    peaks = curves[curves["lr"] == first["lr"]].set_index("arch").loc[first["networks"]].reset_index()
    together, shared = _in_common(peaks)
    ours = (
        f"The curves of {listed(first['networks'])} lie, on average over {len(first['batch_sizes'])} batch sizes, "
        + "; ".join(f"{_points(row)} apart at rate {row['lr']:g}" for _, row in found.iterrows())
        + f". From the lowest to the highest rate that is {summary.points(last, 'growth')}. At rate {first['lr']:g} "
        "the preferred batch sizes are "
        + ", ".join(
            f"{row['arch']} {row['batch_size']:,} ({study.interval_in_words(row)}{_dropped(row)})"
            for row in peaks.to_dict("records")
        )
        + f"; {shared}."
    )
    reason = (
        "How far curves lie apart is the range of accuracies over the networks, mean over batch sizes, for the same "
        "networks and sizes at every rate. An interval of the preferred batch size that reaches the smallest or "
        "largest size that was run is open there and may hold any size beyond. Replicated needs a growth from the "
        "lowest to the highest rate whose interval lies above zero, and preferred batch sizes at the lowest rate whose "
        "intervals, none of them open, have a size in common. Not replicated: the growth's interval lies below zero, "
        "and no size can be in common, open ends or not. Anything else is mixed. How near is close "
        "together the claim does not say, so the distance at the lowest rate is told and not judged. "
        + one_seed_in_words(runs[runs["arch"].isin(first["networks"]) & runs["lr"].isin(found["lr"])])
    )
    spreads = sign(last["growth_low"], last["growth_high"])
    return _within_reach(outcome(spreads, together), ours, reason, lacking)


def _in_common(peaks: pd.DataFrame) -> tuple[bool | None, str]:
    """Return whether the intervals of preferred batch sizes share a size, None where open ones may, and say so."""
    lows, highs = peaks.loc[~peaks["open_below"], "smallest"], peaks.loc[~peaks["open_above"], "largest"]
    opened = peaks.loc[peaks["open_below"] | peaks["open_above"], "arch"]
    if lows.max() > highs.min():  # never, where all are open to one side
        return False, "their intervals have no size in common" + (", open ends or not" if len(opened) else "")
    ends = {"smallest": lows.max(), "largest": highs.min(), "open_below": lows.empty, "open_above": highs.empty}
    common = f"{lows.max():,}" if lows.max() == highs.min() else study.interval_in_words(ends)
    if opened.empty:
        return True, f"their intervals have a size in common ({common})"
    return None, (
        f"the best of {listed(opened)} may lie beyond what was run, so that all may have a size in common ({common}) "
        "or none"
    )


def _suddenness(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    runs = study.judged_runs(ds)
    networks = claims["G3"].setting
    found = _falls(runs, networks)
    lacking = _lacking(found["arch"], [*networks["shallow"], *networks["deep"]], runs)
    counted = _at_common_rates(found)
    if not set(counted["arch"]) & set(networks["shallow"]) or not set(counted["arch"]) & set(networks["deep"]):
        reason = (
            "Falling curves of a shallow and of a deep network at one rate, which every network that is compared has, "
            f"are the least. {lacking}"
        )
        return "not yet measured", "", reason.rstrip()
    more = _interval(*_more_sudden(counted, networks))
    by_network = counted.groupby("arch")["suddenness"].mean()
    means = {kind: by_network[by_network.index.isin(networks[kind])].mean() for kind in _KINDS}
    told = ", ".join(f"{arch} {_range(counted[counted['arch'] == arch])}" for arch in study.by_depth(counted["arch"]))
    judged, rests = _whichever_is_left_out(counted, networks)
    others = _otherwise(runs, found, networks)
    if any(outcome(sign(low, high)) != judged for _, (_, low, high) in others):
        judged = "mixed"
    ours = (
        f"On a scale from 0, a straight slope, to 1, a cliff, the deep networks' curves fall with a suddenness of "
        f"{means['deep']:.2f} and the shallow ones' with {means['shallow']:.2f}, mean over the "
        f"{_count(sorted(set(counted['lr'])), 'rate')} that all have; the difference is {more}. {rests} "
        + "".join(f"{words} it is {_interval(*numbers)}. " for words, numbers in others)
        + f"By network, over the rates: {told}."
        + _seam(counted, ds)
    )
    reason = (
        "Suddenness is the largest share of the loss past the optimum that falls within one doubling of the batch, "
        "scaled so that a straight slope over the logarithm of the batch size has 0 and a cliff 1, however far the "
        "sizes reach past the optimum. Counted are curves that reach the largest batch, at rates at which every "
        "network has one. Replicated needs a difference whose interval lies above zero, not replicated one below, and "
        "either has to stay whichever curve is left out, over all rates that both kinds have, and without the batch "
        "size that leaves the smallest rest of the data; anything else is mixed. "
        + one_seed_in_words(runs.merge(counted[list(study.CURVE)]))
    )
    return _within_reach(judged, ours, reason, lacking)


def _falls(runs: pd.DataFrame, networks: Mapping[str, list[str]]) -> pd.DataFrame:
    found = study.falls(runs)
    return found[found["arch"].isin([*networks["shallow"], *networks["deep"]])]


def _at_common_rates(found: pd.DataFrame) -> pd.DataFrame:
    """Return the curves at rates that all have; another would compare one set of networks there, another elsewhere."""
    return found[found.groupby("lr")["arch"].transform("nunique") == found["arch"].nunique()]


def _more_sudden(curves: pd.DataFrame, networks: Mapping[str, list[str]]) -> tuple[float, float, float]:
    """Return by how much the deep networks' curves fall more suddenly than the shallow ones', with its interval.

    The mean over the networks of a rate, then over the rates at which both kinds have one: no rate counts more for
    having more networks. nan where there is no such rate.
    """
    differences, drawn = [], []
    for _, rows in curves.groupby("lr"):
        deep, shallow = (rows[rows["arch"].isin(networks[kind])] for kind in ("deep", "shallow"))
        if len(deep) and len(shallow):
            differences.append(deep["suddenness"].mean() - shallow["suddenness"].mean())
            drawn.append(_mean_draws(deep["draws"]) - _mean_draws(shallow["draws"]))
    if not differences:
        return (float("nan"),) * 3
    difference = float(np.mean(differences))
    return difference, *summary.interval(np.mean(drawn, axis=0), difference)


def _whichever_is_left_out(curves: pd.DataFrame, networks: Mapping[str, list[str]]) -> tuple[str, str]:
    """Return the outcome of G3, mixed where leaving one curve out gives another, and say which curve that is."""
    judged = outcome(sign(*_more_sudden(curves, networks)[1:]))
    without = []
    for place in curves.index:
        difference, low, high = _more_sudden(curves.drop(index=place), networks)
        other = outcome(sign(low, high))
        if np.isfinite(difference) and other != judged:
            one = curves.loc[place]
            without.append(f"{one['arch']} at rate {one['lr']:g} ({other}: {_interval(difference, low, high)})")
    if not without:
        return judged, "No single curve decides this: the outcome stays whichever is left out."
    if judged == "mixed":
        return judged, f"Leaving out one curve would decide it: without {' or without '.join(without)}."
    return "mixed", (
        f"By all curves that is {judged}, but a single curve decides it: it is otherwise without "
        f"{' or without '.join(without)}."
    )


def _otherwise(
    runs: pd.DataFrame, found: pd.DataFrame, networks: Mapping[str, list[str]]
) -> list[tuple[str, tuple[float, float, float]]]:
    """Return how much more suddenly deep networks fall by other choices that are as good, each with its words."""
    told = [("Over every rate that a shallow and a deep network have", _more_sudden(found, networks))]
    rests = runs["training_examples"] % runs["batch_size"]
    large = runs.loc[rests > 0, "batch_size"].max()
    last = runs[runs["batch_size"] > large / 2].assign(rest=rests)
    if len(set(last["batch_size"])) > 1:
        # A small rest is a noisy last update of every epoch, and most so where batches are few.
        worst = last.sort_values("rest").iloc[0]
        without = _at_common_rates(_falls(runs[runs["batch_size"] != worst["batch_size"]], networks))
        words = f"Without batch {worst['batch_size']:,}, which leaves a rest of {worst['rest']:,} images,"
        told.append((words, _more_sudden(without, networks)))
    return [(words, numbers) for words, numbers in told if np.isfinite(numbers[0])]


def _seam(found: pd.DataFrame, ds: xr.Dataset) -> str:
    """Say which curves fall most where one worker's batch becomes that of eight, and what the statistics do there."""
    runs = summary.final_accuracy(ds)
    first = runs.loc[runs["bn_workers"] == study.WORKERS, "batch_size"].min()
    there = found[(found["steepest"] < first) & (found["steepest"] * 2 >= first)]
    if there.empty:
        return ""
    curves = listed(
        f"{row['arch']} at rate {row['lr']:g}"
        + (", with a run there that dropped late" if first in row["dropped"] else "")
        for row in there.to_dict("records")
    )
    told = (
        f" {len(there)} of the {len(found)} curves ({curves}) fall most on the way to batch {first:,}, where one "
        "worker's batch norm becomes that of eight"
    )
    cells = study.all_worker_cells(ds)
    cells = cells[cells["effect"].notna() & cells["arch"].isin(there["arch"])] if len(cells) else cells
    if cells.empty:
        return f"{told}; what of this the statistics do was not measured with these networks."
    effects = ", ".join(
        f"{row['arch']} at batch {row['batch_size']:,} and rate {row['lr']:g} by {summary.points(row, 'effect')}"
        + drops.in_brackets(row["dropped"], row["compared"])
        for _, row in cells.iterrows()
    )
    told += f"; that change alone, the batch held, changes the accuracy of {effects}"
    unknown = study.by_depth(set(there["arch"]) - set(cells["arch"]))
    return f"{told}; with {listed(unknown)} it was not measured." if unknown else f"{told}."


def _mean_draws(draws: Iterable[np.ndarray]) -> np.ndarray:
    """Return the mean over curves, draw by draw, of those that have a suddenness in the draw; nan where none has."""
    return np.ma.masked_invalid(np.stack(list(draws))).mean(axis=0).filled(np.nan)


def _noisy_statistics(ds: xr.Dataset, _claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    curves = study.judged_curves(ds)
    if curves.empty:
        return "not yet measured", "", _TOO_FEW
    cells = study.curve_cells(ds).merge(curves[["arch", "lr"]], on=["arch", "lr"])
    smallest = int(cells["batch_size"].min())
    small = cells[cells["batch_size"] == smallest].sort_values("accuracy").iloc[-1]
    best = cells[cells["arch"] == small["arch"]].sort_values("accuracy").iloc[-1]
    worse = curves[curves["measured_from"] == smallest]["rises"]
    ours = (
        f"At a fixed rate, batch {smallest} is worse than the optimum in {int(worse.sum())} of {len(worse)} curves. "
        f"At its best rate, {rate_in_words(small, cells)}, {small['arch']} reaches {small['accuracy']:.1%} there, "
        + (
            "the best of all its cells."
            if best["batch_size"] == smallest
            else f"and {best['accuracy']:.1%} at its best, batch {best['batch_size']:,} at rate {best['lr']:g}."
        )
    )
    ours += _workers_in_words(study.worker_cells(ds))
    parts = study.separated(ds)
    if parts.empty:
        reason = (
            "What is seen is judged, its cause not yet: the test that separates the two, the statistics of small "
            "batches under the gradient of a large one, is not published yet."
        )
        return "mixed", ours, reason
    at = parts.iloc[0]
    ours += (
        f" From batch {at['from_size']:,} to {at['batch_size']:,} at rate {at['lr']:g} the accuracy of {at['arch']} "
        f"changes by {summary.points(at, 'total')}. Batch-norm statistics over {at['batch_size']:,} examples alone, "
        f"the gradient's batch held, change it by {summary.points(at, 'statistics')}; the smaller gradient batch, the "
        f"statistics of training held, by {summary.points(at, 'gradient')}."
    )
    effects = shares.effects(ds)
    fewer = shares.harmful(effects[effects["share"] < at["batch_size"]])
    ours += f" {shares.in_words(effects)}"
    reason = (
        "Replicated needs intervals that say three things: the small batch loses, its statistics alone lose, and they "
        "lose more than its gradient does. Not replicated: the small batch loses, its gradient loses more than its "
        "statistics do, and these alone may lose nothing, nor do those over fewer examples, which a worker has of that "
        "batch where several share it; the paper does not say how many did. Running estimates, by which a network is "
        "evaluated, are the mean over all shares of a batch: in shares they still rest on the whole of it."
    )
    loses, noisy = at["total_high"] < 0, at["statistics_high"] < 0
    if loses and noisy and at["difference_high"] < 0:
        return "replicated", ours, reason
    refuted = loses and not noisy and at["difference_low"] > 0 and fewer.empty
    return ("not replicated" if refuted else "mixed"), ours, reason


def _workers_in_words(cells: pd.DataFrame) -> str:
    """Say what eight workers' statistics change at the batch sizes at which one worker's were run as well."""
    rows = cells[cells["effect"].notna()] if len(cells) else cells
    if rows.empty:
        return ""
    low, high = rows.sort_values("effect").iloc[0], rows.sort_values("effect").iloc[-1]
    told = rows[(rows["effect_low"] > 0) | (rows["effect_high"] < 0)]
    return (
        f" Eight workers' statistics instead of one's, at rate {low['lr']:g} and batches from "
        f"{rows['batch_size'].min():,} to {rows['batch_size'].max():,}, change the accuracy of {low['arch']} by "
        f"{100 * low['effect']:+.1f} (batch {int(low['batch_size']):,}) to {100 * high['effect']:+.1f} points (batch "
        f"{int(high['batch_size']):,}); at {len(told)} of {len(rows)} sizes the change can be told from none."
    )


# -- in words ----------------------------------------------------------------------------------------------------------


def _lacking(compared: Iterable[str], networks: Iterable[str], runs: pd.DataFrame) -> str:
    """Say of which networks there are no curves, and of which only curves that could not be compared."""
    missing = [name for name in networks if name not in set(compared)]
    begun = [name for name in missing if name in set(runs["arch"])]
    absent = [name for name in missing if name not in begun]
    told = [f"There are no curves of {listed(absent)} yet."] if absent else []
    return " ".join([*told, f"Those of {listed(begun)} do not suffice to be compared."] if begun else told)


def _within_reach(found: str, ours: str, reason: str, lacking: str) -> tuple[str, str, str]:
    """Return the verdict, no more than mixed where networks of the claim lack."""
    return ("mixed" if lacking else found), ours, f"{reason.rstrip()} {lacking}".rstrip()


def _count(things: list, word: str) -> str:
    return f"{len(things)} {word}{'' if len(things) == 1 else 's'}"


def _range(curves: pd.DataFrame) -> str:
    low, high = curves["suddenness"].min(), curves["suddenness"].max()
    return f"{low:.2f}" if len(curves) == 1 else f"{low:.2f} to {high:.2f}"


def _interval(value: float, low: float, high: float) -> str:
    value, low, high = (round(number, 2) + 0.0 for number in (value, low, high))  # no minus before a zero
    return f"{value:+.2f} ({low:+.2f} to {high:+.2f})"


def _points(row: pd.Series) -> str:
    return f"{100 * row['spread']:.1f} points ({100 * row['low']:.1f} to {100 * row['high']:.1f})"


JUDGES: dict[str, Judge] = {"G1": _optimum, "G2": _spread, "G3": _suddenness, "G4": _noisy_statistics}
