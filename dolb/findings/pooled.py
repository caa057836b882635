"""Intervals of geometric means when a cell has few repetitions: one spread for all cells of a kind.

Two or three repetitions tell little of how far a cell spreads, and Student's interval over them alone says nothing. The
cells of one kind are taken to spread alike, by a factor, so the variance of their logarithms is pooled; a cell that was
measured once then has an interval too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from dolb import findings as summary

LEAST_FREEDOM = 7  # Student's quantile is then a fifth above the normal one


@dataclass(frozen=True)
class Spread:
    """The standard deviation of one logarithm about its cell's mean, and how many degrees of freedom it rests on."""

    deviation: float
    freedom: int

    @property
    def factor(self) -> float:
        """The deviation as a factor less one."""
        return float(np.expm1(self.deviation))

    def error(self, count: int) -> float:
        """Return the standard error of a mean of so many logarithms."""
        return self.deviation / float(np.sqrt(count))


def spread(values: pd.Series, by: Sequence[pd.Series] | Sequence[str]) -> Spread:
    """Pool the variance of logarithms over cells; where nothing was repeated it is not known (NaN).

    Cells are told apart by levels of the index, or by columns of as many rows.
    """
    cells = np.log(values).groupby(list(by)).agg(["var", "count"]).dropna()
    return joined(*(Spread(float(np.sqrt(cell["var"])), int(cell["count"]) - 1) for _, cell in cells.iterrows()))


def joined(*spreads: Spread) -> Spread:
    """Pool spreads of one kind, each by its degrees of freedom."""
    freedom = sum(one.freedom for one in spreads)
    if not freedom:
        return Spread(float("nan"), 0)
    squares = sum(one.freedom * one.deviation**2 for one in spreads if one.freedom)
    return Spread(float(np.sqrt(squares / freedom)), freedom)


def by_kind(spreads: Mapping[str, Spread]) -> dict[str, Spread]:
    """Give each kind its own spread where that rests on ``LEAST_FREEDOM``, and else that of all kinds together."""
    every = joined(*spreads.values())
    return {kind: one if one.freedom >= LEAST_FREEDOM else every for kind, one in spreads.items()}


def geometric(values: np.ndarray, of: Spread) -> tuple[float, float, float]:
    """Return the geometric mean of values whose spread is known, and its interval."""
    middle = float(stats.gmean(values))
    reach = _reach(of.error(len(values)), of.freedom)
    return middle, middle / reach, middle * reach


def widened(table: pd.DataFrame) -> pd.DataFrame:
    """Widen the intervals of ``ratio`` for as many comparisons as there are rows (Bonferroni).

    All of them together then hold with the confidence that one has else. ``table`` has ratio, log_error and freedom.
    """
    known = zip(table["log_error"], table["freedom"], strict=True)
    reach = np.array([_reach(float(error), int(freedom), len(table)) for error, freedom in known])
    return table.assign(low=table["ratio"] / reach, high=table["ratio"] * reach)


def _reach(error: float, freedom: int, comparisons: int = 1) -> float:
    """Return the factor by which an interval reaches to either side."""
    if not freedom:
        return float("nan")
    return float(np.exp(stats.t.ppf(1 - (1 - summary.CONFIDENCE) / (2 * comparisons), freedom) * error))
