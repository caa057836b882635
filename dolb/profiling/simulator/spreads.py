"""Whether it matters how a V100's published time is spread over layers: by multiplications, or as an H200 spends its.

Published are totals alone, so what tells the two apart is how well steps simulated with each agree with published
efficiencies of machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import xarray as xr

from dolb.profiling.simulator import calibrate, curves, tensors
from dolb.profiling.simulator.step import simulate

RANKS = (curves.TUNED_GPUS, curves.STUDIED_GPUS)
DEVICE = "H200"
TELLING = 0.01  # errors that lie closer than this are taken as equal


def compare(times: xr.Dataset, ranks: Sequence[int] = RANKS) -> pd.DataFrame:
    """Return the simulated efficiency on Summit by library and GPUs, spread either way."""
    profile = tensors.measured(curves.ARCH, curves.BATCH_PER_RANK, device=DEVICE, times=times)
    rows = [
        {
            "variant": policy.name,
            "ranks": count,
            "by_multiplications": simulate(curves.on_summit(policy), count).efficiency,
            "as_measured": simulate(curves.on_summit(policy, profile=profile), count).efficiency,
        }
        for policy in curves.POLICIES
        for count in ranks
    ]
    return pd.DataFrame(rows)


def errors(times: xr.Dataset, measurements: Sequence[Mapping[str, Any]]) -> pd.Series:
    """Return the largest error on published points that were not fitted, spread either way, and their number."""
    archs = {setup.arch for setup in calibrate.published_setups().values()}
    profiles = {arch: tensors.measured(arch, device=DEVICE, times=times) for arch in archs}
    counted = calibrate.calibrate_published(measurements)
    measured = calibrate.calibrate_published(measurements, profiles=profiles)
    return pd.Series(
        {
            "by_multiplications": counted.worst("judge"),
            "as_measured": measured.worst("judge"),
            "points": int((counted.points["used"] == "judge").sum()),
        }
    )


def in_words(times: xr.Dataset | None, measurements: Sequence[Mapping[str, Any]]) -> str:
    """Say what the choice changes, and which is nearer to what is published; nothing where nothing was measured."""
    if times is None:
        return ""
    table, worst = compare(times), errors(times, measurements)
    ddp, horovod = (_points(table[table["variant"] == policy.name]) for policy in curves.POLICIES[:2])
    moved = (table["as_measured"] - table["by_multiplications"]).abs().to_numpy()
    most = table.iloc[[int(moved.argmax())]]
    return (
        f"The published time of a V100 is spread over the layers by their multiplications. Spread as an {DEVICE} "
        f"spends its time, measured layer by layer, the efficiency of DDP is {ddp}, that of Horovod {horovod}. Of all "
        f"curves {most['variant'].iloc[0]} moves most: to {_points(most)}. {_judged(worst)}"
    )


def _points(rows: pd.DataFrame) -> str:
    return " and ".join(
        f"{row.as_measured:.1%} at {row.ranks:,} GPUs (by multiplications {row.by_multiplications:.1%})"
        for row in rows.itertuples()
    )


def _judged(worst: pd.Series) -> str:
    apart = worst["as_measured"] - worst["by_multiplications"]
    better = "the measured spread is the better one" if apart < 0 else "multiplications are the better choice"
    return (
        f"Against published efficiencies the {worst['points']:.0f} points that judge are then off by "
        f"{worst['as_measured']:.1%} at most (by multiplications {worst['by_multiplications']:.1%}), so by this "
        f"{better if abs(apart) > TELLING else 'neither is better'}."
    )
