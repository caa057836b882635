"""The numbers of maps: their points for a figure, and how well they part the classes.

Functions take the Dataset of ``results/features.nc``: one entry of ``run`` is a map.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr
from scipy.spatial import cKDTree

from dolb.findings import noise
from dolb.findings.batch_size import by_depth

NEIGHBOURS = 10  # points of the training set that say where on the map a point lies
_MAP = ("arch", "seed", "map_seconds")  # what rows on one map have in common
DRAWN = 1500  # points drawn of one map: more only hide each other


def points(ds: xr.Dataset, most: int = DRAWN) -> pd.DataFrame:
    """Return points of every map for a figure: at most ``most`` of the training and of the test set, evenly spaced."""
    ds, parts = best_maps(ds), []
    frame, test = noise.rows(ds), ds["of_test_set"].to_numpy()
    for split, members in (("training set", np.flatnonzero(~test)), ("test set", np.flatnonzero(test))):
        shown = members[:: max(1, -(-len(members) // most))]
        for run in range(ds.sizes["run"]):
            place = {name: ds[name].to_numpy()[run, shown] for name in ("x", "y")}
            told = {"extractor": frame["extractor"][run], "split": split, "label": ds["label"].to_numpy()[shown]}
            parts.append(pd.DataFrame({**told, **place}))
    return pd.concat(parts, ignore_index=True)


def best_maps(ds: xr.Dataset) -> xr.Dataset:
    """Return the maps that are drawn, the shallow first: of two by networks of one seed, that by the better one."""
    frame = noise.rows(ds)
    chosen = frame[noise.better(frame)]
    order = by_depth(chosen["extractor"])
    return ds.isel(run=chosen.index[np.argsort([order.index(name) for name in chosen["extractor"]], kind="stable")])


def parted(ds: xr.Dataset) -> pd.DataFrame:
    """Return how well each map parts the classes, of training and of test set.

    ``agreement`` is the mean share, over the points of a split, of the nearest ten other points of the training set
    that have the point's own class.
    """
    ds, found = best_maps(ds), []
    frame, test, labels = noise.rows(ds), ds["of_test_set"].to_numpy(), ds["label"].to_numpy()
    for run in range(ds.sizes["run"]):
        place = np.column_stack([ds[name].to_numpy()[run] for name in ("x", "y")])
        tree = cKDTree(place[~test])
        for split, members in (("training set", ~test), ("test set", test)):
            own = int(split == "training set")  # a point of the tree is its own nearest
            near = tree.query(place[members], k=NEIGHBOURS + own)[1][:, own:]
            same = labels[~test][near] == labels[members][:, None]
            found.append({**frame.iloc[run], "split": split, "agreement": float(same.mean())})
    return pd.DataFrame(found)


def peak_bytes(ds: xr.Dataset, masks: xr.Dataset | None) -> float:
    """Return the most of the host's memory that a map took, or a mask that was made on it.

    A row of a map that was found in a store tells what reading it took; masks on it may tell what making it did. They
    have its network and its seconds, to the last digit.
    """
    peaks = [ds["peak_memory_bytes"].to_numpy()]
    if masks is not None:
        ours, theirs = (pd.MultiIndex.from_arrays([one[name].to_numpy() for name in _MAP]) for one in (ds, masks))
        peaks.append(masks["peak_memory_bytes"].to_numpy()[theirs.isin(ours)])
    return float(np.concatenate(peaks).max())


def parted_in_words(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table of `parted` for a reader: a row per extractor, the shallow first, shares in percent."""
    wide = table.pivot_table(index=["extractor", "feature_width"], columns="split", values="agreement", sort=False)
    wide["network's test accuracy"] = table.groupby(["extractor", "feature_width"])["network_accuracy"].mean()
    shown = wide.map(lambda share: "" if np.isnan(share) else f"{share:.1%}").reset_index()
    shown = shown.rename(columns={"feature_width": "features"}).rename_axis(columns=None).set_index("extractor")
    return shown.loc[by_depth(shown.index)]
