"""The numbers of loss landscapes: curvature by training set, ratios between sets, seed by seed, surfaces and contours.

There is more than one fair comparison, because a filter changes two things: the weights that training ends at, and the
examples over which a loss is taken. A ``reading`` says over which examples networks are compared; see ``READINGS``.
Values are compared by their ratio, so means and intervals are those of logarithms.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from dolb import findings as summary
from dolb.findings import filtered

READINGS = {
    "own": "its own training set",  # the loss that training saw; weights and examples differ
    "full": "full data",  # only the weights differ; those of a smaller set have not seen all of the examples
    "network": "network filtered data",  # the same, over examples that networks of full data have seen too
    "fixed": "each set in turn, weights of full data",  # only the examples differ
}
RAW = {
    "top_eigenvalue": "top eigenvalue",
    "hessian_trace": "trace",
    "sharpness": "sharpness",
    "weight_norm": "length of the filters",
}
# With every filter of length one: what these say does not depend on the scale of weights that batch norm undoes.
NORMALIZED = {
    "normalized_eigenvalue": "normalized top eigenvalue",
    "normalized_trace": "normalized trace",
    "normalized_bend": "normalized bend",
    "surface_rise": "rise of the surface",
}
MEASURES = RAW | NORMALIZED
CELL = ["reading", "measure", "batch_size", "set"]
_KNOWN = ["set", "batch_size", "weight_decay", "seed"]
HIGHEST = 10.0  # the loss at which colours and contours end: several times that of guessing, far above any basin
_TINY = 1e-9  # added to contours' levels: a level that is met exactly at a point would be crossed twice there


def values(ds: xr.Dataset) -> pd.DataFrame:
    """Return a row for every network, measure and reading: set, batch_size, weight_decay, seed, and the value.

    Under ``fixed`` a row is of the network of full data, and ``set`` says over which examples it was measured. Networks
    whose training diverged are left out.
    """
    runs = filtered.runs(ds)
    runs = runs[~runs["diverged"]]
    table = ds.assign(surface_rise=rise(ds), normalized_bend=bend(ds))[[*MEASURES, "key"]].to_dataframe()
    table = table.reset_index().drop(columns="run")[["key", "loss_over", *MEASURES]]
    table = table.merge(runs[["key", *_KNOWN]], on="key")
    of_full = table["set"] == "full"
    parts = {
        "own": table[table["loss_over"] == table["set"]],
        "full": table[table["loss_over"] == "full"],
        "network": table[table["loss_over"] == "network"],
        "fixed": table[of_full].assign(set=table.loc[of_full, "loss_over"]),
    }
    whole = pd.concat([part.assign(reading=name) for name, part in parts.items()], ignore_index=True)
    return whole.melt([*_KNOWN, "reading"], list(MEASURES), "measure", "value")


def rise(ds: xr.Dataset) -> xr.DataArray:
    """Return how far the loss surface rises above its middle, mean over the points within half of its reach."""
    reach = float(np.abs(ds["alpha"]).max()) / 2
    near = (np.abs(ds["alpha"]) <= reach) & (np.abs(ds["beta"]) <= reach)
    rises = ds["surface_loss"] - ds["surface_loss"].sel(alpha=0, beta=0)
    return rises.where(near).mean(["alpha", "beta"])


def bend(ds: xr.Dataset) -> xr.DataArray:
    """Return what the loss rises within the normalized radius beyond what its gradient alone makes: by curvature.

    A rise alone is mostly the gradient's where the radius is small, and tells of curvature next to nothing.
    """
    return ds["normalized_sharpness"] - ds["normalized_sharpness_slope"]


def slope_shares(ds: xr.Dataset) -> dict[str, float]:
    """Return how much of each sharpness is the gradient's alone, as a share, median over networks and sets."""
    names = ("sharpness", "normalized_sharpness")
    return {name: float(np.nanmedian(ds[f"{name}_slope"] / ds[name])) for name in names}


def cells(table: pd.DataFrame) -> pd.DataFrame:
    """Return the geometric mean of each measure by reading, batch size and set, with Student's interval over seeds.

    ``low`` and ``high`` are NaN of one seed, and so is everything where a value is not positive: it has no logarithm.
    """
    rows = []
    for found, group in table.groupby(CELL, sort=False):
        logs = _logs(group["value"]).to_numpy()
        n = len(logs)
        half = stats.t.ppf((1 + summary.CONFIDENCE) / 2, n - 1) * logs.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
        bounds = dict(zip(("value", "low", "high"), np.exp(logs.mean() + np.array([0, -half, half])), strict=True))
        rows.append({**dict(zip(CELL, found, strict=True)), **bounds, "n": n})
    return pd.DataFrame(rows, columns=[*CELL, "value", "low", "high", "n"])


def ratios(table: pd.DataFrame, one: str = "network", others: Sequence[str] = ("full", "random")) -> pd.DataFrame:
    """Return what ``one`` set has of each measure relative to the others, networks of one seed in pairs.

    ``ratio`` is the geometric mean over seeds, ``low`` and ``high`` its interval, ``p`` of the paired t-test of the
    logarithms. Where a value is not positive all are NaN: there is no ratio.
    """
    parts = []
    for (reading, measure), group in table.groupby(["reading", "measure"], sort=False):
        for other in others:
            pair = group[group["set"].isin((one, other))]
            logs = pair.assign(accuracy=_logs(pair["value"]))  # differences are taken of a column of that name
            found = filtered.differences(logs.fillna({"accuracy": 0.0}), one, other)
            odd = pair.loc[logs["accuracy"].isna(), "batch_size"]
            found.loc[found["batch_size"].isin(odd), ["difference", "low", "high", "p"]] = np.nan
            parts.append(found.assign(reading=str(reading), measure=str(measure)))
    empty = filtered.differences(pd.DataFrame(columns=[*_KNOWN, "accuracy"]), one, one)
    whole = pd.concat([empty.assign(reading="", measure=""), *parts], ignore_index=True)
    for name in ("difference", "low", "high"):
        whole[name] = np.exp(whole[name].astype(float))
    columns = ["reading", "measure", "batch_size", "one", "other", "ratio", "low", "high", "p", "n"]
    return whole.rename(columns={"difference": "ratio"})[columns]


def _logs(values: pd.Series) -> pd.Series:
    return pd.Series(np.log(values.where(values > 0)), index=values.index)


def ratios_in_words(table: pd.DataFrame, reading: str, measure: str = "normalized_eigenvalue") -> str:
    """Say what network filtered data have of a measure relative to other sets, by batch size, with intervals."""
    rows = table[(table["reading"] == reading) & (table["measure"] == measure)]
    told = []
    for size, group in rows.groupby("batch_size", sort=True):
        listed = " and ".join(f"{in_words(row)} times that of {row['other']}" for row in group.to_dict("records"))
        told.append(f"{listed} data at batch {size:,}")
    return "; ".join(told) if told else "not measured yet"


def in_words(row: dict) -> str:
    """Say a ratio with its interval."""
    if not np.isfinite(row["ratio"]):
        return "(a value is not positive) not known"
    if not np.isfinite(row["low"]):
        return f"{row['ratio']:.2f} (no interval)"
    return f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f})"


def converged(ds: xr.Dataset) -> dict[str, float]:
    """Return how well single values are known: the largest error of an eigenvalue, and of a trace, relative to it.

    The first is a bound, the second the median over networks of the standard error.
    """
    eigenvalues = [
        np.nanmax(np.abs(ds[f"{name}_error"] / ds[name]))
        for name in ("top_eigenvalue", "normalized_eigenvalue")
    ]  # fmt: skip
    traces = [np.nanmedian(np.abs(ds[f"{name}_error"] / ds[name])) for name in ("hessian_trace", "normalized_trace")]
    return {"eigenvalue": float(max(eigenvalues)), "trace": float(max(traces))}


def surfaces(ds: xr.Dataset, seed: int | None = None) -> pd.DataFrame:
    """Return the loss surfaces of one seed, the smallest unless named, each over the network's own training set.

    Columns: set, batch_size, seed, alpha, beta, loss, accuracy.
    """
    runs = filtered.runs(ds)
    runs = runs[~runs["diverged"]]
    chosen = runs[runs["seed"] == (runs["seed"].min() if seed is None else seed)]
    if chosen.empty:
        raise ValueError(f"no network has seed {seed}; accepted: {', '.join(map(str, sorted(set(runs['seed']))))}")
    table = ds[["surface_loss", "surface_accuracy", "key"]].to_dataframe().reset_index()
    table = table[["key", "loss_over", "alpha", "beta", "surface_loss", "surface_accuracy"]]
    table = table.merge(chosen[["key", "set", "batch_size", "seed"]], on="key")
    own = table[table["loss_over"] == table["set"]].drop(columns=["key", "loss_over"])
    return own.rename(columns={"surface_loss": "loss", "surface_accuracy": "accuracy"}).reset_index(drop=True)


def highest(table: pd.DataFrame) -> float:
    """Return the loss at which colours and contours end: ``HIGHEST``, or the largest of all if that is less."""
    return float(min(HIGHEST, table["loss"][np.isfinite(table["loss"])].max()))


def levels(table: pd.DataFrame, count: int = 7) -> list[float]:
    """Return losses at which to draw contours, evenly spaced by their logarithm up to the highest that is drawn."""
    least = table["loss"][(table["loss"] > 0) & np.isfinite(table["loss"])].min()
    return [float(f"{level:.2g}") for level in np.geomspace(least, highest(table), count + 2)[1:-1]]


def contours(table: pd.DataFrame, at: Sequence[float]) -> pd.DataFrame:
    """Return the lines along which each surface has these losses, as straight pieces: x, y, x2, y2.

    Every cell of the grid is two triangles, and a level crosses a triangle in one straight line or not at all. Between
    points the logarithm of the loss is taken to be linear.
    """
    rows: list[dict] = []
    for (name, size), group in table.groupby(["set", "batch_size"], sort=False):
        grid = group.pivot_table(index="alpha", columns="beta", values="loss")
        heights = np.log(grid.where(grid > 0).to_numpy())
        place = np.stack(np.meshgrid(grid.index, grid.columns, indexing="ij"), axis=-1)
        corners = (slice(None, -1), slice(1, None))
        square = {(i, j): (heights[a, b], place[a, b]) for i, a in enumerate(corners) for j, b in enumerate(corners)}
        for triangle in ([(0, 0), (1, 0), (0, 1)], [(1, 1), (1, 0), (0, 1)]):
            high = np.stack([square[corner][0].ravel() for corner in triangle], axis=1)
            where = np.stack([square[corner][1].reshape(-1, 2) for corner in triangle], axis=1)
            for level in at:
                for x, y, x2, y2 in _crossings(high - np.log(level) + _TINY, where):
                    rows.append({"set": name, "batch_size": size, "level": level, "x": x, "y": y, "x2": x2, "y2": y2})
    return pd.DataFrame(rows, columns=["set", "batch_size", "level", "x", "y", "x2", "y2"])


def _crossings(above: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Return where planes over triangles are zero: from heights (triangle, corner) and places (triangle, corner, 2)."""
    crossed = (above.min(axis=1) < 0) & (above.max(axis=1) > 0)
    above, where = above[crossed], where[crossed]
    # One corner lies alone on its side of the level, and the line crosses the two edges that meet there.
    alone = np.argmax(np.sign(above) == -np.sign(np.sign(above).sum(axis=1, keepdims=True)), axis=1)
    rows = np.arange(len(above))
    ends = []
    for step in (1, 2):
        other = (alone + step) % 3
        share = above[rows, alone] / (above[rows, alone] - above[rows, other])
        ends.append(where[rows, alone] + share[:, None] * (where[rows, other] - where[rows, alone]))
    return np.concatenate(ends, axis=1)
