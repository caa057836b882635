"""The main result that was measured: how many times Horovod's throughput DDP's is, by network and number of ranks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from dolb.findings import ddp_vs_horovod as study
from dolb.findings import pooled

EVERY = "geometric mean"


def leads(ds: xr.Dataset, scaling: str = "weak") -> pd.DataFrame:
    """Return the ratios of `ddp_vs_horovod.gaps` of one scaling, and under ``EVERY`` their mean over the networks.

    There is a mean on every number of ranks that all of the networks have, so that means compare.
    """
    gaps = study.gaps(ds)
    gaps = gaps[gaps["scaling"] == scaling]
    means = _means(ds, scaling)
    columns = ["arch", "ranks", "ratio", "low", "high", "log_error", "freedom"]
    return pd.concat([gaps[columns], means[columns]], ignore_index=True) if len(means) else gaps


def _means(ds: xr.Dataset, scaling: str) -> pd.DataFrame:
    """Average networks within each repetition, and take the spread over repetitions, pooled over numbers of ranks.

    The networks of a repetition are measured in one launch and share what that launch had: they are one draw of it,
    not several.
    """
    runs = study.on_loopback(ds)
    ratios = study.paired(runs[runs["scaling"] == scaling], ["arch", "ranks"]).rename("ratio").reset_index()
    wide = ratios.pivot_table(index=["ranks", "repeat"], columns="arch", values="ratio").dropna()
    if wide.shape[1] < 2 or wide.empty:
        return pd.DataFrame()
    ratio = pd.Series(stats.gmean(wide, axis=1), index=wide.index)
    named = pd.concat({EVERY: ratio}, names=["arch"])
    return study.ratios(named, ["arch", "ranks"], {EVERY: pooled.spread(ratio, ["ranks"])})


def table(ds: xr.Dataset, scaling: str = "weak") -> pd.DataFrame:
    """Return a table for readers, a row for each network and a column for each number of ranks."""
    found = leads(ds, scaling)
    told = [f"{row['ratio']:.2f}{between(row['low'], row['high'])}" for row in found.to_dict("records")]
    shown = found.assign(told=told).pivot_table(index="arch", columns="ranks", values="told", aggfunc="first")
    order = [*sorted(set(found["arch"]) - {EVERY}), *[EVERY] * (EVERY in set(found["arch"]))]
    shown.columns = [f"{ranks} ranks" for ranks in shown]
    return shown.reindex(order).fillna("").rename_axis(index=None, columns="DDP over Horovod")


def in_short(ds: xr.Dataset) -> str:
    """Say in one line how far DDP leads under weak scaling by number of ranks, and where that is told apart from 1."""
    found = leads(ds)
    if EVERY not in set(found["arch"]):
        return in_words(ds)
    means = pooled.widened(found[found["arch"] == EVERY])
    listed = ", ".join(f"{row.ratio:.2f} on {row.ranks}" for row in means.itertuples())
    apart = means[(means["low"] > 1) | (means["high"] < 1)]
    told = f"told apart from 1 on {_listed(apart)} alone" if len(apart) else "nowhere told apart from 1"
    return (
        f"DDP's throughput is that of Horovod times {listed} ranks, {told} (geometric mean over "
        f"{found['arch'].nunique() - 1} networks, weak scaling)."
    )


def in_words(ds: xr.Dataset, scaling: str = "weak") -> str:
    """Say by number of ranks how far DDP leads, mean over the networks, and where that is told apart from none."""
    found = leads(ds, scaling)
    if found.empty:
        return "Nothing was measured with both libraries on several ranks."
    several = EVERY in set(found["arch"])
    means = found[found["arch"] == EVERY] if several else found
    listed = ", ".join(f"{row.ratio:.2f} on {row.ranks}" for row in means.itertuples())
    over = f" the geometric mean over {found['arch'].nunique() - 1} networks," if several else ""
    return f"Under {scaling} scaling DDP's throughput is,{over} that of Horovod times {listed} ranks. {_told(means)}"


def _told(means: pd.DataFrame) -> str:
    """Say on how many ranks either is ahead, by intervals widened for the number of comparisons."""
    wide = pooled.widened(means)
    if wide["low"].isna().any():
        return "Nothing was repeated, so that no lead is told apart from none."
    ahead, behind = wide[wide["low"] > 1], wide[wide["high"] < 1]
    rest = wide.drop([*ahead.index, *behind.index])
    parts = [
        f"{who} is ahead on {_listed(part)} ranks ({', '.join(_interval(row) for row in part.to_dict('records'))})"
        for who, part in (("DDP", ahead), ("Horovod", behind))
        if len(part)
    ]
    if len(rest):
        least, most = rest["low"].min(), rest["high"].max()
        parts.append(f"on {_listed(rest)} neither is told to be ahead (intervals within {least:.2f} to {most:.2f})")
    said = "; ".join(parts)
    return f"{said[0].upper()}{said[1:]}, widened for {len(wide)} comparisons."


def _listed(rows: pd.DataFrame) -> str:
    ranks = [str(count) for count in rows["ranks"]]
    return ranks[0] if len(ranks) == 1 else f"{', '.join(ranks[:-1])} and {ranks[-1]}"


def _interval(row: Mapping[Hashable, Any]) -> str:
    return f"{row['low']:.2f} to {row['high']:.2f}"


def between(low: float, high: float) -> str:
    """Say an interval after a value; nothing where it is not known."""
    return "" if np.isnan(low) else f" ({low:.2f} to {high:.2f})"
