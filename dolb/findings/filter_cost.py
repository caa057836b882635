"""What masks cost, by method and by part: training networks, features, the map, scores, and the choice itself.

Functions take the Dataset of ``results/noise.nc``: one entry of ``run`` is a mask.
"""

from __future__ import annotations

import pandas as pd
import xarray as xr

from dolb.findings import noise

PARTS = {
    "network_seconds": "training",
    "feature_seconds": "features",
    "map_seconds": "map",
    "score_seconds": "scores",
    "mask_seconds": "choice",
}
ON_THE_MAP = "map and noise"  # what the mask in use is called beside others


def costs(ds: xr.Dataset) -> pd.DataFrame:
    """Return the seconds of each part of each method's mask: the one in use, a further round, and other ways to choose.

    Columns: method, part, seconds, and ``total``, of the method. A method some part of which was not timed is left out.
    """
    frame, at = noise.rows(ds), noise.first(ds)
    columns = ["method", "part", "seconds", "total"]
    if not set(PARTS) <= set(ds.variables):
        return pd.DataFrame(columns=columns)
    frame = frame.assign(**{name: ds[name].to_numpy() for name in PARTS}, method=frame["filter"])
    frame.loc[at, "method"] = ON_THE_MAP
    again = frame["within"] != ""
    frame.loc[again, "method"] = "recursive"
    # What is flagged costs as much as `confident`: one set of networks serves both.
    again &= frame["within"] == frame["key"][at]
    others = ~frame["filter"].isin([*noise.ON_THE_MAP, noise.FLAGGED]) & noise.of_size(frame, at)
    chosen = frame[(frame.index == at) | again | others]
    chosen = chosen.drop_duplicates("method").dropna(subset=list(PARTS))
    chosen = chosen.assign(total=chosen[list(PARTS)].sum(axis=1)).sort_values("total", ascending=False)
    long = chosen.drop(columns="seconds").melt(["method", "total"], list(PARTS), "part", "seconds")
    return long.assign(part=long["part"].map(PARTS))[columns]


def costs_in_words(table: pd.DataFrame) -> str:
    """Say what each method took, and how much of it was training."""
    if table.empty:
        return "What these masks cost was not recorded."
    told = []
    for method, group in table.groupby("method", sort=False):
        training = group.loc[group["part"] == PARTS["network_seconds"], "seconds"].sum()
        total = group["total"].iloc[0]
        share = f", {training / total:.0%} of it training" if training else ""
        told.append(f"{method} {total:,.3g} s{share}")
    return f"Seconds of the device and its host for a mask: {'; '.join(told)}."


def of_sets_in_words(ds: xr.Dataset | None, sets: set[str]) -> str:
    """Say what the mask in use cost beside those of other sets that runs are trained on; empty where none is."""
    if ds is None or not (sets & set(map(str, ds["filter"].to_numpy())) - {"random"}):
        return ""
    table = costs(ds)
    return costs_in_words(table[table["method"].isin([ON_THE_MAP, *sets]) & (table["method"] != "random")])


def parts_in_words(one: xr.Dataset) -> str:
    """Say what the parts of one mask took, and all of them together."""
    seconds = {words: float(one[name]) for name, words in PARTS.items() if name in one}
    if not seconds:
        return "a time that was not recorded"
    listed = ", ".join(f"{words} {value:.1f} s" for words, value in seconds.items() if value)
    return f"{listed}: {sum(seconds.values()):.0f} seconds in all, each part on the machine that made it"
