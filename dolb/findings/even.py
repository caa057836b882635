"""What the rest of the data that ends an epoch does: batches that leave a small one, beside like ones that do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import xarray as xr

from dolb import findings as summary
from dolb.findings import drops
from dolb.findings.batch_size import CELL, curve_runs

ALIKE = 0.1  # batches that differ by no larger a share are taken for the same


def pairs(study: xr.Dataset, even: xr.Dataset) -> pd.DataFrame:
    """Return what an even division changes: ``study`` has the curves, ``even`` like cells that divide the data evenly.

    ``batch_size`` is the curve's, ``rest`` what it leaves, ``even_size`` the other's; ``effect`` is the change of
    accuracy from the first to the second, with its bootstrap interval; ``dropped`` runs of both dropped late.
    """
    columns = [*CELL, "rest", "even_size", "accuracy", "even_accuracy", "effect", "effect_low", "effect_high"]
    columns += ["n", "even_n", "dropped"]
    curve, other = curve_runs(study), summary.final_accuracy(even)
    runs = pd.concat([curve.assign(even=False), other.assign(even=True)], ignore_index=True)
    runs["rest"] = runs["training_examples"] % runs["batch_size"]
    cells, draws = summary.bootstrapped(runs, [*CELL, "rest", "even"])
    rows = []
    for place in cells.index[cells["even"]]:
        one = cells.loc[place]
        like = cells[~cells["even"] & (cells["arch"] == one["arch"]) & (cells["lr"] == one["lr"])]
        apart = (like["batch_size"] / one["batch_size"] - 1).abs()
        if like.empty or apart.min() > ALIKE:
            continue
        beside = apart.idxmin()
        nearest = cells.loc[beside]
        low, high = summary.interval(draws[:, place] - draws[:, beside])
        rows.append(
            {name: nearest[name] for name in (*CELL, "rest", "accuracy")}
            | {"even_size": one["batch_size"], "even_accuracy": one["accuracy"]}
            | {"n": nearest["n"], "even_n": one["n"], "dropped": nearest["late_drops"] + one["late_drops"]}
            | {"effect": one["accuracy"] - nearest["accuracy"], "effect_low": low, "effect_high": high}
        )
    return pd.DataFrame(rows, columns=columns)


def in_words(study: xr.Dataset, even: xr.Dataset | None) -> str:
    """Say for each pair what an even division changes, and of how many the interval is clear of zero."""
    found = pairs(study, even) if even is not None else pd.DataFrame()
    if found.empty:
        return "That may be why some curves turn up again at their last point, but it is not tested yet."
    listed = "; ".join(
        f"{row['arch']} with batch {row['even_size']:,} instead of {row['batch_size']:,}, which leaves "
        f"{row['rest']:,}: {summary.points(row, 'effect')}{_seeds(row)}"
        for row in found.to_dict("records")
    )
    clear = found["effect_low"] > 0
    return (
        f"To test this, like batches were run that leave no rest, or nearly a whole batch, at rate "
        f"{found['lr'].iloc[0]:g}. {listed}. In {int((found['effect'] > 0).sum())} of {len(found)} cases accuracy is "
        f"higher without the rest; in {int(clear.sum())} the interval is clear of zero, in "
        f"{int((clear & (found['dropped'] == 0)).sum())} of these without a run that dropped late."
    )


def _seeds(row: Mapping[Any, Any]) -> str:
    seeds = f", {row['even_n']} against {row['n']} seeds"
    one_each = row["n"] == row["even_n"] == 1
    return (", one seed each" if one_each else seeds) + drops.in_brackets(row["dropped"], row["n"] + row["even_n"])
