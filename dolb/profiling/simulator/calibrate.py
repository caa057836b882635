"""Fit a few unknowns of the simulator to measurements, and judge it on measurements that it was not fitted to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from scipy.optimize import least_squares

from dolb.profiling.simulator import network, tensors
from dolb.profiling.simulator.libraries import DDP, Policy, horovod
from dolb.profiling.simulator.scaling import UNKNOWN, Knobs, Range, turn
from dolb.profiling.simulator.step import Scenario, simulate

Row = Mapping[str, Any]
Turn = Callable[[Scenario, Knobs, int], Scenario]  # sets knobs of a scenario on so many ranks
OBSERVED = ("efficiency", "images_per_second")
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

    def worst(self, used: str) -> float:
        """Return the largest error, whatever its sign, of the points that were used so."""
        return errors(self.points, used).worst


def alternate(count: int) -> list[bool]:
    """Say which points are fitted: every other one in the order given, the first included."""
    return [index % 2 == 0 for index in range(count)]


def calibrate(
    measurements: pd.DataFrame | xr.Dataset,
    scenario: Callable[[Row], Scenario],
    free: Mapping[str, Range],
    fit: Sequence[bool] | np.ndarray | None = None,
    turned: Turn = lambda scenario, knobs, _: turn(scenario, knobs),
    starts: Sequence[Knobs | float] = STARTS,
) -> Calibration:
    """Fit the ``free`` knobs by least squares of logarithms on some points, and simulate all.

    Parameters
    ----------
    measurements
        A row (or ``run``) per point with more than one rank: ``ranks``, and ``efficiency`` or ``images_per_second``.
    scenario
        What was run at a point, by its row; its compute times should come from a run on one rank.
    free
        Limits of the knobs to fit; see `scaling.turn`.
    fit
        Which points to fit; the rest judge. `alternate` unless given.
    turned
        What sets the knobs; `scaling.turn` unless given.
    starts
        Where fits begin, of which the best counts: shares of the way through all ranges, or knobs.
    """
    table = measurements.to_dataframe().reset_index() if isinstance(measurements, xr.Dataset) else measurements
    table = table.reset_index(drop=True)
    what = next((name for name in OBSERVED if name in table), None)
    if what is None or "ranks" not in table:
        raise ValueError(f"measurements have {list(table)}; needed: ranks and one of {', '.join(OBSERVED)}")
    if (table["ranks"] < 2).any():
        raise ValueError("measurements have a point of one rank; it sets compute times and cannot be fitted")
    chosen = np.array(alternate(len(table)) if fit is None else fit)
    if chosen.sum() < len(free):
        raise ValueError(
            f"{len(free)} knobs are free, and {chosen.sum()} points to fit them; at least as many are needed"
        )
    measured = table[what].to_numpy(float)
    setups = [scenario(row) for row in _records(table)]

    def simulated(knobs: Knobs, wanted: np.ndarray) -> np.ndarray:
        ranks = {i: int(table["ranks"][i]) for i in np.flatnonzero(wanted)}
        steps = [simulate(turned(setups[i], knobs, count), count) for i, count in ranks.items()]
        return np.array([getattr(step, what) for step in steps])

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
    points = table.assign(
        used=np.where(chosen, "fit", "judge"),
        measured=measured,
        uncalibrated=simulated({}, everything),
        simulated=result,
        error=result / measured - 1,
    )
    return Calibration(knobs, points)


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _begin(free: Mapping[str, Range], start: Knobs | float) -> np.ndarray:
    if isinstance(start, float):
        return np.full(len(free), start)
    # A fit may end on a limit; another begins a little inside, as least squares asks.
    return np.clip([limits.share(start[name]) for name, limits in free.items()], 0.01, 0.99)


@dataclass(frozen=True)
class Setup:
    """What a published measurement ran, as far as its source tells; the rest is assumed and marked so."""

    arch: str
    network: str
    policy: Policy
    batch_per_rank: int
    images_per_second: float | None = None  # of one rank, where the source has no such row


def _pascal() -> float:
    # A V100's throughput by the cards' peaks in fp32, 9.3 TFLOP/s for a P100 on PCIe and 15.7 (NVIDIA's data sheets).
    return 9.3 / 15.7 * tensors.v100_images_per_second("resnet101", reference=tensors.V100_NVLINK_NODE)


def published_setups() -> dict[str, Setup]:
    """Return what each of the published ``scaling_measurements`` ran, by its ``what``."""
    return {
        "ResNet-50 DDP b32/GPU V100": Setup("resnet50", "dgx1", DDP(), 32),
        # Batches as in NVIDIA's benchmark commands for 16 GB cards, and gradients in fp32 with amp too: assumed.
        "ResNet-50 fp32 V100": Setup("resnet50", "dgx1", DDP(), 128),
        "ResNet-50 amp V100": Setup("resnet50", "dgx1", DDP(), 256),
        # tf_cnn_benchmarks with 64 images a GPU, in 2017, before the response cache: assumed.
        "ResNet-101 Horovod 128 servers x 4 Pascal": Setup("resnet101", "roce25", horovod("0.10"), 64, _pascal()),
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


def published_scenario(row: Row, profiles: Mapping[str, tensors.Tensors] | None = None) -> Scenario:
    """Return the scenario of a published point, its compute as fast as the one-GPU row says.

    That time is spread as in ``profiles``, by network, where it is there, and else by multiplications.
    """
    setups = published_setups()
    if row["what"] not in setups:
        raise ValueError(f"measurement {row['what']!r} is not known; accepted: {', '.join(setups)}")
    setup = setups[row["what"]]
    speed = setup.images_per_second or float(row["one_rank_images_per_second"])
    step = tensors.spread(tensors.work(setup.arch), setup.batch_per_rank / speed, (profiles or {}).get(setup.arch))
    return Scenario(step, network.preset(setup.network), setup.policy, setup.batch_per_rank)


# Standard deviations of compute times that are tried on published points. A step jumps where a tensor just misses a
# cycle of Horovod, so every value is tried; and as all fits choose among the same, leaving a point out costs nothing.
TRIED_JITTERS = np.arange(0, 0.151, 0.001)


def calibrate_published(
    rows: Sequence[Row],
    profiles: Mapping[str, tensors.Tensors] | None = None,
    bandwidth: float = network.ASSUMED_ACHIEVED,
) -> Calibration:
    """Fit the spread of compute times to all published points of more than one GPU, and judge each by the others.

    The knob is that of all points. The errors are those of each point when it alone was left out, so all of them judge;
    ``asked`` is the spread that a point asks for alone, ``halved`` the largest error of a point over all ways to fit
    half of the points and judge the others, itself among them. Bandwidth is not fitted: the points ask for none in
    particular (a test shows it). ``profiles`` as in `published_scenario`.
    """
    points = published_points(rows)
    setups = [published_scenario(row, profiles) for row in _records(points)]
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
        halved=_halved(simulated / measured - 1, off),
    )
    return Calibration({"jitter": float(TRIED_JITTERS[off.sum(axis=1).argmin()])}, judged)


def _halved(error: np.ndarray, off: np.ndarray) -> np.ndarray:
    """Return each point's largest error, with its sign, over all halves that were fitted without it."""
    count = off.shape[1]
    worst = np.zeros(count)
    for half in combinations(range(count), count // 2):
        judged = error[off[:, list(half)].sum(axis=1).argmin()].copy()
        judged[list(half)] = 0.0
        worst = np.where(np.abs(judged) > np.abs(worst), judged, worst)
    return worst


def published_in_words(found: Calibration) -> str:
    """Say how many points and knobs there are, how far off the simulator is without a fit and with it, and the band."""
    points, limits = found.points, UNKNOWN["jitter"]
    bare = ", ".join(f"{value:+.0%}" for value in points["uncalibrated"] / points["measured"] - 1)
    judged = ", ".join(f"{value:+.0%}" for value in points["error"])
    asked, halved, ways = points["asked"], points["halved"].abs().max(), comb(len(points), len(points) // 2)
    return (
        f"There are {len(points)} points, and one knob is fitted to them: the spread of compute times over GPUs "
        "within a step, which takes up whatever else these points lose. Without it the simulator would be off by "
        f"{bare}. They are few, so each is also judged by all others: left out in turn, with the "
        f"others fitted, it is off by {judged}. With half of them fitted and the other half judged, in all {ways} "
        f"ways, it is off by {halved:.0%} at most. All together ask for a standard deviation of "
        f"{found.knobs['jitter']:.1%}, which the lines of the curves above have. Each alone asks for {asked.min():.1%} "
        f"to {asked.max():.1%}, and the bands cover {limits.low:.1%} to {limits.high:.1%}. None of these points is of "
        f"Summit, and none of more than {points['ranks'].max():,} GPUs. What share of the peak bandwidth is achieved "
        f"they do not tell; it stays at {network.ASSUMED_ACHIEVED:.0%}, and the bands cover "
        f"{UNKNOWN['bandwidth'].low:.0%} to {UNKNOWN['bandwidth'].high:.0%}."
    )
