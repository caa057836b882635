"""Many measurements, making only those that the store lacks, one after another: each needs the machine for itself."""

import contextlib
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from dolb import results
from dolb.profiling.config import BASELINE, ScalingConfig
from dolb.profiling.ranks import launch
from dolb.profiling.simulator import curves
from dolb.profiling.simulator.step import SOURCE
from dolb.profiling.traces import timeline
from dolb.results.fill import Todo, fill


def measure_all(
    configs: Sequence[ScalingConfig],
    *,
    store: str | Path | None = None,
    time_limit: float | None = None,
    apart: bool = True,
    progress: bool = True,
) -> xr.Dataset:
    """Return the measurements of ``configs`` as one Dataset with efficiencies, making those that the store lacks.

    A repetition is made whole before the next; within it the same processes make all that they can. ``apart`` gives
    each repetition processes of its own, so that repetitions differ in all that may differ. ``store`` and
    ``time_limit`` are as in `fill`. Whatever can be refused, such as a library that is not built, is refused before
    anything is measured.
    """
    for config in configs:
        launch.check(config)

    def make(todo: Todo[ScalingConfig]) -> Iterator[xr.Dataset]:
        for group in together(todo.waiting, apart):
            mine = list(todo.claim(group))
            if not mine:
                continue
            whole = launch.measure_together(mine, shared=todo.store.folder)
            rows = (timeline.traced(one) for one in mine) if mine[0].trace_steps else whole
            at_once = any(one.alone_steps for one in mine)  # their rows come when all are made
            with contextlib.closing(rows):
                for row in rows:
                    yield row
                    if todo.ends() and not at_once:
                        return

    found = fill(
        configs,
        make,
        store=store,
        time_limit=time_limit,
        what="measurements",
        unit="measurement",
        progress=progress,
    )
    return with_efficiency(found)


def together(configs: Iterable[ScalingConfig], apart: bool = True) -> list[list[ScalingConfig]]:
    """Group measurements, of one repetition or of all, that the same processes can make, in their order."""
    groups: dict[tuple, list[ScalingConfig]] = {}
    for config in configs:
        groups.setdefault((config.repeat if apart else 0, *config.launch), []).append(config)
    return sorted(groups.values(), key=lambda group: group[0].repeat)


def with_efficiency(ds: xr.Dataset) -> xr.Dataset:
    """Add each run's efficiency: its throughput over ranks times that of one rank without a library, in its launch.

    Under weak scaling the one rank has the batch of a rank, under strong scaling the global batch. Where no rank
    trained alone the efficiency is not known (NaN).
    """
    alone = ds.get(BASELINE, np.nan)
    efficiency = ds["images_per_second"] / (ds["ranks"] * alone)
    return results.describe(ds.assign(efficiency=("run", efficiency.to_numpy())))


def complete(measured: Iterable[xr.Dataset], simulation: xr.Dataset) -> xr.Dataset:
    """Join measurements, of two with one key the later, and beside them the simulated rows of an experiment.

    Of what is given as measured, simulated rows are dropped, and so are, with a warning, runs on another device than
    the last one's: a table that is compared has one machine.
    """
    runs = [one for part in measured for one in results.split(part) if str(one["source"].item()) != SOURCE]
    if not runs:
        raise ValueError("there is no measured run among the results given")
    device = str(runs[-1]["device"].item())
    keys = {(str(one["device"].item()), str(one["key"].item())) for one in runs}
    if others := Counter(of for of, _ in keys if of != device):
        told = ", ".join(f"{count} on {of!r}" for of, count in sorted(others.items()))
        warnings.warn(f"measured runs left out: {told}; the last one is on {device!r}, and all kept are", stacklevel=2)
    here = results.merge(curves.named(one) for one in runs if str(one["device"].item()) == device)
    return results.merge([with_efficiency(here), simulation])
