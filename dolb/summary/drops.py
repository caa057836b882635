"""Which runs dropped late or ended at chance, in words: that says as much of one accident as of the setting."""

from __future__ import annotations

import pandas as pd
import xarray as xr

from dolb import summary


def in_brackets(dropped: int, runs: int) -> str:
    """Say behind a number how many of its runs dropped late; empty for none."""
    return f" ({dropped} of {runs} runs dropped late, which may make the difference)" if dropped else ""


def in_words(ds: xr.Dataset) -> str:
    """Say what a late drop is, how many runs have one, and which; and which others ended at chance."""
    frame = summary.final_accuracy(ds)
    rows = frame[frame["late_drop"]]
    rule = (
        f"one of a run's last {summary.LATE_EPOCHS} epochs lies more than {100 * summary.LATE_DROP:.0f} points below "
        "its best epoch before"
    )
    if rows.empty:
        return f"No run dropped late, which would be that {rule}. {_at_chance_in_words(frame)}".strip()
    return (
        f"{len(rows)} of {len(frame)} runs dropped late: {rule}. The accuracy that counts is then that of a run which "
        "fell or is on its way back, and where there is one seed, whether another would drop as well is not known. In "
        f"brackets the accuracy that counts: {_named(rows)}. {_at_chance_in_words(frame)}"
    ).strip()


def _at_chance_in_words(frame: pd.DataFrame) -> str:
    rows = frame[(frame["accuracy"] <= summary.AT_CHANCE) & ~frame["late_drop"] & ~frame["diverged"].astype(bool)]
    if rows.empty:
        return ""
    return (
        f"{len(rows)} more ended near chance, at {summary.AT_CHANCE:.0%} or less, without having diverged: "
        f"{_named(rows)}. Of one seed, the like is not known of another either."
    )


def _named(rows: pd.DataFrame) -> str:
    rows = rows.sort_values(["arch", "lr", "batch_size", "bn_workers", "seed"])
    return "; ".join(
        f"{row['arch']} with batch {row['batch_size']:,} at rate {row['lr']:g}"
        + (f" and {row['bn_workers']} workers" if row["bn_workers"] > 1 else "")
        + f", seed {row['seed']} ({row['accuracy']:.1%})"
        for row in rows.sort_values("arch", key=lambda names: names.str.len(), kind="stable").to_dict("records")
    )
