"""Runs and notebooks sent elsewhere: to Slurm as one array, or to processes of this machine, both through submitit.

A task is the same `dolb sweep` or `dolb run` that a person would call: it takes the next run, or notebook, that the
store lacks, until none is left. So there is no list of tasks, and a slow or lost task costs nothing. Before its time
limit a task saves the unfinished run and is queued again, on any node. Each array has a folder in the store, with what
was asked for and logs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from dolb.config import require_known

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

WARNING_SECONDS = 90  # before the time limit; Slurm may be a minute early
_WAITING = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "SUSPENDED", "RESV_DEL_HOLD"}
_FOREVER = 10**6
# The warning may come while Python starts, when it would end it: it is held back until there is a run to save.
_HOLD_BACK = (
    "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2]); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


class ClusterError(RuntimeError):
    """Something about the cluster that the user can mend; the message says what."""


@dataclass(frozen=True)
class Site:
    """What a site fills in: where tasks go, and what each of them gets."""

    partition: str | None = None
    account: str | None = None
    gpus: int = 0
    cpus: int = 1
    memory_gb: int | None = None
    minutes: int = 60
    parallel: int = 4
    setup: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for known in dataclasses.fields(self):
            name, value = known.name, getattr(self, known.name)
            if (least := _SMALLEST.get(name)) is not None:
                accepted, right = f"a whole number from {least}", type(value) is int and value >= least
            elif name == "setup":
                accepted, right = "a list of lines", type(value) is list and all(type(line) is str for line in value)
            elif name == "options":
                accepted, right = "names of sbatch's options with their values", isinstance(value, dict)
            else:
                accepted, right = "a name", isinstance(value, str)
            if not right and not (value is None and known.default is None):
                raise ValueError(f"{name} {value!r} is not understood; accepted: {accepted}")


# Slurm's warning may come a minute early: a task of few minutes would be queued again before it trains.
_SMALLEST = {"gpus": 0, "cpus": 1, "memory_gb": 1, "minutes": 5, "parallel": 1}
_NAMES = [field.name for field in dataclasses.fields(Site)]


def read_site(path: Path) -> Site:
    """Read a site's settings; a mistake is a ``ValueError`` of one line that names it and what is accepted."""
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except FileNotFoundError:
        raise ValueError(f"there is no site file {path}") from None
    except (OSError, UnicodeDecodeError, RecursionError, yaml.YAMLError) as error:
        raise ValueError(f"site file {path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(given, dict):
        raise ValueError(f"site file {path} has no names with values; accepted: {', '.join(_NAMES)}")
    for name in given:
        require_known(f"site file {path}:", str(name), _NAMES)
    try:
        return Site(**{name: value for name, value in given.items() if value is not None})
    except ValueError as error:
        raise ValueError(f"site file {path}: {error}") from None


class Task:
    """What makes runs until the store lacks none: the `dolb` command with these arguments, a process for each GPU.

    USR2 comes before the time limit: submitit calls ``checkpoint``, and queues the job again. SIGTERM means the end, as
    by `dolb cancel`, unless Slurm preempts the job and leaves it some time. All let the command save what is
    unfinished.
    """

    def __init__(self, arguments: Sequence[str], folder: str, gpus: int = 0):
        self.arguments, self.folder, self.gpus = list(arguments), folder, gpus

    def __call__(self) -> str:
        """Run the command to its end; returns ``ended``, or ``stopped`` where it was told to stop."""
        import submitit

        submitit.JobEnvironment().paths.result_pickle.unlink(missing_ok=True)  # of a time before it was queued again
        self._processes: list[subprocess.Popen] = []
        self._told = False
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])  # inherited: Slurm signals the command as well
        signal.signal(signal.SIGTERM, self._stop)
        command = [sys.executable, "-m", "dolb.cli", *self.arguments]
        for own in _each_gpu(self.gpus):
            self._processes.append(
                subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, env=os.environ | own)
            )
        if self._told:
            self._stop()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR2])
        codes = self._wait()
        if any(codes) and not self._told:
            raise SystemExit(max(code if code >= 0 else 128 - code for code in codes))
        if self._told and _preempted():
            signal.raise_signal(signal.SIGUSR2)
        return "stopped" if self._told else "ended"

    def _wait(self) -> list[int]:
        """Wait for the processes; not by Popen.wait, whose lock the handler of a signal would find taken."""
        codes = []
        for process in self._processes:
            with contextlib.suppress(ChildProcessError):
                codes.append(os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1]))
        return codes

    def _stop(self, *_: object) -> None:
        self._told = True
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)

    def checkpoint(self) -> DelayedSubmission:
        """Let the sweep save what is unfinished, and return what goes on."""
        from submitit.helpers import DelayedSubmission

        self._stop()
        self._wait()
        return DelayedSubmission(Task(self.arguments, self.folder, self.gpus))


def _each_gpu(gpus: int) -> list[dict[str, str]]:
    """Return what shows a process its own GPU, for each of those that a task has; one sees all that there are."""
    if gpus < 2:
        return [{}]
    names = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(gpus)))
    return [{"CUDA_VISIBLE_DEVICES": name} for name in names.split(",")]


def _preempted() -> bool:
    """Return whether Slurm wants this job though it told it to stop: a job that was cancelled runs no longer for it."""
    job = os.environ.get("SLURM_JOB_ID")
    for _ in range(5 if job else 0):
        with contextlib.suppress(ClusterError):
            return _ask("squeue", "--noheader", "--jobs", str(job), "--format", "%T").strip() == "RUNNING"
        time.sleep(2)  # a busy controller does not answer
    return False


@dataclass(frozen=True)
class Sent:
    """What was asked for at once: runs of one experiment or notebooks, and the folder of the tasks that make them."""

    folder: Path
    slug: str
    scale: str
    what: str
    on: str
    host: str
    keys: list[str]
    number: int = 0  # by which the oldest is known: the clock may have been set meanwhile

    @property
    def name(self) -> str:
        """Name of the array in Slurm's queue."""
        return f"dolb-{self.folder.name}"

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks that were started."""
        return [path.name.removesuffix("_submitted.pkl") for path in sorted(self.folder.glob("*_submitted.pkl"))]

    def ended(self, task: str) -> bool:
        """Return whether a task has come to its end."""
        return (self.folder / f"{task}_0_result.pkl").exists()

    def log(self, task: str) -> Path:
        """Return where a task writes what it says."""
        return self.folder / f"{task}_0_log.out"

    def states(self, queued: Mapping[str, str]) -> dict[str, str]:
        """Return which tasks are waiting, running or failed; others have ended, or were cancelled before they began."""
        found = {task: "waiting" if state in _WAITING else "running" for task, state in queued.items()}
        gone = [task for task in self.tasks if task not in queued and self.log(task).exists()]
        return found | {task: "failed" for task in gone if not self.ended(task)}


def send(
    arguments: Sequence[str], store: Path, *, on: str, site: Site, slug: str, scale: str, what: str,
    keys: Sequence[str], nodes: int = 1,
) -> Sent:  # fmt: skip
    """Start tasks that call `dolb` with these arguments, on Slurm or as processes here, and return at once.

    ``keys`` name ``what`` is asked for, runs or notebooks, by which ``progress`` counts; tasks go by the store alone. A
    task of several ``nodes`` runs on the first, and starts what it will on the others.
    """
    from dolb.results.files import write_whole  # late, here and below: a task, which needs it not, starts sooner

    if on not in ("slurm", "local"):
        raise ValueError(f"place {on!r} is not known; accepted: slurm, local")
    if on == "slurm" and not shutil.which("sbatch"):
        raise ClusterError("there is no Slurm here, as sbatch is not on the path; --on local uses this machine alone")
    stamp = f"{slug}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    number = 1 + max((sent.number for sent in _all_sent(store)), default=0)
    sent = Sent(store.resolve() / "jobs" / stamp, slug, scale, what, on, socket.gethostname(), list(keys), number)
    record = {name: value for name, value in dataclasses.asdict(sent).items() if name != "folder"}
    write_whole(sent.folder / "sent.json", lambda file: file.write(json.dumps(record).encode()), seal=False)
    if on == "slurm":
        _submit_to_slurm(Task(arguments, os.getcwd(), site.gpus if nodes == 1 else 0), sent, site, nodes)
    else:
        _start_here(Task(arguments, os.getcwd()), sent, site)
    return sent


def _submit_to_slurm(task: Task, sent: Sent, site: Site, nodes: int) -> None:
    import submitit

    python = shlex.join([sys.executable, "-ISc", _HOLD_BACK])
    executor = submitit.SlurmExecutor(sent.folder, max_num_timeout=_FOREVER, python=python)
    chosen = {"partition": site.partition, "account": site.account, "gpus_per_node": site.gpus or None}
    memory = {"mem": f"{site.memory_gb}GB"} if site.memory_gb else {}
    executor.update_parameters(
        job_name=sent.name, time=site.minutes, cpus_per_task=site.cpus, array_parallelism=site.parallel,
        signal_delay_s=WARNING_SECONDS, stderr_to_stdout=True, setup=site.setup or None,
        nodes=nodes, ntasks_per_node=1,
        # Since Slurm 22.05 a step no longer has these cores from its job.
        srun_args=[f"--cpus-per-task={site.cpus}", "--nodes=1", "--ntasks=1"],
        additional_parameters={"requeue": True, **site.options},
        **{name: value for name, value in chosen.items() if value is not None}, **memory,
    )  # fmt: skip
    try:
        with executor.batch():
            for _ in range(site.parallel):
                executor.submit(task)
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(sent.folder)
        said = re.findall(r"sbatch: error: (.*)", str(error)) or [" ".join(str(error).split())]
        raise ClusterError(f"Slurm refuses the array: {'; '.join(dict.fromkeys(said))}") from error


def _start_here(task: Task, sent: Sent, site: Site) -> None:
    import submitit

    devices = _visible_gpus() if site.gpus else []
    executor = submitit.LocalExecutor(sent.folder, max_num_timeout=_FOREVER)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # inherited: the terminal may be closed
    outputs = [os.dup(number) for number in (1, 2)]  # not to be inherited: who reads them would wait for the tasks
    with open(os.devnull, "w") as nowhere:
        for number in (1, 2):
            os.dup2(nowhere.fileno(), number)
    try:
        for index in range(site.parallel):
            gpus = {"gpus_per_node": 1, "visible_gpus": (devices[index % len(devices)],)} if devices else {}
            executor.update_parameters(timeout_min=_FOREVER, stderr_to_stdout=True, setup=site.setup, **gpus)
            executor.submit(task)
    finally:
        signal.signal(signal.SIGHUP, before)
        for number, usual in enumerate(outputs, start=1):
            os.dup2(usual, number)
            os.close(usual)


def processes_here(gpus: int) -> int:
    """Return how many tasks this machine has room for: one to a GPU, or, where those use none, one to a core."""
    return len(_visible_gpus()) if gpus > 0 else len(os.sched_getaffinity(0))


def _visible_gpus() -> list[int]:
    """Return the numbers of the GPUs that a process here may use."""
    import torch

    if not torch.cuda.is_available():
        raise ClusterError("this machine has no GPU that torch can use; accepted: --device cpu")
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return [int(name) for name in named] if all(map(str.isdigit, named)) else [*range(torch.cuda.device_count())]


@dataclass(frozen=True)
class Progress:
    """How far an experiment is: its runs, the tasks that work on them, and the logs of those that failed."""

    slug: str
    scale: str
    what: str
    done: int
    running: int
    waiting: int
    tasks: dict[str, int]
    failed: list[Path]
    hours_used: float
    hours_left: float | None

    @property
    def code(self) -> int:
        """0: all runs are done; 3: tasks wait or run; 1: runs are left, and no task will make them."""
        if not self.running + self.waiting:
            return 0
        return 3 if self.tasks["waiting"] + self.tasks["running"] else 1


def progress(store: Path, slug: str | None = None) -> list[Progress]:
    """Return how far each experiment is that was sent from this store, by the store, the queue and the logs."""
    from dolb.results import RunStore, device_seconds

    runs, queued, found = RunStore(store), _queued(store), []
    groups: dict[tuple[str, str, str], list[Sent]] = {}
    for sent in _all_sent(store):
        if slug in (None, sent.slug):
            groups.setdefault((sent.slug, sent.scale, sent.what), []).append(sent)
    finished = {*runs.keys(), *(path.name for path in store.glob("notebooks/*"))}
    for about, group in groups.items():
        keys = dict.fromkeys(key for sent in group for key in sent.keys)
        done = [key for key in keys if key in finished]
        held = sum(runs.held(key) for key in keys if key not in finished)
        states = [sent.states(queued[sent.name]) for sent in group]
        # A failure counts until what it left is sent again.
        last = [i for i, of in enumerate(states) if i == len(states) - 1 or {"waiting", "running"} & set(of.values())]
        counted = [state for i in last for state in states[i].values()]
        failed = [group[i].log(task) for i in last for task, state in states[i].items() if state == "failed"]
        left, made = len(keys) - len(done), [ds for key in done if (ds := runs.get(key)) is not None]
        costs = [float(device_seconds(ds).item()) / 3600 for ds in made if "concurrent_runs" in ds]
        found.append(
            Progress(
                *about, len(done), held, left - held,
                {state: counted.count(state) for state in ("waiting", "running", "failed")}, failed if left else [],
                sum(costs), sum(costs) / len(costs) * left if costs else None,
            )
        )  # fmt: skip
    return found


def cancel(store: Path, slug: str | None = None) -> int:
    """Stop the tasks that were sent from a store, of one experiment or of all; returns how many.

    Those that run save what is unfinished, so that the same sweep goes on from there another time.
    """
    queued, stopped = _queued(store), 0
    for sent in _all_sent(store):
        if slug not in (None, sent.slug) or not (tasks := list(queued[sent.name])):
            continue
        if sent.on == "slurm":
            _ask("scancel", *tasks)
        elif sent.host == socket.gethostname():
            for task in tasks:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(task), signal.SIGTERM)
        else:
            raise ClusterError(f"{sent.folder.name} runs on {sent.host}; cancel it there")
        stopped += len(tasks)
    return stopped


def tail(log: Path, lines: int = 8) -> list[str]:
    """Return the last lines of a log, of which a progress bar is one."""
    text = log.read_text(encoding="utf-8", errors="replace")
    said = [line.split("\r")[-1].rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    return [line for line in said if line][-lines:]


def _all_sent(store: Path) -> list[Sent]:
    """Return what was sent from a store, the oldest first."""
    found = []
    for path in store.glob("jobs/*/sent.json"):
        try:
            found.append(Sent(folder=path.parent.resolve(), **json.loads(path.read_text())))
        except (OSError, TypeError, ValueError) as error:
            raise ClusterError(f"{path} does not say what was sent ({error}); move its folder away") from error
    return sorted(found, key=lambda sent: sent.number)


def _queued(store: Path) -> dict[str, dict[str, str]]:
    """Return the tasks that wait or run, with the queue's word for their state, by the name of what was sent."""
    every = _all_sent(store)
    found = {s.name: {task: "RUNNING" for task in s.tasks if s.on == "local" and _lives(s, task)} for s in every}
    if names := ",".join(sent.name for sent in every if sent.on == "slurm"):
        for line in _ask("squeue", "--noheader", "--array", "--name", names, "--format", "%j %i %T").splitlines():
            name, task, state = line.split()
            found[name][task] = state
    return found


def _lives(sent: Sent, task: str) -> bool:
    """Return whether a process of this machine is the task that had its number; of another machine, what it says."""
    if sent.host != socket.gethostname():
        return not sent.ended(task)
    with contextlib.suppress(OSError):
        return sent.folder.name.encode() in Path(f"/proc/{task}/cmdline").read_bytes()
    return False


def _ask(*command: str) -> str:
    """Return what a command of Slurm says, or raise a ``ClusterError`` with its complaint."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        raise ClusterError(f"there is no Slurm here, as {command[0]} is not on the path") from None
    except subprocess.CalledProcessError as error:
        raise ClusterError(" ".join(error.stderr.split()) or f"{command[0]} ended with {error.returncode}") from error
