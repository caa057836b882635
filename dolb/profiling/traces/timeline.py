"""Steps as tables of events, each with a row that says what was run and where its time went.

A Dataset has an entry of ``run`` for every step, with the numbers of `breakdown` for rank 0, and the events of one step
of it. Under Horovod rank 0 is the coordinator, which alone records communication.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from dolb import results
from dolb.profiling.config import ScalingConfig
from dolb.profiling.ranks import launch
from dolb.profiling.simulator import curves
from dolb.profiling.simulator import step as simulator
from dolb.profiling.traces import breakdown
from dolb.profiling.traces.read import dataset, find, read

_US = 1e-6


def traced(config: ScalingConfig) -> xr.Dataset:
    """Measure steps that are traced, and return their row with the events of the one of median length.

    The row's times are means over the traced steps.
    """
    with tempfile.TemporaryDirectory(prefix="dolb-trace-") as folder:
        kept = Path(folder) / "measurement"
        row = launch.measure(config, folder=kept)
        events = read(find(kept))
    return with_events(curves.named(row), events)


def simulated_steps() -> xr.Dataset:
    """Return a simulated step of the study's size on Summit: DDP, and Horovod with and without its response cache."""
    return results.merge(simulated(curves.on_summit(policy), curves.STUDIED_GPUS) for policy in curves.POLICIES[:3])


def simulated(scenario: simulator.Scenario, ranks: int) -> xr.Dataset:
    """Simulate a step and return its row with the events of three ranks that stand for all."""
    row = curves.simulated_rows([curves.row(scenario, ranks, experiment="step-timeline")])
    return with_events(row, dataset(simulator.events(scenario, ranks), simulator.SOURCE))


def with_events(row: xr.Dataset, events: xr.Dataset) -> xr.Dataset:
    """Add to a run's row the numbers of its events, and the events of the step of median length, from 0 us on."""
    library = str(row["library"].item())
    numbers = {name: ("run", np.array([value])) for name, value in _numbers(events, library).items()}
    shown = _median_step(events)
    return results.describe(results.validate(row.assign(numbers).assign(dict(shown.data_vars))))


def _numbers(events: xr.Dataset, library: str) -> dict[str, Any]:
    """Return where the time of rank 0 goes and how late the last rank is, mean over steps, and what all-reduces are."""
    times = breakdown.step_times(events).query("rank == 0")
    parts = ("step", "communication", "exposed", "negotiation", "queue", "idle")
    late = breakdown.lateness(events).groupby("step")["late_us"].max()
    orders = list(_orders(events, library))
    return {
        **{f"{part}_seconds": float(times[f"{part}_us"].mean()) * _US for part in parts},
        "overlap": float(times["hidden_us"].sum() / times["communication_us"].sum()),
        "negotiation_between_seconds": float(times["between_us"].mean()) * _US,
        "late_seconds": float(late.mean()) * _US,
        "messages": float(np.mean([len(order) for order in orders])),
        "same_order": all(order == orders[0] for order in orders),
    }


def _orders(events: xr.Dataset, library: str) -> Iterator[list[list[int]]]:
    """Yield, for every step of every rank that recorded any, its all-reduces as the sizes of what each one reduced.

    Horovod records every tensor of a fused buffer by itself; those that run at one time are one all-reduce.
    """
    frame = events.to_dataframe()
    steps = frame[frame["lane"] == "step"]
    reduced = frame[frame["lane"] == "communication"].sort_values("start_us", kind="stable")
    for rank, start, end in steps[["rank", "start_us", "end_us"]].to_numpy().tolist():
        mine = reduced[(reduced["rank"] == rank) & reduced["start_us"].between(start, end)]
        if mine.empty:
            continue
        before = mine["end_us"].cummax().shift(fill_value=-np.inf)
        first = (mine["start_us"] >= before) | (library != "horovod")
        yield [sorted(group["bytes"].tolist()) for _, group in mine.groupby(first.cumsum())]


def _median_step(events: xr.Dataset) -> xr.Dataset:
    """Return the events of the step whose length on the first rank is the median of its steps, from 0 us on."""
    frame = events.to_dataframe()
    steps = frame[frame["lane"] == "step"].assign(length=lambda table: table["end_us"] - table["start_us"])
    of_first = steps[steps["rank"] == steps["rank"].min()].sort_values("length")
    name = of_first["name"].iloc[len(of_first) // 2]
    spans = steps[steps["name"] == name]
    rank_spans = spans.set_index("rank")
    own_start, own_end = (frame["rank"].map(rank_spans[edge]) for edge in ("start_us", "end_us"))
    # Of a rank, what lies in its own step: its neighbours' begin and end at other moments.
    frame["end_us"] = frame["end_us"].clip(upper=own_end)
    kept = frame[(frame["start_us"] >= own_start) & (frame["start_us"] < own_end)].copy()
    kept[["start_us", "end_us"]] -= spans["start_us"].min()
    return dataset(kept, events.attrs["source"])
