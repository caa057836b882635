"""The machine that ranks run on: its processor, the hardware threads that ranks are held to, and what else it does."""

from __future__ import annotations

import math
import os
import platform
import subprocess
import time
from functools import cache
from pathlib import Path

_STAT = Path("/proc/stat")
_IDLE = slice(3, 5)  # of the times of a hardware thread: idle, and waiting for a disk
_NICE = 1  # and computing at a lower priority than usual
PATIENCE = 30.0  # seconds to wait for other work to end before ranks are measured
_BETWEEN = 0.5  # seconds from one look to the next
_TICKS = 8  # user, nice, system, idle, iowait, irq, softirq, steal; what follows is counted in the first two already


@cache
def _core_of() -> dict[int, int]:
    """Return the core of every hardware thread; where the system does not say, each is its own."""
    lines = [line.split(",") for line in _lscpu("-p=CPU,CORE").splitlines() if not line.startswith("#")]
    told = {int(thread): int(core) for thread, core in lines if core}
    return {thread: told.get(thread, thread) for thread in os.sched_getaffinity(0)}


@cache
def processor() -> str:
    """Return the model of the processor, or where nobody knows it the architecture."""
    told = [line.split(":", 1)[1].strip() for line in _lscpu().splitlines() if line.startswith("Model name:")]
    known = [name for name in told if name not in ("", "-", "unknown")]
    return known[0] if known else platform.machine()


def _lscpu(*arguments: str) -> str:
    try:
        asked = ["lscpu", *arguments]
        return subprocess.run(
            asked, capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"}
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def hardware_threads() -> list[int]:
    """Return what this process may run on, one hardware thread of every core before the second of any."""
    seen: dict[int, int] = {}
    order = []
    for thread, core in sorted(_core_of().items()):
        order.append((seen.setdefault(core, 0), thread))
        seen[core] += 1
    return [thread for _, thread in sorted(order)]


def usable() -> int:
    """Return how many processes can compute at a time here without sharing: hardware threads, or fewer by a quota."""
    return max(1, math.floor(min(len(os.sched_getaffinity(0)), quota())))


def quota(cgroups: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> float:
    """Return how many cores' worth of time the cgroups of this process have, in containers mostly; infinite: no limit.

    The least of its own cgroup and of all around it counts. Of cgroups this is version 2, where they are one tree.
    """
    lines = membership.read_text().splitlines() if membership.is_file() else []
    mine = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    around = [cgroups / mine, *(cgroups / mine).parents]
    files = [folder / "cpu.max" for folder in around if folder.is_relative_to(cgroups)]
    return min((in_cores(file.read_text()) for file in files if file.is_file()), default=math.inf)


def in_cores(cpu_max: str) -> float:
    """Return the cores that a cgroup's ``cpu.max`` allows: microseconds of computing, or ``max``, and of what time."""
    allowed, period = cpu_max.split()
    return math.inf if allowed == "max" else int(allowed) / int(period)


def threads_per_core() -> int:
    """Return how many hardware threads a core has, of those that this process may run on."""
    cores = list(_core_of().values())
    return max(map(cores.count, cores))


def machine_name() -> str:
    """Return the processor and its threads: results of machines that differ in these are not put into one table."""
    threads, each = len(_core_of()), threads_per_core()
    return f"{processor()}, {threads} cores" if each == 1 else f"{processor()}, {threads} threads, {each} to a core"


def busy_threads(seconds: float = 0.2) -> float:
    """Return how many of the hardware threads that this process may run on are busy; NaN where nobody counts.

    The mean over a moment, not the system's load: that still holds what ran in the minute before. What runs at lower
    priority (`nice`) is not counted, as it yields to whatever does not.
    """
    before = _times()
    time.sleep(seconds)
    after = _times()
    busy, whole = 0.0, 0
    for thread in before.keys() & after.keys():
        spent = [late - early for early, late in zip(before[thread], after[thread], strict=True)]
        if sum(spent) > 0:
            whole += 1
            busy += 1 - (sum(spent[_IDLE]) + spent[_NICE]) / sum(spent)
    return busy if whole else float("nan")


def await_room(ranks: int, patience: float = PATIENCE) -> float:
    """Wait until each of so many ranks can have a core, and return how many other work keeps busy then.

    Whoever waits longer than ``patience`` seconds goes on: what is returned tells that ranks were short of cores. Where
    there are fewer cores than ranks, or nobody counts, there is nothing to wait for.
    """
    end, there = time.monotonic() + patience, usable()
    while True:
        busy = busy_threads()
        if not busy + ranks > there or ranks > there or time.monotonic() > end:
            return busy
        time.sleep(_BETWEEN)


def _times() -> dict[int, list[int]]:
    """Return the ticks that each hardware thread has spent in every state so far."""
    lines = _STAT.read_text().splitlines() if _STAT.is_file() else []
    rows = [line.split() for line in lines if line.startswith("cpu") and line[3:4].isdigit()]
    counted = {int(name[3:]): list(map(int, ticks[:_TICKS])) for name, *ticks in rows}
    return {thread: ticks for thread, ticks in counted.items() if thread in os.sched_getaffinity(0)}
