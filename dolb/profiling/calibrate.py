"""Fit a few unknowns of the simulator to measurements, and judge it on measurements that it was not fitted to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy.optimize import least_squares

from dolb.profiling import network, tensors
from dolb.profiling.policy import DDP, MIB, MILLISECOND, Horovod, Policy, horovod
from dolb.profiling.scaling import UNKNOWN, Knobs, Range, turn
from dolb.profiling.simulate import Scenario, simulate

Row = Mapping[str, Any]
OBSERVED = ("efficiency", "images_per_second")
STARTS = (0.1, 0.5, 0.9)


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
        return float(self.points.loc[self.points["used"] == used, "error"].abs().max())


def alternate(count: int) -> list[bool]:
    """Say which points are fitted: every other one in the order given, the first included."""
    return [index % 2 == 0 for index in range(count)]


def calibrate(
    measurements: pd.DataFrame | xr.Dataset,
    scenario: Callable[[Row], Scenario],
    free: Mapping[str, Range],
    fit: Sequence[bool] | None = None,
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
    setups = [scenario({str(name): value for name, value in row.items()}) for row in table.to_dict("records")]

    def simulated(knobs: Knobs, wanted: np.ndarray) -> np.ndarray:
        steps = [simulate(turn(setups[i], knobs), int(table["ranks"][i])) for i in np.flatnonzero(wanted)]
        return np.array([getattr(step, what) for step in steps])

    def knobs_at(shares: np.ndarray) -> dict[str, float]:
        return {name: float(limits.at(share)) for (name, limits), share in zip(free.items(), shares, strict=True)}

    def residuals(shares: np.ndarray) -> np.ndarray:
        return np.log(simulated(knobs_at(shares), chosen) / measured[chosen])

    # A step of the schedule can jump where a tensor just misses a cycle: wide differences, and more than one start.
    fits = [
        least_squares(residuals, np.full(len(free), start), bounds=(0, 1), diff_step=1e-3, x_scale=0.1)
        for start in STARTS
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


def calibrate_published(
    rows: Sequence[Row],
    free: Mapping[str, Range] | None = None,
    profiles: Mapping[str, tensors.Tensors] | None = None,
) -> Calibration:
    """Fit jitter and bandwidth to every other published point of more than one GPU, and judge on the others.

    ``profiles`` as in `published_scenario`.
    """
    knobs = {"jitter": Range(0.0, 0.2), "bandwidth": UNKNOWN["bandwidth"]} if free is None else free
    return calibrate(published_points(rows), partial(published_scenario, profiles=profiles), knobs)


# Where the fit of ranks on one machine begins; its knobs turn both numbers. In order of what they matter.
MACHINE = network.loopback(latency=20e-6, bandwidth=10e9)
ON_MACHINE: dict[str, Range] = {
    "compute": Range(0.7, 3.0, log=True),
    "latency": Range(0.1, 300.0, log=True),
    "bandwidth": Range(0.005, 1.0, log=True),
    "jitter": Range(0.0, 0.3),
}
_SETTINGS = ["bucket_mb", "fusion_threshold_mb", "cycle_time_ms"]
_POINT = ["arch", "data", "batch_size_per_rank", "library", *_SETTINGS]


def measured_points(ds: xr.Dataset) -> pd.DataFrame:
    """Return measured throughput, mean over repetitions, by setting and ranks, beside that of one rank alone.

    Of measured runs these are the ones under weak scaling: there a run on one rank tells the compute time of a rank.
    """
    names = [*_POINT, "ranks", "scaling", "source", "repeat", "images_per_second"]
    table = pd.DataFrame({name: ds[name].to_numpy() for name in names})
    on_loopback = ds["hosts"].to_numpy() == 1 if "hosts" in ds else True
    table = table[(table["source"] == "measured") & (table["scaling"] == "weak") & on_loopback]
    means = table.groupby([*_POINT, "ranks"], as_index=False)["images_per_second"].mean()
    same = ["arch", "data", "batch_size_per_rank", "library"]
    alone = means[means["ranks"] == 1].drop_duplicates(same)[[*same, "images_per_second"]]
    points = means.merge(alone, on=same, suffixes=("", "_alone"))
    return points[points["ranks"] > 1].sort_values([*_POINT, "ranks"], ignore_index=True)


def measured_scenario(row: Row) -> Scenario:
    """Return the scenario of a point measured on one machine, its compute as fast as one rank alone."""
    size, channels = (8, 1) if row["data"] == "digits" else (32, 3)
    table = tensors.work(row["arch"], image_size=size, num_classes=10, channels=channels)
    batch = int(row["batch_size_per_rank"])
    step = tensors.spread(table, batch / float(row["images_per_second_alone"]))
    return Scenario(step, MACHINE, _measured_policy(row), batch)


def _measured_policy(row: Row) -> Policy:
    if row["library"] == "ddp":
        bucket = round(row["bucket_mb"] * MIB)
        # Given a size of its own, torch makes all buckets alike; its default has a small first one.
        return DDP() if bucket == DDP().bucket_bytes else DDP(bucket_bytes=bucket, first_bucket_bytes=bucket)
    return Horovod(
        cycle_seconds=row["cycle_time_ms"] * MILLISECOND,
        fusion_bytes=round(row["fusion_threshold_mb"] * MIB),
        latency=MACHINE.intra.latency,
        blocking=True,
    )


def calibrate_measured(ds: xr.Dataset) -> Calibration:
    """Fit the network of one machine to every other point measured on it, and judge on the others.

    ``compute`` is how much slower ranks compute side by side than one alone. As many knobs are free as there are points
    to fit them, at most those of ``ON_MACHINE``.
    """
    points = measured_points(ds)
    if len(points) < 2:
        raise ValueError(f"{len(points)} points of more than one rank were measured; at least 2 are needed")
    enough = sum(alternate(len(points)))
    return calibrate(points, measured_scenario, dict(list(ON_MACHINE.items())[:enough]))
