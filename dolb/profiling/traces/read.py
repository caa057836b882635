"""Traces of torch.profiler, of every rank, and Horovod timelines become one table of events on one clock.

Lanes: ``step`` spans a training step; ``compute`` is arithmetic (outermost operators on a CPU; kernels on a GPU, where
operators are ``host``); ``communication`` is a collective from when it runs; ``queue`` is its wait for a free thread
or for data; ``negotiation`` is Horovod's agreement on what to reduce; ``copy`` moves tensors to and from fusion
buffers; ``ready`` marks a rank's readiness as the coordinator saw it, ``cycle`` a round of negotiation, ``barrier`` a
barrier.

Horovod's coordinator, rank 0, alone writes a timeline: the other ranks have no communication of their own in the table.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from dolb import results
from dolb.profiling.traces.formats import COLUMNS, read_file


def find(folder: str | Path) -> list[Path]:
    """Return the traces in a measurement's folder."""
    return [path for kind in ("torch", "horovod") for path in sorted(Path(folder).glob(f"{kind}-*.json*"))]


def read(paths: Iterable[str | Path]) -> xr.Dataset:
    """Read traces of the ranks of one job, torch's and Horovod's in any order, into a table on one clock.

    Times are microseconds since the earliest event. Ranks are on one machine, and both kinds of trace carry its time of
    day.
    """
    parts = [read_file(Path(path)) for path in paths]
    # Relative to whole microseconds, of which a float cannot hold as many as have passed since 1970.
    origin = min(part.base_us + int(part.events["start_us"].min()) for part in parts)
    for part in parts:
        part.events[["start_us", "end_us"]] += part.base_us - origin
    events = pd.concat([part.events for part in parts], ignore_index=True)
    events = events.sort_values(["start_us", "rank", "end_us"], kind="stable", ignore_index=True)
    events[["start_us", "end_us"]] -= events["start_us"].iloc[0]
    return dataset(events, "measured")


def dataset(events: pd.DataFrame, source: str) -> xr.Dataset:
    """Make a Dataset of a table of events with the schema's columns, measured or simulated."""
    kinds = {"rank": "int64", "bytes": "int64", "start_us": "float64", "end_us": "float64"}
    columns = {c: ("event", events[c].to_numpy(kinds[c]) if c in kinds else np.array(events[c], str)) for c in COLUMNS}
    return results.describe(results.validate(xr.Dataset(columns, attrs={"source": source})))


def perfetto_json(events: xr.Dataset) -> str:
    """Return events as Chrome trace JSON, which ui.perfetto.dev opens: a process for each rank, a track for each lane.

    Events of a lane that overlap without nesting get tracks of their own, as Perfetto draws a track as a stack.
    """
    frame = events.to_dataframe().sort_values(["start_us", "end_us"], ascending=[True, False], kind="stable")
    made: list[dict[str, Any]] = []
    for rank, of_rank in frame.groupby("rank"):
        made.append({"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}})
        track = 0
        for lane, of_lane in of_rank.groupby("lane"):
            numbers = _tracks(of_lane["start_us"].to_numpy(), of_lane["end_us"].to_numpy())
            for number in range(max(numbers) + 1):
                name = {"name": f"{lane} {number + 1}" if number else lane}
                made.append({"ph": "M", "name": "thread_name", "pid": rank, "tid": track + number, "args": name})
            for number, event in zip(numbers, of_lane.to_dict("records"), strict=True):
                made.append(
                    {
                        "ph": "X", "pid": rank, "tid": track + number, "cat": lane, "name": event["name"],
                        "ts": event["start_us"], "dur": event["end_us"] - event["start_us"],
                        "args": {"bytes": event["bytes"]},
                    }
                )  # fmt: skip
            track += max(numbers) + 1
    about = {name: str(value) for name, value in events.attrs.items()}
    return json.dumps({"traceEvents": made, "displayTimeUnit": "ms", "metadata": about})


def _tracks(starts: np.ndarray, ends: np.ndarray) -> list[int]:
    """Give each event, in order of start, the first track where it lies within the open event or after all of them."""
    stacks: list[list[float]] = []  # of each track, when its open events end
    numbers = []
    for start, end in zip(starts, ends, strict=True):
        for stack in stacks:
            while stack and stack[-1] <= start:
                stack.pop()
        free = (number for number, stack in enumerate(stacks) if not stack or end <= stack[-1])
        number = next(free, len(stacks))
        if number == len(stacks):
            stacks.append([])
        stacks[number].append(end)
        numbers.append(number)
    return numbers
