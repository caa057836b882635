"""The numbers of the batch-size study: curves and their optima, equal updates, depth, batch norm, partial batches.

``runs`` are rows of ``runs.final_accuracy``; `curve_runs` picks those that make the curves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import xarray as xr

from dolb.findings.intervals import Estimate, bootstrapped, quantiles, size_interval, written
from dolb.findings.runs import AT_CHANCE, final_accuracy

CURVE = ("arch", "lr")
CELL = (*CURVE, "batch_size")
WORKERS = 8  # shares of the batch, of a batch large enough to be distributed
FEWEST_POINTS = 5  # a curve with fewer batch sizes has no shape to judge
FEWEST_DOUBLINGS = 2  # less past its optimum says nothing of how a curve falls
DRAWN = 16  # epochs of a run that a figure draws, more of them early, where a curve is steep
ALIKE = 0.1  # batches that differ by no larger a share are taken for the same
SHARED, WHOLE = "shares of one batch", "whole batches"


def curve_runs(ds: xr.Dataset) -> pd.DataFrame:
    """Return the runs of the batch-size curves: eight workers' statistics from the smallest distributed batch on."""
    frame = final_accuracy(ds)
    distributed = frame.loc[frame["bn_workers"] == WORKERS, "batch_size"].min()
    expected = (frame["batch_size"] >= distributed).map({True: WORKERS, False: 1})
    return frame[frame["bn_workers"] == expected].reset_index(drop=True)


def curve_cells(ds: xr.Dataset) -> pd.DataFrame:
    """Return the cells of the batch-size curves: a row per network, rate and batch size."""
    return bootstrapped(curve_runs(ds), CELL)[0]


def judged_runs(ds: xr.Dataset) -> pd.DataFrame:
    """Return the runs of those curves that have enough batch sizes to have a shape."""
    runs = curve_runs(ds)
    points = runs.groupby(list(CURVE))["batch_size"].transform("nunique")
    return runs[points >= FEWEST_POINTS].reset_index(drop=True)


# Optima


def preferred(runs: pd.DataFrame) -> pd.DataFrame:
    """Return, for each curve, the batch size of the highest accuracy with its bootstrap interval, the shallow first.

    ``smallest`` to ``largest`` spans 95% of the draws' best sizes. Where that reaches the first or last size that was
    run it is open (``open_below``, ``open_above``): a size beyond may do as well. ``rise`` and ``fall`` are what the
    first and the last size of the curve lose against the best.
    """
    columns = [*CELL, "smallest", "largest", "open_below", "open_above", "accuracy", "rise", "fall"]
    columns += ["measured_from", "measured_to"]
    cells, draws = bootstrapped(runs, CELL)
    rows = []
    for values, curve in cells.groupby(list(CURVE), sort=True):
        accuracy, sizes = curve["accuracy"].to_numpy(), curve["batch_size"].to_numpy()
        collapsed = curve.loc[curve["late_drops"] > 0, "batch_size"].tolist()
        best = int(accuracy.argmax())
        low, high = size_interval(sizes[draws[:, curve.index].argmax(axis=1)])
        smallest = _beyond(sizes[::-1], min(low, int(sizes[best])), collapsed)
        largest = _beyond(sizes, max(high, int(sizes[best])), collapsed)
        ends = [smallest, largest, smallest == sizes[0], largest == sizes[-1]]
        lost = [float(accuracy[best]), float(accuracy[best] - accuracy[0]), float(accuracy[best] - accuracy[-1])]
        rows.append([*values, int(sizes[best]), *ends, *lost, int(sizes[0]), int(sizes[-1])])
    found = pd.DataFrame(rows, columns=columns)
    return found.sort_values("arch", key=lambda names: names.str.len(), kind="stable", ignore_index=True)


def _beyond(sizes: np.ndarray, end: int, collapsed: Sequence[int]) -> int:
    """Return the end of an interval, moved past sizes at which a run collapsed: what it would have reached is open."""
    for size in sizes[list(sizes).index(end) + 1 :]:
        if size not in collapsed:
            break
        end = int(size)
    return end


# Equal updates


def by_epoch(ds: xr.Dataset) -> pd.DataFrame:
    """Return the test accuracy of every cell of the curves after each of its epochs, mean over seeds.

    Columns are arch, lr, batch_size, epoch, accuracy, n, updates so far, ``last`` at the end of a run, and ``drawn`` at
    some of the epochs, which are enough for a figure. Runs that diverged are left out.
    """
    runs = curve_runs(ds)
    runs = runs[~runs["diverged"].astype(bool)].reset_index(drop=True)
    place = {key: row for row, key in enumerate(ds["key"].to_numpy())}
    series = ds["test_accuracy"].to_numpy()[[place[key] for key in runs["key"]]]
    tables = []
    for cell, group in runs.groupby(list(CELL), sort=True):
        epochs = int(group["epochs"].iloc[0])
        every = np.arange(1, epochs + 1)
        table = pd.DataFrame(dict(zip(CELL, cell, strict=True)), index=range(epochs)).assign(
            epoch=every,
            accuracy=np.nanmean(series[group.index], axis=0)[:epochs],
            n=len(group),
            updates=every * (int(group["updates"].iloc[0]) / epochs),
            last=every == epochs,
            drawn=np.isin(every, np.round(np.geomspace(1, epochs, DRAWN)).astype(int)),
        )
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def at_equal_updates(table: pd.DataFrame) -> pd.DataFrame:
    """Return accuracies of every curve after as many updates as its largest batch makes in all.

    Between the epochs of `by_epoch` they are interpolated over the logarithm of the updates. Batch sizes whose first
    epoch makes more are left out.
    """
    rows = []
    for curve, group in table.groupby(list(CURVE), sort=True):
        updates = group.loc[group["batch_size"] == group["batch_size"].max(), "updates"].max()
        for size, own in group.groupby("batch_size"):
            if own["updates"].min() <= updates:
                reached = np.interp(np.log(updates), np.log(own["updates"]), own["accuracy"])
                rows.append((*curve, size, updates, float(reached)))
    return pd.DataFrame(rows, columns=[*CELL, "updates", "accuracy"])


def largest_ahead(equal: pd.DataFrame) -> tuple[int, int]:
    """Return in how many curves the largest batch is ahead of the smallest at equal updates, and of how many.

    Counted are curves of `at_equal_updates` with several batch sizes that have learned something by then.
    """
    curves = [curve["accuracy"].to_numpy() for _, curve in equal.groupby(list(CURVE)) if len(curve) > 1]
    learned = [accuracy for accuracy in curves if accuracy.max() > AT_CHANCE]
    return sum(int(accuracy[-1] > accuracy[0]) for accuracy in learned), len(learned)


# Depth


def suddenness(sizes: Sequence[int], accuracy: Sequence[float]) -> float:
    """Return how suddenly accuracy falls past its optimum: 0 for a straight slope, 1 for a cliff.

    Over the logarithm of the batch size, the curve is joined by straight lines from its optimum to its last size; where
    it turns up again, its lowest value so far counts. With ``share`` the largest share of the whole loss that falls
    within one doubling, and ``doublings`` the length of the stretch, a straight slope has share = 1 / doublings and a
    cliff share = 1; suddenness is (share - 1 / doublings) / (1 - 1 / doublings), so that stretches of unequal length
    can be compared. It is nan where there is no loss or where the stretch is shorter than two doublings.
    """
    best = int(np.argmax(accuracy))
    x = np.log2(np.asarray(sizes[best:], dtype=float))
    y = np.minimum.accumulate(np.asarray(accuracy[best:], dtype=float))
    doublings, loss = x[-1] - x[0], y[0] - y[-1]
    if doublings < FEWEST_DOUBLINGS or loss <= 0:
        return float("nan")
    # The loss over a window of one doubling is piecewise linear in where it starts: it is largest at a bend.
    starts = np.clip(np.concatenate([x, x - 1]), x[0], x[-1] - 1)
    share = (np.interp(starts, x, y) - np.interp(starts + 1, x, y)).max() / loss
    return float((share - 1 / doublings) / (1 - 1 / doublings))


def falls(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the suddenness of every curve that falls and reaches the largest batch of all: arch, lr, suddenness."""
    means = runs.groupby(list(CELL))["accuracy"].mean().reset_index("batch_size")
    rows = [
        (*curve, suddenness(cells["batch_size"].tolist(), cells["accuracy"].tolist()))
        for curve, cells in means.groupby(list(CURVE))
        if cells["batch_size"].max() == runs["batch_size"].max()
    ]
    return pd.DataFrame(rows, columns=[*CURVE, "suddenness"]).dropna(ignore_index=True)


def ranges(runs: pd.DataFrame) -> pd.DataFrame:
    """Return how far the networks lie apart: the range of their accuracies, a row per batch size, a column per rate.

    Compared are all networks, at the rates and batch sizes that all of them have.
    """
    means = runs.pivot_table(index=["lr", "batch_size"], columns="arch", values="accuracy", aggfunc="mean").dropna()
    if means.shape[1] < 2:
        return pd.DataFrame()
    apart = (means.max(axis=1) - means.min(axis=1)).rename("range").reset_index()
    return apart.pivot_table(index="batch_size", columns="lr", values="range").dropna()


def growth(runs: pd.DataFrame) -> Estimate | None:
    """Return by how much the networks lie farther apart at the highest rate that all have than at the lowest.

    The interval is that of other seeds: of bootstrap draws, moved to what was measured, as a range grows by noise.
    """
    apart = ranges(runs)
    if apart.shape[1] < 2:
        return None
    cells, draws = bootstrapped(runs, CELL)
    ends = []
    for rate in apart.columns[[-1, 0]]:
        chosen = cells[(cells["lr"] == rate) & cells["batch_size"].isin(apart.index)]
        ends.append(chosen.sort_values(["batch_size", "arch"]).index.to_numpy().reshape(len(apart), -1))
    measured, drawn = (
        np.subtract(*(np.ptp(values[..., places], axis=-1).mean(axis=-1) for places in ends))
        for values in (cells["accuracy"].to_numpy(), draws)
    )
    n = int(cells.loc[np.unique(ends), "n"].sum())
    return Estimate(float(measured), *quantiles(drawn, float(measured)), n)


def depth_by_rate(runs: pd.DataFrame, **networks: Sequence[str]) -> pd.DataFrame:
    """Return, by rate, how far the networks lie apart in points, and the mean suddenness of each kind of network."""
    apart = 100 * ranges(runs).mean().rename("range over depths (points)")
    fall = falls(runs)
    kinds = {
        f"suddenness, {kind} networks": fall[fall["arch"].isin(names)].groupby("lr")["suddenness"].mean()
        for kind, names in networks.items()
    }
    table = pd.concat([apart, pd.DataFrame(kinds).reindex(apart.index)], axis=1)
    return table.rename_axis("learning rate").reset_index()


# Batch norm


def share_cells(ds: xr.Dataset) -> pd.DataFrame:
    """Return accuracy by examples under one batch-norm statistic, for shares of one batch and for whole small batches.

    The first are of one batch size that was run with many numbers of workers: the gradient's batch stays. The second
    are the curve's own small batches at the same rate: the gradient's batch shrinks too. ``change`` says which.
    """
    frame, one = final_accuracy(ds), _in_shares(ds)
    columns = ["change", *CELL, "share"]
    if one is None:
        return bootstrapped(frame[:0].assign(change="", share=0), columns)[0]
    curve = frame[(frame["arch"] == one["arch"]) & (frame["lr"] == one["lr"])]
    split = curve[curve["batch_size"] == one["batch_size"]].assign(change=SHARED)
    whole = curve[(curve["bn_workers"] == 1) & (curve["batch_size"] <= one["batch_size"])].assign(change=WHOLE)
    both = pd.concat([split, whole], ignore_index=True)
    return bootstrapped(both.assign(share=both["batch_size"] // both["bn_workers"]), columns)[0]


def _in_shares(ds: xr.Dataset) -> pd.Series | None:
    """Return a run of the cell that was run with more than two numbers of workers, None where there is none.

    Of several cells it is the one that leaves the smallest partial batch, which the same workers would share.
    """
    frame = final_accuracy(ds)
    split = frame[frame.groupby(list(CELL))["bn_workers"].transform("nunique") > 2]
    partial = (split["training_examples"] % split["batch_size"]).rename("partial")
    ordered = split.assign(partial=partial).sort_values(["partial", "batch_size"], kind="stable")
    return None if ordered.empty else ordered.iloc[0]


def separated(ds: xr.Dataset) -> pd.DataFrame:
    """Return what a smaller batch changes, in two parts: by its batch-norm statistics and by its gradient.

    From the batch that was run in shares to a small batch ``batch_size``, ``total`` is the change of accuracy. Taking
    only the statistics over that few examples changes it by ``statistics``; ``gradient`` is the rest, the change
    between two runs whose statistics see equally few examples and whose gradients do not. ``difference`` is the first
    part less the second; ``n`` counts the runs of the three cells.
    """
    parts = ("total", "statistics", "gradient", "difference")
    columns = ["arch", "lr", "from_size", "batch_size", *(f"{p}{end}" for p in parts for end in ("", "_low", "_high"))]
    frame, one = final_accuracy(ds), _in_shares(ds)
    if one is None:
        return pd.DataFrame(columns=[*columns, "n"])
    same = frame[(frame["arch"] == one["arch"]) & (frame["lr"] == one["lr"])]
    # Other batches in shares are not compared: runs of theirs that diverged say nothing of the spread between seeds.
    same = same[(same["bn_workers"] == 1) | (same["batch_size"] == one["batch_size"])]
    cells, draws = bootstrapped(same, ["batch_size", "bn_workers"])
    pairs = zip(cells["batch_size"].tolist(), cells["bn_workers"].tolist(), strict=True)
    place = {pair: position for position, pair in enumerate(pairs)}
    size, rows = int(one["batch_size"]), []
    for small in sorted(small for small, workers in place if workers == 1 and small < size and size % small == 0):
        compared = [(small, 1), (size, size // small), (size, 1)]
        if not set(compared) <= set(place):
            continue
        at = [place[cell] for cell in compared]
        row = [one["arch"], one["lr"], size, small]
        changes = zip(_changes(*cells["accuracy"].to_numpy()[at]), _changes(*draws.T[at]), strict=True)
        row += [number for change, drawn in changes for number in (float(change), *quantiles(drawn))]
        rows.append([*row, int(cells["n"].to_numpy()[at].sum())])
    return pd.DataFrame(rows, columns=[*columns, "n"])


def _changes(small: np.ndarray, shared: np.ndarray, whole: np.ndarray) -> tuple[np.ndarray, ...]:
    statistics, gradient = shared - whole, small - shared
    return small - whole, statistics, gradient, statistics - gradient


# The last partial batch


def even_division(study: xr.Dataset, even: xr.Dataset) -> pd.DataFrame:
    """Return what an even division changes: ``study`` has the curves, ``even`` like cells that divide the data evenly.

    ``batch_size`` is the curve's, ``partial`` the images in its last batch, ``even_size`` the other's; ``effect`` is
    the change of accuracy from the first to the second, with its bootstrap interval; ``n`` the fewer seeds of the two.
    """
    runs = pd.concat([curve_runs(study).assign(even=False), final_accuracy(even).assign(even=True)], ignore_index=True)
    runs["partial"] = runs["training_examples"] % runs["batch_size"]
    cells, draws = bootstrapped(runs, [*CELL, "partial", "even"])
    numbered = cells.assign(place=cells.index)
    curves, others = numbered[~numbered["even"]], numbered[numbered["even"]]
    pairs = curves.merge(others, on=list(CURVE), suffixes=("", "_even"))
    pairs = pairs.assign(apart=(pairs["batch_size"] / pairs["batch_size_even"] - 1).abs())
    pairs = pairs[pairs["apart"] <= ALIKE].sort_values("apart", kind="stable")
    pairs = pairs.drop_duplicates([*CURVE, "batch_size_even"]).sort_values(list(CELL), ignore_index=True)
    change = draws[:, pairs["place_even"]] - draws[:, pairs["place"]]
    bounds = [quantiles(drawn) for drawn in change.T]
    return pairs[[*CELL, "partial", "accuracy"]].assign(
        even_size=pairs["batch_size_even"],
        even_accuracy=pairs["accuracy_even"],
        effect=pairs["accuracy_even"] - pairs["accuracy"],
        effect_low=[low for low, _ in bounds],
        effect_high=[high for _, high in bounds],
        n=np.minimum(pairs["n"], pairs["n_even"]),
    )


def even_table(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return `even_division` as a table for readers, with the change in points."""
    points = 100 * pairs[["effect", "effect_low", "effect_high"]]
    return pd.DataFrame(
        {
            "network": pairs["arch"],
            "batch size": pairs["batch_size"].map("{:,}".format),
            "last partial batch": pairs["partial"],
            "accuracy": pairs["accuracy"].map("{:.1%}".format),
            "even batch size": pairs["even_size"].map("{:,}".format),
            "its accuracy": pairs["even_accuracy"].map("{:.1%}".format),
            "change (points)": [written("+.1f", *bounds) for bounds in points.to_numpy()],
        }
    )
