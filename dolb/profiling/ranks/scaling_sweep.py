"""Many measurements, making only those that the store lacks, one after another: each needs the machine for itself."""

from __future__ import annotations

import contextlib
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from tqdm.auto import tqdm

from dolb import results
from dolb.profiling.config import BASELINE, ScalingConfig
from dolb.profiling.ranks import workers
from dolb.profiling.simulator import curves
from dolb.profiling.simulator.simulate import SOURCE
from dolb.profiling.traces import timeline
from dolb.results import RunStore

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
    """Return the measurements of ``configs`` as one Dataset, making those that the store lacks.

    A repetition is made whole before the next; within it the same processes make all that they can.

    Efficiencies are filled in by `with_efficiency`. Configs with traced steps are measured by `timeline.traced`.

    Parameters
    ----------
    store
        Folder of finished measurements. Without one they live only in the returned Dataset.
    time_limit
        Seconds after which no further measurement is begun. What is unfinished is counted in the Dataset's attribute
        ``unfinished``; a later call goes on from there.
    apart
        Give each repetition processes of its own, so that repetitions differ in all that may differ.
    oversubscribe, timeout
        Of each measurement; see `workers.measure`.
    """
    wanted = {config.key: config for config in configs}
    if not wanted:
        raise ValueError("there is nothing to measure: the list of configs is empty")
    for config in wanted.values():  # whatever can be refused is refused before anything is measured
        workers.check(config, oversubscribe=oversubscribe)
    deadline = time.monotonic() + time_limit if time_limit is not None else np.inf
    with contextlib.ExitStack() as stack:
        folder = store or stack.enter_context(tempfile.TemporaryDirectory(prefix="dolb-"))
        runs = RunStore(folder)
        found = {key: with_settings(old) for key in wanted if (old := runs.get(key)) is not None}
        if len(found) < len(wanted):
            runs.check_writable()
        lacking = [config for key, config in wanted.items() if key not in found]
        bar = stack.enter_context(tqdm(total=len(lacking), unit="measurement", disable=not progress, desc="measure"))
        for group in together(lacking, apart):
            if time.monotonic() > deadline:
                break
            traced = group[0].trace_steps > 0
            how: dict[str, Any] = {"oversubscribe": oversubscribe, "timeout": timeout}
            rows = (timeline.traced(one, **how) for one in group) if traced else workers.measure_together(group, **how)
            made_at_once = any(one.alone_steps for one in group)  # their rows come when all are made
            with contextlib.closing(rows):
                for row in rows:
                    key = str(row["key"].item())
                    found[key] = row
                    runs.put(row)
                    bar.update()
                    if time.monotonic() > deadline and not made_at_once:
                        break
    if not found:
        raise TimeoutError(f"the time limit of {time_limit:g} s ended before any of {len(wanted)} measurements")
    merged = with_efficiency(results.merge(found[key] for key in wanted if key in found))
    merged.attrs["unfinished"] = len(wanted) - len(found)
    return merged


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
    on one rank under the same library, of the same repetition; settings such as the bucket size do nothing there, so a
    tuned run is compared with one rank at the defaults. Under weak scaling the one rank has the batch of a rank, under
    strong scaling the global batch. Where there is neither the efficiency is not known (NaN).
    """
    names = [*_PAIR, "ranks", "batch_size", "batch_size_per_rank", "images_per_second"]
    table = pd.DataFrame({name: ds[name].to_numpy() for name in names})
    table["one_rank_batch"] = table["batch_size_per_rank"].where(table["scaling"] == "weak", table["batch_size"])
    own = table[table["ranks"] == 1].drop_duplicates([*_PAIR, "one_rank_batch"])
    alone = table.merge(
        own[[*_PAIR, "one_rank_batch", "images_per_second"]],
        on=[*_PAIR, "one_rank_batch"],
        how="left",
        suffixes=("", "_alone"),
    )["images_per_second_alone"]
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
    _warn_of_others(runs, device)
    here = results.merge(curves.named(one) for one in runs if str(one["device"].item()) == device)
    return results.merge([with_efficiency(here), simulation])


def _warn_of_others(runs: Iterable[xr.Dataset], device: str) -> None:
    keys = {(str(one["device"].item()), str(one["key"].item())) for one in runs}
    others = Counter(of for of, _ in keys if of != device)
    if others:
        told = ", ".join(f"{count} on {of!r}" for of, count in sorted(others.items()))
        warnings.warn(f"measured runs left out: {told}; the last one is on {device!r}, and all kept are", stacklevel=3)
