"""Findings: Datasets in, numbers and tables out. ``runs`` and ``intervals`` are shared; a page has a file of its own."""

# TO GO: names by which modules that are not rewritten yet call what is in ``runs`` and ``intervals``.
from collections.abc import Iterable
from typing import Any

import numpy as np

from dolb.findings.intervals import (
    CONFIDENCE,
    DRAWS,
    TAILS as _TAILS,
    bootstrapped,
    over_seeds,
    resample,
    size_interval,
)
from dolb.findings.intervals import quantiles as interval
from dolb.findings.runs import AT_CHANCE, LAST_EPOCHS, LATE_DROP, LATE_EPOCHS, final_accuracy, narrow, select


def holm(p: np.ndarray) -> np.ndarray:
    """Return p-values after Holm's correction for all of them together; NaN, of what was not tested, stays."""
    adjusted = np.full(len(p), np.nan)
    tested = np.flatnonzero(np.isfinite(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    left = len(order) - np.arange(len(order))  # the smallest is held to all tests, the next to all but one, ...
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(left * p[order]))
    return adjusted


def points(row: Any, name: str) -> str:
    """Say a change of accuracy in points with its interval, of a row that has both by that name."""
    value, low, high = (100 * row[f"{name}{end}"] for end in ("", "_low", "_high"))
    return f"{value:+.1f} points ({low:+.1f} to {high:+.1f})"


def span(values: Iterable[float]) -> str:
    """Say from where to where values go, or the one that they are, to a tenth."""
    finite = [value for value in values if np.isfinite(value)]
    ends = (min(finite), max(finite)) if finite else ()
    return " to ".join(dict.fromkeys(f"{value:.1f}" for value in ends)) or "not known"
