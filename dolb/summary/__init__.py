"""From runs to the numbers a figure or a verdict needs: final accuracies, and intervals by Student and by bootstrap.

What only one experiment needs is in a module of its own, named after it, such as ``dolb.summary.batch_size``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from dolb import results
from dolb.summary.spread import AT_CHANCE as AT_CHANCE
from dolb.summary.spread import between_seeds, jitter

LAST_EPOCHS = 5
LATE_EPOCHS = 10  # the last epochs, in which a run that drops has little time to recover
LATE_DROP = 0.15  # of accuracy, below the best epoch before: several times what one epoch differs from the next
CONFIDENCE = 0.95
DRAWS = 1000
_TAILS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
_Z = float(stats.norm.ppf(_TAILS[1]))


def select(ds: xr.Dataset, keys: Iterable[str]) -> xr.Dataset:
    """Keep the runs of these keys, in their order in ``ds``; keys that have no run yet are passed over."""
    found = np.flatnonzero(np.isin(ds["key"].to_numpy().astype(str), list(keys)))
    if not len(found):
        raise ValueError("none of these runs is among the results; run `dolb sweep` and `dolb publish` first")
    return ds.isel(run=found)


def narrow(ds: xr.Dataset, **values: Any) -> xr.Dataset:
    """Keep the runs whose config has one of these values, by the schema's names; None keeps all.

    Unlike ``select`` it keeps runs that no recipe lists: more seeds, a rate that was tried at a few batch sizes.
    """
    kept = np.ones(ds.sizes["run"], dtype=bool)
    asked = {name: np.atleast_1d(value) for name, value in values.items() if value is not None}
    for name, accepted in asked.items():
        kept &= np.isin(ds[name].to_numpy(), accepted)
    if not kept.any():
        words = ", ".join(f"{name} {accepted.tolist()}" for name, accepted in asked.items())
        known = "; ".join(f"{name} {', '.join(map(str, np.unique(ds[name])))}" for name in asked)
        raise ValueError(f"no published run has {words}; published: {known}")
    return ds.isel(run=np.flatnonzero(kept))


def final_accuracy(ds: xr.Dataset, last: int = LAST_EPOCHS) -> pd.DataFrame:
    """Return a row per run with ``accuracy``, ``late_drop``, ``updates``, ``epochs_done`` and ``device_seconds``.

    The accuracy is the mean over its last epochs: with a constant rate it jumps from epoch to epoch, and the mean over
    a few tells more than the last one. A run that diverged has the accuracy it had in the epoch in which it did, the
    last that counts as done. ``late_drop`` says whether one of its last `LATE_EPOCHS` epochs lies more than `LATE_DROP`
    below the best epoch before it: the accuracy is then that of a run on its way back, and says as much of that one
    accident as of the setting. Device seconds are those of `results.device_seconds`.
    """
    names = [str(name) for name, variable in ds.variables.items() if variable.dims == ("run",)]
    frame = pd.DataFrame({name: ds[name].to_numpy() for name in names})
    series = ds["test_accuracy"].to_numpy()
    rows = [row[np.isfinite(row)] for row in series]
    window = np.where(frame["diverged"], 1, last)
    frame["accuracy"] = [float(row[-width:].mean()) for row, width in zip(rows, window, strict=True)]
    frame["late_drop"] = [_drops_late(row) for row in rows]
    frame["jitter"] = np.where(frame["diverged"], 0.0, [jitter(row, last) for row in rows])
    frame["epochs_done"] = [len(row) for row in rows]  # fewer than its epochs where it diverged
    frame["device_seconds"] = results.device_seconds(ds).to_numpy()
    # The rest of the data is a batch of its own, unless it is one example, which joins the last.
    full, rest = frame["training_examples"] // frame["batch_size"], frame["training_examples"] % frame["batch_size"]
    frame["updates"] = (frame["epochs"] * (full + (rest > 1))).astype(int)
    return frame


def _drops_late(accuracy: np.ndarray) -> bool:
    below = np.maximum.accumulate(accuracy) - accuracy
    return bool((below[-LATE_EPOCHS:] > LATE_DROP).any())


def over_seeds(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return mean accuracy, 95% interval (``low``, ``high``) and number of seeds ``n`` for each group.

    ``diverged`` and ``late_drops`` count its runs that did, and ``deviation`` is that between seeds.

    The interval has two parts: Student's for the mean over seeds, by the deviation and the degrees of freedom of
    `between_seeds`, and the normal one of a share of the test set. Where no group has several seeds it is that of the
    test set alone: it then says how well the accuracy of that one network is known, not how much another seed would
    differ. The column ``interval`` says which.
    """
    rows = []
    for (values, group), noise in zip(frame.groupby(list(by), sort=True), between_seeds(frame, by), strict=True):
        accuracy = group["accuracy"].to_numpy()
        n, mean = len(accuracy), float(accuracy.mean())
        over = float(stats.t.ppf(_TAILS[1], noise.degrees)) * noise.deviation / np.sqrt(n) if noise.degrees else 0.0
        half = float(np.hypot(over, _Z * _test_set_error(group, mean)))
        rows.append(
            {
                **dict(zip(by, values, strict=True)),
                "accuracy": mean,
                "low": mean - half,
                "high": mean + half,
                "n": n,
                "interval": _of_what(n, noise.degrees),
                "deviation": noise.deviation if noise.degrees else np.nan,
                "diverged": int(group["diverged"].sum()),
                "late_drops": int(group["late_drop"].sum()),
                "updates": int(group["updates"].iloc[0]),
                "device_seconds": float(group["device_seconds"].mean()),
            }
        )
    bounds = ["accuracy", "low", "high", "n", "interval", "deviation"]
    return pd.DataFrame(rows, columns=[*by, *bounds, "diverged", "late_drops", "updates", "device_seconds"])


def _of_what(n: int, degrees: int) -> str:
    """Say what an interval is of: how many seeds, and whether the spread of others' is in it."""
    seeds = f"{n} seeds" if n > 1 else "one seed"
    if not degrees:
        return f"of the test set, {seeds}"
    return f"of the test set and {seeds}" + (", spread pooled with the nearest cells'" if degrees > n - 1 else "")


def resample(frame: pd.DataFrame, by: Sequence[str], draws: int = DRAWS, random_state: int = 0) -> np.ndarray:
    """Return bootstrap draws of the mean accuracy of each group: draws by groups, groups in the order of `over_seeds`.

    The bootstrap is parametric: a draw adds to the mean one deviate for other seeds, Student's with the deviation and
    the degrees of freedom of `between_seeds`, and one for another test set of the same size. To draw the seeds
    themselves with replacement would take two that agree by luck for certainty.
    """
    rng = np.random.default_rng(random_state)
    columns = []
    for (_, group), noise in zip(frame.groupby(list(by), sort=True), between_seeds(frame, by), strict=True):
        mean = float(group["accuracy"].mean())
        over = rng.standard_t(max(noise.degrees, 1), draws) * noise.deviation / np.sqrt(len(group))
        columns.append(mean + over + rng.normal(0, _test_set_error(group, mean), draws))
    return np.clip(np.column_stack(columns), 0, 1)  # what is drawn is an accuracy


def bootstrapped(frame: pd.DataFrame, by: Sequence[str]) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the groups of `over_seeds` with the intervals of bootstrap draws, and the draws."""
    groups = over_seeds(frame, by)
    if groups.empty:
        return groups, np.empty((DRAWS, 0))
    draws = resample(frame, by)
    low, high = np.quantile(draws, _TAILS, axis=0)
    return groups.assign(low=low, high=high), draws


def interval(draws: np.ndarray, value: float | None = None) -> tuple[float, float]:
    """Return the 95% interval of a number from its bootstrap draws; draws in which it does not exist are left out.

    With ``value`` the draws are moved so that it is their median. That is for ranges and maxima: noise makes them
    larger, and the draws have it twice, so they tell how uncertain such a number is and not where it lies.
    """
    low, high = np.nanquantile(draws, _TAILS)
    shift = 0.0 if value is None else value - np.nanmedian(draws)
    return float(low + shift), float(high + shift)


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


def size_interval(draws: np.ndarray) -> tuple[int, int]:
    """Return the 95% interval of a number that only has the values that were drawn, such as a batch size."""
    low, high = np.quantile(draws, _TAILS, method="inverted_cdf")
    return int(low), int(high)


def _test_set_error(group: pd.DataFrame, accuracy: float) -> float:
    return float(np.sqrt(accuracy * (1 - accuracy) / group["test_examples"].iloc[0]))


def span(values: Iterable[float]) -> str:
    """Say from where to where values go, or the one that they are, to a tenth."""
    finite = [value for value in values if np.isfinite(value)]
    ends = (min(finite), max(finite)) if finite else ()
    return " to ".join(dict.fromkeys(f"{value:.1f}" for value in ends)) or "not known"
