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

LAST_EPOCHS = 5
LATE_EPOCHS = 10  # the last epochs, in which a run that drops has little time to recover
LATE_DROP = 0.15  # of accuracy, below the best epoch before: several times what one epoch differs from the next
CONFIDENCE = 0.95
DRAWS = 1000
ONE_SEED = "of the test set and the spread of other cells' seeds, one seed"
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
    frame["epochs_done"] = [len(row) for row in rows]  # fewer than its epochs where it diverged
    frame["device_seconds"] = results.device_seconds(ds).to_numpy()
    # The rest of the data is a batch of its own, unless it is one example, which joins the last.
    full, rest = frame["training_examples"] // frame["batch_size"], frame["training_examples"] % frame["batch_size"]
    frame["updates"] = (frame["epochs"] * (full + (rest > 1))).astype(int)
    return frame


def _drops_late(accuracy: np.ndarray) -> bool:
    below = np.maximum.accumulate(accuracy) - accuracy
    return bool((below[-LATE_EPOCHS:] > LATE_DROP).any())


def seed_spread(frame: pd.DataFrame, by: Sequence[str]) -> pd.Series:
    """Return the standard deviation between seeds by batch size, of the groups that have several; maybe no rows.

    Groups of one batch size, of whatever rate and network, are pooled by their degrees of freedom. It stands in for
    what a group of one seed cannot tell of itself. The batch size decides most of it: the noise of a few large
    updates is many times that of many small ones.
    """
    groups = frame.groupby(list(by))["accuracy"]
    squares = (frame["accuracy"] - groups.transform("mean")) ** 2
    free = 1 - 1 / groups.transform("size")  # sums up to n - 1 over a group, and to 0 over one of one seed
    sums = pd.DataFrame({"squares": squares, "free": free}).groupby(frame["batch_size"]).sum()
    sums = sums[sums["free"] > 0]
    return (sums["squares"] / sums["free"]) ** 0.5


def _of_another_seed(spread: pd.Series, batch_size: int) -> float:
    """Return the spread at a batch size or else at the nearest that has one, in doublings; 0 where none has."""
    return 0.0 if spread.empty else float(spread.iloc[np.abs(np.log2(spread.index / batch_size)).argmin()])


def over_seeds(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return mean accuracy, 95% interval (``low``, ``high``) and number of seeds ``n`` for each group.

    ``diverged`` and ``late_drops`` count its runs that did.

    Where there are several seeds the interval is Student's for their mean. Where there is one it is the normal
    interval of a share of the test set and of the `seed_spread` of the other groups. If no group has several seeds it
    is that of the test set alone: it then says how well the accuracy of that one network is known, not how much another
    seed would differ. The column ``interval`` says which.
    """
    rows = []
    spread = seed_spread(frame, by)
    for values, group in frame.groupby(list(by), sort=True):
        accuracy = group["accuracy"].to_numpy()
        n, mean = len(accuracy), float(accuracy.mean())
        if n > 1:
            half = float(stats.t.ppf(_TAILS[1], n - 1) * accuracy.std(ddof=1) / np.sqrt(n))
            interval = f"over {n} seeds"
        else:
            half = _Z * float(np.hypot(_test_set_error(group, mean), _of_another_seed(spread, _batch_size(group))))
            interval = "of the test set, one seed" if spread.empty else ONE_SEED
        extra = {
            "diverged": int(group["diverged"].sum()),
            "late_drops": int(group["late_drop"].sum()),
            "updates": int(group["updates"].iloc[0]),
            "device_seconds": float(group["device_seconds"].mean()),
        }
        key = dict(zip(by, values, strict=True))
        bounds = {"accuracy": mean, "low": mean - half, "high": mean + half, "n": n, "interval": interval}
        rows.append({**key, **bounds, **extra})
    columns = [*by, "accuracy", "low", "high", "n", "interval", "diverged", "late_drops", "updates", "device_seconds"]
    return pd.DataFrame(rows, columns=columns)


def resample(frame: pd.DataFrame, by: Sequence[str], draws: int = DRAWS, random_state: int = 0) -> np.ndarray:
    """Return bootstrap draws of the mean accuracy of each group: draws by groups, groups in the order of `over_seeds`.

    A draw takes the group's seeds with replacement, and a test set of the same size; the second keeps two seeds that
    agree by luck from being taken for certainty. A group of one seed takes the noise between seeds from the
    `seed_spread` of the others, as a normal deviate; if there is none, the test set's noise is all it has.
    """
    rng = np.random.default_rng(random_state)
    spread = seed_spread(frame, by)
    columns = []
    for _, group in frame.groupby(list(by), sort=True):
        accuracy = group["accuracy"].to_numpy()
        n, mean = len(accuracy), float(accuracy.mean())
        drawn = accuracy[rng.integers(n, size=(draws, n))].mean(axis=1) - mean
        # Means of n values drawn with replacement vary less than the mean of n values does, by (n - 1) / n.
        over = drawn * np.sqrt(n / (n - 1)) if n > 1 else drawn
        of_others = 0.0 if n > 1 else _of_another_seed(spread, _batch_size(group))
        columns.append(mean + over + rng.normal(0, np.hypot(_test_set_error(group, mean), of_others), draws))
    return np.clip(np.column_stack(columns), 0, 1)  # what is drawn is an accuracy


def bootstrapped(frame: pd.DataFrame, by: Sequence[str]) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the groups of `over_seeds` with bootstrap intervals in the place of Student's, and their draws.

    Student's interval of two seeds is a dozen times their distance, which tells a reader nothing; the bootstrap's is
    narrower and leans on the test set where seeds are few. Where there is one, ``interval`` says whose spread it has.
    """
    groups = over_seeds(frame, by)
    if groups.empty:
        return groups, np.empty((DRAWS, 0))
    draws = resample(frame, by)
    low, high = np.quantile(draws, _TAILS, axis=0)
    words = groups["interval"].where(groups["n"] == 1, groups["interval"] + " and the test set")
    return groups.assign(low=low, high=high, interval=words), draws


def interval(draws: np.ndarray, value: float | None = None) -> tuple[float, float]:
    """Return the 95% interval of a number from its bootstrap draws; draws in which it does not exist are left out.

    With ``value`` the draws are moved so that it is their median. That is for ranges and maxima: noise makes them
    larger, and the draws have it twice, so they tell how uncertain such a number is and not where it lies.
    """
    low, high = np.nanquantile(draws, _TAILS)
    shift = 0.0 if value is None else value - np.nanmedian(draws)
    return float(low + shift), float(high + shift)


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


def _batch_size(group: pd.DataFrame) -> int:
    return int(group["batch_size"].iloc[0])
