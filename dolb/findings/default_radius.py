"""What DBSCAN's default radius leaves to train on, why it is so little, and what training on that does."""

from __future__ import annotations

import xarray as xr

from dolb import findings as summary
from dolb import results
from dolb.findings import filtered, noise


def beside_full(ds: xr.Dataset, others: xr.Dataset) -> xr.Dataset | None:
    """Return the runs of another experiment with those on full data of this one, at the batch sizes of the former.

    None where there are none of these, or no run on network filtered data to hold against them.
    """
    full = ds.isel(run=(ds["subset"] == "full").to_numpy() & ds["batch_size"].isin(others["batch_size"]).to_numpy())
    if not full.sizes["run"]:
        return None
    both = results.merge([full, others])
    return both if {"full", "network"} <= set(filtered.sizes(both)) else None


def kept_in_words(ds: xr.Dataset | None, masks: xr.Dataset | None, key: str) -> str:
    """Say what the mask of a key leaves to train on, and how that network and its map differ from the others.

    ``ds`` are the runs on it, with those on full data, and ``masks`` has it and others; None is no such runs or masks.
    """
    if ds is None:
        return "Runs on what it leaves are not among these."
    by_set = filtered.sizes(ds)
    left = f"{by_set['network']:,} of {by_set['full']:,} images are left"
    if masks is None or key not in masks["key"].to_numpy():
        return f"By a network that the recipe of this page trains, {left}."
    own = noise.rows(masks).set_index("key").loc[key]
    usual = noise.grid(masks)
    usual = usual[usual["network_accuracy"] > own["network_accuracy"]]
    reached, removed = (f"{summary.span(100 * usual[name])}%" for name in ("network_accuracy", "removed"))
    told = (
        f"By networks that were trained at a rate at which they do better, and reach {reached} on the test set, it "
        f"calls {removed} of a map noise ({len(usual)} maps). "
        if len(usual)
        else ""
    )
    return told + (
        f"The map of this section is by a {own['extractor']} that the recipe of this page trains, as it trains all "
        f"runs on this page: that network reaches {own['network_accuracy']:.1%}, {own['removed']:.1%} of its map is "
        f"noise, and {left}."
    )


def main_in_words(ds: xr.Dataset | None) -> str:
    """Say what network filtered data gain and lose on such sets over all batch sizes, at equal epochs and updates."""
    if ds is None:
        return ""
    table = filtered.together(ds, int(ds["batch_size"].min()))
    told = [
        f"at equal {equal} {words}" for equal in filtered.EQUAL if (words := filtered.compared_in_words(table, equal))
    ]
    if not told:
        return filtered.NOTHING
    return f"Over all batch sizes together, in points of accuracy: {'; '.join(told)}."
