"""A real Slurm for tests: munge, a controller and some nodes, all on this machine and in one folder."""

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import send_signal, wait_until

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
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
KillWait=20
MinJobAge=3600
GresTypes=gpu
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port={first}-{last} CPUs=2 RealMemory=4000 Gres=gpu:2
PartitionName=main Nodes=ALL Default=YES State=UP
"""
# What ends the tests, be it a kill, closes this program's input; it ends what runs with these settings.
REMOVE = """
read -r _
grep -lsxz "SLURM_CONF=$0/slurm.conf" /proc/[0-9]*/environ | cut -d/ -f3 | xargs -r kill -KILL
rm -rf "$0"
"""
NODES = 14
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
    """Commands of the Slurm of the tests, and nodes for each of them."""

    def __init__(self, settings: Path):
        self.settings, self.given, self._seen = settings, 0, (0.0, "")
        self.nodes: dict[str, subprocess.Popen] = {}

    def ask(self, *command: str) -> str:
        """Return what a command of Slurm says."""
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def partition(self, nodes: int = 1, name: str = "", **options: object) -> str:
        """Make a partition of nodes that no other has, or, where its name is given, one more of the last of them."""
        self.given += 0 if name else nodes
        assert self.given <= NODES
        name, last = name or f"p{self.given}", self.given
        also = [f"{option}={value}" for option, value in options.items()]
        self.ask(
            "scontrol", "create", f"partitionname={name}", f"nodes=n[{last - nodes + 1}-{last}]", "state=up", *also
        )
        return name

    def queue(self, partition: str) -> list[list[str]]:
        """Return the number, the state and the node of each job of a partition."""
        if time.monotonic() > self._seen[0] + 0.2:  # many ask
            self._seen = time.monotonic(), self.ask("squeue", "-hro", "%P|%i|%T|%N")
        jobs = [line.split("|") for line in self._seen[1].splitlines()]
        return [job[1:] for job in jobs if job[0] == partition]

    def nodes_of(self, job: str) -> list[str]:
        """Return the nodes that a job runs on, or had last."""
        (found,) = re.findall(r"\bNodeList=(\S+)", self.ask("scontrol", "show", "job", job))
        return self.ask("scontrol", "show", "hostnames", found).split()

    def processes(self, job: str) -> list[int]:
        """Return the processes of a job."""
        return with_environment(f"SLURM_CONF={self.settings}", f"SLURM_JOB_ID={job}")

    def lose(self, node: str, job: str) -> None:
        """Kill a node and the job that it runs, at once as if its power went, and let Slurm know."""
        self.nodes[node].kill()
        named = f"slurmstepd: [{job}."
        keepers = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if named in _text(path)]
        send_signal(signal.SIGKILL, *keepers, *self.processes(job))
        self.ask("scontrol", "update", f"nodename={node}", "state=down", "reason=test")


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text()
    return ""


@pytest.fixture(scope="session")
def running_slurm(require_part) -> Iterator[Slurm]:
    missing = [program for program in PROGRAMS if not find(program)]
    require_part("slurm", not missing, f"this machine lacks {', '.join(missing)}")
    folder = Path(tempfile.mkdtemp(prefix="dolb-slurm-"))
    folder.chmod(0o755)  # jobs of other users ask the daemons too
    (folder / "state").mkdir(mode=0o700)
    settings, key = folder / "slurm.conf", folder / "munge.key"
    first = free_ports(NODES + 1)
    named = {"host": socket.gethostname().split(".")[0], "user": os.environ.get("USER") or "root"}
    settings.write_text(
        SETTINGS.format(folder=folder, port=first, nodes=NODES, first=first + 1, last=first + NODES, **named)
    )
    (folder / "gres.conf").write_text("Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n")  # two of each node
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    munge = ["--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket"]
    munge += [f"--{name}-file={folder}/munge.{name}" for name in ("pid", "log", "seed")]
    daemons = []
    guard = subprocess.Popen(["sh", "-c", REMOVE, folder], stdin=subprocess.PIPE, start_new_session=True)
    os.environ["SLURM_CONF"] = str(settings)

    def start(name: str, *arguments: str) -> subprocess.Popen:
        with (folder / f"{name}.log").open("a") as log:
            daemons.append(subprocess.Popen([find(name), *arguments], stdout=log, stderr=log, cwd=folder))
        return daemons[-1]

    slurm = Slurm(settings)
    try:
        start("munged", *munge)
        wait_until((folder / "munge.socket").exists, what="munged's start")
        start("slurmctld", "-D", "-i")
        for node in [f"n{number + 1}" for number in range(NODES)]:
            slurm.nodes[node] = start("slurmd", "-D", "-N", node)

        def ready() -> bool:
            with contextlib.suppress(subprocess.CalledProcessError):
                return slurm.ask("sinfo", "-ho", "%T %D") == f"idle {NODES}"
            return False

        try:
            wait_until(ready, 60, "the start of Slurm", every=0.1)
        except AssertionError:
            pytest.fail("\n".join(path.read_text()[-2000:] for path in sorted(folder.glob("*.log"))))
        yield slurm
        for user in {*slurm.ask("squeue", "-ho", "%u").split()}:
            slurm.ask("scancel", "--user", user)
        wait_until(lambda: not slurm.ask("squeue", "-h"), what="the end of all jobs", every=0.2)
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait()
        del os.environ["SLURM_CONF"]
        time.sleep(0.5)
        left = with_environment(f"SLURM_CONF={settings}")
        guard.communicate()
    assert not left, f"{len(left)} processes were left behind"
