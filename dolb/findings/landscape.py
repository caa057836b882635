"""Loss landscapes: curvature of networks by training set, ratios between sets in pairs by seed, and the surfaces.

A filter changes two things, the weights that training ends at and the examples over which a loss is taken, so there is
more than one fair comparison. A ``reading`` says over which examples networks are compared; see ``READINGS``. Every
measure is taken where each filter of the network has length one, so the scale of weights, which batch norm undoes, does
not count.
"""

from collections.abc import Sequence
from dataclasses import astuple

import numpy as np
import pandas as pd
import xarray as xr

from dolb.findings import filtered
from dolb.findings.intervals import geometric, written_rows

READINGS = {
    "own": "its own training set",  # the loss that training saw; weights and examples differ
    "full": "full data",  # only the weights differ; those of a smaller set have not seen all of the examples
    "filtered": "filtered data",  # the same, over examples that networks of full data have seen too
    "fixed": "its own set, all at full data's weights",  # only the examples differ
}
MEASURES = {
    "normalized_eigenvalue": "top eigenvalue",
    "normalized_trace": "trace",
    "surface_rise": "rise of the surface",
}
HIGHEST = 10.0  # the loss at which colours and contours end: several times that of guessing, far above any basin
_KNOWN = ["set", "batch_size", "seed"]
_TINY = 1e-9  # added to contours' levels: a level that is met exactly at a point would be crossed twice there


def values(ds: xr.Dataset) -> pd.DataFrame:
    """Return a row for every network, measure and reading: set, batch_size, seed, and the value.

    Under ``fixed`` a row is of the network of full data, and ``set`` says over which examples it was measured. Networks
    whose training diverged are left out.
    """
    table = _networks(ds.assign(surface_rise=rise(ds)), [*MEASURES])
    of_full = table["set"] == "full"
    parts = {
        "own": table[table["loss_over"] == table["set"]],
        "full": table[table["loss_over"] == "full"],
        "filtered": table[table["loss_over"] == "filtered"],
        "fixed": table[of_full].assign(set=table.loc[of_full, "loss_over"]),
    }
    whole = pd.concat([part.assign(reading=name) for name, part in parts.items()], ignore_index=True)
    return whole.melt([*_KNOWN, "reading"], list(MEASURES), "measure", "value")


def _networks(ds: xr.Dataset, names: Sequence[str]) -> pd.DataFrame:
    """Return variables of networks that did not diverge as a table, with the set each was trained on."""
    table = ds[[*names, "diverged"]].to_dataframe().reset_index()
    table = table[~table["diverged"]]
    return table.assign(set=table["subset"].map(filtered.set_of), loss_over=table["loss_over"].map(filtered.set_of))


def rise(ds: xr.Dataset) -> xr.DataArray:
    """Return how far the loss surface rises above its middle, mean over the points within half of its reach."""
    reach = float(np.abs(ds["alpha"]).max()) / 2
    near = (np.abs(ds["alpha"]) <= reach) & (np.abs(ds["beta"]) <= reach)
    rises = ds["surface_loss"] - ds["surface_loss"].sel(alpha=0, beta=0)
    return rises.where(near).mean(["alpha", "beta"])


def in_pairs(table: pd.DataFrame) -> pd.DataFrame:
    """Return what networks of other sets have of each measure over those of filtered data, a row for each seed.

    Columns are reading, measure, batch_size and other. Above one the landscape of filtered data is smoother. NaN where
    a value is not positive: there is no ratio.
    """
    by = ["reading", "measure", "batch_size"]
    wide = table.pivot_table(index=["set", "seed"], columns=by, values="value")
    wide, sets = wide.where(wide > 0), filtered.in_order(table["set"])
    if "filtered" not in sets or len(sets) < 2:
        return pd.DataFrame()
    parts = {other: wide.loc[other] / wide.loc["filtered"] for other in sets if other != "filtered"}
    return pd.concat(parts, axis="columns", names=["other"]).reorder_levels([*by, "other"], axis="columns")


def ratios(table: pd.DataFrame) -> pd.DataFrame:
    """Return the geometric means over seeds of `in_pairs`, with 95% intervals; ``n`` says how many seeds have both."""
    found = {cell: geometric(pairs.dropna()) for cell, pairs in in_pairs(table).items()}
    rows = [(*cell, *astuple(one)) for cell, one in found.items() if one.n > 1]  # type: ignore[misc]
    return pd.DataFrame(rows, columns=["reading", "measure", "batch_size", "other", "ratio", "low", "high", "n"])


def by_reading(table: pd.DataFrame) -> pd.DataFrame:
    """Return the ratios of top eigenvalues for readers: a row per reading, a column per set and batch size."""
    rows = table[table["measure"] == "normalized_eigenvalue"].sort_values(["other", "batch_size"])
    told = rows.assign(
        over=rows["reading"].map(READINGS),
        column=rows["other"] + ", batch " + rows["batch_size"].map("{:,}".format),
        told=written_rows(".2f", rows[["ratio", "low", "high"]]),
    )
    wide = told.pivot_table(index="over", columns="column", values="told", aggfunc="first", sort=False).fillna("")
    order = [words for words in READINGS.values() if words in wide.index]
    return wide.reindex(order).rename_axis(index=None, columns="loss over")


def surfaces(ds: xr.Dataset, seed: int | None = None) -> pd.DataFrame:
    """Return the loss surfaces of one seed, the smallest unless named, each over the network's own training set.

    Columns: set, batch_size, seed, alpha, beta, loss, accuracy.
    """
    networks = _networks(ds, ["surface_loss", "surface_accuracy"])
    chosen = networks["seed"].min() if seed is None else seed
    if chosen not in set(networks["seed"]):
        raise ValueError(f"no network has seed {seed}; accepted: {', '.join(map(str, sorted(set(networks['seed']))))}")
    own = networks[(networks["loss_over"] == networks["set"]) & (networks["seed"] == chosen)]
    names = {"surface_loss": "loss", "surface_accuracy": "accuracy"}
    return own[[*_KNOWN, "alpha", "beta", *names]].rename(columns=names).reset_index(drop=True)


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
    rows: list[tuple] = []
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
                rows += [(name, size, level, *line) for line in _crossings(high - np.log(level) + _TINY, where)]
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
