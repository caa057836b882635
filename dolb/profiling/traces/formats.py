"""Trace files as torch.profiler and Horovod write them, each read into a table of events on its own clock."""

import gzip
import json
import math
import re
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

COLUMNS = ("rank", "lane", "name", "start_us", "end_us", "bytes")
Row = tuple[str, str, float, float, int]  # the columns after ``rank``

_ITEM_BYTES = {
    # by torch's names for the inputs of an operator, by NCCL's metadata, by Horovod
    "float": 4, "double": 8, "c10::Half": 2, "c10::BFloat16": 2, "int": 4, "long int": 8, "unsigned char": 1, "bool": 1,
    "Float": 4, "Double": 8, "Half": 2, "BFloat16": 2, "Int": 4, "Long": 8, "Byte": 1, "Char": 1, "Bool": 1,
    "float32": 4, "float64": 8, "float16": 2, "int32": 4, "int64": 8, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2,
}  # fmt: skip
_RANK_IN_NAME = re.compile(r"-(\d+)\.json(?:\.gz)?$")
_COLLECTIVES = ("ALLREDUCE", "ALLGATHER", "BROADCAST", "ALLTOALL", "REDUCESCATTER", "ADASUM")


class File(NamedTuple):
    """What a file holds: events, and the unix time in microseconds that they count from."""

    events: pd.DataFrame
    base_us: int


def read_file(path: Path) -> File:
    """Read a trace of torch.profiler or a Horovod timeline, packed or not; its name ends with its rank."""
    content = path.read_bytes()
    try:
        whole = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
        rank = int(_RANK_IN_NAME.findall(path.name)[0])
        found = _horovod(whole) if isinstance(whole, list) else _torch(whole, rank)
        int(found.events["start_us"].min())  # which there must be
    except Exception as error:  # a damaged file can lack anything
        told = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path} is not a trace of torch.profiler or Horovod ({told})") from error
    return found


def _torch(whole: dict[str, Any], rank: int) -> File:
    spans = [event for event in whole["traceEvents"] if event.get("ph") == "X" and event.get("cat") != "Trace"]
    rows: list[Row] = []
    operators: dict[Any, list[Row]] = defaultdict(list)  # by thread
    collectives: dict[Any, list[Row]] = defaultdict(list)
    host = "host" if any(event.get("cat") == "kernel" for event in spans) else "compute"
    for event in spans:
        kind, name, where = event.get("cat"), str(event["name"]), (event.get("pid"), event.get("tid"))
        start, end = float(event["ts"]), float(event["ts"]) + float(event["dur"])
        if kind == "user_annotation" and name.startswith("step "):
            rows.append(("step", name, start, end, 0))
        elif kind == "user_annotation" and name.endswith(":barrier"):
            rows.append(("barrier", name, start, end, 0))
        elif kind == "user_annotation" and name.startswith("gloo:"):
            collectives[where].append(("communication", name, start, end, _torch_bytes(event)))
        elif kind == "kernel" and "nccl" in name.lower():
            rows.append(("communication", name, start, end, _torch_bytes(event)))
        elif kind == "kernel":
            rows.append(("compute", name, start, end, 0))
        elif kind in ("gpu_memcpy", "gpu_memset"):
            rows.append(("copy", name, start, end, event.get("args", {}).get("bytes", 0)))
        elif kind == "cpu_op" and not name.startswith("c10d::"):
            operators[where].append((host, name, start, end, 0))
    rows += [row for of_thread in operators.values() for row in _outermost(of_thread)]
    rows += [row for given in collectives.values() for row in _one_by_one(given)]
    table = pd.DataFrame(rows, columns=COLUMNS[1:])
    table.insert(0, "rank", rank)
    return File(table, whole.get("baseTimeNanoseconds", 0) // 1000)


def _outermost(operators: list[Row]) -> list[Row]:
    """Return the operators of a thread that run within no other."""
    kept: list[Row] = []
    for row in sorted(operators, key=lambda row: (row[2], -row[3])):
        if not kept or row[2] >= kept[-1][3]:
            kept.append(row)
    return kept


def _one_by_one(collectives: list[Row]) -> list[Row]:
    """Return the collectives of a thread from when they run, and as ``queue`` what they waited before.

    The annotation starts when the collective is given to a thread, which first ends the one before.
    """
    rows: list[Row] = []
    latest = -math.inf
    for lane, name, start, end, size in sorted(collectives, key=lambda row: row[3]):
        if start < latest:
            rows.append(("queue", name, start, latest, 0))
        rows.append((lane, name, max(start, latest), end, size))
        latest = end
    return rows


def _torch_bytes(event: dict[str, Any]) -> int:
    args = event.get("args", {})
    if "In msg nelems" in args:  # NCCL's
        return args["In msg nelems"] * _ITEM_BYTES.get(args.get("dtype", ""), 0)
    total = 0
    for dims, kind in zip(args.get("Input Dims", []), args.get("Input type", []), strict=False):
        if dims and all(isinstance(size, int) for size in dims):
            total += math.prod(dims) * _ITEM_BYTES.get(kind, 0)
    return total


def _horovod(items: list[dict[str, Any]]) -> File:
    """Read a timeline, where each tensor is a process, whose events begin (B) and end (E) as on a stack."""
    base, tensors = 0, dict[Any, str]()
    rows: list[tuple[int, *Row]] = []
    stacks: dict[Any, list[tuple[str, float, int]]] = defaultdict(list)  # with the row to give bytes from
    for event in items:
        phase, process, args = event["ph"], event.get("pid"), event.get("args", {})
        if phase == "M":
            base = args.get("start_time_since_epoch_in_micros", base)
            tensors[process] = args.get("name", tensors.get(process, ""))
            continue
        time, tensor = float(event["ts"]), tensors.get(process, "").removeprefix("allreduce.")
        if phase == "B":
            stacks[process].append((event["name"], time, len(rows)))
        elif phase == "E" and stacks[process]:  # a barrier's end has no beginning
            name, start, first = stacks[process].pop()
            if lane := _horovod_lane(name, outermost=not stacks[process]):
                rows.append((0, lane, f"{name} {tensor}", start, time, 0))
            elif "shape" in args:  # the end of a request says how large its tensor was; that much its collective moved
                size = _horovod_bytes(args)
                rows[first:] = [
                    (*row[:5], size) if row[2].endswith(f" {tensor}") and row[1] in ("communication", "copy") else row
                    for row in rows[first:]
                ]
        elif phase == "X" and event["name"].isdigit():
            rows.append((int(event["name"]), "ready", tensor, time, time, 0))
        elif phase == "i":
            rows.append((0, "cycle", event["name"], time, time, 0))
    return File(pd.DataFrame(rows, columns=COLUMNS), base)


def _horovod_lane(name: str, outermost: bool) -> str:
    if name.startswith("NEGOTIATE_"):
        return "barrier" if name == "NEGOTIATE_BARRIER" else "negotiation"
    if outermost:
        return ""  # a request, from negotiation to its end, whose activities are events of their own
    if name == "QUEUE" or name.startswith("WAIT_FOR"):
        return "queue"
    copies = name.startswith(("MEMCPY", "INIT_FUSION_BUFFER", "ALLOCATE_OUTPUT"))
    return "communication" if not copies and any(word in name for word in _COLLECTIVES) else "copy"


def _horovod_bytes(args: dict[str, Any]) -> int:
    return math.prod(map(int, re.findall(r"\d+", args["shape"]))) * _ITEM_BYTES.get(args.get("dtype", ""), 0)
