"""The simulator's few unknowns fitted to measurements, and the simulator judged on those that it was not fitted to.

Published points set one number, the standard deviation of compute times over GPUs; each is judged by the others. On one
machine whose ranks share cores and memory six numbers are fitted to half of its runs, several times over, as one half
may be lucky, and the other halves judge. Over links their latency and bandwidth are as plain TCP measured them: one
factor on the time of compute is fitted on the fastest link, and the slower links judge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

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
from dolb.profiling.simulator.libraries import DDP, GLOO_THREADS, MIB, MILLISECOND, Horovod, Policy, ddp, horovod
from dolb.profiling.simulator.network import GB, MICROSECOND, Link
from dolb.profiling.simulator.step import SOURCE, Scenario, simulate

Row = Mapping[str, Any]
Turn = Callable[[Scenario, Knobs, int], Scenario]  # sets knobs of a scenario on so many ranks
STARTS = (0.1, 0.5, 0.9)  # shares of the way through every range, from which fits begin
NEAR = 0.1  # an error below this is what the simulator aims at


class Errors(NamedTuple):
    """How far points are off, whatever the sign: median, root mean square, largest, and the share within ``NEAR``."""

    points: int
    median: float
    rms: float
    worst: float
    near: float


def errors(points: pd.DataFrame, used: str) -> Errors:
    """Sum up the errors of the points that were used so, to ``fit`` or to ``judge``."""
    error = points.loc[points["used"] == used, "error"].abs().to_numpy()
    if not len(error):
        raise ValueError(f"no point was used to {used!r}; there are: {', '.join(sorted(set(points['used'])))}")
    return Errors(
        len(error),
        float(np.median(error)),
        float(np.sqrt((error**2).mean())),
        float(error.max()),
        float((error <= NEAR).mean()),
    )


@dataclass(frozen=True)
class Calibration:
    """Fitted knobs, and every point with what was measured, what was simulated, and by how much they differ.

    ``points`` has the columns of the measurements, ``used`` (fit or judge), ``measured``, ``uncalibrated``,
    ``simulated``, and ``error``, which is simulated over measured less one.
    """

    knobs: dict[str, float]
    points: pd.DataFrame


def calibrate(
    points: pd.DataFrame,
    scenario: Callable[[Row], Scenario],
    free: Mapping[str, Range],
    fit: Sequence[bool],
    turned: Turn = lambda scenario, knobs, _: turn(scenario, knobs),
    starts: Sequence[Knobs | float] = STARTS,
) -> Calibration:
    """Fit the ``free`` knobs by least squares of logarithms on some points, and simulate all.

    Parameters
    ----------
    points
        A row per point with more than one rank: ``ranks``, ``images_per_second``.
    scenario
        What was run at a point, by its row; its compute times should come from a run on one rank.
    free
        Limits of the knobs to fit; see `curves.turn`.
    fit
        Which points to fit; the others judge.
    turned
        What sets the knobs; `curves.turn` unless given.
    starts
        Where fits begin, of which the best counts: shares of the way through all ranges, or knobs.
    """
    table, chosen = points.reset_index(drop=True), np.array(fit)
    if chosen.sum() < len(free):
        raise ValueError(
            f"{len(free)} knobs are free, and {chosen.sum()} points to fit them; at least as many are needed"
        )
    measured = table["images_per_second"].to_numpy(float)
    setups = [scenario(row) for row in _records(table)]

    def simulated(knobs: Knobs, wanted: np.ndarray) -> np.ndarray:
        ranks = {i: int(table["ranks"][i]) for i in np.flatnonzero(wanted)}
        return np.array([simulate(turned(setups[i], knobs, n), n).images_per_second for i, n in ranks.items()])

    def knobs_at(shares: np.ndarray) -> dict[str, float]:
        return {name: float(limits.at(share)) for (name, limits), share in zip(free.items(), shares, strict=True)}

    def residuals(shares: np.ndarray) -> np.ndarray:
        return np.log(simulated(knobs_at(shares), chosen) / measured[chosen])

    # A step of the schedule can jump where a tensor just misses a cycle: wide differences, and more than one start.
    fits = [
        least_squares(residuals, _begin(free, start), bounds=(0, 1), diff_step=3e-3, x_scale=0.1) for start in starts
    ]
    knobs = knobs_at(min(fits, key=lambda result: result.cost).x)
    everything = np.ones(len(table), bool)
    result = simulated(knobs, everything)
    judged = table.assign(
        used=np.where(chosen, "fit", "judge"),
        measured=measured,
        uncalibrated=simulated({}, everything),
        simulated=result,
        error=result / measured - 1,
    )
    return Calibration(knobs, judged)


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _begin(free: Mapping[str, Range], start: Knobs | float) -> np.ndarray:
    if isinstance(start, float):
        return np.full(len(free), start)
    # A fit may end on a limit; another begins a little inside, as least squares asks.
    return np.clip([limits.share(start[name]) for name, limits in free.items()], 0.01, 0.99)


# Published points


@dataclass(frozen=True)
class Setup:
    """What a published measurement ran, as far as its source tells; the rest is assumed and marked so."""

    arch: str
    network: str
    policy: Policy
    batch_per_rank: int
    images_per_second: float | None = None  # of one rank, where the source has no such row


def published_setups() -> dict[str, Setup]:
    """Return what each of the published ``scaling_measurements`` ran, by its ``what``."""
    # A V100's throughput by the cards' peaks in fp32, 9.3 TFLOP/s for a P100 on PCIe and 15.7 (NVIDIA's data sheets).
    pascal = 9.3 / 15.7 * tensors.v100_images_per_second("resnet101", reference=tensors.V100_NVLINK_NODE)
    return {
        "ResNet-50 DDP b32/GPU V100": Setup("resnet50", "dgx1", DDP(), 32),
        # Batches as in NVIDIA's benchmark commands for 16 GB cards, and gradients in fp32 with amp too: assumed.
        "ResNet-50 fp32 V100": Setup("resnet50", "dgx1", DDP(), 128),
        "ResNet-50 amp V100": Setup("resnet50", "dgx1", DDP(), 256),
        # tf_cnn_benchmarks with 64 images a GPU, in 2017, before the response cache: assumed.
        "ResNet-101 Horovod 128 servers x 4 Pascal": Setup("resnet101", "roce25", horovod("0.10"), 64, pascal),
    }


def published_points(rows: Sequence[Row]) -> pd.DataFrame:
    """Turn ``scaling_measurements`` of the claims into points of ranks and efficiency over the row of one GPU."""
    table = pd.DataFrame(list(rows)).rename(columns={"gpus": "ranks"})
    total = table["images_per_second"].fillna(table["images_per_second_per_gpu"] * table["ranks"])
    base = table["what"].map(total[table["ranks"] == 1].set_axis(table.loc[table["ranks"] == 1, "what"]))
    table["one_rank_images_per_second"] = base
    table["efficiency"] = table["efficiency"].fillna(total / (table["ranks"] * base))
    keep = ["what", "network", "source", "ranks", "one_rank_images_per_second", "efficiency"]
    return table.loc[table["ranks"] > 1, keep].reset_index(drop=True)


def published_scenario(row: Row) -> Scenario:
    """Return the scenario of a published point, its compute as fast as the one-GPU row says."""
    setup = published_setups()[row["what"]]
    speed = setup.images_per_second or float(row["one_rank_images_per_second"])
    step = tensors.by_multiplications(tensors.work(setup.arch), setup.batch_per_rank / speed)
    return Scenario(step, network.preset(setup.network), setup.policy, setup.batch_per_rank)


# Standard deviations of compute times that are tried on published points. A step jumps where a tensor just misses a
# cycle of Horovod, so every value is tried; and as all fits choose among the same, leaving a point out costs nothing.
TRIED_JITTERS = np.arange(0, 0.151, 0.001)


def published(rows: Sequence[Row], bandwidth: float = network.ASSUMED_ACHIEVED) -> Calibration:
    """Fit the jitter of compute times to all published points of more than one GPU, and judge each by the others.

    The knob is that of all points. The errors are those of each point when it alone was left out, so all of them judge;
    ``asked`` is the jitter that a point asks for alone. Bandwidth is not fitted: the points ask for none in particular
    (a test shows it).
    """
    points = published_points(rows)
    setups = [published_scenario(row) for row in _records(points)]
    simulated = np.array(
        [
            [
                simulate(turn(setup, {"jitter": jitter, "bandwidth": bandwidth}), int(ranks)).efficiency
                for setup, ranks in zip(setups, points["ranks"], strict=True)
            ]
            for jitter in TRIED_JITTERS.tolist()
        ]
    )
    measured = points["efficiency"].to_numpy()
    off = np.log(simulated / measured) ** 2
    left_out = simulated[(off.sum(axis=1, keepdims=True) - off).argmin(axis=0), np.arange(len(points))]
    judged = points.assign(
        used="judge",
        measured=measured,
        uncalibrated=simulated[0],
        simulated=left_out,
        error=left_out / measured - 1,
        asked=TRIED_JITTERS[off.argmin(axis=0)],
    )
    return Calibration({"jitter": float(TRIED_JITTERS[off.sum(axis=1).argmin()])}, judged)


# What was measured here: means are geometric, as what disturbs a run does so by a factor

_SETTINGS = ["bucket_mb", "fusion_threshold_mb", "cycle_time_ms"]
_ALONE = ["arch", "data", "batch_size_per_rank", "library"]
_POINT = [*_ALONE, *_SETTINGS]


def _measured(ds: xr.Dataset) -> pd.DataFrame:
    """Return the runs that were measured under weak scaling, each beside the throughput of one rank alone.

    That rank trained without a library; before there was such a one, under the same library.
    """
    names = [*_POINT, "ranks", "hosts", "link_mbit", "pinned", "scaling", "source", "images_per_second"]
    table = pd.DataFrame({name: ds[name].to_numpy() for name in names})
    for name in (BASELINE, "achieved_mbit", "link_latency_seconds"):
        table[name] = ds[name].to_numpy() if name in ds else np.nan
    table["pinned"] = table["pinned"].astype(bool)
    table = table[(table["source"] != SOURCE) & (table["scaling"] == "weak")]
    own = table[table["ranks"] == 1].groupby(_ALONE)["images_per_second"].agg(gmean).rename("own")
    table = table.join(own, on=_ALONE)
    return table.assign(images_per_second_alone=table[BASELINE].fillna(table["own"]))


def _scenario(row: Row) -> Scenario:
    """Return the scenario of a point measured on one machine, a rank as fast as one alone; the network is `NOMINAL`."""
    size, channels = (8, 1) if row["data"] == "digits" else (32, 3)
    table = tensors.work(row["arch"], image_size=size, num_classes=10, channels=channels)
    batch = int(row["batch_size_per_rank"])
    step = tensors.by_multiplications(table, batch / float(row["images_per_second_alone"]))
    return Scenario(step, NOMINAL, _policy(row), batch)


def _policy(row: Row) -> Policy:
    if row["library"] == "ddp":
        return ddp(round(row["bucket_mb"] * MIB), lanes=GLOO_THREADS)
    return Horovod(
        cycle_seconds=row["cycle_time_ms"] * MILLISECOND,
        fusion_bytes=round(row["fusion_threshold_mb"] * MIB),
        agreement="ring",
        latency=NOMINAL.intra.latency,
        blocking=True,
    )


# One machine, whose ranks share cores and memory; nothing of it is taken as known but its cores

# A machine before any fit: round numbers of the usual order, measured nowhere.
NOMINAL = network.loopback(latency=20 * MICROSECOND, bandwidth=10 * GB)
MOST_OPTIMIZER = 0.7  # of a step: no fit may leave less than the rest to the passes
HALVES, SEED, TRIES = 10, 0, 1000
FEWEST_POINTS = 2  # one to fit, and one to judge
MACHINE_STARTS = (0.2, 0.35, 0.5, 0.65, 0.8)  # with fewer, where a fit ends depends on the order of its knobs

# In order of what they matter, as fewer points fit fewer knobs: on the 45 points published with this model the judged
# root of the mean square is 10%, without hop_seconds 58%, rank_bandwidth 26%, crowded_hops 27%, optimizer 18%,
# crowded_cycle 15%, shared_bandwidth 11%. How much longer bytes of Horovod take where its thread has no core to itself
# was one of them and was left out: with ranks held to cores it was worth nothing.
KNOBS: dict[str, Range] = {
    # Seconds of a hop between two processes over Gloo: from a bare system call to several time slices of the scheduler.
    "hop_seconds": Range(1e-6, 6e-3, log=True),
    # Bytes per second of one rank, whose core copies and adds every byte of an all-reduce.
    "rank_bandwidth": Range(0.1 * GB, 10 * GB, log=True),
    # How many times as long as DDP's a hop of Horovod takes where its background thread has no core to itself.
    "crowded_hops": Range(0.02, 300.0, log=True),
    # Seconds of the update per byte of the weights: five passes over them at 1 to 500 GB/s.
    "optimizer": Range(1e-11, 5e-9, log=True),
    # Seconds for which Horovod's thread waits in every cycle until it gets the core of its rank, where it has none to
    # itself: from nothing to several time slices of the scheduler.
    "crowded_cycle": Range(1e-5, 3e-2, log=True),
    # Bytes per second of all ranks together, from a slow laptop's memory to a server's.
    "shared_bandwidth": Range(0.5 * GB, 200 * GB, log=True),
}


def spare_cores(ranks: int, cores: int) -> float:
    """Return the share of ranks that have a second core, for the thread of a library."""
    return float(np.clip((cores - ranks) / ranks, 0, 1))


def on_machine(scenario: Scenario, knobs: Knobs, ranks: int, cores: int) -> Scenario:
    """Return the scenario on so many ranks of a machine with some of ``KNOBS`` set, links else `NOMINAL`.

    The time of a rank alone stays: the optimizer's part is taken from its passes.
    """
    step, policy = scenario.tensors, scenario.policy
    update = min(knobs.get("optimizer", 0.0) * float(step.bytes.sum()), MOST_OPTIMIZER * step.step_seconds)
    passes = (step.step_seconds - update) / step.compute_seconds
    step = replace(
        step,
        forward_seconds=step.forward_seconds * passes,
        backward_seconds=step.backward_seconds * passes,
        optimizer_seconds=update,
    )
    hop, rate, shared = _network(knobs)
    if isinstance(policy, Horovod):
        crowded = 1 - spare_cores(ranks, cores)
        hop *= knobs.get("crowded_hops", 1.0) ** crowded
        waits = knobs.get("crowded_cycle", 0.0) * crowded
        policy = replace(policy, latency=hop, cycle_seconds=policy.cycle_seconds + waits)
    over = replace(scenario.network, intra=Link(hop, rate), inter=Link(hop, rate), shared_bandwidth=shared)
    return replace(scenario, tensors=step, network=over, policy=policy)


def _network(knobs: Knobs) -> tuple[float, float, float]:
    """Return the seconds of a hop, and bytes per second of one rank and of all together."""
    hop = knobs.get("hop_seconds", NOMINAL.intra.latency)
    if "shared_bandwidth" not in knobs and "rank_bandwidth" not in knobs:
        return hop, NOMINAL.intra.bandwidth, NOMINAL.intra.bandwidth
    return hop, knobs.get("rank_bandwidth", math.inf), knobs.get("shared_bandwidth", math.inf)


def machine_points(ds: xr.Dataset) -> pd.DataFrame:
    """Return throughput on one machine, mean over repetitions, by setting and ranks, beside that of one rank alone."""
    table = _measured(ds)
    table = table[(table["hosts"] == 1) & (table["ranks"] > 1) & table["images_per_second_alone"].notna()]
    speeds = ["images_per_second", "images_per_second_alone"]
    means = table.groupby([*_POINT, "pinned", "ranks"], as_index=False)[speeds].agg(gmean)
    return means.sort_values([*_POINT, "ranks"], ignore_index=True)


def halves(table: pd.DataFrame, count: int = HALVES, seed: int = SEED) -> list[list[bool]]:
    """Draw so many random halves of the points, each balanced: True for the points to fit, the others judge.

    Of each network under each library a half has half of the points, one more or less, and both halves have every
    number of ranks under every library, where there are two such points.
    """
    rng = np.random.default_rng(seed)
    kinds = table.groupby(["library", "ranks"])["ranks"].transform("size") > 1
    wanted = set(map(tuple, table.loc[kinds, ["library", "ranks"]].to_numpy()))
    return [_half(table, wanted, rng) for _ in range(count)]


def _half(table: pd.DataFrame, wanted: set[tuple], rng: np.random.Generator) -> list[bool]:
    for _ in range(TRIES):
        # Shuffled, then put in order of kinds, every other point: kinds with an odd number take turns.
        order = table.iloc[rng.permutation(len(table))].sort_values(["arch", "library"], kind="stable").index
        fit = pd.Series(np.arange(len(table)) % 2 == rng.integers(2), index=order).reindex(table.index)
        both = [set(map(tuple, table.loc[part, ["library", "ranks"]].to_numpy())) for part in (fit, ~fit)]
        if all(wanted <= half for half in both):
            break
    return fit.tolist()


@dataclass(frozen=True)
class Check:
    """The simulator fitted to several halves of the points, and judged on the other halves."""

    fits: Sequence[Calibration]
    cores: int

    @property
    def points(self) -> pd.DataFrame:
        """The points of all halves, each once for every half."""
        return pd.concat([fit.points for fit in self.fits], ignore_index=True)

    @property
    def fitted_network(self) -> network.Network:
        """The network of this machine, as fitted to the first half."""
        hop, rate, shared = _network(self.fits[0].knobs)
        return network.loopback(hop, shared, rate)


def enough(ds: xr.Dataset) -> bool:
    """Return whether there are points of several ranks enough to fit the simulator and to judge it."""
    return len(machine_points(ds)) >= FEWEST_POINTS


def machine(ds: xr.Dataset, count: int = HALVES, seed: int = SEED, knobs: Mapping[str, Range] = KNOBS) -> Check:
    """Fit the machine to ``count`` halves of the points measured on it, and judge each time on the other half.

    As many knobs are free as there are points to fit them. The machine has as many cores as the most ranks that were
    measured; ranks that were pinned had none but their own, so that none was ever free.
    """
    table = machine_points(ds)
    if not enough(ds):
        raise ValueError(f"{len(table)} points of several ranks were measured; at least {FEWEST_POINTS} are needed")
    cores = 0 if table["pinned"].all() else int(table["ranks"].max())
    free = dict(list(knobs.items())[: len(table) // 2])
    fits: list[Calibration] = []
    for half in halves(table, count, seed):
        fits.append(
            calibrate(
                table,
                _scenario,
                free,
                fit=half,
                turned=lambda scenario, values, ranks: on_machine(scenario, values, ranks, cores),
                starts=(fits[0].knobs, 0.5) if fits else MACHINE_STARTS,  # one machine: later fits end near the first
            )
        )
    return Check(fits, cores)


def with_judged(ds: xr.Dataset) -> xr.Dataset:
    """Add what the simulator gives for every point when it was not fitted to it, the mean over such halves."""
    given = np.full(ds.sizes["run"], np.nan)
    if enough(ds):
        by = [*_POINT, "pinned", "ranks"]
        every = machine(ds).points
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
_CURVE = [*_GROUP, "achieved_mbit", "source", "step_seconds", "images_per_second", "efficiency"]


def links_points(ds: xr.Dataset) -> pd.DataFrame:
    """Return throughput over links, and what the links do, mean over repetitions, beside that of one rank alone.

    The table is empty where nothing was measured over links.
    """
    table = _measured(ds)
    table = table[(table["hosts"] > 1) & table["images_per_second_alone"].notna()]
    values = ["images_per_second", "achieved_mbit", "link_latency_seconds", "images_per_second_alone"]
    means = table.groupby([*_POINT, "ranks", "hosts", "link_mbit"], as_index=False)[values].agg(gmean)
    return means.sort_values([*_GROUP, "link_mbit"], ignore_index=True)


def links_scenario(row: Row) -> Scenario:
    """Return the scenario of a point: compute as of one rank alone, and links as they were measured."""
    base = _scenario(row)
    latency = float(row["link_latency_seconds"])
    over = network.over_links(latency, float(row["achieved_mbit"]) * MBIT, int(row["ranks"]) // int(row["hosts"]))
    policy = replace(base.policy, latency=latency) if isinstance(base.policy, Horovod) else base.policy
    return replace(base, network=over, policy=policy)


def links(ds: xr.Dataset) -> Calibration:
    """Simulate every point over links: the fastest link of each group sets its compute time, the others judge.

    A group is a network, a number of hosts and a library. All of its points are compared with one rank alone by the
    geometric mean of what that did beside each link: it had few steps, and differs more from launch to launch than by
    the link, which it does not use. A group of one rate alone would be fitted to itself, and is left out. The points
    of what is returned have ``compute``, the factor that was fitted.
    """
    table = links_points(ds)
    if table.empty:
        raise ValueError("nothing was measured over links; `dolb sweep ddp-vs-horovod --part links` does, as root")
    table = table[table.groupby(_GROUP)["link_mbit"].transform("nunique") > 1]
    knobs: dict[str, float] = {}
    judged: list[pd.DataFrame] = []
    for (arch, hosts, library), group in table.groupby(_GROUP, sort=True):
        group = group.assign(images_per_second_alone=gmean(group["images_per_second_alone"]))
        fastest = (group["link_mbit"] == group["link_mbit"].max()).to_list()
        found = calibrate(group, links_scenario, {"compute": COMPUTE}, fit=fastest)
        knobs[f"compute, {arch} on {hosts} hosts, {library}"] = found.knobs["compute"]
        judged.append(found.points.assign(compute=found.knobs["compute"]))
    nothing = pd.DataFrame(columns=[*table, "used", "measured", "uncalibrated", "simulated", "error", "compute"])
    return Calibration(knobs, pd.concat(judged, ignore_index=True) if judged else nothing)


def links_curve(found: Calibration, count: int = 40) -> pd.DataFrame:
    """Simulate both libraries at ``count`` bandwidths from the slowest link measured to the fastest.

    Efficiency is over one rank as it was measured alone: the geometric mean of what it did beside each link. There are
    no rows where nothing was fitted, as `links` leaves it.
    """
    rows = []
    for (arch, hosts, library), group in found.points.groupby(_GROUP, sort=True):
        first = {str(name): value for name, value in group.iloc[0].items()}
        first["link_latency_seconds"] = group["link_latency_seconds"].median()
        ranks, alone = int(first["ranks"]), float(first["images_per_second_alone"])
        for mbit in np.geomspace(group["achieved_mbit"].min(), group["achieved_mbit"].max(), count):
            scenario = turn(links_scenario(first | {"achieved_mbit": mbit}), {"compute": first["compute"]})
            step = simulate(scenario, ranks)
            efficiency = step.images_per_second / (ranks * alone)
            rows.append((arch, hosts, library, mbit, SOURCE, step.step_seconds, step.images_per_second, efficiency))
    return pd.DataFrame(rows, columns=_CURVE)
