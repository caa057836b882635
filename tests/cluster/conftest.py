"""A real Slurm for tests: munge, a controller and two nodes, all on this machine and in one folder."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sweeping import LONG, plain_sweep
from waiting import wait_until

SETTINGS = """
ClusterName=dolb
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=2,bf_interval=2
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
KillWait=20
NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port={first}-{last} CPUs=2
PartitionName=main Nodes=ALL Default=YES MaxTime=60 State=UP
"""
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol")


def find(program: str) -> str | None:
    return shutil.which(program, path=os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/usr/local/sbin"]))


def free_ports(count: int) -> int:
    """Return the first of some ports in a row that nobody uses."""
    for first in range(26800 + secrets.randbelow(20) * 100, 60000, count):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise OSError("no free ports")


def with_environment(*settings: str) -> list[int]:
    """Return the processes, whoever started them, that have all these settings in their environment."""
    found, wanted = [], {setting.encode() for setting in settings}
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted <= set(path.read_bytes().split(b"\0")):
                found.append(int(path.parent.name))
    return found


class Slurm:
    """Commands of the Slurm of the tests."""

    def __init__(self, settings: Path):
        self.settings = settings

    def ask(self, *command: str) -> str:
        """Return what a command of Slurm says."""
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def queue(self) -> list[list[str]]:
        """Return the number, the state and the node of each job in the queue."""
        return [line.split("|") for line in self.ask("squeue", "-hro", "%i|%T|%N").splitlines()]

    def processes(self, task: int) -> list[int]:
        """Return the processes of a task of an array."""
        return with_environment(f"SLURM_CONF={self.settings}", f"SLURM_ARRAY_TASK_ID={task}")

    def clear(self) -> None:
        """Cancel what is queued, and let every node work again."""
        if jobs := [job for job, *_ in self.queue()]:
            self.ask("scancel", *jobs)
        for node, state in (line.split() for line in self.ask("sinfo", "-hNo", "%N %T").splitlines()):
            if state.startswith("drain"):
                self.ask("scontrol", "update", f"nodename={node}", "state=resume")
        wait_until(lambda: not self.queue(), 120, "the end of all jobs", every=0.2)


@pytest.fixture(scope="session")
def running_slurm(require_part, tmp_path_factory) -> Iterator[Slurm]:
    missing = [program for program in PROGRAMS if not find(program)]
    require_part("slurm", not missing, f"this machine lacks {', '.join(missing)}")
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "state").mkdir()
    settings, key = folder / "slurm.conf", folder / "munge.key"
    first = free_ports(3)
    named = {"host": socket.gethostname().split(".")[0], "user": os.environ.get("USER") or "root"}
    settings.write_text(SETTINGS.format(folder=folder, port=first, first=first + 1, last=first + 2, **named))
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    munge = ["--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket"]
    munge += [f"--{name}-file={folder}/munge.{name}" for name in ("pid", "log", "seed")]
    daemons = []
    os.environ["SLURM_CONF"] = str(settings)

    def start(name: str, *arguments: str) -> None:
        with (folder / f"{name}.log").open("a") as log:
            daemons.append(subprocess.Popen([find(name), *arguments], stdout=log, stderr=log, cwd=folder))

    slurm = Slurm(settings)
    try:
        start("munged", *munge)
        wait_until((folder / "munge.socket").exists, what="munged's start")
        start("slurmctld", "-D", "-i")
        for node in ("n1", "n2"):
            start("slurmd", "-D", "-N", node)

        def ready() -> bool:
            with contextlib.suppress(subprocess.CalledProcessError):
                return slurm.ask("sinfo", "-ho", "%T %D") == "idle 2"
            return False

        try:
            wait_until(ready, 60, "the start of Slurm", every=0.1)
        except AssertionError:
            pytest.fail("\n".join(path.read_text()[-2000:] for path in sorted(folder.glob("*.log"))))
        yield slurm
        slurm.clear()
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait()
        del os.environ["SLURM_CONF"]
        time.sleep(0.5)
        left = with_environment(f"SLURM_CONF={settings}")
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    assert not left, f"{len(left)} processes were left behind"


@pytest.fixture
def slurm(running_slurm) -> Iterator[Slurm]:
    """Slurm with an empty queue."""
    yield running_slurm
    running_slurm.clear()


@pytest.fixture(scope="session")
def long(tmp_path_factory) -> Path:
    """What a plain sweep makes of the long runs."""
    return plain_sweep(LONG, tmp_path_factory.mktemp("long"))
