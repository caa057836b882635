"""The fast path against the plain one: accuracies of the same cells, and their differences."""

from __future__ import annotations

import pandas as pd
import xarray as xr

from dolb import findings as summary
from dolb.findings.batch_size import by_depth
from dolb.findings.coverage import listed

CELL = ("arch", "batch_size", "lr")
PATHS = {"eager": "plain: float32, eager", "fused": "fast: bfloat16, fused"}


def accuracies(ds: xr.Dataset) -> pd.DataFrame:
    """Return the final accuracy of every run, and which ``path`` computed it."""
    frame = summary.final_accuracy(ds)
    return frame.assign(path=frame["engine"].map(PATHS))


def differences(frame: pd.DataFrame) -> pd.DataFrame:
    """Return, for each cell that both paths ran, what the fast path changes, with its bootstrap interval.

    ``within`` says whether the fast path's mean lies in the plain path's interval.
    """
    cells, draws = summary.bootstrapped(frame, [*CELL, "path"])
    plain, fast = PATHS.values()
    rows = []
    for values, group in cells.groupby(list(CELL), sort=True):
        by_path = {path: position for position, path in zip(group.index, group["path"], strict=True)}
        if set(by_path) != {plain, fast}:
            continue
        one, other = cells.loc[by_path[plain]], cells.loc[by_path[fast]]
        low, high = summary.interval(draws[:, by_path[fast]] - draws[:, by_path[plain]])
        rows.append(
            {
                **dict(zip(CELL, values, strict=True)),
                "plain": one["accuracy"],
                "fast": other["accuracy"],
                "plain_seeds": int(one["n"]),
                "fast_seeds": int(other["n"]),
                "difference": other["accuracy"] - one["accuracy"],
                "low": low,
                "high": high,
                "within": bool(one["low"] <= other["accuracy"] <= one["high"]),
            }
        )
    return pd.DataFrame(rows)


def in_words(found: pd.DataFrame) -> str:
    """Say what `differences` found, cell by cell."""
    return "; ".join(
        f"{row['arch']} at batch {row['batch_size']:,}, rate {row['lr']:g}: {row['fast']:.1%} "
        f"({row['fast_seeds']} seeds) against {row['plain']:.1%} ({row['plain_seeds']} seeds), a difference of "
        f"{100 * row['difference']:+.1f} points ({100 * row['low']:+.1f} to {100 * row['high']:+.1f})"
        for row in found.to_dict("records")
    )


def drops_in_words(frame: pd.DataFrame) -> str:
    """Say which runs of `accuracies` dropped late, on which path, and what the difference would be without them."""
    if not frame["late_drop"].any():
        return "No run dropped late."
    found = differences(frame[~frame["late_drop"]])
    told = []
    for (arch, size, lr, path), group in frame.groupby([*CELL, "path"], sort=True):
        if len(fell := group[group["late_drop"]]):
            seeds = listed(f"seed {row['seed']} at {row['accuracy']:.1%}" for row in fell.to_dict("records"))
            others = found[(found["arch"] == arch) & (found["batch_size"] == size) & (found["lr"] == lr)]
            without = [
                f", without which the difference is {round(100 * one, 1) + 0.0:+.1f} points"
                for one in others["difference"]
            ]
            told.append(
                f"{len(fell)} of {len(group)} runs on the path {path!r} of {arch} at batch {size:,}, rate {lr:g} "
                f"({seeds}){''.join(without)}"
            )
    return (
        f"Late drops, by more than {100 * summary.LATE_DROP:.0f} points below a run's best in one of its last "
        f"{summary.LATE_EPOCHS} epochs: {'; '.join(told)}."
    )


def limits_in_words(found: pd.DataFrame, study: xr.Dataset) -> str:
    """Say what `differences` leaves open: the changes within its intervals, and what of the study was not compared."""
    if found.empty:
        return "No cell was run on both paths yet."
    runs = pd.DataFrame({name: study[name].to_numpy() for name in ("arch", "batch_size", "seed", "engine")})
    smallest = int(found["batch_size"].min())
    held = " and ".join(
        f"of {100 * row['low']:+.1f} to {100 * row['high']:+.1f} points at batch {row['batch_size']:,}"
        for row in found.to_dict("records")
    )
    told = f"A change {held} is not excluded by this."
    others = by_depth(set(runs["arch"]) - set(found["arch"]))
    lacking = [f"its other networks ({listed(others)})"] if others else []
    if (runs["batch_size"] < smallest).any():
        lacking.append(f"its batches below {smallest:,}")
    if lacking:
        told += f" Of the study, {listed(lacking)} were not compared, nor rates and sizes other than these."
    other = runs[~runs["engine"].isin(PATHS)]
    if len(other):
        steps = listed(sorted(set(other["engine"])))
        seeds = listed(str(seed) for seed in sorted(set(other["seed"])))
        told += (
            f" {len(other)} of its {len(runs):,} runs ({listed(by_depth(other['arch']))}, seed {seeds}) were made with "
            f"another step, {steps}, which was not compared either."
        )
    return told
