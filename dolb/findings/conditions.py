"""Under which conditions ranks were measured, in words: what one rank alone was, what ranks had, how often."""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr

from dolb import findings as summary
from dolb.findings import ddp_vs_horovod as study
from dolb.findings.ddp_vs_horovod import rows

_CORES = r", (\d+) (?:cores|threads)"  # in the name of a machine


def baseline(ds: xr.Dataset) -> str:
    """Say what efficiency is measured against, of the runs that there are; it follows "one rank alone"."""
    measured = rows(ds, "measured")
    known = measured[measured["alone_images_per_second"].notna()] if "alone_images_per_second" in ds else measured[:0]
    if known.empty:
        return (
            "Here that is one rank under the same library: these runs were made before there was one without. Alone, "
            "Horovod does nothing, while DDP still copies its buckets, so the efficiencies of the two do not compare; "
            "their throughputs on as many ranks do."
        )
    drift = float(np.exp(np.log(known["alone_drift"]).abs().median())) - 1
    told = (
        "Here that is one rank without any library, which trains in the same launch before the library is started and "
        f"again after the other ranks have ended; its two throughputs differ by {drift:.0%} in the median."
    )
    if older := len(measured) - len(known):
        told += f" {older} of {len(measured)} runs are older and are compared with one rank under their own library."
    shared = study.on_loopback(ds).query("shared")
    if len(shared):
        ranks = ", ".join(map(str, sorted(set(shared["ranks"]))))
        told += (
            f" The points of strong scaling on {ranks} ranks are runs of weak scaling, with the same share of a rank. "
            "As points of strong scaling they are compared with one rank of other launches: those of the other points "
            "of their repetition."
        )
    return told


def cores(ds: xr.Dataset) -> str:
    """Say which cores ranks had and what else the machine did, as far as the runs recorded it."""
    measured = rows(ds, "measured")
    recorded = measured[measured["threads_per_rank"].notna()] if "threads_per_rank" in ds else measured[:0]
    if recorded.empty:
        return (
            "Ranks were not held to cores: they and the threads of the libraries ran where there was room. What else "
            "the machine did meanwhile is not recorded."
        )
    held = recorded["pinned"].astype(bool)
    if held.all():
        told = "Each rank was held to one core of its own, the threads of its library included."
    elif held.any():
        told = f"In {held.sum()} of {len(held)} runs each rank was held to one core of its own, with its threads."
    else:
        told = "Ranks were not held to cores: they and the threads of the libraries ran where there was room."
    if (each := recorded["threads_per_core"].max()) > 1:
        told += f" A core here is a hardware thread, of which {each:.0f} share the arithmetic of one core."
    if not np.isnan(busy := recorded["busy_threads"].max()):
        told += f" Before ranks started other work, that of low priority apart, kept at most {busy:.1f} cores busy."
        told += _short_of_cores(recorded)
    if older := len(measured) - len(recorded):
        told += f" Of {older} older runs nothing of this is recorded."
    return told


def _short_of_cores(recorded: pd.DataFrame) -> str:
    """Say how many runs had less than a core free for each rank, where the device says how many there are."""
    there = recorded["device"].str.extract(_CORES, expand=False).astype(float)
    if there.isna().any():
        return ""
    lack = (recorded["ranks"] + recorded["busy_threads"] - there)[lambda cores: cores > 0]
    if lack.empty:
        return " In every run there was a core for each rank."
    ranks = recorded.loc[lack.index, "ranks"]
    among = int(recorded["ranks"].isin(set(ranks)).sum())
    return (
        f" In {len(lack)} of the {among} runs on {_listed(ranks)} ranks less than a core was free for each rank then: "
        f"they lacked {lack.min():.1f} to {lack.max():.1f} cores. On fewer ranks there was one for each."
    )


def trained(ds: xr.Dataset) -> str:
    """Say on what ranks were trained, and on how many images each."""
    measured = rows(ds, "measured")
    local = measured[measured["hosts"] == 1]
    images = {"synthetic": "random images in the shape of CIFAR-10"}
    of = ", ".join(images.get(name, f"images of {name}") for name in sorted(set(measured["data"])))
    weak, strong = (local[local["scaling"] == name] for name in ("weak", "strong"))
    parts = [f"{_listed(weak['batch_size_per_rank'])} a rank under weak scaling"] if len(weak) else []
    parts += [f"{_listed(strong['batch_size'])} in all under strong scaling"] if len(strong) else []
    return f"Ranks train on {of}, {' and '.join(parts)}."


def _listed(values: pd.Series) -> str:
    return ", ".join(map(str, sorted(set(values))))


def bars(ds: xr.Dataset) -> str:
    """Say what the bars of measured cells are; `spreads` are what they rest on."""
    if spreads(ds).empty:
        return "There are no bars: nothing was measured twice."
    return f"Bars are {summary.CONFIDENCE:.0%} intervals, spread pooled per network."


def spreads(ds: xr.Dataset) -> pd.DataFrame:
    """Return a table for readers of what bars rest on: by network and for one rank and several, what repetitions do.

    Standard deviations are those of one run's throughput and efficiency about the mean of its cell, as a factor less
    one. A network with fewer than ``pooled.LEAST_FREEDOM`` degrees of freedom has those of all networks.
    """
    runs = study.at_defaults(ds)
    found = []
    for several, where in ((False, "one"), (True, "several")):
        speeds, efficiencies = study.cell_spreads(ds)[several].values()
        for arch, speed in speeds.items():
            mine = runs[(runs["arch"] == arch) & ((runs["ranks"] > 1) == several)]
            if speed.freedom and len(mine):
                found.append(
                    {
                        "network": arch,
                        "ranks": where,
                        "throughput": f"{speed.factor:.0%}",
                        "efficiency": f"{efficiencies[arch].factor:.0%}",
                        "degrees of freedom": speed.freedom,
                        "timed steps of a run": _range(mine["steps"]),
                        "steps alone, before and again after": _range(mine["alone_steps"]),
                    }
                )
    table = pd.DataFrame(found)
    return table.sort_values(["network", "ranks"]).set_index("network").rename_axis(None) if len(table) else table


def _range(values: pd.Series) -> str:
    low, high = int(values.min()), int(values.max())
    return str(low) if low == high else f"{low} to {high}"


def made(ds: xr.Dataset, grid: set[str]) -> str:
    """Say how many measurements there are and of what, how often they were repeated, and what the grid lacks.

    ``grid`` are keys. A grid whose settings have changed since is lacking as a whole.
    """
    measured, table = rows(ds, "measured"), study.cells(ds)
    usual, own = int((~study.at_defaults(ds)["shared"]).sum()), table[~table["shared"]]
    here = measured["hosts"] == 1
    others = int(here.sum()) - usual
    told = f"{len(measured)} measurements stand behind this half: {usual} of {len(own)} cells"
    told += f", {others} of settings other than the defaults" if others else ""
    told += f", {int((~here).sum())} over links" if (~here).any() else ""
    told += "."
    if twice := int(table["shared"].sum()):
        told += f" {twice} of these cells are points of weak and of strong scaling, and are drawn as both."
    if once := int((own["repeats"] == 1).sum()):
        known = own.loc[own["repeats"] == 1, "low"].notna().all()
        rests = "their bars rest on the repetitions of others" if known else "they have no bar"
        told += f" {once} of the cells were measured once: {rests}."
    if not (lacking := len(grid - set(measured["key"]))):
        return told
    if lacking == len(grid):
        return (
            f"{told} They were made with other settings than the grid has now, and all of its {len(grid)} are to come."
        )
    return f"{told} Of the grid of the paper scale {lacking} of {len(grid)} are not made yet."


def turns(ds: xr.Dataset) -> str:
    """Say what it means for a timeline that threads of a library may have no core of their own."""
    measured = rows(ds, "measured")
    held = measured["pinned"].astype(bool) if "pinned" in measured else np.zeros(len(measured), bool)
    where = "On the one core of a rank" if held.all() else "Where there are fewer cores than threads that run"
    return (
        f"{where} threads of the library take turns with computing: bars of both at the same moment are then slices of "
        "time of one core, and what overlaps is not done at once."
    )
