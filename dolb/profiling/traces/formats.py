"""Trace files as torch.profiler and Horovod write them, each read into a table of events on its own clock."""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

COLUMNS = ("rank", "lane", "name", "start_us", "end_us", "bytes")
BARRIER = "barrier"  # what `rank` calls the barriers by which clocks are compared

_ITEM_BYTES = {
    # by torch's names for the inputs of an operator, by NCCL's metadata, by Horovod
    "float": 4, "double": 8, "c10::Half": 2, "c10::BFloat16": 2, "int": 4, "long int": 8, "unsigned char": 1, "bool": 1,
    "Float": 4, "Double": 8, "Half": 2, "BFloat16": 2, "Int": 4, "Long": 8, "Byte": 1, "Char": 1, "Bool": 1,
    "float32": 4, "float64": 8, "float16": 2, "int32": 4, "int64": 8, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2,
}  # fmt: skip
_STEP = re.compile(r"(?:step |ProfilerStep#)(\d+)$")
_RANK_IN_NAME = re.compile(r"(\d+)\.(?:pt\.trace\.)?json(?:\.gz)?$")
_COPIES = ("MEMCPY", "INIT_FUSION_BUFFER", "ALLOCATE_OUTPUT")
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError)  # what an event that is none may raise
_COLLECTIVES = ("ALLREDUCE", "ALLGATHER", "BROADCAST", "ALLTOALL", "REDUCESCATTER", "ADASUM")


class TraceError(ValueError):
    """A trace that cannot be read; the message names the file, and the offset where there is one."""


class File(NamedTuple):
    """What a file holds: events, the unix time in microseconds that they count from, and whose they are."""

    events: pd.DataFrame
    base_us: int
    whose: str


def read_file(path: Path) -> File:
    """Read a trace of torch.profiler or a Horovod timeline, packed or not; what is damaged raises a ``TraceError``."""
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        text = content.decode()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"{path} is damaged: {error}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path} is no trace: at offset {error.start} it is not text") from error
    if not text.strip():
        raise TraceError(f"{path} is empty")
    if text.lstrip()[0] == "[":
        return File(*_horovod(_parse_list(text, path), path), "Horovod's timeline")
    try:
        whole = json.loads(text)
    except json.JSONDecodeError as error:
        cut = "ends too early" if _is_cut(error, text) else "is not JSON"
        raise TraceError(f"{path} {cut}: {error.msg} at offset {error.pos} of {len(text)}") from error
    if not isinstance(whole, dict) or not isinstance(whole.get("traceEvents"), list):
        raise TraceError(
            f"{path} is no trace of torch.profiler (no list `traceEvents`), nor a Horovod timeline (a list)"
        )
    return _torch(whole, path)


def _is_cut(error: json.JSONDecodeError, text: str) -> bool:
    return error.msg.startswith("Unterminated string") or error.pos >= len(text.rstrip())


def _parse_list(text: str, path: Path) -> list[dict[str, Any]]:
    """Parse a list of events, of which a killed job leaves the end unwritten."""
    try:
        items = json.loads(text)
    except json.JSONDecodeError as error:
        if _is_cut(error, text):
            raise TraceError(
                f"{path} is cut at offset {len(text)}, as a killed job leaves it; measure again"
            ) from error
        raise TraceError(f"{path} is not JSON: {error.msg} at offset {error.pos} of {len(text)}") from error
    for number, item in enumerate(items):
        if not isinstance(item, dict) or "ph" not in item:
            raise TraceError(f"{path}: item {number} is {item!r:.60}, no event")
    return items


class _Torch:
    """The events of one rank as torch.profiler wrote them, sorted into lanes."""

    def __init__(self, on_gpu: bool):
        self.host = "host" if on_gpu else "compute"
        self.rows: list[tuple[str, str, float, float, int]] = []
        self.operators: dict[Any, list[tuple[float, float, str]]] = defaultdict(list)  # by thread
        self.collectives: dict[Any, list[tuple[float, float, str, int]]] = defaultdict(list)

    def add(self, event: dict[str, Any]) -> None:
        """Sort in one event; what has no lane is left out."""
        kind, name = event.get("cat"), str(event["name"])
        start, end = _span(event)
        where = (event.get("pid"), event.get("tid"))
        if kind == "user_annotation":
            self._annotate(event, name, start, end, where)
        elif kind == "kernel":
            lane = "communication" if "nccl" in name.lower() else "compute"
            self.rows.append((lane, name, start, end, _torch_bytes(event) if lane == "communication" else 0))
        elif kind in ("gpu_memcpy", "gpu_memset"):
            self.rows.append(("copy", name, start, end, _count(_args(event), "bytes", 0)))
        elif kind == "cpu_op" and not name.startswith("c10d::"):
            self.operators[where].append((start, end, name))

    def _annotate(self, event: dict[str, Any], name: str, start: float, end: float, where: Any) -> None:
        if step := _STEP.match(name):
            self.rows.append(("step", f"step {step[1]}", start, end, 0))
        elif name == BARRIER or name.endswith(":barrier"):
            self.rows.append(("barrier", name, start, end, 0))
        elif name.startswith(("gloo:", "mpi:", "ucc:")):
            self.collectives[where].append((start, end, name, _torch_bytes(event)))

    def table(self) -> list[tuple[str, str, float, float, int]]:
        """Return all rows: of operators the outermost, and of collectives what they waited before they ran."""
        rows = list(self.rows)
        for of_thread in self.operators.values():
            latest = -math.inf
            for start, end, name in sorted(of_thread, key=lambda e: (e[0], -e[1])):
                if start >= latest:  # the outermost alone: what runs within one is in it
                    rows.append((self.host, name, start, end, 0))
                    latest = end
        for given in self.collectives.values():
            # The annotation starts when the collective is given to a thread, which first ends the one before.
            latest = -math.inf
            for start, end, name, size in sorted(given, key=lambda e: e[1]):
                if start < latest:
                    rows.append(("queue", name, start, latest, 0))
                rows.append(("communication", name, max(start, latest), end, size))
                latest = end
        return rows


def _torch(whole: dict[str, Any], path: Path) -> File:
    for number, event in enumerate(whole["traceEvents"]):
        if not isinstance(event, dict):
            raise TraceError(f"{path}: item {number} of `traceEvents` is {event!r:.60}, no event")
    spans = [e for e in whole["traceEvents"] if e.get("ph") == "X" and e.get("cat") != "Trace"]
    if not spans:
        raise TraceError(f"{path} holds no events")
    try:
        rank = _torch_rank(whole, path)
        base = _count(whole, "baseTimeNanoseconds", 0) // 1000
    except ValueError as error:
        raise TraceError(f"{path} is malformed: {error}") from error
    events = _Torch(on_gpu=any(e.get("cat") == "kernel" for e in spans))
    for number, event in enumerate(spans):
        try:
            events.add(event)
        except _MALFORMED as error:
            raise TraceError(f"{path}: event {number} of {len(spans)} is malformed ({error!r})") from error
    rows = events.table()
    if not rows:
        raise TraceError(f"{path} holds no step, operator, kernel or collective among its {len(spans)} events")
    table = pd.DataFrame(rows, columns=COLUMNS[1:])
    table.insert(0, "rank", rank)
    return File(table, base, f"torch's trace of rank {rank}")


def _torch_rank(whole: dict[str, Any], path: Path) -> int:
    """Return the rank that a trace names, or else its file."""
    job = whole.get("distributedInfo", {})
    if not isinstance(job, dict):
        raise ValueError(f"distributedInfo is {job!r:.60}; accepted: an object with a rank, or none")
    if "rank" in job:
        return _count(job, "rank")
    found = _RANK_IN_NAME.search(path.name)
    if found is None:
        raise TraceError(f"{path} does not say its rank; accepted: a name that ends with it, such as torch-0.json")
    return int(found[1])


def _span(event: dict[str, Any]) -> tuple[float, float]:
    """Return when an event starts and ends."""
    start, length = float(event["ts"]), float(event["dur"])
    if not (math.isfinite(start + length) and length >= 0):
        raise ValueError(f"it starts at {start:g} us and takes {length:g} us")
    return start, start + length


def _args(event: dict[str, Any]) -> dict[str, Any]:
    args = event.get("args", {})
    if not isinstance(args, dict):
        raise ValueError(f"args is {args!r:.60}, not an object")
    return args


def _count(values: dict[str, Any], name: str, default: int | None = None) -> int:
    """Return a whole number that is not negative; what else stands there is refused by its name."""
    value = values.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} is {value!r:.60}; accepted: a whole number from 0")
    return value


def _torch_bytes(event: dict[str, Any]) -> int:
    args = _args(event)
    if "In msg nelems" in args:  # NCCL's
        return _count(args, "In msg nelems") * _ITEM_BYTES.get(args.get("dtype", ""), 0)
    total = 0
    for dims, kind in zip(args.get("Input Dims", []), args.get("Input type", []), strict=False):
        if dims and all(isinstance(size, int) for size in dims):
            total += math.prod(dims) * _ITEM_BYTES.get(kind, 0)
    return total


class _Horovod:
    """A timeline, where each tensor is a process, whose events begin (B) and end (E) as on a stack."""

    def __init__(self) -> None:
        self.base = 0
        self.tensors: dict[Any, str] = {}
        self.rows: list[tuple[int, str, str, float, float, int]] = []
        self.open: dict[Any, list[tuple[str, float, int]]] = defaultdict(list)  # with the row to give bytes from

    def add(self, event: dict[str, Any]) -> None:
        """Sort in one event."""
        phase, process, args = event["ph"], event.get("pid"), _args(event)
        if phase == "M":
            self.base = _count(args, "start_time_since_epoch_in_micros", self.base)
            self.tensors[process] = args.get("name", self.tensors.get(process, ""))
            return
        time, tensor = float(event["ts"]), str(self.tensors.get(process, "")).removeprefix("allreduce.")
        if not math.isfinite(time):
            raise ValueError(f"its time is {time:g} us")
        if phase == "B":
            self.open[process].append((str(event["name"]), time, len(self.rows)))
        elif phase == "E" and self.open[process]:  # a barrier's end has no beginning
            self._end(process, tensor, time, _horovod_bytes(args))
        elif phase == "X" and str(event["name"]).isdigit():
            self.rows.append((int(event["name"]), "ready", tensor, time, time, 0))
        elif phase == "i":
            self.rows.append((0, "cycle", str(event["name"]), time, time, 0))

    def _end(self, process: Any, tensor: str, time: float, size: int) -> None:
        name, start, first = self.open[process].pop()
        if time < start:
            raise ValueError(f"{name} starts at {start:g} us and ends at {time:g} us")
        if lane := _horovod_lane(name, outermost=not self.open[process]):
            self.rows.append((0, lane, f"{name} {tensor}", start, time, 0))
        elif size:  # the end of a request says how large its tensor was; that much its collective moved
            for k in range(first, len(self.rows)):
                if self.rows[k][2].endswith(f" {tensor}") and self.rows[k][1] in ("communication", "copy"):
                    self.rows[k] = (*self.rows[k][:5], size)


def _horovod(items: list[dict[str, Any]], path: Path) -> tuple[pd.DataFrame, int]:
    timeline = _Horovod()
    for number, event in enumerate(items):
        try:
            timeline.add(event)
        except _MALFORMED as error:
            raise TraceError(f"{path}: event {number} of {len(items)} is malformed ({error!r})") from error
    if not timeline.rows:
        raise TraceError(f"{path} holds no events")
    return pd.DataFrame(timeline.rows, columns=COLUMNS), timeline.base


def _horovod_lane(name: str, outermost: bool) -> str:
    if name.startswith("NEGOTIATE_"):
        return "barrier" if name == "NEGOTIATE_BARRIER" else "negotiation"
    if outermost:
        return ""  # a request, from negotiation to its end, whose activities are events of their own
    if name == "QUEUE" or name.startswith("WAIT_FOR"):
        return "queue"
    if name.startswith(_COPIES):
        return "copy"
    return "communication" if any(word in name for word in _COLLECTIVES) else "copy"


def _horovod_bytes(args: dict[str, Any]) -> int:
    if "shape" not in args:
        return 0
    sizes = [int(size) for size in re.findall(r"\d+", str(args["shape"]))]
    return int(np.prod(sizes, dtype=np.int64)) * _ITEM_BYTES.get(str(args.get("dtype")), 0)
