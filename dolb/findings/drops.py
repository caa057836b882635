"""Which runs dropped late, ended at chance or diverged: that says as much of one accident as of the setting."""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr

from dolb import findings as summary


def in_brackets(dropped: int, runs: int) -> str:
    """Say behind a number how many of its runs dropped late; empty for none."""
    if not dropped:
        return ""
    return f" (all {runs} runs dropped late)" if dropped == runs else f" ({dropped} of {runs} runs dropped late)"


def in_words(ds: xr.Dataset) -> str:
    """Say what a late drop is, and how many runs have one or ended at chance without."""
    frame = summary.final_accuracy(ds)
    rule = (
        f"one of a run's last {summary.LATE_EPOCHS} epochs lies more than {100 * summary.LATE_DROP:.0f} points below "
        "its best epoch before"
    )
    count, lost = int(frame["late_drop"].sum()), int(_at_chance(frame).sum())
    told = (
        f"{count} of {len(frame)} runs dropped late: {rule}. The accuracy that counts is then that of a run which fell "
        "or is on its way back."
        if count
        else f"No run dropped late, which would be that {rule}."
    )
    near = f"ended near chance, at {summary.AT_CHANCE:.0%} or less, without having diverged"
    told = f"{told} {lost} {'more ' if count else ''}{near}." if lost else told
    gone = int(frame["diverged"].sum())
    runs = "1 run" if gone == 1 else f"{gone} runs"
    return f"{told} {runs} diverged: what counts is the last epoch." if gone else told


def table(ds: xr.Dataset) -> pd.DataFrame:
    """Return a table for readers of the runs that dropped late, ended at chance or diverged, the shallow first."""
    frame = summary.final_accuracy(ds)
    gone = frame["diverged"].astype(bool)
    what = np.where(gone, "diverged", np.where(frame["late_drop"], "dropped late", "near chance"))
    rows = frame.assign(what=what)[gone | frame["late_drop"] | _at_chance(frame)]
    rows = rows.sort_values(["arch", "what", "lr", "batch_size", "bn_workers", "seed"])
    rows = rows.sort_values("arch", key=lambda names: names.str.len(), kind="stable")
    shown = {
        "batch size": [f"{size:,}" for size in rows["batch_size"]],
        "workers": rows["bn_workers"].to_numpy(),
        "rate": [f"{rate:g}" for rate in rows["lr"]],
        "seed": rows["seed"].to_numpy(),
        "accuracy that counts": [f"{accuracy:.1%}" for accuracy in rows["accuracy"]],
        "what it did": rows["what"].to_numpy(),
    }
    return pd.DataFrame(shown, index=rows["arch"].to_numpy()).rename_axis(index=None, columns="network")


def _at_chance(frame: pd.DataFrame) -> pd.Series:
    return (frame["accuracy"] <= summary.AT_CHANCE) & ~frame["late_drop"] & ~frame["diverged"].astype(bool)
