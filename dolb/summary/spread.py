"""How much accuracy differs between seeds, cell by cell, where a cell has few seeds of its own.

Two seeds tell next to nothing of their spread, and one nothing at all; cells of like rate and batch size tell more. The
rate matters most: at one batch size, runs at a rate near the largest that trains differ many times as much as others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

ENOUGH = 5  # degrees of freedom, up to which other cells are asked
RATE = 6.0  # doublings of the batch size that a factor of the square root of ten in the rate counts as


class Noise(NamedTuple):
    """A standard deviation between seeds, and its degrees of freedom; both zero where nothing is known."""

    deviation: float
    degrees: int


def between_seeds(frame: pd.DataFrame, by: Sequence[str]) -> list[Noise]:
    """Return the noise between seeds for each group, groups in their sorted order.

    A group that has `ENOUGH` degrees of its own is left alone. To any other the nearest groups are added, all that are
    equally near at once, until there are enough: variances are pooled by their degrees. Nearness is in batch size and
    rate, of whatever network.
    """
    groups = frame.groupby(list(by), sort=True)
    # Runs that diverged are at chance, all alike, which says nothing of others.
    degrees = np.where(groups["diverged"].any(), 0, groups.size() - 1)
    squares = degrees * groups["accuracy"].var(ddof=1).fillna(0.0).to_numpy()
    size, rate = (np.log2(groups[name].first().to_numpy(dtype=float)) for name in ("batch_size", "lr"))
    rate *= RATE / np.log2(10**0.5)
    found = []
    for own in range(len(degrees)):
        away = np.round(np.abs(size - size[own]) + np.abs(rate - rate[own]), 6)
        away[own] = -1.0
        free = within = 0.0
        for distance in np.unique(away[degrees > 0]):
            if free >= ENOUGH:
                break
            there = away == distance
            free, within = free + degrees[there].sum(), within + squares[there].sum()
        found.append(Noise(float((within / free) ** 0.5) if free else 0.0, int(free)))
    return found
