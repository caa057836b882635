"""Every interval of the book: 95%, by the textbook method of its name. Pages take theirs from here and nowhere else."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import special  # not scipy.stats, whose import takes a second of every notebook

from dolb.findings.runs import AT_CHANCE

CONFIDENCE = 0.95
TAILS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
DRAWS = 4000
ENOUGH = 5  # degrees of freedom, up to which the spread between seeds is pooled with that of other cells
RATE = 6.0  # doublings of the batch size that a factor of the square root of ten in the rate counts as
ANOTHER = 3.0  # doublings that another network counts as


@dataclass(frozen=True)
class Estimate:
    """A number with its 95% interval, and of how many repetitions it is."""

    value: float
    low: float
    high: float
    n: int

    def map(self, change: Callable[[float], float]) -> Estimate:
        """Return the estimate of an increasing function of the number, such as points of a share or exp of a log."""
        return Estimate(float(change(self.value)), float(change(self.low)), float(change(self.high)), self.n)

    def points(self) -> Estimate:
        """Return a difference of accuracies in points."""
        return self.map(lambda value: 100 * value)

    def row(self) -> dict[str, float]:
        """Return value, low, high and n for a table, in which an interval of one repetition is not known (NaN)."""
        return vars(self) | ({} if self.n > 1 else {"low": np.nan, "high": np.nan})

    def written(self, form: str) -> str:
        """Return the number with its interval as tables for readers have it."""
        return written(form, self.value, self.low, self.high)


def written(form: str, value: Any, low: Any, high: Any) -> str:
    """Return a number with its interval as tables for readers have it, alone where its interval is not known."""
    form = form.replace(".", "z.")  # no zero has a minus
    bounds = f" ({low:{form}} to {high:{form}})" if np.isfinite(low) else ""
    return f"{value:{form}}{bounds}"


def written_rows(form: str, table: pd.DataFrame) -> list[str]:
    """Return each row of a number, its low and its high as tables for readers have it."""
    return [written(form, *row) for row in table.to_numpy()]


def gmean(values: Any, axis: int = 0) -> Any:
    """Return the geometric mean."""
    return np.exp(np.mean(np.log(values), axis=axis))


def student(values: Sequence[float] | np.ndarray | pd.Series) -> Estimate:
    """Return the mean of independent repetitions, with Student's interval, which has no end where there are not two."""
    values = np.asarray(values, dtype=float)
    n = len(values)
    if n < 2:
        return Estimate(float(values.sum()) if n else np.nan, -np.inf, np.inf, n)
    mean = float(np.mean(values))
    half = float(special.stdtrit(n - 1, TAILS[1]) * np.std(values, ddof=1) / np.sqrt(n))
    return Estimate(mean, mean - half, mean + half, n)


def added(one: Estimate, other: Estimate) -> Estimate:
    """Return the sum of two independent means with Student's intervals, by Welch and Satterthwaite; n is one's."""
    free = np.array([one.n - 1, other.n - 1])
    half = np.array([one.high - one.low, other.high - other.low]) / 2
    squares = np.square(half / special.stdtrit(free, TAILS[1]))
    total, value = float(squares.sum()), one.value + other.value
    degrees = total**2 / float((squares**2 / free).sum()) if total else 1.0
    wide = float(special.stdtrit(degrees, TAILS[1])) * total**0.5
    return Estimate(value, value - wide, value + wide, one.n)


def geometric(values: Sequence[float] | np.ndarray | pd.Series) -> Estimate:
    """Return the geometric mean of ratios, with Student's interval of their logarithms."""
    return student(np.log(np.asarray(values, dtype=float))).map(np.exp)


def jackknife(whole: np.ndarray, without: np.ndarray) -> Estimate:
    """Return the mean of independent estimates, with the interval by what each is without one of its groups.

    ``whole`` has an entry, and ``without`` a row, for each of them; the row has the estimate without each group.
    """
    n, groups = without.shape
    squares = (groups - 1) / groups * np.square(without - without.mean(axis=1, keepdims=True)).sum(axis=1)
    half = float(special.stdtrit(n * (groups - 1), TAILS[1]) * np.sqrt(squares.sum()) / n)
    mean = float(np.mean(whole))
    return Estimate(mean, mean - half, mean + half, n)


def welch(one: Sequence[float] | np.ndarray, other: Sequence[float] | np.ndarray) -> Estimate:
    """Return the mean of one sample less that of another, unpaired, with Welch's interval."""
    from scipy import stats

    found = stats.ttest_ind(one, other, equal_var=False).confidence_interval(CONFIDENCE)
    return Estimate(
        float(np.mean(one) - np.mean(other)), float(found.low), float(found.high), min(len(one), len(other))
    )


def widest(groups: Sequence[Sequence[float]] | Sequence[np.ndarray]) -> Estimate:
    """Return the largest mean of several groups less the smallest, with Tukey's interval, which knows of the choice."""
    from scipy import stats

    found = stats.tukey_hsd(*groups)
    means = [float(np.mean(group)) for group in groups]
    above, below = int(np.argmax(means)), int(np.argmin(means))
    bounds = found.confidence_interval(CONFIDENCE)
    low, high = bounds.low[above, below], bounds.high[above, below]
    return Estimate(means[above] - means[below], float(low), float(high), sum(map(len, groups)))


def pooled_geometric(values: pd.Series, alike: Sequence[str] = (), spread_of: pd.Series | None = None) -> pd.DataFrame:
    """Return the geometric mean of each cell of few repetitions, with Student's interval by one spread for many cells.

    Cells are told apart by the levels of the index other than ``repeat``; those that agree in ``alike`` share the
    variance of their logarithms, or have that of ``spread_of``, of cells of its own. Columns are value, low, high, n;
    where nothing was repeated the interval is not known (NaN).
    """
    cells, of = (_log_cells(series) for series in (values, values if spread_of is None else spread_of))
    sums = pd.DataFrame({"free": of["count"] - 1, "squares": of["var"].fillna(0.0) * (of["count"] - 1)})
    if alike and len(sums):
        where = cells.index.to_frame(index=False)[list(alike)]
        shared = where.join(sums.groupby(level=list(alike)).sum(), on=list(alike)).set_axis(cells.index)
    else:
        shared = pd.DataFrame([sums.sum()] * len(cells), index=cells.index, columns=["free", "squares"])
    known = shared["free"].where(shared["free"] > 0)
    half = special.stdtrit(known, TAILS[1]) * np.sqrt(shared["squares"] / known / cells["count"])
    bounds = {"value": cells["mean"], "low": cells["mean"] - half, "high": cells["mean"] + half}
    return pd.DataFrame({name: np.exp(logs) for name, logs in bounds.items()}).assign(n=cells["count"])


def _log_cells(values: pd.Series) -> pd.DataFrame:
    levels = [name for name in values.index.names if name != "repeat"]
    return np.log(values).groupby(level=levels, sort=True).agg(["mean", "var", "count"])


def deviation_ratio(one: pd.Series, other: pd.Series, by: Sequence[str]) -> Estimate:
    """Return the ratio of two pooled standard deviations within cells, with the interval of the F distribution.

    Both are series indexed by the levels ``by`` that make a cell; n is the smaller number of degrees of freedom.
    """
    (above, free_above), (below, free_below) = (_pooled_variance(values, by) for values in (one, other))
    ratio = above / below
    low, high = (ratio / special.fdtri(free_above, free_below, tail) for tail in reversed(TAILS))
    return Estimate(float(ratio**0.5), float(low**0.5), float(high**0.5), min(free_above, free_below))


def _pooled_variance(values: pd.Series, by: Sequence[str]) -> tuple[float, int]:
    groups = values.groupby(list(by))
    free = groups.count() - 1
    return float((groups.var(ddof=1).fillna(0.0) * free).sum() / free.sum()), int(free.sum())


def quantiles(draws: np.ndarray, value: float | None = None) -> tuple[float, float]:
    """Return the 95% interval of a number from its bootstrap draws; draws in which it does not exist are left out.

    With ``value`` the draws are moved so that it is their median. That is for ranges and maxima: noise makes them
    larger, and the draws have it twice, so they tell how uncertain such a number is and not where it lies.
    """
    low, high = np.nanquantile(draws, TAILS)
    shift = 0.0 if value is None else value - np.nanmedian(draws)
    return float(low + shift), float(high + shift)


# Cells of few seeds: the spread between seeds, pooled with that of the nearest cells


def between_seeds(frame: pd.DataFrame, by: Sequence[str]) -> list[tuple[float, int]]:
    """Return the standard deviation between seeds for each group, in their sorted order, and its degrees of freedom.

    A group that has `ENOUGH` degrees of its own is left alone. To any other the nearest groups are added, all that are
    equally near at once, until there are enough: variances are pooled by their degrees. Nearness is in batch size, rate
    and, where groups differ in them, warmup and network. A group in which a run has a ``late_drop``, or ended at
    chance, is not asked. The deviation of a group that asked is not less than the ``jitter`` of its own runs. Where
    nothing is known, both are 0.
    """
    groups = frame.assign(jitter=frame["jitter"] ** 2).groupby(list(by), sort=True)
    # Runs that diverged or learned nothing are at chance, all alike, which says nothing of others.
    degrees = np.where(groups["diverged"].any(), 0, groups.size() - 1)
    squares = degrees * groups["accuracy"].var(ddof=1).fillna(0.0).to_numpy()
    learned = groups["accuracy"].min().to_numpy() > AT_CHANCE
    lends = (degrees > 0) & learned & ~groups["late_drop"].any().to_numpy()
    size, rate = (np.log2(groups[name].first().to_numpy(dtype=float)) for name in ("batch_size", "lr"))
    rate *= RATE / np.log2(10**0.5)
    length = np.log2(1 + groups["warmup_epochs"].first().to_numpy(dtype=float)) if "warmup_epochs" in by else 0 * size
    where = np.stack([size, rate, length])
    least = np.sqrt(groups["jitter"].mean().to_numpy(dtype=np.float64))
    network = groups["arch"].first().to_numpy() if "arch" in by else np.zeros(len(degrees))
    found = []
    for own in range(len(degrees)):
        away = np.round(np.abs(where - where[:, [own]]).sum(axis=0) + ANOTHER * (network != network[own]), 6)
        others = lends & (np.arange(len(degrees)) != own)
        free, within = float(degrees[own]), float(squares[own])
        for distance in np.unique(away[others]):
            if free >= ENOUGH:
                break
            there = others & (away == distance)
            free, within = free + degrees[there].sum(), within + squares[there].sum()
        deviation = float((within / free) ** 0.5) if free else 0.0
        if free and degrees[own] < ENOUGH:
            deviation = max(deviation, float(least[own]))
        found.append((deviation, int(free)))
    return found


def bootstrapped(frame: pd.DataFrame, by: Sequence[str]) -> tuple[pd.DataFrame, np.ndarray]:
    """Return mean accuracy, 95% interval (``low``, ``high``) and number of seeds ``n`` of each group, and the draws.

    Where no group has several seeds there is no interval.
    ``diverged`` and ``late_drops`` count its runs that did, and ``deviation`` is that between seeds. The bootstrap is
    parametric: a draw adds to the mean one deviate for other seeds, Student's with the deviation and the degrees of
    freedom of `between_seeds`, and one for another test set of the same size. To draw the seeds themselves with
    replacement would take two that agree by luck for certainty. Draws are (draw, group). A group's deviates follow from
    its name, not from which others there are; with few seeds it still takes its spread from these.
    """
    rows: list[dict] = []
    draws = np.empty((DRAWS, frame.groupby(list(by)).ngroups))
    for (values, group), (deviation, degrees) in zip(
        frame.groupby(list(by), sort=True), between_seeds(frame, by), strict=True
    ):
        n, mean = len(group), float(group["accuracy"].to_numpy().mean())
        rng = np.random.default_rng(zlib.crc32(" ".join(map(str, values)).encode()))
        over = rng.standard_t(max(degrees, 1), DRAWS) * deviation / np.sqrt(n)
        of_test_set = rng.normal(0, np.sqrt(mean * (1 - mean) / group["test_examples"].iloc[0]), DRAWS)
        drawn = draws[:, len(rows)] = np.clip(mean + over + of_test_set, 0, 1)  # what is drawn is an accuracy
        low, high = np.quantile(drawn, TAILS) if degrees else (np.nan, np.nan)
        rows.append(
            {
                **dict(zip(by, values, strict=True)),
                "accuracy": mean,
                "low": low,
                "high": high,
                "n": n,
                "deviation": deviation if degrees else np.nan,
                "diverged": int(group["diverged"].sum()),
                "late_drops": int(group["late_drop"].sum()),
                "updates": int(group["updates"].iloc[0]),
                "device_seconds": float(group["device_seconds"].mean()),
            }
        )
    bounds = ["accuracy", "low", "high", "n", "deviation"]
    return pd.DataFrame(rows, columns=[*by, *bounds, "diverged", "late_drops", "updates", "device_seconds"]), draws


def size_interval(draws: np.ndarray) -> tuple[int, int]:
    """Return the 95% interval of a number that only has the values that were drawn, such as a batch size."""
    low, high = np.quantile(draws, TAILS, method="inverted_cdf")
    return int(low), int(high)
