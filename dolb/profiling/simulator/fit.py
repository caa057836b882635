"""The simulator's few unknowns fitted to measurements, and the simulator judged on those that it was not fitted to.

Published points set three numbers that hold for all machines: every third point by its key fits, the others judge. On
one machine whose ranks share its memory six numbers are fitted to half of its runs, several times over, as one half may
be lucky, and the other halves judge. Over links their latency and bandwidth are as plain TCP measured them: one factor
on the time of compute is fitted on the fastest link, and the slower links judge.

Tables of points have ``used`` (fit or judge), ``simulated``, and ``error``, simulated over measured less one. Means are
geometric, as what disturbs a run does so by a factor.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy.optimize import least_squares
from scipy.stats import gmean

from dolb import results
from dolb.profiling.config import BASELINE
from dolb.profiling.ranks.links import MBIT
from dolb.profiling.simulator import network, tensors
from dolb.profiling.simulator.curves import Knobs, Range, turn
from dolb.profiling.simulator.libraries import GLOO_THREADS, MIB, MILLISECOND, Horovod, Policy, ddp, horovod
from dolb.profiling.simulator.network import GB, MICROSECOND, Link
from dolb.profiling.simulator.step import SOURCE, Scenario, simulate

Row = Mapping[Any, Any]  # of a table, by names of its columns
STARTS = (0.1, 0.5, 0.9)  # shares of the way through every range, from which fits begin


def calibrate(
    points: pd.DataFrame,
    answers: Sequence[Callable[[Knobs], float]],
    free: Mapping[str, Range],
    fit: np.ndarray,
    starts: Sequence[float | np.ndarray] = STARTS,
) -> tuple[np.ndarray, pd.DataFrame]:
    """Fit the ``free`` knobs by least squares of logarithms, and return them, and all points simulated with them.

    Knobs are given as shares of the way through their ranges. For each point one of ``answers`` simulates it for some
    knobs. ``fit`` says which points to fit, as many as knobs or more; the others judge. Of the fits that begin at
    ``starts`` the best counts.
    """
    measured = points["images_per_second"].to_numpy(float)

    def simulated(knobs: Knobs, wanted: np.ndarray) -> np.ndarray:
        return np.array([answers[i](knobs) for i in np.flatnonzero(wanted)])

    def knobs_at(shares: np.ndarray) -> dict[str, float]:
        return {name: float(limits.at(share)) for (name, limits), share in zip(free.items(), shares, strict=True)}

    def residuals(shares: np.ndarray) -> np.ndarray:
        return np.log(simulated(knobs_at(shares), fit) / measured[fit])

    # A fit may end on a limit; another begins a little inside, as least squares asks.
    inside = [np.clip(np.full(len(free), start), 0.01, 0.99) for start in starts]
    # A step of the schedule can jump where a tensor just misses a cycle: wide differences, and more than one start.
    fits = [least_squares(residuals, start, bounds=(0, 1), diff_step=3e-3, x_scale=0.1) for start in inside]
    best = min(fits, key=lambda result: result.cost).x
    found = simulated(knobs_at(best), np.ones(len(points), bool))
    used = np.where(fit, "fit", "judge")
    return best, points.assign(used=used, simulated=found, error=found / measured - 1)


def throughput(change: Callable[[Scenario, Knobs], Scenario], scenario: Scenario, ranks: int, knobs: Knobs) -> float:
    """Simulate the images per second of so many ranks with some knobs set."""
    return simulate(change(scenario, knobs), ranks).images_per_second


# Published points


def published_points() -> pd.DataFrame:
    """Return scaling efficiencies that others published, by key; every third is there to fit, the others judge.

    Batches of NVIDIA's PyTorch examples are those of its configurations for these cards, and gradients there have 32
    bits with amp too: both are assumed.
    """
    points = pd.read_csv(tensors.PUBLISHED).sort_values("key", ignore_index=True)
    return points.assign(used=np.where(points.index % 3 == 0, "fit", "judge"))


def published_scenario(row: Row) -> Scenario:
    """Return the scenario of a published point, its compute as fast as that of one GPU."""
    batch = int(row["batch_per_gpu"])
    step = tensors.at_speed(row["arch"], batch, row["images_per_second_alone"]).of_bits(row["gradient_bits"])
    return Scenario(step, network.preset(row["machine"]), _published_policy(row), batch)


def _published_policy(row: Row) -> Policy:
    library, *version = str(row["simulated_as"]).split()
    if library == "ddp":
        return ddp() if math.isnan(row["bucket_mb"]) else ddp(round(row["bucket_mb"] * MIB))
    usual = horovod(version[0])
    if math.isnan(row["cycle_ms"]):
        return usual
    cycle, fusion = row["cycle_ms"] * MILLISECOND, round(row["fusion_mb"] * MIB)
    return replace(usual, cycle_seconds=cycle, fusion_bytes=fusion)


def published_efficiency(row: Row, scenario: Scenario, knobs: Knobs) -> float:
    """Simulate the efficiency of a published point over the GPUs that it was published over."""
    given: dict[str, Any] = dict(knobs)
    setup = replace(scenario, network=replace(scenario.network, **given))
    return simulate(setup, row["gpus"]).efficiency / simulate(setup, row["over"]).efficiency


def published() -> pd.DataFrame:
    """Return every published point simulated with the numbers of all machines, `network.FITTED`.

    Fitted with those, the share of peak bandwidth comes out anywhere from 0.6 to 0.95, as most points hide what they
    send: it stays as assumed. ``guessed`` is the error of guessing the mean of the points that fit for every point.
    """
    points = published_points()
    mean = points.loc[points["used"] == "fit", "efficiency"].mean()
    points = points.assign(guessed=mean / points["efficiency"] - 1)
    found = np.array([published_efficiency(row, published_scenario(row), {}) for row in points.to_dict("records")])
    return points.assign(simulated=found, error=found / points["efficiency"] - 1)


# What was measured here

_POINT = ["arch", "data", "batch_size_per_rank", "library", "bucket_mb", "fusion_threshold_mb", "cycle_time_ms"]
# With one core for each rank what tensors and collectives cost the host is in the hops.
_HOST: dict[str, Any] = {"tensor_seconds": 0.0, "collective_seconds": 0.0}
# A machine before any fit: round numbers of the usual order, measured nowhere.
NOMINAL = network.loopback(20 * MICROSECOND, math.inf, 10 * GB)


def _measured(ds: xr.Dataset) -> pd.DataFrame:
    """Return the runs that were measured under weak scaling, each beside the throughput of one rank alone."""
    of_run = ["ranks", "hosts", "link_mbit", "scaling", "source", "images_per_second"]
    names = [*_POINT, *of_run, "achieved_mbit", "link_latency_seconds", BASELINE]
    table = pd.DataFrame({name: ds[name].to_numpy() if name in ds else np.nan for name in names})
    table = table[(table["source"] != SOURCE) & (table["scaling"] == "weak") & (table["ranks"] > 1)]
    return table.rename(columns={BASELINE: "images_per_second_alone"}).dropna(subset="images_per_second_alone")


def _scenario(row: Row) -> Scenario:
    """Return the scenario of a point measured on one machine, a rank as fast as one alone; the network is `NOMINAL`."""
    size, channels = (8, 1) if row["data"] == "digits" else (32, 3)
    table = tensors.work(row["arch"], image_size=size, num_classes=10, channels=channels)
    batch = int(row["batch_size_per_rank"])
    step = tensors.by_multiplications(table, batch / float(row["images_per_second_alone"]))
    return Scenario(step, NOMINAL, _policy(row), batch)


def _policy(row: Row) -> Policy:
    if row["library"] == "ddp":
        return ddp(round(row["bucket_mb"] * MIB), lanes=GLOO_THREADS, **_HOST)
    return Horovod(
        cycle_seconds=row["cycle_time_ms"] * MILLISECOND,
        fusion_bytes=round(row["fusion_threshold_mb"] * MIB),
        agreement="ring",
        latency=NOMINAL.intra.latency,
        blocking=True,
        **_HOST,
    )


# One machine, whose ranks share its memory and are held to a core each; nothing of it is taken as known

MOST_OPTIMIZER = 0.7  # of a step: no fit may leave less than the rest to the passes
HALVES, TRIES = 10, 1000
MACHINE_STARTS = (0.2, 0.35, 0.5, 0.65, 0.8)  # with fewer, where a fit ends depends on the order of its knobs

# In order of what they matter, as fewer points fit fewer knobs: on the 45 points published with this model the judged
# root of the mean square is 10%, without hop_seconds 58%, rank_bandwidth 26%, horovod_hops 27%, optimizer 18%,
# horovod_cycle 15%, shared_bandwidth 11%.
KNOBS: dict[str, Range] = {
    # Seconds of a hop between two processes over Gloo: from a bare system call to several time slices of the scheduler.
    "hop_seconds": Range(1e-6, 6e-3, log=True),
    # Bytes per second of one rank, whose core copies and adds every byte of an all-reduce.
    "rank_bandwidth": Range(0.1 * GB, 10 * GB, log=True),
    # How many times as long as DDP's a hop of Horovod takes, whose background thread has no core to itself.
    "horovod_hops": Range(0.02, 300.0, log=True),
    # Seconds of the update per byte of the weights: five passes over them at 1 to 500 GB/s.
    "optimizer": Range(1e-11, 5e-9, log=True),
    # Seconds for which that thread waits in every cycle until it gets the core of its rank: from nothing to several
    # time slices of the scheduler.
    "horovod_cycle": Range(1e-5, 3e-2, log=True),
    # Bytes per second of all ranks together, from a slow laptop's memory to a server's.
    "shared_bandwidth": Range(0.5 * GB, 200 * GB, log=True),
}


def on_machine(scenario: Scenario, knobs: Knobs) -> Scenario:
    """Return the scenario on a machine with some of ``KNOBS`` set, else `NOMINAL`.

    The time of a rank alone stays: the optimizer's part is taken from its passes.
    """
    step, policy = scenario.tensors, scenario.policy
    update = min(knobs.get("optimizer", 0.0) * float(step.bytes.sum()), MOST_OPTIMIZER * step.step_seconds)
    passes = (step.step_seconds - update) / step.compute_seconds
    step = replace(step.slower(passes), optimizer_seconds=update)
    hop = knobs.get("hop_seconds", NOMINAL.intra.latency)
    if isinstance(policy, Horovod):
        hop *= knobs.get("horovod_hops", 1.0)
        cycle = policy.cycle_seconds + knobs.get("horovod_cycle", 0.0)
        policy = replace(policy, latency=hop, cycle_seconds=cycle)
    link = Link(hop, knobs.get("rank_bandwidth", NOMINAL.intra.bandwidth))
    shared = knobs.get("shared_bandwidth", NOMINAL.shared_bandwidth)
    over = replace(scenario.network, intra=link, inter=link, shared_bandwidth=shared)
    return replace(scenario, tensors=step, network=over, policy=policy)


def machine_points(ds: xr.Dataset) -> pd.DataFrame:
    """Return throughput on one machine, mean over repetitions, by setting and ranks, beside that of one rank alone."""
    table = _measured(ds)
    speeds = ["images_per_second", "images_per_second_alone"]
    means = table[table["hosts"] == 1].groupby([*_POINT, "ranks"], as_index=False)[speeds].agg(gmean)
    return means.sort_values([*_POINT, "ranks"], ignore_index=True)


def halves(table: pd.DataFrame, count: int) -> Iterator[np.ndarray]:
    """Draw so many random halves of the points, each balanced: True for the points to fit, the others judge.

    Of each network under each library a half has half of the points, one more or less, and both halves have every
    number of ranks under every library, where there are two such points.
    """
    rng = np.random.default_rng(0)
    kinds = table.groupby(["library", "ranks"])["ranks"].transform("size") > 1
    wanted = set(map(tuple, table.loc[kinds, ["library", "ranks"]].to_numpy()))
    for _ in range(count):
        for _ in range(TRIES):
            # Shuffled, then put in order of kinds, every other point: kinds with an odd number take turns.
            order = table.iloc[rng.permutation(len(table))].sort_values(["arch", "library"], kind="stable").index
            fit = pd.Series(np.arange(len(table)) % 2 == rng.integers(2), index=order).reindex(table.index)
            both = [set(map(tuple, table.loc[part, ["library", "ranks"]].to_numpy())) for part in (fit, ~fit)]
            if all(wanted <= half for half in both):
                break
        yield fit.to_numpy()


def machine(ds: xr.Dataset, count: int = HALVES) -> pd.DataFrame:
    """Fit the machine to ``count`` halves of the points measured on it, judge each time on the other half.

    The points are there once for every half. As many knobs are free as there are points to fit them.
    """
    table = machine_points(ds)
    answers = [partial(throughput, on_machine, _scenario(row), row["ranks"]) for row in table.to_dict("records")]
    free = dict(list(KNOBS.items())[: len(table) // 2])
    starts: Sequence[float | np.ndarray] = MACHINE_STARTS
    parts = []
    for half in halves(table, count):
        found, points = calibrate(table, answers, free, half, starts)
        parts.append(points)
        if len(parts) == 1:
            starts = (found, 0.5)  # one machine: later fits end near the first
    return pd.concat(parts, ignore_index=True)


def with_judged(ds: xr.Dataset) -> xr.Dataset:
    """Add what the simulator gives for every point when it was not fitted to it, the mean over such halves.

    Fewer than two points cannot be halved, and then nothing is judged.
    """
    given = np.full(ds.sizes["run"], np.nan)
    if len(machine_points(ds)) > 1:
        by = [*_POINT, "ranks"]
        every = machine(ds)
        means = every[every["used"] == "judge"].groupby(by)["simulated"].agg(gmean).rename("judged")
        table = _measured(ds)
        table = table[table["hosts"] == 1].join(means, on=by)
        given[table.index] = table["judged"]
    return results.describe(ds.assign(judged_images_per_second=("run", given)))


# Hosts joined by links

# One core and a share of the memory's bandwidth: alone, a rank has whatever else the machine has to spare. The factor
# probably holds the time that TCP takes of a rank's core as well: that part of the network is in the fit.
COMPUTE = Range(0.5, 20.0, log=True)
_GROUP = ["arch", "hosts", "library"]


def links_points(ds: xr.Dataset) -> pd.DataFrame:
    """Return throughput over links, and what the links do, mean over repetitions, beside that of one rank alone.

    One rank alone had few steps, and differs more from launch to launch than by the link, which it does not use: the
    points of a network, a number of hosts and a library have its mean.
    """
    table = _measured(ds)
    values = ["images_per_second", "achieved_mbit", "link_latency_seconds", "images_per_second_alone"]
    by = [*_POINT, "ranks", "hosts", "link_mbit"]
    means = table[table["hosts"] > 1].groupby(by, as_index=False)[values].agg(gmean)
    alone = means.groupby(_GROUP)["images_per_second_alone"].transform(gmean)
    return means.assign(images_per_second_alone=alone).sort_values([*_GROUP, "link_mbit"], ignore_index=True)


def links_scenario(row: Row) -> Scenario:
    """Return the scenario of a point: compute as of one rank alone, and links as they were measured."""
    base = _scenario(row)
    latency = float(row["link_latency_seconds"])
    over = network.over_links(latency, float(row["achieved_mbit"]) * MBIT, int(row["ranks"]) // int(row["hosts"]))
    policy = replace(base.policy, latency=latency) if isinstance(base.policy, Horovod) else base.policy
    return replace(base, network=over, policy=policy)


def links(ds: xr.Dataset) -> pd.DataFrame:
    """Simulate every point over links: the fastest link of each group sets its compute time, the others judge.

    A group is a network, a number of hosts and a library; ``compute`` is the factor that was fitted to it. A group of
    one rate alone would be fitted to itself, and is left out.
    """
    table = links_points(ds)
    table = table[table.groupby(_GROUP)["link_mbit"].transform("nunique") > 1]
    parts = [table.iloc[:0].assign(used="", simulated=0.0, error=0.0, compute=0.0)]  # for where nothing is left
    for _, group in table.groupby(_GROUP, sort=True):
        fastest = (group["link_mbit"] == group["link_mbit"].max()).to_numpy()
        answers = [partial(throughput, turn, links_scenario(row), row["ranks"]) for row in group.to_dict("records")]
        found, points = calibrate(group, answers, {"compute": COMPUTE}, fastest)
        parts.append(points.assign(compute=COMPUTE.at(found).item()))
    return pd.concat(parts, ignore_index=True)


def links_curve(points: pd.DataFrame, count: int = 40) -> pd.DataFrame:
    """Simulate the groups of `links` at ``count`` bandwidths from the slowest link measured to the fastest."""
    rows = []
    for group, of_group in points.groupby(_GROUP, sort=True):
        first = of_group.to_dict("records")[0] | {"link_latency_seconds": of_group["link_latency_seconds"].median()}
        for mbit in np.geomspace(of_group["achieved_mbit"].min(), of_group["achieved_mbit"].max(), count):
            scenario = turn(links_scenario(first | {"achieved_mbit": mbit}), {"compute": first["compute"]})
            speed = simulate(scenario, first["ranks"]).images_per_second
            rows.append((*group, mbit, speed / (first["ranks"] * first["images_per_second_alone"])))
    return pd.DataFrame(rows, columns=[*_GROUP, "achieved_mbit", "efficiency"])
