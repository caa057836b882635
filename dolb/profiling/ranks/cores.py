"""The machine that ranks run on: its processor, and the hardware threads that ranks are held to."""

import math
import os
import platform
import subprocess
from functools import cache
from pathlib import Path


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
    # Microseconds of computing, or ``max``, and within how many.
    limits = [file.read_text().split() for file in files if file.is_file()]
    return min((int(allowed) / int(period) for allowed, period in limits if allowed != "max"), default=math.inf)


def machine_name() -> str:
    """Return the processor and its threads: results of machines that differ in these are not put into one table."""
    cores = list(_core_of().values())
    threads, each = len(cores), max(map(cores.count, cores))
    return f"{processor()}, {threads} cores" if each == 1 else f"{processor()}, {threads} threads, {each} to a core"
