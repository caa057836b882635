"""What loss landscapes say of the filter, in words: how many comparisons find it smoother, and which half of it is.

A filter may change the weights that training finds, and the images that the loss is taken over. Over common images only
the weights differ; at the same weights only the images.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import xarray as xr

from dolb.findings import filtered
from dolb.findings import landscape as study

DECIDES = "normalized_eigenvalue"
COMMON = ("full", "network")  # the readings in which all networks of a seed are judged by the same images


def compared(ratios: pd.DataFrame, readings: Sequence[str], measure: str = DECIDES) -> pd.DataFrame:
    """Return the comparisons of one measure in some readings of which there are two seeds."""
    return ratios[ratios["reading"].isin(readings) & (ratios["measure"] == measure) & (ratios["n"] > 1)]


def tally(rows: pd.DataFrame) -> tuple[int, int, int]:
    """Return how many ratios have an interval below one, above one, and neither: smoother, rougher, cannot tell."""
    smoother, rougher = int((rows["high"] < 1).sum()), int((rows["low"] > 1).sum())
    return smoother, rougher, len(rows) - smoother - rougher


def tally_in_words(rows: pd.DataFrame) -> str:
    """Say of how many comparisons how many find the filter's landscape smoother, rougher, and cannot tell."""
    smoother, rougher, neither = tally(rows)
    return f"smoother in {smoother}, rougher in {rougher}, cannot tell in {neither} of {len(rows)}"


def range_in_words(rows: pd.DataFrame, of: str) -> str:
    """Say from where to where ratios go, and how many intervals lie below and above one; ``of`` is what to."""
    known = rows["ratio"][np.isfinite(rows["ratio"].astype(float))]
    if known.empty:
        return "not known"
    below, above, _ = tally(rows)
    sizes = set(rows.loc[rows["low"] > 1, "batch_size"])
    where = f", at batch {min(sizes):,} alone" if above and len(sizes) == 1 < rows["batch_size"].nunique() else ""
    return (
        f"{known.min():.2f} to {known.max():.2f} times that {of} (the interval lies below one in {below} and above one "
        f"in {above} of {len(rows)} such comparisons{where})"
    )


def traces_in_words(ratios: pd.DataFrame) -> str:
    """Say what the trace does where each network is judged over its own set, as it is and normalized."""
    raw, normalized = (compared(ratios, ("own",), measure) for measure in ("hessian_trace", "normalized_trace"))
    of = "of networks of other sets"
    return (
        f"Each judged over its own training set, the trace of networks of network filtered data is "
        f"{range_in_words(raw, of)}, and normalized {range_in_words(normalized, of)}."
    )


def meaning_in_words(ratios: pd.DataFrame) -> str:
    """Say which that a filter changes is smoother: the weights over common images, or the images at equal weights."""
    weights, images = compared(ratios, COMMON), compared(ratios, ("fixed",))
    if weights.empty or images.empty:
        return "Two seeds of networks on two sets are not there yet."
    found, seen = _how(tally(weights), "flatter", "sharper"), _how(tally(images), "less curved", "more curved")
    name = study.NORMALIZED[DECIDES]
    return (
        f"Over common images the weights that training finds on network filtered data are {found}: their {name} is "
        f"{range_in_words(weights, 'of networks of other sets')}. At the same weights, those of full data, the loss "
        f"over network filtered images is {seen}: its {name} is {range_in_words(images, 'over images of other sets')}."
    )


def _how(counts: tuple[int, int, int], less: str, more: str) -> str:
    """Say what the comparisons find; whether it is less is what is asked."""
    smoother, rougher, neither = counts
    if not smoother:
        return more if not neither else f"not {less}, and in some comparisons {more}" if rougher else f"not {less}"
    if not rougher:
        return less if not neither else f"{less} in some comparisons and {more} in none"
    return f"{less} in some comparisons and {more} in others"


def lengths_in_words(ds: xr.Dataset) -> str:
    """Say by what factor the filters' lengths differ between all networks, and between those of one batch size."""
    lengths = ds["weight_norm"].to_series().groupby(ds["batch_size"].to_numpy())
    every = float(ds["weight_norm"].max() / ds["weight_norm"].min())
    within = " and ".join(f"{one.max() / one.min():.2f} at batch {size:,}" for size, one in lengths)
    return f"up to {every:.2f} over all networks, but within a batch size by no more than {within}"


def weights_table(ds: xr.Dataset) -> pd.DataFrame:
    """Return a table for readers of where training ends: by batch size and set the loss, the accuracy, the length.

    The loss is that over the network's own set, as it was measured for the landscape; values are means over seeds.
    """
    runs = filtered.runs(ds)
    runs = runs[~runs["diverged"]][["key", "set", "batch_size", "accuracy"]]
    judged = ds[["judged_loss", "weight_norm", "key"]].to_dataframe().reset_index()
    table = judged[["key", "loss_over", "judged_loss", "weight_norm"]].merge(runs, on="key")
    means = table[table["loss_over"] == table["set"]].groupby(["batch_size", "set"])[
        ["judged_loss", "accuracy", "weight_norm"]
    ].mean()  # fmt: skip
    order = [(size, name) for size in sorted(set(runs["batch_size"])) for name in filtered.in_order(runs["set"])]
    means = means.reindex([cell for cell in order if cell in means.index])
    words = {
        "loss over its own set": [f"{value:.3f}" for value in means["judged_loss"]],
        "test accuracy": [f"{value:.1%}" for value in means["accuracy"]],
        "length of the filters": [f"{value:.1f}" for value in means["weight_norm"]],
    }
    rows = [f"{name}, batch {size:,}" for size, name in means.index]
    return pd.DataFrame(words, index=rows).rename_axis(index=None, columns="trained on")
