"""What of the batch-size study was run: where there is one seed alone, and what lacks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd
import xarray as xr

from dolb import findings as summary
from dolb.findings.batch_size import CELL, CURVE, by_depth
from dolb.findings.intervals import between_seeds


def one_seed_in_words(runs: pd.DataFrame) -> str:
    """Say which networks have one seed to a cell, and where their intervals have the noise between seeds from."""
    cells = summary.over_seeds(runs, CELL)
    alone = cells.groupby("arch")["n"].agg(one=lambda n: (n == 1).sum(), cells="size")
    whole = [arch for arch in by_depth(alone.index) if alone.loc[arch, "one"] == alone.loc[arch, "cells"]]
    part = [arch for arch in by_depth(alone.index) if arch not in whole and alone.loc[arch, "one"]]
    told = [f"all cells of {listed(whole)}"] if whole else []
    told += [f"{alone.loc[arch, 'one']} of {alone.loc[arch, 'cells']} of {arch}" for arch in part]
    if not told:
        return ""
    if cells["deviation"].isna().all():
        held = "Intervals hold the test set's noise and not that between seeds"
    else:
        of_one = cells[cells["n"] == 1].sort_values("deviation").to_dict("records")
        least, most = (
            f"{100 * row['deviation']:.1f} points at batch {row['batch_size']:,} and rate {row['lr']:g}"
            for row in (of_one[0], of_one[-1])
        )
        asked = [noise.lenders for noise, n in zip(between_seeds(runs, CELL), cells["n"], strict=True) if n == 1]
        whose = [listed(by_depth(cells.loc[list(lenders), "arch"])) for lenders in asked]
        usual = max(dict.fromkeys(whose), key=whose.count)
        others = whose.count(usual) < len(whose)
        steady = ", without those in which a run dropped late" if cells["late_drops"].any() else ""
        held = (
            "Intervals take the noise between seeds from the nearest cells that have several, in rate and batch size, "
            f"of {usual}{f' in {whose.count(usual)} of {len(whose)} cells' if others else ''}{steady}, or from a run's "
            f"own last epochs where these differ by more (standard deviations from {least} to {most}),"
        )
    return f"{held} where there is one seed: {listed(told)}."


def dropped_in_words(ds: xr.Dataset) -> str:
    """Say how many runs of each network dropped late, and in how many cells of several seeds more than one did."""
    frame = summary.final_accuracy(ds)
    if not frame["late_drop"].any():
        return ""
    of = {arch: frame.loc[frame["arch"] == arch, "late_drop"] for arch in by_depth(frame["arch"])}
    networks = listed([f"{drops.sum()} of {len(drops)} of {arch}" for arch, drops in of.items()])
    cells = frame.groupby([*CELL, "bn_workers"])["late_drop"].agg(["sum", "size"])
    cells = cells[cells["sum"] > 0]
    several = cells[cells["size"] > 1]
    return (
        f"Late drops are {networks}. Of {len(cells)} cells with such a run {len(several)} have other seeds, and in "
        f"{int((several['sum'] > 1).sum())} of them another dropped too; where there is one seed, whether another "
        "would drop is not known. Intervals of cells without such a run are those of runs that do not drop."
    )


def rate_in_words(best: pd.Series, cells: pd.DataFrame) -> str:
    """Say the rate of the best cell of a network and batch size, and whether it is an end of those that were run."""
    rates = cells.loc[(cells["arch"] == best["arch"]) & (cells["batch_size"] == best["batch_size"]), "lr"]
    if best["lr"] not in (rates.min(), rates.max()) or rates.min() == rates.max():
        return f"{best['lr']:g}"
    end, beyond = ("lowest", "lower") if best["lr"] == rates.min() else ("highest", "higher")
    return f"{best['lr']:g} (the {end} that was run; a {beyond} one may do better)"


def lacking_in_words(asked: Iterable[Any], ds: xr.Dataset) -> str:
    """Say which cells of the asked runs, configs of a recipe, have no run in ``ds``, and how many more seeds lack.

    A cell is a network, rate and batch size, with batch norm over the shares of one worker or several.
    """
    names = [*CURVE, "bn_workers", "batch_size"]
    grid = pd.DataFrame([{name: getattr(run, name) for name in (*names, "key")} for run in asked])
    lacking = grid[~grid["key"].isin(ds["key"].to_numpy().astype(str))]
    if lacking.empty:
        return f"All {len(grid)} runs of the grid are here."
    begun = pd.MultiIndex.from_arrays([ds[name].to_numpy() for name in names])
    more = pd.MultiIndex.from_frame(lacking[names]).isin(begun)
    told = f"Of the grid's {len(grid)} runs {len(lacking)} are not here yet."
    cells = [
        f"{arch} with batch {listed(f'{size:,}' for size in sizes.unique())} at rate {lr:g}, "
        + ("one worker" if workers == 1 else f"{workers} workers")
        for (arch, lr, workers), sizes in lacking[~more].groupby(names[:-1], sort=False)["batch_size"]
    ]
    told += f" Without any run: {'; '.join(cells)}." if cells else ""
    seeds = lacking[more].groupby("arch", sort=False).size()
    listing = listed(f"{count} of {arch}" for arch, count in seeds.items()) if len(seeds) else ""
    return told + (f" Further seeds of cells that have a run: {listing}." if listing else "")


def sets_lacking_in_words(asked: Iterable[Any], ds: xr.Dataset) -> str:
    """Say which of the asked runs on several training sets are not in ``ds``, by batch size and set."""
    grid = pd.DataFrame(
        [{"key": run.key, "batch_size": run.batch_size, "set": run.subset.split("-")[0] or "full"} for run in asked]
    )
    lacking = grid[~grid["key"].isin(ds["key"].to_numpy().astype(str))]
    if lacking.empty:
        return f"All {len(grid)} runs of the grid are here."
    told = []
    for size, rows in lacking.groupby("batch_size"):
        sets = [] if len(rows) == (grid["batch_size"] == size).sum() else list(dict.fromkeys(rows["set"]))
        told.append(f"{len(rows)} with batch {size:,}" + (f" (on {listed(sets)} data)" if sets else " (all of them)"))
    return f"Of the grid's {len(grid)} runs {len(lacking)} are not here yet: {listed(told)}."


def listed(names: Iterable[str]) -> str:
    """Return the names as a sentence lists them, with `and` before the last."""
    *before, last = names
    return f"{', '.join(before)} and {last}" if before else last
