"""The numbers of the batch-size study: curves and their optima, equal updates, depth, batch norm, partial batches.

``runs`` are rows of ``runs.final_accuracy``; `curve_runs` picks those that make the curves.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import xarray as xr

from dolb.findings.intervals import Estimate, bootstrapped, quantiles, size_interval, written_rows
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
    """Return the runs of the batch-size curves: eight workers' statistics from the smallest distributed batch on.

    Where no run has eight workers, as in sweeps of one's own, a cell whose runs agree on another number is of them too.
    """
    frame = final_accuracy(ds)
    if not (frame["bn_workers"] == WORKERS).any():
        return frame[(frame["bn_workers"] == 1) | (frame.groupby(list(CELL))["bn_workers"].transform("nunique") == 1)]
    distributed = frame.loc[frame["bn_workers"] == WORKERS, "batch_size"].min()
    expected = (frame["batch_size"] >= distributed).map({True: WORKERS, False: 1})
    return frame[frame["bn_workers"] == expected]  # the index stays a run's place in ``ds``


def curve_cells(ds: xr.Dataset) -> pd.DataFrame:
    """Return the cells of the batch-size curves: a row per network, rate and batch size."""
    return bootstrapped(curve_runs(ds), CELL)[0]


def judged_runs(ds: xr.Dataset) -> pd.DataFrame:
    """Return the runs of those curves that have enough batch sizes to have a shape."""
    runs = curve_runs(ds)
    points = runs.groupby(list(CURVE))["batch_size"].transform("nunique")
    return runs[points >= FEWEST_POINTS]


# Optima


def preferred(runs: pd.DataFrame) -> pd.DataFrame:
    """Return, for each curve, the batch size of the highest accuracy with its bootstrap interval, the shallow first.

    ``smallest`` to ``largest`` spans 95% of the draws' best sizes. Where that reaches the first or last size that was
    run it is open (``open_below``, ``open_above``): a size beyond may do as well. ``rise`` and ``fall`` are what the
    first and the last size of the curve lose against the best.
    """
    cells, draws = bootstrapped(runs, CELL)
    rows = []
    for values, curve in cells.groupby(list(CURVE), sort=True):
        accuracy, sizes = curve["accuracy"].to_numpy(), curve["batch_size"].to_numpy()
        collapsed = curve.loc[curve["late_drops"] > 0, "batch_size"].tolist()
        best, top = int(sizes[accuracy.argmax()]), float(accuracy.max())
        low, high = size_interval(sizes[draws[:, curve.index].argmax(axis=1)])
        smallest, largest = _beyond(sizes[::-1], min(low, best), collapsed), _beyond(sizes, max(high, best), collapsed)
        ends = [smallest, largest, smallest == sizes[0], largest == sizes[-1]]
        rows.append([*values, best, *ends, top, top - accuracy[0], top - accuracy[-1], int(sizes[0]), int(sizes[-1])])
    names = ["smallest", "largest", "open_below", "open_above", "accuracy", "rise", "fall"]
    found = pd.DataFrame(rows, columns=[*CELL, *names, "measured_from", "measured_to"])
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
    runs = runs[~runs["diverged"].astype(bool)]
    by = [*CELL, "epochs", "updates"]
    every = pd.DataFrame(ds["test_accuracy"].to_numpy()[runs.index], runs.index, range(1, ds.sizes["epoch"] + 1))
    long = runs[by].join(every).melt(by, var_name="epoch", value_name="accuracy").astype({"epoch": int})
    long = long[long["epoch"] <= long["epochs"]]
    table = long.groupby([*by, "epoch"])["accuracy"].agg(["mean", "size"]).reset_index()
    drawn = {epochs: np.round(np.geomspace(1, epochs, DRAWN)).astype(int) for epochs in set(runs["epochs"])}
    return table.rename(columns={"mean": "accuracy", "size": "n"}).assign(
        updates=table["epoch"] * table["updates"] / table["epochs"],
        last=table["epoch"] == table["epochs"],
        drawn=[epoch in drawn[epochs] for epoch, epochs in zip(table["epoch"], table["epochs"], strict=True)],
    ).drop(columns="epochs")  # fmt: skip


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
    runs, size = _in_shares(ds)
    split = runs[runs["batch_size"] == size].assign(change=SHARED)
    whole = runs[(runs["bn_workers"] == 1) & (runs["batch_size"] <= size)].assign(change=WHOLE)
    both = pd.concat([split, whole], ignore_index=True)
    return bootstrapped(both.assign(share=both["batch_size"] // both["bn_workers"]), ["change", *CELL, "share"])[0]


def _in_shares(ds: xr.Dataset) -> tuple[pd.DataFrame, int]:
    """Return the runs at the rate of a batch that was run with several numbers of workers, and its size, 0 if none.

    Of several it is the one that leaves the smallest partial batch, which the same workers would share. Other batches
    in shares are left out: runs of theirs that diverged say nothing of the spread between seeds.
    """
    frame = final_accuracy(ds)
    split = frame[frame.groupby(list(CELL))["bn_workers"].transform("nunique") > 2]
    if split.empty:
        return split, 0
    ordered = split.assign(partial=split["training_examples"] % split["batch_size"])
    one = ordered.sort_values(["partial", "batch_size"], kind="stable").iloc[0]
    same = frame[(frame["arch"] == one["arch"]) & (frame["lr"] == one["lr"])]
    return same[(same["bn_workers"] == 1) | (same["batch_size"] == one["batch_size"])], int(one["batch_size"])


def separated(ds: xr.Dataset) -> pd.DataFrame:
    """Return what a smaller batch changes by its batch-norm statistics less what it changes by its gradient.

    From the batch that was run in shares to a small batch ``batch_size``, taking only the statistics over that few
    examples is one change of accuracy, and from there to the small batch the other; ``difference`` is the first less
    the second, and ``n`` counts the runs of the three cells.
    """
    runs, size = _in_shares(ds)
    cells, draws = bootstrapped(runs, ["batch_size", "bn_workers"])
    place = {pair: at for at, pair in enumerate(zip(cells["batch_size"], cells["bn_workers"], strict=True))}
    rows = []
    for batch in sorted(batch for batch, workers in place if workers == 1 and batch < size and size % batch == 0):
        if (size, size // batch) in place and (size, 1) in place:
            at = [place[batch, 1], place[size, size // batch], place[size, 1]]
            measured, drawn = (
                (shared - whole) - (small - shared)
                for small, shared, whole in (cells["accuracy"].to_numpy()[at], draws.T[at])
            )
            rows.append((batch, float(measured), *quantiles(drawn), int(cells["n"].to_numpy()[at].sum())))
    return pd.DataFrame(rows, columns=["batch_size", "difference", "difference_low", "difference_high", "n"])


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
    curves, others = numbered[~numbered["even"]], numbered[numbered["even"]].add_prefix("even_")
    pairs = curves.merge(others, left_on=list(CURVE), right_on=[f"even_{name}" for name in CURVE])
    pairs = pairs.rename(columns={"even_batch_size": "even_size"})
    pairs = pairs.assign(apart=(pairs["batch_size"] / pairs["even_size"] - 1).abs())
    pairs = pairs[pairs["apart"] <= ALIKE].sort_values("apart", kind="stable")
    pairs = pairs.drop_duplicates([*CURVE, "even_size"]).sort_values(list(CELL), ignore_index=True)
    bounds = [quantiles(drawn) for drawn in (draws[:, pairs["even_place"]] - draws[:, pairs["place"]]).T]
    pairs[["effect_low", "effect_high"]] = np.reshape(bounds, (-1, 2))
    found = pairs.assign(effect=pairs["even_accuracy"] - pairs["accuracy"], n=pairs[["n", "even_n"]].min(axis=1))
    names = ["partial", "accuracy", "even_size", "even_accuracy", "effect", "effect_low", "effect_high", "n"]
    return found[[*CELL, *names]]


def even_table(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return `even_division` as a table for readers, with the change in points."""
    return pd.DataFrame(
        {
            "network": pairs["arch"],
            "batch size": pairs["batch_size"].map("{:,}".format),
            "last partial batch": pairs["partial"],
            "accuracy": pairs["accuracy"].map("{:.1%}".format),
            "even batch size": pairs["even_size"].map("{:,}".format),
            "its accuracy": pairs["even_accuracy"].map("{:.1%}".format),
            "change (points)": written_rows("+.1f", 100 * pairs[["effect", "effect_low", "effect_high"]]),
        }
    )
