"""The numbers of the batch-size study: the curves, their optima, how they spread and fall, and what batch norm does.

Functions take ``runs``, rows of ``summary.final_accuracy``; `curve_runs` picks those that make the curves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from dolb import findings as summary
from dolb.findings import drops

CURVE = ("arch", "lr")
CELL = (*CURVE, "batch_size")
WORKERS = 8  # shares of the batch, of a batch large enough to be distributed
FEWEST_POINTS = 5  # a curve with fewer batch sizes is not judged for its shape
FEWEST_DOUBLINGS = 2  # less past its optimum says nothing of how a curve falls


def curve_runs(ds: xr.Dataset) -> pd.DataFrame:
    """Return the runs of the batch-size curves: eight workers' statistics from the smallest distributed batch on."""
    frame = summary.final_accuracy(ds)
    distributed = frame.loc[frame["bn_workers"] == WORKERS, "batch_size"].min()
    expected = (frame["batch_size"] >= distributed).map({True: WORKERS, False: 1})
    return frame[frame["bn_workers"] == expected].reset_index(drop=True)


def by_depth(archs: Iterable[str]) -> list[str]:
    """Return the networks once each, the shallow before the deep, where a name ends in the number of layers."""
    return sorted(set(archs), key=lambda arch: (len(arch), arch))


def curve_cells(ds: xr.Dataset) -> pd.DataFrame:
    """Return the cells of the batch-size curves: a row per network, rate and batch size."""
    return summary.bootstrapped(curve_runs(ds), CELL)[0]


def judged_runs(ds: xr.Dataset) -> pd.DataFrame:
    """Return the runs of those curves that have enough batch sizes to have a shape."""
    runs = curve_runs(ds)
    points = runs.groupby(list(CURVE))["batch_size"].transform("nunique")
    return runs[points >= FEWEST_POINTS].reset_index(drop=True)


# -- optima ------------------------------------------------------------------------------------------------------------


def preferred(runs: pd.DataFrame) -> pd.DataFrame:
    """Return, for each curve, the batch size of the highest accuracy with its bootstrap interval.

    ``smallest`` to ``largest`` spans 95% of the draws' best sizes. Where that reaches the first or last size that was
    run it is open: ``open_below``, ``open_above``; a size beyond may do as well or better. ``rise`` and ``fall`` are
    what is lost at the ends of the curve against the best; ``rises`` and ``falls`` say whether the interval of that
    loss lies above zero. ``dropped`` are the batch sizes at which a run dropped late: what it would have reached is not
    known, so such a size next to the interval is in it.
    """
    columns = [*CELL, "smallest", "largest", "open_below", "open_above", "accuracy", "rise", "fall", "rises", "falls"]
    columns += ["measured_from", "measured_to", "points", "fewest_seeds", "most_seeds", "dropped"]
    rows = []
    for values, curve, draws in _curves(runs):
        accuracy, sizes = curve["accuracy"].to_numpy(), curve["batch_size"].to_numpy()
        best = int(accuracy.argmax())
        ends = summary.size_interval(sizes[draws.argmax(axis=1)])
        smallest, largest = min(*ends, int(sizes[best])), max(*ends, int(sizes[best]))
        dropped = curve.loc[curve["late_drops"] > 0, "batch_size"].tolist()
        smallest = _beyond_drops(sizes[::-1], smallest, dropped)
        largest = _beyond_drops(sizes, largest, dropped)
        lost = [summary.interval(draws[:, best] - draws[:, end])[0] for end in (0, -1)]
        rows.append(
            {
                **values,
                "batch_size": int(sizes[best]),
                "smallest": smallest,
                "largest": largest,
                "open_below": smallest == int(sizes[0]),
                "open_above": largest == int(sizes[-1]),
                "accuracy": float(accuracy[best]),
                "rise": float(accuracy[best] - accuracy[0]),
                "fall": float(accuracy[best] - accuracy[-1]),
                "rises": best > 0 and lost[0] > 0,
                "falls": best < len(sizes) - 1 and lost[1] > 0,
                "measured_from": int(sizes[0]),
                "measured_to": int(sizes[-1]),
                "points": len(sizes),
                "fewest_seeds": int(curve["n"].min()),
                "most_seeds": int(curve["n"].max()),
                "dropped": dropped,
            }
        )
    return pd.DataFrame(rows, columns=columns)


def _beyond_drops(sizes: np.ndarray, end: int, dropped: Sequence[int]) -> int:
    """Return the end of an interval, moved on along the sizes past those at which a run dropped late."""
    for size in sizes[list(sizes).index(end) + 1 :]:
        if size not in dropped:
            break
        end = int(size)
    return end


def interval_in_words(row: Any) -> str:
    """Say the interval of a row of `preferred`; one that is open has no first or no last size."""
    if row["open_below"] and row["open_above"]:
        return "any size"
    if row["open_below"]:
        return f"{row['largest']:,} or less"
    return f"{row['smallest']:,} or more" if row["open_above"] else f"{row['smallest']:,} to {row['largest']:,}"


def judged_curves(ds: xr.Dataset) -> pd.DataFrame:
    """Return the preferred batch size of every curve that has enough batch sizes to have a shape."""
    return preferred(judged_runs(ds)).sort_values(
        "arch", key=lambda names: names.str.len(), kind="stable", ignore_index=True
    )


# -- how suddenly a curve falls ----------------------------------------------------------------------------------------


def suddenness(sizes: Sequence[int], accuracy: Sequence[float]) -> float:
    """Return how suddenly accuracy falls past its optimum: 0 for a straight slope, 1 for a cliff.

    Over the logarithm of the batch size, the curve is joined by straight lines from its optimum to its last size; where
    it turns up again, its lowest value so far counts. With ``share`` the largest share of the whole loss that falls
    within one doubling, and ``doublings`` the length of the stretch, a straight slope has share = 1 / doublings and a
    cliff share = 1; suddenness is (share - 1 / doublings) / (1 - 1 / doublings), so that stretches of unequal length
    can be compared. It is nan where there is no loss or where the stretch is shorter than two doublings.
    """
    return _steepest(sizes, accuracy)[0]


def _steepest(sizes: Sequence[int], accuracy: Sequence[float]) -> tuple[float, float]:
    """Return the suddenness of a curve and the batch size at which its steepest doubling begins, nan without one."""
    best = int(np.argmax(accuracy))
    x = np.log2(np.asarray(sizes[best:], dtype=float))
    y = np.minimum.accumulate(np.asarray(accuracy[best:], dtype=float))
    doublings, loss = x[-1] - x[0], y[0] - y[-1]
    if doublings < FEWEST_DOUBLINGS or loss <= 0:
        return float("nan"), float("nan")
    # The loss over a window of one doubling is piecewise linear in where it starts: it is largest at a bend.
    starts = np.clip(np.concatenate([x, x - 1]), x[0], x[-1] - 1)
    lost = np.interp(starts, x, y) - np.interp(starts + 1, x, y)
    share = lost.max() / loss
    return float((share - 1 / doublings) / (1 - 1 / doublings)), float(2 ** starts[lost.argmax()])


def falls(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the suddenness of every curve that falls, with its bootstrap interval, its draws and where it is steepest.

    Left out are curves that end before the largest batch of all, whose loss at the last size may be none, or whose
    optimum leaves less than two doublings.
    """
    optima = preferred(runs).set_index(list(CURVE))
    rows = []
    for values, curve, draws in _curves(runs):
        sizes = curve["batch_size"].tolist()
        found, steepest = _steepest(sizes, curve["accuracy"].tolist())
        optimum = optima.loc[tuple(values[name] for name in CURVE)]
        if optimum["falls"] and np.isfinite(found) and sizes[-1] == runs["batch_size"].max():
            drawn = np.array([suddenness(sizes, draw) for draw in draws])
            low, high = summary.interval(drawn, found)
            row = {"suddenness": found, "low": max(low, 0.0), "high": min(high, 1.0)}
            row |= {name: optimum[name] for name in ("fall", "batch_size", "dropped")}
            rows.append({**values, **row, "steepest": steepest, "draws": drawn})
    columns = [*CURVE, "suddenness", "low", "high", "fall", "batch_size", "dropped", "steepest", "draws"]
    return pd.DataFrame(rows, columns=columns)


# -- how far the curves of several networks lie apart ------------------------------------------------------------------


def spread(runs: pd.DataFrame) -> pd.DataFrame:
    """Return, by rate, how far the networks' curves lie apart: the range of their accuracies, mean over batch sizes.

    Compared are the same networks and batch sizes at every rate: the largest set of networks that at least two rates
    share, and the sizes that all of these curves have. ``growth`` is the difference to the lowest rate.
    """
    cells, draws = summary.bootstrapped(runs, CELL)
    networks, rates = _shared(cells)
    columns = ["lr", "spread", "low", "high", "growth", "growth_low", "growth_high", "networks", "batch_sizes"]
    curves = cells[cells["arch"].isin(networks) & cells["lr"].isin(rates)]
    complete = curves.groupby("batch_size")["accuracy"].transform("size") == len(networks) * len(rates)
    curves = curves[complete]
    sizes = sorted(curves["batch_size"].unique())
    if not sizes:
        return pd.DataFrame(columns=columns)
    # Cells are sorted by network, rate and size, and complete: their positions are an array of that shape.
    positions = curves.index.to_numpy().reshape(len(networks), len(rates), len(sizes))
    ranges = np.ptp(cells["accuracy"].to_numpy()[positions], axis=0).mean(axis=-1)
    drawn = np.ptp(draws[:, positions], axis=1).mean(axis=-1)
    rows = []
    for place, rate in enumerate(rates):
        grown = float(ranges[place] - ranges[0])
        low, high = summary.interval(drawn[:, place], ranges[place])
        growth_low, growth_high = summary.interval(drawn[:, place] - drawn[:, 0], grown)
        numbers = [rate, float(ranges[place]), low, high, grown, growth_low, growth_high, networks, sizes]
        rows.append(dict(zip(columns, numbers, strict=True)))
    return pd.DataFrame(rows, columns=columns)


def _shared(cells: pd.DataFrame) -> tuple[list[str], list[float]]:
    """Return the largest set of two networks or more that several rates have, and those rates."""
    there = {float(rate): frozenset(cells.loc[cells["lr"] == rate, "arch"]) for rate in cells["lr"].unique()}
    shared = {there[one] & there[other] for one, other in combinations(there, 2)}
    networks = max(shared, key=lambda names: (len(names), sorted(names)), default=frozenset())
    if len(networks) < 2:
        return [], []
    return by_depth(networks), sorted(rate for rate, names in there.items() if networks <= names)


# -- what batch norm does ----------------------------------------------------------------------------------------------

SHARED, WHOLE = "shares of one batch", "whole batches"


def share_cells(ds: xr.Dataset) -> pd.DataFrame:
    """Return accuracy by examples under one batch-norm statistic, for shares of one batch and for whole small batches.

    The first are of one batch size that was run with many shares: the gradient's batch stays. If there are several, it
    is the one that leaves the smallest rest of the data, since a rest is dealt to the same workers in smaller shares.
    The second are the curve's own small batches at the same rate: the gradient's batch shrinks too. ``change`` says
    which.
    """
    frame = summary.final_accuracy(ds)
    columns = ["change", *CELL, "share"]
    split = _in_shares(ds).assign(change=SHARED)
    if split.empty:
        return summary.over_seeds(split.assign(share=[]), columns)
    one = split.sort_values(["rest", "batch_size"], kind="stable").iloc[0]
    split = split[(split[list(CELL)] == one[list(CELL)]).all(axis=1)]
    small = (frame["arch"] == one["arch"]) & (frame["lr"] == one["lr"]) & (frame["bn_workers"] == 1)
    whole = frame[small & (frame["batch_size"] <= one["batch_size"])].assign(change=WHOLE)
    both = pd.concat([split, whole], ignore_index=True)
    return summary.bootstrapped(both.assign(share=both["batch_size"] // both["bn_workers"]), columns)[0]


def dealt_rests(ds: xr.Dataset) -> pd.DataFrame:
    """Return accuracy by workers where the epoch's last batch is a rest, and how few examples of it a worker gets."""
    split = _in_shares(ds)
    split = split[split["rest"] > 0]
    columns = [*CELL, "bn_workers", "rest", "least"]
    split = split.assign(least=split["rest"] // split["bn_workers"].clip(upper=split["rest"]))
    return summary.over_seeds(split, columns) if split.empty else summary.bootstrapped(split, columns)[0]


def dealt_in_words(rests: pd.DataFrame, shares: pd.DataFrame) -> str:
    """Say what `dealt_rests` shows: how accuracy goes with the fewest examples that a worker gets of the last batch.

    And which runs diverged, of these and of `share_cells`: with too few examples they do, rest or not.
    """
    if rests.empty:
        return "No batch that leaves a rest was run in shares."
    one = rests.iloc[0]
    cells = [
        (f"{row['bn_workers']} workers, {row['least']} each or more: " if row["bn_workers"] > 1 else "1 worker: ")
        + f"{row['accuracy']:.1%}{drops.in_brackets(row['late_drops'], row['n'])}"
        for row in rests[rests["diverged"] == 0].to_dict("records")
    ]
    told = (
        f"At batch {one.batch_size:,} the last batch of an epoch is a rest of {one.rest:,} images, which the same "
        f"workers share, and accuracy goes with that one batch ({'; '.join(cells)})."
    )
    both = pd.concat([rests.assign(share=rests["batch_size"] // rests["bn_workers"]), shares], ignore_index=True)
    diverged = [
        f"{row['diverged']} of {row['n']} runs with batch {row['batch_size']:,}, "
        f"{row['share']} {'example' if row['share'] == 1 else 'examples'} to a statistic"
        for row in both[both["diverged"] > 0].to_dict("records")
    ]
    return f"{told} Diverged have {'; '.join(diverged)}." if diverged else told


def _in_shares(ds: xr.Dataset) -> pd.DataFrame:
    """Return the runs of cells that were run with more than two numbers of workers, and the rest their batch leaves."""
    frame = summary.final_accuracy(ds)
    frame = frame.assign(rest=frame["training_examples"] % frame["batch_size"])
    return frame[frame.groupby(list(CELL))["bn_workers"].transform("nunique") > 2]


def separated(ds: xr.Dataset) -> pd.DataFrame:
    """Return what a smaller batch changes, in two parts: by its batch-norm statistics and by its gradient.

    From the batch that was run in shares to a small batch ``batch_size``, ``total`` is the change of accuracy. Taking
    only the statistics over that few examples changes it by ``statistics``; ``gradient`` is the rest, the change
    between two runs whose statistics see equally few examples and whose gradients do not. ``difference`` is the first
    part less the second.
    """
    frame = summary.final_accuracy(ds)
    found = share_cells(ds)
    parts = ("total", "statistics", "gradient", "difference")
    columns = ["arch", "lr", "from_size", "batch_size", *(f"{p}{end}" for p in parts for end in ("", "_low", "_high"))]
    if found.empty:
        return pd.DataFrame(columns=columns)
    one = found[found["change"] == SHARED].iloc[0]
    same = frame[(frame["arch"] == one["arch"]) & (frame["lr"] == one["lr"])]
    # Other batches in shares are not compared: runs of theirs that diverged say nothing of the spread between seeds.
    same = same[(same["bn_workers"] == 1) | (same["batch_size"] == one["batch_size"])]
    by = ["batch_size", "bn_workers"]
    cells, draws = summary.bootstrapped(same, by)
    pairs = zip(cells["batch_size"].tolist(), cells["bn_workers"].tolist(), strict=True)
    place = {pair: position for position, pair in enumerate(pairs)}
    means = cells["accuracy"].to_numpy()
    whole, rows = (int(one["batch_size"]), 1), []
    for size, workers in sorted(place):
        shares = (whole[0], whole[0] // size)
        if workers != 1 or size >= whole[0] or whole[0] % size or whole not in place or shares not in place:
            continue
        row = {"arch": one["arch"], "lr": one["lr"], "from_size": whole[0], "batch_size": size}
        at = [place[cell] for cell in ((size, 1), shares, whole)]
        for part, change, drawn in zip(parts, _changes(*means[at]), _changes(*draws.T[at]), strict=True):
            row[part] = float(change)
            row[f"{part}_low"], row[f"{part}_high"] = summary.interval(drawn)
        rows.append(row)
    return pd.DataFrame(rows, columns=columns)


def _changes(small: np.ndarray, shared: np.ndarray, whole: np.ndarray) -> tuple[np.ndarray, ...]:
    statistics, gradient = shared - whole, small - shared
    return small - whole, statistics, gradient, statistics - gradient


def worker_cells(ds: xr.Dataset) -> pd.DataFrame:
    """Return the cells that were run both with one worker's statistics and with eight workers', one curve of them.

    The curve is the network and rate with the most batch sizes of that kind.
    """
    cells = all_worker_cells(ds)
    if cells.empty:
        return cells
    sizes = cells.groupby(list(CURVE))["batch_size"].transform("nunique")
    one = cells.iloc[int(sizes.to_numpy().argmax())]
    return cells[(cells["arch"] == one["arch"]) & (cells["lr"] == one["lr"])].reset_index(drop=True)


def seams_in_words(ds: xr.Dataset) -> str:
    """Say what eight workers' statistics change with networks other than that of `worker_cells`."""
    cells, drawn = all_worker_cells(ds), worker_cells(ds)
    others = cells[cells["effect"].notna() & ~cells["arch"].isin(drawn["arch"])]
    if others.empty:
        return "With deeper networks this was not run."
    listed = "; ".join(
        f"{row['arch']} at batch {row['batch_size']:,}, {row['batch_size'] // WORKERS} examples to a worker: "
        f"{summary.points(row, 'effect')}{drops.in_brackets(row['dropped'], row['compared'])}"
        for row in others.to_dict("records")
    )
    seeds = f"{others['n'].min()} to {others['n'].max()} seeds" if others["n"].max() > 1 else "one seed"
    return (
        f"With deeper networks, at rate {others['lr'].iloc[0]:g} and of {seeds}, eight workers' statistics change it "
        f"so: {listed}."
    )


def all_worker_cells(ds: xr.Dataset) -> pd.DataFrame:
    """Return the cells of every curve that were run both with one worker's statistics and with eight workers'.

    ``effect`` is what eight workers' statistics change, with its bootstrap interval, on the rows of the eight, and
    ``dropped`` of the ``compared`` runs of both dropped late.
    """
    frame = summary.final_accuracy(ds)
    frame = frame[frame["bn_workers"].isin((1, WORKERS))]
    frame = frame[frame.groupby(list(CELL))["bn_workers"].transform("nunique") == 2]
    by = [*CELL, "bn_workers"]
    if frame.empty:
        return summary.over_seeds(frame, by).assign(effect=[], effect_low=[], effect_high=[], dropped=[], compared=[])
    cells, draws = summary.bootstrapped(frame, by)
    # One worker, then eight, of each batch size.
    means = cells["accuracy"].to_numpy()
    bounds = [summary.interval(drawn) for drawn in (draws[:, 1::2] - draws[:, ::2]).T]
    effects = np.full((len(cells), 3), np.nan)
    effects[1::2] = np.column_stack([means[1::2] - means[::2], bounds])
    both = cells.groupby(list(CELL))[["late_drops", "n"]].transform("sum")
    return cells.join(pd.DataFrame(effects, columns=["effect", "effect_low", "effect_high"])).assign(
        dropped=both["late_drops"], compared=both["n"]
    )


def _curves(runs: pd.DataFrame) -> list[tuple[dict, pd.DataFrame, np.ndarray]]:
    """Return every curve: what it is of, its cells by batch size, and its draws."""
    cells, draws = summary.bootstrapped(runs, CELL)
    return [
        (dict(zip(CURVE, values, strict=True)), curve, draws[:, curve.index.to_numpy()])
        for values, curve in cells.groupby(list(CURVE), sort=True)
    ]
