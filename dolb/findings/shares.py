"""What batch-norm statistics over ever fewer examples do to accuracy, while the gradient's batch stays."""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr

from dolb.findings import batch_size as study


def effects(ds: xr.Dataset) -> pd.DataFrame:
    """Return, for each share of one batch, what its statistics change against those of the whole batch, with interval.

    Columns are arch, lr, batch_size, share, effect, effect_low, effect_high, n, diverged; shares from large to small. A
    share of which every run diverged has no effect, but that.
    """
    cells = study.share_cells(ds)
    cells = cells[cells["change"] == study.SHARED].sort_values("share", ascending=False)
    columns = [*study.CURVE, "batch_size", "share", "effect", "effect_low", "effect_high", "n", "diverged"]
    whole = cells[cells["share"] == cells["batch_size"]]
    if whole.empty:
        return pd.DataFrame(columns=columns)
    one, smaller = whole.iloc[0], cells[cells["share"] < cells["batch_size"]]
    effect = smaller["accuracy"] - one["accuracy"]
    # Cells are drawn apart, so the squares of their half widths add up.
    below = np.hypot(smaller["accuracy"] - smaller["low"], one["high"] - one["accuracy"])
    above = np.hypot(smaller["high"] - smaller["accuracy"], one["accuracy"] - one["low"])
    found = smaller.assign(effect=effect, effect_low=effect - below, effect_high=effect + above)
    lost = found["diverged"] == found["n"]
    found.loc[lost, ["effect", "effect_low", "effect_high"]] = np.nan
    return found[columns].reset_index(drop=True)


def harmful(found: pd.DataFrame) -> pd.DataFrame:
    """Return the shares of `effects` whose statistics lose accuracy, by an interval below zero or by diverging."""
    return found[(found["effect_high"] < 0) | (found["diverged"] > 0)]


def in_words(found: pd.DataFrame) -> str:
    """Say from how many examples on `effects` tell a loss, and how large it is."""
    if found.empty:
        return "No batch was run in shares."
    one, bad = found.iloc[0], harmful(found)
    fine = found[~found["share"].isin(bad["share"])]
    told = [f"the smallest share at which no loss is told has {fine['share'].min()} examples"] if len(fine) else []
    told += [
        f"{row['share']} example{'s' * (row['share'] > 1)}: {row['diverged']} of {row['n']} runs diverged"
        if row["diverged"]
        else f"{row['share']} examples: {100 * row['effect']:+.1f} points ({100 * row['effect_low']:+.1f} to "
        f"{100 * row['effect_high']:+.1f})"
        for row in bad.to_dict("records")
    ]
    return (
        f"Over shares of a batch of {one['batch_size']:,}, at rate {one['lr']:g}, the gradient's batch held, "
        + "; ".join(told)
        + "."
    )
