"""Where the time of a step goes, from a table of events, measured or simulated.

The answers are pandas tables with a row for each rank and step. Time is that of the step on its rank: what lies
outside, such as barriers, does not count. Of concurrent events of a lane, such as tensors that are reduced together,
the union counts.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import xarray as xr

# Backward operators as torch names them; a rank that has done the last of a step waits for the others.
BACKWARD = ("autograd::engine::evaluate_function", "backward")
NOTHING = np.empty((0, 2))


def step_times(events: xr.Dataset) -> pd.DataFrame:
    """Return how each step divides, in microseconds.

    ``compute_us``, ``exposed_us`` (communication that no computing hides) and ``idle_us`` add up to ``step_us``. Under
    Horovod the coordinator alone records communication: on the other ranks it is not known (NaN), and waiting for it
    counts as idle. ``hidden_us`` is the rest of ``communication_us``. ``negotiation_us`` is Horovod's; while an
    all-reduce holds its thread, tensors that became ready meanwhile wait under that name, and ``between_us`` is the
    part in which nothing is reduced. In ``queue_us`` collectives wait for a thread or for data.
    """
    rows = []
    for rank, step, start, end, lanes in _steps(events):
        names = ("compute", "communication", "negotiation", "queue")
        compute, communication, negotiation, queue = (lanes.get(lane, NOTHING) for lane in names)
        busy, either = _length(compute), _length(_union(np.concatenate([compute, communication])))
        reduced = _length(communication) or np.nan
        reduced_or_negotiated = _length(_union(np.concatenate([negotiation, communication])))
        rows.append(
            {
                "rank": rank,
                "step": step,
                "step_us": end - start,
                "compute_us": busy,
                "communication_us": reduced,
                "exposed_us": either - busy if "communication" in lanes else np.nan,
                "hidden_us": reduced - (either - busy),
                "idle_us": end - start - either,
                "negotiation_us": _length(negotiation),
                "between_us": reduced_or_negotiated - _length(communication),
                "queue_us": _length(queue),
            }
        )
    return pd.DataFrame(rows)


def lateness(events: xr.Dataset) -> pd.DataFrame:
    """Return ``late_us``: how long after the first rank each rank has done its share of a step.

    A share is done with the last backward operator. Where events have no such names, it is done with the last computing
    that begins before the step's last communication ends.
    """
    done = []
    frame = events.to_dataframe()
    for rank, step, start, end, lanes in _steps(events):
        mine = frame[(frame["rank"] == rank) & (frame["lane"] == "compute") & frame["start_us"].between(start, end)]
        backward = mine[mine["name"].str.startswith(BACKWARD)]
        if backward.empty:
            backward = mine[mine["start_us"] < lanes.get("communication", NOTHING).max(initial=start)]
        done.append({"rank": rank, "step": step, "done_us": backward["end_us"].max()})
    table = pd.DataFrame(done, columns=["rank", "step", "done_us"]).sort_values(["step", "rank"], ignore_index=True)
    first = table.groupby("step")["done_us"].transform("min")
    return table.assign(late_us=table["done_us"] - first).drop(columns="done_us")


def _steps(events: xr.Dataset) -> Iterator[tuple[int, int, float, float, dict[str, np.ndarray]]]:
    """Yield every step of every rank with the union of each lane's events, cut to the step."""
    frame = events.to_dataframe()
    steps = frame[frame["lane"] == "step"]
    for rank, of_rank in frame.groupby("rank"):
        lanes = {str(lane): _union(part[["start_us", "end_us"]].to_numpy()) for lane, part in of_rank.groupby("lane")}
        mine = steps[steps["rank"] == rank].sort_values("start_us")
        for name, (start, end) in zip(mine["name"], mine[["start_us", "end_us"]].to_numpy().tolist(), strict=True):
            cut = {
                lane: np.clip(spans[(spans[:, 1] > start) & (spans[:, 0] < end)], start, end)
                for lane, spans in lanes.items()
            }
            yield int(str(rank)), int(name.rsplit(" ", 1)[-1]), start, end, cut


def _union(spans: np.ndarray) -> np.ndarray:
    """Return disjoint intervals, in order, that cover what the given ones cover."""
    if len(spans) == 0:
        return NOTHING
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reach = np.maximum.accumulate(spans[:, 1])
    first = np.concatenate([[True], spans[1:, 0] > reach[:-1]])
    return np.stack([spans[first, 0], np.append(reach[:-1][first[1:]], reach[-1])], axis=1)


def _length(spans: np.ndarray) -> float:
    return float((spans[:, 1] - spans[:, 0]).sum())
