"""Where the time of a step goes, from a table of events, measured or simulated.

The questions are those of HolisticTraceAnalysis, and so are the names where it has one; the answers are pandas tables
with a row for each rank and step. Time is that of the step on its rank: what lies outside, such as barriers, does not
count. Of concurrent events of a lane, such as tensors that are reduced together, the union counts.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import xarray as xr

# Backward operators as torch names them; a rank that has done the last of a step waits for the others.
BACKWARD = ("autograd::engine::evaluate_function", "backward")


def temporal_breakdown(events: xr.Dataset) -> pd.DataFrame:
    """Return how each step divides into computing, communication that no computing hides, and idle time.

    The three add up to ``step_us``. Under Horovod the coordinator alone records communication: on the other ranks it is
    not known (NaN), and waiting for it counts as idle.
    """
    rows = []
    for rank, step, start, end, lanes in _steps(events):
        compute, communication = lanes["compute"], lanes["communication"]
        busy, either = _length(compute), _length(_union(np.concatenate([compute, communication])))
        exposed = either - busy if "communication" in lanes else np.nan
        times = {"compute_us": busy, "exposed_communication_us": exposed, "idle_us": end - start - either}
        shares = {name.replace("_us", "_share"): value / (end - start) for name, value in times.items()}
        rows.append({"rank": rank, "step": step, "step_us": end - start, **times, **shares})
    return pd.DataFrame(rows)


def comm_comp_overlap(events: xr.Dataset) -> pd.DataFrame:
    """Return how much of the communication is hidden behind computing; ranks that recorded none are left out."""
    rows = []
    for rank, step, _, _, lanes in _steps(events):
        total = _length(lanes["communication"])
        if total > 0:
            hidden = _overlap(lanes["communication"], lanes["compute"])
            rows.append(
                {"rank": rank, "step": step, "communication_us": total, "hidden_us": hidden, "overlap": hidden / total}
            )
    return pd.DataFrame(rows, columns=["rank", "step", "communication_us", "hidden_us", "overlap"])


def negotiation_time(events: xr.Dataset) -> pd.DataFrame:
    """Return the time in which Horovod negotiates, the part that no computing hides, and that outside all-reduces.

    While an all-reduce holds Horovod's thread, tensors that became ready meanwhile wait under the name of negotiation:
    ``between_us`` is the rest, in which nothing is reduced.
    """
    table = _lane_time(events, "negotiation")
    between = [
        _length(lanes["negotiation"]) - _overlap(lanes["negotiation"], lanes["communication"])
        for *_, lanes in _steps(events)
    ]
    return table.assign(between_us=between)


def queue_time(events: xr.Dataset) -> pd.DataFrame:
    """Return the time in which collectives wait for a thread or for data, and the part that no computing hides."""
    return _lane_time(events, "queue")


def idle_time_breakdown(events: xr.Dataset) -> pd.DataFrame:
    """Return what happens while a rank neither computes nor communicates: negotiation, queue, copy, or nothing seen.

    A moment with several of them counts for the first.
    """
    rows = []
    for rank, step, start, end, lanes in _steps(events):
        row: dict[str, float] = {"rank": rank, "step": step}
        left = np.array([[start, end]])
        for lane in ("compute", "communication"):
            left = _without(left, lanes[lane])
        row["idle_us"] = _length(left)
        for lane in ("negotiation", "queue", "copy"):
            row[f"{lane}_us"] = _overlap(left, lanes[lane])
            left = _without(left, lanes[lane])
        rows.append({**row, "other_us": _length(left)})
    return pd.DataFrame(rows)


def wait_time(events: xr.Dataset) -> pd.DataFrame:
    """Return for every collective that all ranks recorded how long each rank waited for the last, and what then passed.

    Collectives are matched by their order, which all ranks share.
    """
    frame = events.to_dataframe().query("lane == 'communication'").sort_values("start_us", kind="stable")
    frame = frame.assign(collective=frame.groupby("rank").cumcount())
    counts = {int(str(rank)): len(part) for rank, part in frame.groupby("rank")}
    stepping = sorted({rank for rank, *_ in _steps(events)})
    if sorted(counts) != stepping or len(set(counts.values())) != 1:
        raise ValueError(f"collectives recorded by rank: {counts}, of ranks {stepping}; accepted: as many by each")
    last = frame.groupby("collective")["start_us"].transform("max")
    waited = (last - frame["start_us"]).clip(upper=frame["end_us"] - frame["start_us"])
    table = frame.assign(wait_us=waited, transfer_us=frame["end_us"] - frame["start_us"] - waited)
    return table[["rank", "collective", "name", "bytes", "wait_us", "transfer_us"]].reset_index(drop=True)


def waits_in_words(events: xr.Dataset | None, rank: int = 0) -> str:
    """Say how much of a rank's collectives is waiting for the last rank; nothing where there is no such step."""
    if events is None:
        return ""
    mine = wait_time(events).query("rank == @rank")[["wait_us", "transfer_us"]].sum() / 1000
    return (
        f"In the step that is drawn, of the {mine.sum():.0f} ms of DDP's all-reduces on rank {rank}, summed, "
        f"{mine['wait_us']:.0f} ms ({mine['wait_us'] / mine.sum():.0%}) are waiting for the last rank, and "
        f"{mine['transfer_us']:.0f} ms the transfer itself."
    )


def potential_stragglers(events: xr.Dataset) -> pd.DataFrame:
    """Return how long after the first rank each rank has done its share of a step, and which one is last.

    A share is done with the last backward operator. Where events have no such names, it is done with the last computing
    that begins before the step's last communication ends.
    """
    done = []
    frame = events.to_dataframe()
    for rank, step, start, end, lanes in _steps(events):
        mine = frame[(frame["rank"] == rank) & (frame["lane"] == "compute") & frame["start_us"].between(start, end)]
        backward = mine[mine["name"].str.startswith(BACKWARD)]
        if backward.empty:
            backward = mine[mine["start_us"] < lanes["communication"].max(initial=start)]
        done.append({"rank": rank, "step": step, "done_us": backward["end_us"].max()})
    table = pd.DataFrame(done, columns=["rank", "step", "done_us"])
    by_step = table.groupby("step")["done_us"]
    table["late_us"] = table["done_us"] - by_step.transform("min")
    table["last"] = (table["done_us"] == by_step.transform("max")) & (by_step.transform("count") > 1)
    return table.sort_values(["step", "rank"], ignore_index=True).drop(columns="done_us")


def _lane_time(events: xr.Dataset, lane: str) -> pd.DataFrame:
    rows = []
    for rank, step, start, end, lanes in _steps(events):
        total = _length(lanes[lane])
        exposed = total - _overlap(lanes[lane], lanes["compute"])
        rows.append(
            {
                "rank": rank, "step": step, f"{lane}_us": total, "exposed_us": exposed,
                "share": total / (end - start),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


class _Lanes(dict):
    def __missing__(self, lane: str) -> np.ndarray:
        return np.empty((0, 2))


def _steps(events: xr.Dataset) -> Iterator[tuple[int, int, float, float, _Lanes]]:
    """Yield every step of every rank with the union of each lane's events, cut to the step."""
    frame = events.to_dataframe()
    steps = frame[frame["lane"] == "step"]
    if steps.empty:
        raise ValueError("the events have no lane 'step', so that no time can be counted")
    for rank, of_rank in frame.groupby("rank"):
        lanes = {lane: _union(part[["start_us", "end_us"]].to_numpy()) for lane, part in of_rank.groupby("lane")}
        mine = steps[steps["rank"] == rank].sort_values("start_us")
        for name, (start, end) in zip(mine["name"], mine[["start_us", "end_us"]].to_numpy().tolist(), strict=True):
            cut = {lane: np.clip(spans[_touch(spans, start, end)], start, end) for lane, spans in lanes.items()}
            yield int(str(rank)), int(name.rsplit(" ", 1)[-1]), start, end, _Lanes(cut)


def _touch(spans: np.ndarray, start: float, end: float) -> np.ndarray:
    return (spans[:, 1] > start) & (spans[:, 0] < end)


def _union(spans: np.ndarray) -> np.ndarray:
    """Return disjoint intervals, in order, that cover what the given ones cover."""
    if len(spans) == 0:
        return np.empty((0, 2))
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reach = np.maximum.accumulate(spans[:, 1])
    first = np.concatenate([[True], spans[1:, 0] > reach[:-1]])
    return np.stack([spans[first, 0], np.append(reach[:-1][first[1:]], reach[-1])], axis=1)


def _length(spans: np.ndarray) -> float:
    return float((spans[:, 1] - spans[:, 0]).sum())


def _overlap(one: np.ndarray, other: np.ndarray) -> float:
    """Return the length that two sets of disjoint intervals share."""
    return _length(one) + _length(other) - _length(_union(np.concatenate([one, other])))


def _without(spans: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """Return what disjoint intervals cover and disjoint ``taken`` do not."""
    left = []
    for start, end in spans:
        for from_, to in taken[_touch(taken, start, end)]:
            left.append((start, from_))
            start = to
        left.append((start, end))
    return np.array([span for span in left if span[1] > span[0]]).reshape(-1, 2)
