"""Many measurements, making only those that the store lacks, one after another: each needs the machine for itself."""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import xarray as xr

from dolb import results
from dolb.profiling.config import BASELINE, ScalingConfig
from dolb.profiling.ranks import launch
from dolb.profiling.simulator import curves
from dolb.profiling.simulator.step import SOURCE
from dolb.profiling.traces import timeline
from dolb.results.fill import Todo, fill

_PAIR = ["library", "arch", "scaling", "repeat", "device"]


def measure_all(
    configs: Sequence[ScalingConfig],
    *,
    store: str | Path | None = None,
    time_limit: float | None = None,
    apart: bool = True,
    oversubscribe: bool = False,
    timeout: float = 600.0,
    progress: bool = True,
) -> xr.Dataset:
    """Return the measurements of ``configs`` as one Dataset with efficiencies, making those that the store lacks.

    A repetition is made whole before the next; within it the same processes make all that they can. ``apart`` gives
    each repetition processes of its own, so that repetitions differ in all that may differ. ``store`` and
    ``time_limit`` are as in `fill`, ``oversubscribe`` and ``timeout``, of each measurement, as in `launch.measure`.
    Whatever can be refused, such as a library that is not built, is refused before anything is measured.
    """
    for config in configs:
        launch.check(config, oversubscribe=oversubscribe)
    how: dict[str, Any] = {"oversubscribe": oversubscribe, "timeout": timeout}

    def make(todo: Todo[ScalingConfig]) -> Iterator[xr.Dataset]:
        for group in together(todo.waiting, apart):
            mine = list(todo.claim(group))
            if not mine:
                continue
            traced = mine[0].trace_steps > 0
            rows = (timeline.traced(one, **how) for one in mine) if traced else launch.measure_together(mine, **how)
            at_once = any(one.alone_steps for one in mine)  # their rows come when all are made
            with contextlib.closing(rows):
                for row in rows:
                    yield row
                    if todo.ends() and not at_once:
                        return

    limits: dict[str, Any] = {"time_limit": time_limit, "progress": progress}
    found = fill(configs, make, store=store, complete=with_settings, what="measurements", unit="measurement", **limits)
    return with_efficiency(found).assign_attrs(found.attrs)


def with_settings(ds: xr.Dataset) -> xr.Dataset:
    """Add the settings that did not exist when runs were measured: by their keys they had today's defaults."""
    lacking = {name: value for name, value in ScalingConfig().as_dict().items() if name not in ds}
    return results.describe(
        ds.assign_coords({name: ("run", [value] * ds.sizes["run"]) for name, value in lacking.items()})
    )


def together(configs: Iterable[ScalingConfig], apart: bool = True) -> list[list[ScalingConfig]]:
    """Group measurements, of one repetition or of all, that the same processes can make, in their order."""
    groups: dict[tuple, list[ScalingConfig]] = {}
    for config in configs:
        groups.setdefault((config.repeat if apart else 0, *config.launch), []).append(config)
    return sorted(groups.values(), key=lambda group: group[0].repeat)


def with_efficiency(ds: xr.Dataset) -> xr.Dataset:
    """Add each run's efficiency: its throughput over ranks times that of one rank alone.

    The one rank trained without a library, in the same launch. Of runs from before there was such a one it is the run
    on one rank under the same library, of the same repetition, at the defaults: settings such as the bucket size do
    nothing there. Under weak scaling the one rank has the batch of a rank, under strong scaling the global batch. Where
    there is neither the efficiency is not known (NaN).
    """
    names = [*_PAIR, "ranks", "batch_size", "batch_size_per_rank", "images_per_second"]
    table = pd.DataFrame({name: ds[name].to_numpy() for name in names})
    table["one_rank_batch"] = table["batch_size_per_rank"].where(table["scaling"] == "weak", table["batch_size"])
    same = [*_PAIR, "one_rank_batch"]
    own = table[table["ranks"] == 1].drop_duplicates(same)[[*same, "images_per_second"]]
    alone = table.merge(own, on=same, how="left", suffixes=("", "_alone"))["images_per_second_alone"]
    if BASELINE in ds:
        alone = pd.Series(ds[BASELINE].to_numpy()).fillna(alone)
    efficiency = table["images_per_second"] / (table["ranks"] * alone)
    return results.describe(ds.assign(efficiency=("run", efficiency.to_numpy())))


def complete(measured: Iterable[xr.Dataset], simulation: xr.Dataset) -> xr.Dataset:
    """Join measurements, of two with one key the later, and beside them the simulated rows of an experiment.

    Of what is given as measured, simulated rows are dropped, and so are, with a warning, runs on another device than
    the last one's: a table that is compared has one machine.
    """
    parts = [with_settings(part) for part in measured]
    runs = [one for part in parts for one in results.split(part) if str(one["source"].item()) != SOURCE]
    if not runs:
        raise ValueError("there is no measured run among the results given")
    device = str(runs[-1]["device"].item())
    keys = {(str(one["device"].item()), str(one["key"].item())) for one in runs}
    if others := Counter(of for of, _ in keys if of != device):
        told = ", ".join(f"{count} on {of!r}" for of, count in sorted(others.items()))
        warnings.warn(f"measured runs left out: {told}; the last one is on {device!r}, and all kept are", stacklevel=2)
    here = results.merge(curves.named(one) for one in runs if str(one["device"].item()) == device)
    return results.merge([with_efficiency(here), simulation])
