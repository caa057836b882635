"""What was tried when the recipe of the experiments on filtering was tuned: full data, by batch size and rate."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import xarray as xr

from dolb import findings as summary

CELL = ("batch_size", "lr")


def tried(ds: xr.Dataset) -> pd.DataFrame:
    """Return accuracy on full data by batch size and rate, with bootstrap intervals."""
    return summary.bootstrapped(summary.final_accuracy(ds), CELL)[0]


def in_words(ds: xr.Dataset | None, taken: Mapping[int, float]) -> str:
    """Say what each rate gave, which was ``taken`` at a batch size, and whether another was better."""
    if ds is None:
        return "What was tried then is not among the published results yet."
    cells = tried(ds)
    sentences = []
    for size in sorted(set(cells["batch_size"].astype(int))):
        rows = cells[cells["batch_size"] == size]
        listed = ", ".join(f"{row.lr:g} {row.accuracy:.1%}" for row in rows.itertuples())
        best = float(rows.sort_values("accuracy")["lr"].iloc[-1])
        own = taken.get(size)
        told = "which is the best of these" if best == own else f"where {best:g} is the best of these"
        chosen = "" if own is None else f"; taken was {own:g}, {told}"
        sentences.append(f"At batch {size:,}, by rate: {listed}{chosen}.")
    return " ".join(sentences)
