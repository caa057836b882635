"""Data-parallel training measured for real: ranks as processes under torchrun or horovodrun, every step timed.

A measurement leaves no process behind, however it ends: every process it started carries a mark in its environment and
is found by it, as horovodrun puts its children into sessions of their own, where killing a process group ends. If the
measuring process itself is killed, each rank's keeper (`supervise`) notices and ends its rank.

Ranks share this machine, or are dealt to hosts of their own on it, joined by links of a given rate (`links`), or to the
machines of a Slurm job (`nodes`). Their keepers are always here.
"""

import contextlib
import importlib.util
import json
import math
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from dolb import results
from dolb.profiling.config import BASELINE, LIBRARIES, ScalingConfig
from dolb.profiling.ranks import cores, links, nodes, supervise
from dolb.profiling.ranks.rank import ALONE, GO, alone_name
from dolb.results.files import scratch

MARK = "DOLB_MEASUREMENT"  # in the environment of every process of a measurement
POLL_SECONDS = 0.05
FREE_PORT = 29500  # in a network namespace of our own
CLEANUP_SECONDS = 5.0  # all processes are gone this long after the first rank died, or an error says which are not
LOG_LINES = 12
# What launchers tell their ranks; of one that runs this process, ours must not hear.
LAUNCHED = (
    "HOROVOD_", "TORCHELASTIC_", "RANK", "LOCAL_RANK", "GROUP_", "ROLE_", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_",
)  # fmt: skip


class RankError(RuntimeError):
    """A measurement that could not be made; the message says which rank ended how, or what is missing."""


@dataclass(frozen=True)
class _Place:
    """Where ranks run and how they meet; by default on this machine, over its loopback interface.

    Horovod uses the interface only in part: it also listens where the host's name leads, so in a namespace that must be
    the rank's own address.
    """

    interface: str = "lo"  # carries the communication, and has this name inside each rank's network namespace too
    address: str = "127.0.0.1"  # the launcher's there, which every rank must reach
    within: Sequence[Sequence[str]] = ()  # of each rank a command that runs the rest of its arguments: ip netns exec h0
    launcher: Sequence[str] = ()  # such a command for the launcher itself, in a namespace where every port is free
    threads: Sequence[int] = ()  # hardware threads that ranks are held to, one each
    each: int = 0  # how many ranks a machine has, where there are several machines


def slots(device_kind: str = "cpu") -> int:
    """Return how many ranks this machine runs without sharing: cores that this process may use, or GPUs."""
    return torch.cuda.device_count() if device_kind == "cuda" else cores.usable()


def require_horovod(device_kind: str = "cpu") -> None:
    """Raise a ``RankError`` unless Horovod is installed and was built for this torch, and for GPUs with NCCL.

    Without NCCL it would take gradients of GPUs through the memory of their hosts, over Gloo, and say nothing.
    """
    spec = importlib.util.find_spec("horovod")
    if spec is None or spec.origin is None:
        raise RankError("Horovod is not installed; `make horovod` builds it for this torch (some minutes, once)")
    metadata = Path(spec.origin).with_name("metadata.json")
    built = json.loads(metadata.read_text()).get("pytorch") if metadata.is_file() else None
    if built != torch.__version__:
        both = f"Horovod was built for torch {built or '(none)'}, this is {torch.__version__}"
        raise RankError(f"{both}; `make horovod` builds it anew")
    if device_kind == "cuda" and not importlib.import_module("horovod.torch").nccl_built():  # its metadata do not tell
        how = "`HOROVOD_GPU_OPERATIONS=NCCL make horovod` builds it with NCCL (needs the CUDA toolkit)"
        raise RankError(f"Horovod was built without NCCL, which device_kind 'cuda' needs; {how}")


def available_libraries(device_kind: str = "cpu") -> tuple[str, ...]:
    """Return the libraries that ranks can be measured under here: DDP comes with torch, Horovod has to be built."""
    try:
        require_horovod(device_kind)
    except RankError:
        return tuple(name for name in LIBRARIES if name != "horovod")
    return LIBRARIES


def measure(
    config: ScalingConfig,
    *,
    timeout: float = 600.0,
    oversubscribe: bool = False,
    folder: str | Path | None = None,
) -> xr.Dataset:
    """Train on ``config.ranks`` processes and return one row of a scaling table, with the seconds of every step.

    ``images_per_second`` is over all timed steps and all ranks, by the slowest rank's clock. A measurement with traced
    steps is not for its speed: Horovod's timeline is written by a thread that never sleeps. ``timeout`` is in seconds
    and for everything, the measurement of links and the start of processes included. ``oversubscribe`` allows more
    ranks than cores, or than GPUs. ``folder`` is where the ranks' logs, traces and weights stay.

    Whatever `check` raises is raised before anything is started. A ``RankError`` is raised if a rank dies, time runs
    out, or ranks end with different weights; no process of the measurement is left then, within ``CLEANUP_SECONDS``.
    """
    (row,) = measure_together([config], timeout=timeout, oversubscribe=oversubscribe, folder=folder)
    return row


def measure_together(
    configs: Sequence[ScalingConfig],
    *,
    timeout: float = 600.0,
    oversubscribe: bool = False,
    folder: str | Path | None = None,
    shared: str | Path | None = None,
) -> Generator[xr.Dataset, None, None]:
    """Yield the row of each config, as `measure` returns it, all made by the same processes one after another.

    Starting processes takes many times as long as most measurements. The configs must have the same ``launch``;
    ``timeout`` is for each. Whoever stops to listen ends the processes. Where one rank also trains alone, before and
    after, no row is whole before the end, and all come then. ``shared`` is a folder that every node sees.
    """
    if len({config.launch for config in configs}) != 1:
        raise ValueError("these measurements cannot be made together: their `launch` differs, or there are none")
    for config in configs:
        check(config, oversubscribe=oversubscribe)
    first, mark, start = configs[0], secrets.token_hex(8), time.monotonic()
    with contextlib.ExitStack() as stack:
        place, made = _Place(), None
        speeds: dict[float, links.Speed] = {}
        if first.hosts > 1:
            made = stack.enter_context(links.hosts(first.hosts, first.link_mbit))
            speeds[first.link_mbit] = links.measure(made, timeout=timeout)
            each = first.ranks // first.hosts
            within = [made.within(rank // each) for rank in range(first.ranks)]
            place = _Place(links.INTERFACE, made.switch_address, within, made.within_switch())
        if first.nodes > 1:
            found, each = nodes.names()[: first.nodes], first.ranks // first.nodes
            within = [nodes.within(found[rank // each]) for rank in range(first.ranks)]
            place = _Place(*nodes.meeting_point(found[1]), within, each=each)
        elif first.pinned:
            place = replace(place, threads=cores.hardware_threads()[: first.ranks])
        beside = Path(shared).resolve() if shared and first.nodes > 1 else None
        kept = Path(folder) if folder else stack.enter_context(scratch("dolb-measure-", beside)) / "ranks"
        _prepare(kept, configs, place)
        with open(kept / "launcher.log", "w") as log:
            launcher = subprocess.Popen(
                _command(first, kept, place),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(mark, place, keep=folder is not None),
                start_new_session=True,
            )
        stack.callback(_end_all, mark, launcher)
        at_once = any(config.alone_steps for config in configs)
        for number, config in enumerate(configs):
            if made and number:  # nobody trains meanwhile
                links.limit(made, config.link_mbit)
                if config.link_mbit not in speeds:
                    speeds[config.link_mbit] = links.measure(made, timeout=start + timeout - time.monotonic())
            (kept / GO.format(number)).touch()
            last = number == len(configs) - 1
            _wait(launcher, config, kept, start, timeout, None if last else number)
            if not at_once:
                yield _row(config, kept, number, speeds.get(config.link_mbit))
            start = time.monotonic()
        for number, config in enumerate(configs if at_once else ()):
            yield _row(config, kept, number, speeds.get(config.link_mbit))


def check(config: ScalingConfig, *, oversubscribe: bool = False) -> None:
    """Raise what `measure` would raise before it starts anything."""
    if config.hosts > 1:
        links.require()
    if config.nodes > 1:
        nodes.require(config.nodes)
    available = slots(config.device_kind)
    if not available:
        raise ValueError("device_kind 'cuda' needs a GPU, and this process sees none; 'cpu' needs none")
    ranks = config.ranks // config.nodes
    if ranks > available and (not oversubscribe or config.pinned):
        what = "GPUs" if config.device_kind == "cuda" else "cores that this process may use"
        raise ValueError(
            f"{ranks} ranks need as many slots, and there are {available} ({what}); ask for fewer ranks, or "
            + ("for ranks that are not pinned" if config.pinned else "allow sharing with oversubscribe=True")
        )
    if config.library == "horovod":
        require_horovod(config.device_kind)


def _prepare(folder: Path, configs: Sequence[ScalingConfig], place: _Place) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ValueError(f"the folder {folder} is not empty; a measurement's files need one of their own")
    (folder / "configs.json").write_text(json.dumps([config.as_dict() for config in configs]))
    (folder / "place.json").write_text(json.dumps(asdict(place)))


def _environment(mark: str, place: _Place, keep: bool) -> dict[str, str]:
    package = str(Path(__file__).resolve().parents[3])
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHED)}
    return inherited | {
        MARK: mark,
        supervise.PARENT: str(os.getpid()),
        "PYTHONPATH": os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])]),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": place.interface,
        "NCCL_SOCKET_IFNAME": place.interface,
        "DOLB_KEEP_WEIGHTS": "1" if keep else "",
    }


def _command(config: ScalingConfig, folder: Path, place: _Place) -> list[str]:
    module = ["-m", "dolb.profiling.ranks.supervise", str(folder.resolve())]
    if config.library == "horovod":
        launch = ["-m", "horovod.runner.launch", "-np", str(config.ranks), "--gloo", "--disable-cache"]
        if (hosts := max(config.hosts, config.nodes)) > 1:
            meet = [place.address, place.interface]
            launch = ["-m", "dolb.profiling.ranks.horovod_hosts", str(hosts), str(config.ranks), *meet]
        return [*place.launcher, sys.executable, *launch, sys.executable, *module]
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", str(config.ranks)]
    port = FREE_PORT if place.launcher else _free_port(place.address)
    meet = ["--master-addr", place.address, "--master-port", str(port)]
    return [*place.launcher, sys.executable, *launch, *meet, *module]


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]


def _wait(
    launcher: subprocess.Popen, config: ScalingConfig, folder: Path, start: float, timeout: float, number: int | None
) -> None:
    """Return when all ranks have made a measurement, or ended well; raise as soon as one has not or time is over."""
    while True:
        if number is not None and len(list(folder.glob(f"rank-*-{number}.json"))) == config.ranks:
            return
        ended = launcher.poll() is not None  # asked first: what a rank leaves is there before its launcher ends
        exits = [json.loads(path.read_text()) for path in folder.glob("rank-*.exit")]
        failed = min((e for e in exits if e["code"] != 0), key=lambda e: e["time"], default=None)
        if failed is not None:
            who, how = failed["rank"], _exit(failed["code"])
            raise RankError(
                f"rank {who} of {config.ranks} ({config.library}) ended with {how}; the others were stopped."
                + _tail(folder / f"rank-{who}.log")
            )
        if ended and launcher.returncode == 0 and len(exits) == config.ranks:
            return
        if ended:
            raise RankError(
                f"the launcher of {config.library} ended with {_exit(launcher.returncode)} after {len(exits)} of "
                f"{config.ranks} ranks.{_tail(folder / 'launcher.log')}"
            )
        if time.monotonic() - start > timeout:
            running = sorted(set(range(config.ranks)) - {e["rank"] for e in exits})
            raise RankError(
                f"{timeout:g} s were not enough; rank {', '.join(map(str, running))} still ran and was stopped"
            )
        time.sleep(POLL_SECONDS)


def _exit(code: int) -> str:
    return f"exit code {code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:] if log.exists() else []
    return "\n" + "\n".join(lines) if lines else " It had printed nothing."


def _end_all(mark: str, launcher: subprocess.Popen) -> None:
    """Kill every process that carries the mark, and return when there is none."""
    deadline = time.monotonic() + CLEANUP_SECONDS
    while left := marked(mark):
        if time.monotonic() > deadline:
            raise RankError(f"processes {left} of the measurement could not be ended within {CLEANUP_SECONDS:g} s")
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        launcher.poll()
        time.sleep(0.01)
    launcher.wait()


def marked(mark: str) -> list[int]:
    """Return the living processes that carry a measurement's mark."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # ended meanwhile, or another user's
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def _row(config: ScalingConfig, folder: Path, number: int, speed: links.Speed | None) -> xr.Dataset:
    files = [folder / f"rank-{rank}-{number}.json" for rank in range(config.ranks)]
    ranks: list[dict[str, Any]] = [json.loads(file.read_text()) for file in files]
    if len({rank["weights"] for rank in ranks}) > 1:
        raise RankError(
            f"after {config.steps} steps the {config.ranks} ranks ({config.library}) hold different weights"
        )
    seconds = np.array([rank["step_seconds"] for rank in ranks])
    asked = {**config.as_dict(), "batch_size": config.batch_size, "key": config.key}
    several = config.nodes > 1
    asked["node_names"] = ",".join(dict.fromkeys(rank["node"] for rank in ranks)) if several else ""
    device = ranks[0]["device"] or cores.machine_name()
    values = {
        "images_per_second": config.batch_size * config.steps / seconds.sum(axis=1).max(),
        "step_seconds": float(np.median(seconds.max(axis=0))),
        "started_at": (started := (folder / GO.format(number)).stat().st_mtime),
        "ended_at": max(started, *(file.stat().st_mtime for file in files)),  # the clock may have been set back
        "parameters": ranks[0]["parameters"],
        **results.provenance(
            torch_version=torch.__version__,
            device=f"{config.nodes} nodes of {device}" if several else device,
            engine="eager",
            data_fingerprint=ranks[0]["data_fingerprint"],
            world_size=config.ranks,
        ),
        "threads_per_rank": float(max(rank["threads"] for rank in ranks)),
    }
    if config.alone_steps:
        before, after = (
            json.loads((folder / ALONE.format(when)).read_text())[alone_name(config)] for when in ("before", "after")
        )
        values[BASELINE] = math.sqrt(before * after)
    if speed is not None:
        values |= {"achieved_mbit": speed.mbit, "link_latency_seconds": speed.latency_seconds}
        values["sent_bytes"] = float(np.mean([rank["sent_bytes"] for rank in ranks])) / config.steps
    if config.evaluated:
        values["final_accuracy"] = sum(rank["correct"] for rank in ranks) / config.evaluated
    on_run = {name: ("run", np.array([value])) for name, value in {**values, **asked}.items()}
    by_rank = {"rank_step_seconds": (("run", "worker", "step"), seconds[None])}
    index = {"worker": np.arange(config.ranks), "step": np.arange(1, config.steps + 1)}
    return results.describe(results.validate(xr.Dataset({**on_run, **by_rank}, index).set_coords(list(asked))))
