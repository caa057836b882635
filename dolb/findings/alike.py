"""Differences at several cells, of few seeds each: one spread between seeds for all of them.

Two or three seeds tell little of how far a difference spreads, and by luck one of many cells has seeds that hardly
differ. The cells of one comparison are taken to spread alike, so their variances are pooled.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats

from dolb import findings as summary


def with_one_spread(table: pd.DataFrame) -> pd.DataFrame:
    """Return the differences between two sets with intervals, and ``p``, by the spread of all of them together.

    ``table`` is of ``filtered.differences``; its intervals say how far each spreads. A row of one seed stays without.
    """
    several = table["n"] > 1
    rows = table[several]
    n, difference = rows["n"].to_numpy(dtype=float), rows["difference"].to_numpy(dtype=float)
    level = (1 + summary.CONFIDENCE) / 2
    deviation = (rows["high"].to_numpy(dtype=float) - difference) * np.sqrt(n) / stats.t.ppf(level, n - 1)
    freedom = float((n - 1).sum())
    if not freedom:
        return table
    error = np.sqrt(((n - 1) * deviation**2).sum() / freedom) / np.sqrt(n)
    half = stats.t.ppf(level, freedom) * error
    with np.errstate(divide="ignore", invalid="ignore"):
        p = np.where(error > 0, 2 * stats.t.sf(np.abs(difference) / error, freedom), difference == 0)
    return table.assign(
        **{
            name: table[name].astype(float).where(~several, pd.Series(values, index=rows.index))
            for name, values in {"low": difference - half, "high": difference + half, "p": p}.items()
        }
    )
