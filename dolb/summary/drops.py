"""Which runs dropped late, in words: what they reached says as much of that one accident as of their setting."""

from __future__ import annotations

import xarray as xr

from dolb import summary


def in_brackets(dropped: int, runs: int) -> str:
    """Say behind a number how many of its runs dropped late; empty for none."""
    return f" ({dropped} of {runs} runs dropped late, which may make the difference)" if dropped else ""


def in_words(ds: xr.Dataset) -> str:
    """Say what a late drop is, how many runs have one, and which."""
    frame = summary.final_accuracy(ds)
    rows = frame[frame["late_drop"]].sort_values(["arch", "lr", "batch_size", "bn_workers", "seed"])
    rule = (
        f"one of a run's last {summary.LATE_EPOCHS} epochs lies more than {100 * summary.LATE_DROP:.0f} points below "
        "its best epoch before"
    )
    if rows.empty:
        return f"No run dropped late, which would be that {rule}."
    told = "; ".join(
        f"{row['arch']} with batch {row['batch_size']:,} at rate {row['lr']:g}"
        + (f" and {row['bn_workers']} workers" if row["bn_workers"] > 1 else "")
        + f", seed {row['seed']} ({row['accuracy']:.1%})"
        for row in rows.sort_values("arch", key=lambda names: names.str.len(), kind="stable").to_dict("records")
    )
    return (
        f"{len(rows)} of {len(frame)} runs dropped late: {rule}. The accuracy that counts is then that of a run which "
        "fell or is on its way back, and where there is one seed, whether another would drop as well is not known. In "
        f"brackets the accuracy that counts: {told}."
    )
