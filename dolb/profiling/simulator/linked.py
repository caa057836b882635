"""The simulator over links whose latency and bandwidth were measured, judged by the training measured over them.

Latency and bandwidth of a link are as plain TCP measured them. Fitted, for each network, number of hosts and library,
is one factor on the time of compute, on the fastest link measured; the slower links judge. The factor is for ranks that
compute side by side, slower than one alone, and probably holds the time that TCP takes of a rank's core as well: that
part of the network is in the fit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import xarray as xr
from scipy.stats import gmean

from dolb.profiling.config import BASELINE
from dolb.profiling.ranks.links import MBIT
from dolb.profiling.simulator import fit, network
from dolb.profiling.simulator.calibrate import Calibration, Row, calibrate
from dolb.profiling.simulator.libraries import Horovod
from dolb.profiling.simulator.scaling import Range, turn
from dolb.profiling.simulator.step import SOURCE, Scenario, simulate

# One core and a share of the memory's bandwidth: alone, a rank has whatever else the machine has to spare.
COMPUTE = Range(0.5, 20.0, log=True)
_GROUP = ["arch", "hosts", "library"]
_ALONE = ["arch", "data", "batch_size_per_rank", "library"]
_POINT = [*_ALONE, "bucket_mb", "fusion_threshold_mb", "cycle_time_ms", "ranks", "hosts", "link_mbit"]
_JUDGED = ["used", "measured", "uncalibrated", "simulated", "error", "compute"]
_CURVE = [*_GROUP, "achieved_mbit", "source", "step_seconds", "images_per_second", "efficiency"]
_MEASURED = ["images_per_second", "achieved_mbit", "link_latency_seconds"]


def points(ds: xr.Dataset) -> pd.DataFrame:
    """Return throughput over links, and what the links do, mean over repetitions, beside the throughput of one rank.

    The one rank is that of `sweep.with_efficiency`: without a library, or before that was measured under the
    same one. Means are geometric. The table is empty where nothing was measured over links.
    """
    if "hosts" not in ds or not (ds["hosts"] > 1).any():
        return pd.DataFrame(columns=[*_POINT, *_MEASURED, "images_per_second_alone"])
    names = [*_POINT, *_MEASURED, "scaling", "source"]
    table = pd.DataFrame({name: ds[name].to_numpy() for name in names})
    table[BASELINE] = ds[BASELINE].to_numpy() if BASELINE in ds else np.nan
    table = table[(table["source"] != SOURCE) & (table["scaling"] == "weak")]
    own = table[table["ranks"] == 1].groupby(_ALONE)["images_per_second"].agg(gmean).rename("own")
    table = table.join(own, on=_ALONE)
    table["images_per_second_alone"] = table[BASELINE].fillna(table["own"])
    table = table[(table["hosts"] > 1) & table["images_per_second_alone"].notna()]
    means = table.groupby(_POINT, as_index=False)[[*_MEASURED, "images_per_second_alone"]].agg(gmean)
    return means.sort_values([*_GROUP, "link_mbit"], ignore_index=True)


def scenario(row: Row) -> Scenario:
    """Return the scenario of a point: compute as of one rank alone, and links as they were measured."""
    base = fit.scenario(row)
    latency = float(row["link_latency_seconds"])
    over = network.linked(latency, float(row["achieved_mbit"]) * MBIT, int(row["ranks"]) // int(row["hosts"]))
    policy = replace(base.policy, latency=latency) if isinstance(base.policy, Horovod) else base.policy
    return replace(base, network=over, policy=policy)


def judge(ds: xr.Dataset) -> Calibration:
    """Simulate every point over links: the fastest link of each group sets its compute time, the others judge.

    A group is a network, a number of hosts and a library. All of its points are compared with one rank alone by the
    geometric mean of what that did beside each link: it had few steps, and differs more from launch to launch than by
    the link, which it does not use. A group of one rate alone would be fitted to itself, and is left out. The points
    of what is returned have ``compute``, the factor that was fitted.
    """
    table = points(ds)
    if table.empty:
        raise ValueError("nothing was measured over links; `dolb sweep ddp-vs-horovod --part links` does, as root")
    table = table[table.groupby(_GROUP)["link_mbit"].transform("nunique") > 1]
    knobs: dict[str, float] = {}
    judged: list[pd.DataFrame] = []
    for (arch, hosts, library), group in table.groupby(_GROUP, sort=True):
        group = group.assign(images_per_second_alone=gmean(group["images_per_second_alone"]))
        fastest = (group["link_mbit"] == group["link_mbit"].max()).to_list()
        found = calibrate(group, scenario, {"compute": COMPUTE}, fit=fastest)
        knobs[f"compute, {arch} on {hosts} hosts, {library}"] = found.knobs["compute"]
        judged.append(found.points.assign(compute=found.knobs["compute"]))
    nothing = pd.DataFrame(columns=[*table, *_JUDGED])
    return Calibration(knobs, pd.concat(judged, ignore_index=True) if judged else nothing)


def curve(found: Calibration, count: int = 40) -> pd.DataFrame:
    """Simulate both libraries at ``count`` bandwidths from the slowest link measured to the fastest.

    Rows have arch, hosts, library, achieved_mbit, step_seconds, images_per_second and efficiency, which is over one
    rank as it was measured alone: the geometric mean of what it did beside each link. There are none where nothing was
    fitted, as `judge` leaves it.
    """
    rows = []
    for (arch, hosts, library), group in found.points.groupby(_GROUP, sort=True):
        first = {str(name): value for name, value in group.iloc[0].items()}
        first["link_latency_seconds"] = group["link_latency_seconds"].median()
        ranks, alone = int(first["ranks"]), float(first["images_per_second_alone"])
        for mbit in np.geomspace(group["achieved_mbit"].min(), group["achieved_mbit"].max(), count):
            step = simulate(turn(scenario(first | {"achieved_mbit": mbit}), {"compute": first["compute"]}), ranks)
            rows.append(
                {
                    **{"arch": arch, "hosts": hosts, "library": library, "achieved_mbit": mbit, "source": SOURCE},
                    "step_seconds": step.step_seconds,
                    "images_per_second": step.images_per_second,
                    "efficiency": step.images_per_second / (ranks * alone),
                }
            )
    return pd.DataFrame(rows, columns=_CURVE)
