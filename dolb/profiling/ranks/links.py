"""Hosts on one machine: network namespaces around a switch, each joined to it by a link of a given rate.

A host is a network namespace with one interface. A virtual cable leads from it to a bridge in a namespace of its own,
and a token bucket at either end holds the link to its rate both ways, so a ring of hosts sends and receives at that
rate, as over Ethernet. Nothing is added to the machine's own network. Cores and memory are shared: of a real cluster
these hosts have the bandwidth, not the latency.

Namespaces carry the number and the start time of the process that made them. The block that makes them removes them
however it ends; of a process that was killed they are removed by the next one that makes some.
"""

import contextlib
import functools
import itertools
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from dolb.profiling.ranks import transfer

PREFIX = "dolb"
INTERFACE = "eth0"  # of every host
MBIT = 1e6 / 8  # bytes a second
FRAME_BYTES = 1514  # the longest packet of Ethernet, with its header
# A token bucket keeps its rate only if the time in which it fills is longer than the kernel takes to come back to it,
# and lets so much through at once after a pause. Timers come back within tenths of this; a step takes many times this.
FILL_SECONDS = 1e-3
PROBE_SECONDS = 1.0
TIMEOUT = 2 * transfer.TIMEOUT  # for a measurement: longer than a host waits for another, as it then says so
_FILES = Path("/etc/netns")  # `ip netns exec NAME` shows what is in NAME's folder here in the place of /etc's
_NUMBERS = itertools.count()


class LinkError(RuntimeError):
    """Hosts that cannot be had on this machine; the message says what is missing or was refused."""


@dataclass(frozen=True)
class Hosts:
    """Hosts that exist while their block runs: names of their namespaces, their addresses, and their switch's."""

    names: tuple[str, ...]
    addresses: tuple[str, ...]
    switch: str
    switch_address: str

    def within(self, host: int) -> tuple[str, ...]:
        """Return the command that runs the rest of its arguments on a host."""
        return ("ip", "netns", "exec", self.names[host])

    def within_switch(self) -> tuple[str, ...]:
        """Return the command that runs the rest of its arguments where every host is reached at no limited rate."""
        return ("ip", "netns", "exec", self.switch)


@dataclass(frozen=True)
class Speed:
    """What links were measured to do: the rate at which a host receives while all send, and a small message's time."""

    mbit: float
    latency_seconds: float


def require() -> None:
    """Raise a ``LinkError`` unless this process can make hosts, which it finds out by making some, once."""
    if missing := [tool for tool in ("ip", "tc") if shutil.which(tool) is None]:
        raise LinkError(f"links need {' and '.join(missing)}, which are not installed; on Debian they are in iproute2")
    if os.geteuid() != 0:
        raise LinkError(f"links need root, who alone may make network namespaces; this is user {os.geteuid()}")
    _try()


@functools.cache
def _try() -> None:
    with hosts(2, 1000.0) as made:
        _run(*made.within(0), "true")


def available() -> bool:
    """Return whether this process can make hosts; `require` says why not."""
    try:
        require()
    except LinkError:
        return False
    return True


@contextlib.contextmanager
def hosts(count: int, link_mbit: float = math.inf) -> Iterator[Hosts]:
    """Make hosts whose links carry ``link_mbit`` million bits a second each way, and remove them at the end.

    A machine that does not let this process make them raises a ``LinkError``; what was made by then is removed.
    """
    remove_leftovers()
    stem = f"{PREFIX}-{os.getpid()}-{_started(os.getpid())}-{next(_NUMBERS)}"
    made = Hosts(
        tuple(f"{stem}-host{number}" for number in range(count)),
        tuple(f"10.0.0.{number + 1}" for number in range(count)),
        f"{stem}-switch",
        "10.0.0.254",
    )
    try:
        try:
            _make(made)
            limit(made, link_mbit)
        except OSError as error:
            raise LinkError(f"this machine refuses links: {error}") from error
        yield made
    finally:
        for name in (made.switch, *made.names):
            _remove(name)


def _make(made: Hosts) -> None:
    _add(made.switch)
    _run("ip", "-n", made.switch, "link", "add", "bridge", "type", "bridge")
    _run("ip", "-n", made.switch, "address", "add", f"{made.switch_address}/24", "dev", "bridge")
    _run("ip", "-n", made.switch, "link", "set", "bridge", "up")
    for number, (name, address) in enumerate(zip(made.names, made.addresses, strict=True)):
        _add(name, address)
        port = f"port{number}"
        peer = ("peer", "name", port, "netns", made.switch)
        _run("ip", "-n", name, "link", "add", INTERFACE, "type", "veth", *peer)
        _run("ip", "-n", name, "address", "add", f"{address}/24", "dev", INTERFACE)
        _run("ip", "-n", name, "link", "set", INTERFACE, "up")
        _run("ip", "-n", made.switch, "link", "set", port, "master", "bridge", "up")


def limit(made: Hosts, link_mbit: float) -> None:
    """Hold the links to a rate from now on; an infinite one is no limit."""
    queue = ["tbf", *token_bucket(link_mbit, len(made.names))] if math.isfinite(link_mbit) else ["noqueue"]
    ends = [(name, INTERFACE) for name in made.names]
    ends += [(made.switch, f"port{number}") for number in range(len(made.names))]
    for namespace, interface in ends:
        _run("tc", "-n", namespace, "qdisc", "replace", "dev", interface, "root", *queue)


def token_bucket(link_mbit: float, count: int) -> list[str]:
    """Return the settings of a link's token bucket: its rate, what it lets through at once, and what may wait.

    What may wait is all that the other hosts can have on the way, a TCP window each, so nothing is ever dropped: what
    a slow link costs is then its rate alone.
    """
    burst = max(round(link_mbit * MBIT * FILL_SECONDS), 2 * FRAME_BYTES)
    window = int(Path("/proc/sys/net/ipv4/tcp_rmem").read_text().split()[2])
    limit = min(burst + (count - 1) * window, 2**32 - 1)
    return ["rate", f"{round(link_mbit * 1e6)}bit", "burst", str(burst), "limit", str(limit)]


def _add(name: str, address: str = "") -> None:
    _run("ip", "netns", "add", name)
    _run("ip", "-n", name, "link", "set", "lo", "up")
    if address:
        # Horovod listens where the host's name leads.
        (_FILES / name).mkdir(parents=True)
        (_FILES / name / "hosts").write_text(f"127.0.0.1 localhost\n{address} {socket.gethostname()}\n")


def measure(made: Hosts, seconds: float = PROBE_SECONDS, timeout: float = TIMEOUT) -> Speed:
    """Measure the links by plain TCP, as a ring all-reduce uses them: every host sends to the next.

    If a host dies, or some have not answered after ``timeout`` seconds, a ``LinkError`` names them, and all are gone.
    """
    end = time.monotonic() + timeout
    with contextlib.ExitStack() as stack:
        ring = [_part(stack, made, number, seconds) for number in range(len(made.names))]
        while None in (codes := [process.poll() for process in ring]) and not any(codes):
            if time.monotonic() > end:
                late = ", ".join(_named(made, number) for number, code in enumerate(codes) if code is None)
                raise LinkError(f"links were not measured within {timeout:g} s; still at it: {late}")
            time.sleep(0.02)
        codes = [process.poll() for process in ring]  # one that died first may have been asked before it had
        for process in ring:  # one that failed may have left others waiting for it
            process.kill()
        said = [process.communicate() for process in ring]
    # One that was killed, by a number below zero, is why the others failed.
    number = min(range(len(ring)), key=lambda n: codes[n] or math.inf)
    if code := codes[number]:
        why = said[number][1].strip()[-500:] or "it said nothing"
        raise LinkError(f"{_named(made, number)} could not measure its link: it ended with exit code {code}, {why}")
    answers = [json.loads(out) for out, _ in said]
    # The mean: at rates of few Mbit/s one host of a pair may take some seconds to get its share.
    return Speed(fmean(one["bytes_per_second"] for one in answers) / MBIT, answers[0]["latency_seconds"])


def _named(made: Hosts, number: int) -> str:
    return f"host {number} of {len(made.names)} ({made.addresses[number]})"


def _part(stack: contextlib.ExitStack, made: Hosts, number: int, seconds: float) -> subprocess.Popen:
    """Start one host's part in a measurement, to end with the block at the latest."""
    module = (sys.executable, "-P", "-m", "dolb.profiling.ranks.transfer")
    package = os.pathsep.join([str(Path(__file__).resolve().parents[3]), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [*made.within(number), *module, str(number), ",".join(made.addresses), str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": package},
    )
    stack.enter_context(process)  # waits for it, after
    stack.callback(process.kill)
    return process


def remove_leftovers() -> list[str]:
    """Remove the hosts of processes that are gone, and return the names of what was removed."""
    named = {line.split()[0] for line in _run("ip", "netns", "list").splitlines() if line.strip()}
    named |= {path.name for path in _FILES.glob(f"{PREFIX}-*")}
    gone = sorted(name for name in named if name.startswith(f"{PREFIX}-") and not _alive(name))
    for name in gone:
        _remove(name)
    return gone


def _alive(name: str) -> bool:
    _, pid, started, *_ = [*name.split("-"), "", ""]
    return not pid.isdigit() or _started(int(pid)) == started


def _started(pid: int) -> str:
    """Return when a process started, in the kernel's ticks, or nothing if there is none: a number is used again."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _remove(name: str) -> None:
    # Its interfaces, and the other ends of their cables, go with a namespace. It may not have been made.
    subprocess.run(["ip", "netns", "delete", name], capture_output=True)
    shutil.rmtree(_FILES / name, ignore_errors=True)


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise LinkError(f"links need {command[0]}, which cannot be run ({error.strerror})") from error
    if done.returncode:
        raise LinkError(f"this machine refuses links: `{' '.join(command)}` said {done.stderr.strip()!r}")
    return done.stdout
