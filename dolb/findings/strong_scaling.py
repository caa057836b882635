"""What strong scaling loses before any library has a part in it: the smaller batch of a rank is trained more slowly."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd
import xarray as xr
from scipy import stats

from dolb.findings import ddp_vs_horovod as study
from dolb.findings.measured_lead import between

ALONE = "alone_images_per_second"


def alone_speeds(ds: xr.Dataset) -> pd.DataFrame:
    """Return what one rank without a library did by network and batch: columns are batch sizes, values images a second.

    Under weak scaling that rank has the batch of one rank, under strong scaling the global one. Means are geometric.
    """
    measured = study.rows(ds, "measured")
    if ALONE not in measured:
        return pd.DataFrame()
    known = measured[(measured["hosts"] == 1) & measured[ALONE].notna()]
    batch = known["batch_size_per_rank"].where(known["scaling"] == "weak", known["batch_size"]).astype(int)
    return known.assign(batch=batch).pivot_table(index="arch", columns="batch", values=ALONE, aggfunc=stats.gmean)


def in_words(ds: xr.Dataset) -> str:
    """Say how much slower a rank is with its share of the batch than with all of it, and what strong scaling gains."""
    speeds = alone_speeds(ds)
    if speeds.shape[1] < 2 or speeds.iloc[:, [0, -1]].dropna().empty:
        return "How fast one rank is alone was not measured with two sizes of a batch, so no share of that is told."
    small, large = (int(speeds.columns[end]) for end in (0, -1))
    share = (speeds[small] / speeds[large]).dropna().sort_values()
    alone = (
        "Under strong scaling part of the loss is no library's: the share of a rank becomes small. Alone, without a "
        f"library, one rank trains batches of {small} images at {share.iloc[0]:.0%} ({share.index[0]}) to "
        f"{share.iloc[-1]:.0%} ({share.index[-1]}) of its speed with {large}."
    )
    return " ".join(filter(None, (alone, _divided(ds, share, large // small), _gained(ds))))


def _divided(ds: xr.Dataset, share: pd.Series, ranks: int) -> str:
    """Say of the efficiency of as many ranks as take one such share each what the share explains, and what is left."""
    cells = study.cells(ds)
    mine = cells[(cells["scaling"] == "strong") & (cells["ranks"] == ranks) & cells["arch"].isin(share.index)]
    if mine.empty:
        return ""
    rest = mine["efficiency"] / mine["arch"].map(share)
    by_network = rest.groupby(mine["arch"]).agg(stats.gmean)
    larger = int((share.reindex(by_network.index) < by_network).sum())
    return (
        f"Of the efficiency of {ranks} ranks that take one such share each, {mine['efficiency'].min():.0%} to "
        f"{mine['efficiency'].max():.0%}, that is a factor of {share.min():.2f} to {share.max():.2f}, and all else "
        f"(communication, waiting, one machine for all) another of {rest.min():.2f} to {rest.max():.2f}; with {larger} "
        f"of {len(by_network)} networks the share costs more than all else."
    )


def gains(ds: xr.Dataset) -> pd.DataFrame:
    """Return a table for readers of how many times as fast as one rank alone ranks train a fixed batch together."""
    cells = study.cells(ds)
    strong = cells[(cells["scaling"] == "strong") & (cells["ranks"] > 1)]
    told = [f"{row['ranks'] * row['efficiency']:.2f}{_interval(row)}" for row in strong.to_dict("records")]
    shown = strong.assign(told=told, network=strong["arch"] + ", " + strong["variant"])
    table = shown.pivot_table(index="network", columns="ranks", values="told", aggfunc="first").fillna("")
    table.columns = [f"{ranks} ranks" for ranks in table]
    return table.rename_axis(index=None, columns="times one rank alone")


def _gained(ds: xr.Dataset) -> str:
    """Say on how many ranks the networks are fastest, and how many are slower than one rank on the most."""
    cells = study.cells(ds)
    strong = cells[(cells["scaling"] == "strong") & (cells["ranks"] > 1)]
    if strong.empty:
        return ""
    times = strong["ranks"] * strong["efficiency"]
    best = strong.loc[times.groupby([strong["arch"], strong["variant"]]).idxmax(), "ranks"]
    most = strong["ranks"] == strong["ranks"].max()
    slower = int((times[most] < 1).sum())
    small = (strong["batch_size"] / strong["ranks"]) < min(alone_speeds(ds).columns)
    unknown = " and ".join(map(str, sorted(set(strong.loc[small, "ranks"]))))
    return (
        f"Of {len(best)} pairs of network and library {int((best < strong['ranks'].max()).sum())} are fastest on fewer "
        f"ranks than the most, {strong['ranks'].max()}, on which {slower} of {int(most.sum())} are slower than one "
        "rank alone." + (f" What the share costs on {unknown} ranks was not measured." if unknown else "")
    )


def _interval(row: Mapping[Hashable, Any]) -> str:
    return between(row["ranks"] * row["low"], row["ranks"] * row["high"])
