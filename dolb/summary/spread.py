"""How much accuracy differs between seeds, cell by cell, where a cell has few seeds of its own.

Two seeds tell next to nothing of their spread, and one nothing at all; cells of like rate and batch size tell more. The
rate matters most: at one batch size, runs at a rate near the largest that trains differ many times as much as others.
Those are mostly cells of another network, so a run's own last epochs have a say too: another seed differs by no less
than these differ among themselves. A cell in which a run dropped late lends nothing: how far it dropped is not what
seeds differ by elsewhere, and some such cells were given more seeds because of it. Intervals of other cells are then
those of runs that do not drop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

ENOUGH = 5  # degrees of freedom, up to which other cells are asked
AT_CHANCE = 0.12  # an accuracy at which a network of ten classes has learned next to nothing
RATE = 6.0  # doublings of the batch size that a factor of the square root of ten in the rate counts as


class Noise(NamedTuple):
    """A standard deviation between seeds, its degrees of freedom, and the other groups that it is of too, by number.

    Deviation and degrees are zero where nothing is known.
    """

    deviation: float
    degrees: int
    lenders: tuple[int, ...] = ()


def between_seeds(frame: pd.DataFrame, by: Sequence[str]) -> list[Noise]:
    """Return the noise between seeds for each group, groups in their sorted order.

    A group that has `ENOUGH` degrees of its own is left alone. To any other the nearest groups are added, all that are
    equally near at once, until there are enough: variances are pooled by their degrees. Nearness is in batch size and
    rate, of whatever network; a group in which a run has a ``late_drop``, or ended at chance, is not asked. With a
    column ``jitter``, `jitter` of each run, the deviation of a group that asked is not less than its own runs' is.
    """
    groups = frame.groupby(list(by), sort=True)
    # Runs that diverged or learned nothing are at chance, all alike, which says nothing of others.
    degrees = np.where(groups["diverged"].any(), 0, groups.size() - 1)
    squares = degrees * groups["accuracy"].var(ddof=1).fillna(0.0).to_numpy()
    learned = groups["accuracy"].min().to_numpy() > AT_CHANCE
    lends = (degrees > 0) & learned & ~groups["late_drop"].any().to_numpy()
    size, rate = (np.log2(groups[name].first().to_numpy(dtype=float)) for name in ("batch_size", "lr"))
    rate *= RATE / np.log2(10**0.5)
    least = np.zeros(len(degrees))
    if "jitter" in frame:
        squared = frame.assign(jitter=frame["jitter"] ** 2).groupby(list(by), sort=True)["jitter"].mean()
        least = np.sqrt(squared.to_numpy(dtype=np.float64))
    found = []
    for own in range(len(degrees)):
        away = np.round(np.abs(size - size[own]) + np.abs(rate - rate[own]), 6)
        others = lends & (np.arange(len(degrees)) != own)
        free, within, asked = float(degrees[own]), float(squares[own]), np.zeros(len(degrees), dtype=bool)
        for distance in np.unique(away[others]):
            if free >= ENOUGH:
                break
            there = others & (away == distance)
            free, within, asked = free + degrees[there].sum(), within + squares[there].sum(), asked | there
        deviation = float((within / free) ** 0.5) if free else 0.0
        if free and degrees[own] < ENOUGH:
            deviation = max(deviation, float(least[own]))
        found.append(Noise(deviation, int(free), tuple(np.flatnonzero(asked).tolist())))
    return found


def jitter(accuracy: np.ndarray, averaged: int) -> float:
    """Return by how much the mean of a run's last epochs differs by chance, as its epochs differ from one another.

    The deviation of an epoch is taken from differences of neighbours among twice as many, which a trend hardly moves.
    """
    steps = np.diff(accuracy[-2 * averaged :])
    return float(np.sqrt(np.mean(np.square(steps)) / 2 / averaged)) if len(steps) else 0.0
