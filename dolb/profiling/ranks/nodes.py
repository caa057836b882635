"""The machines of a Slurm job, on which ranks are started by srun from the first of them."""

import fcntl
import os
import re
import shutil
import socket
import struct
import subprocess

_SIOCGIFADDR = 0x8915  # asks an interface for its address


class NodeError(RuntimeError):
    """Machines that this process does not have; the message says how to get them."""


def names() -> list[str]:
    """Return the nodes of the job that this process is in, the first of which it runs on; outside of one, none."""
    listed = os.environ.get("SLURM_JOB_NODELIST")
    return _ask("scontrol", "show", "hostnames", listed).split() if listed and shutil.which("scontrol") else []


def require(count: int) -> None:
    """Raise a ``NodeError`` unless this process is in a job of so many nodes."""
    if (have := len(names())) < count:
        asked = f"`dolb sweep SLUG --nodes {count} --on slurm`, or this inside `salloc --nodes {count}`"
        raise NodeError(f"{count} nodes need a Slurm job that has them, and this is one of {have}; accepted: {asked}")


def within(node: str) -> tuple[str, ...]:
    """Return the command that runs the rest of its arguments on a node, with all cores that the job has there."""
    cores = os.environ.get("SLURM_CPUS_PER_TASK", "1")
    one = ("srun", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node}")
    return (*one, f"--cpus-per-task={cores}", "--cpu-bind=none", "--mpi=none")


def meeting_point(other: str) -> tuple[str, str]:
    """Return the interface by which this machine reaches another node, and its address there.

    ``GLOO_SOCKET_IFNAME``, which a site may set, names another one.
    """
    interfaces = {address: name for _, name in socket.if_nameindex() if (address := _address(name))}
    if wanted := os.environ.get("GLOO_SOCKET_IFNAME"):
        return wanted, _address(wanted)
    told = re.search(r"NodeAddr=(\S+)", _ask("scontrol", "show", "node", other))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((told[1] if told else other, 9))  # sends nothing
        address = probe.getsockname()[0]
    return interfaces[address], address


def _address(interface: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            said = fcntl.ioctl(asked, _SIOCGIFADDR, struct.pack("256s", interface.encode()))
        except OSError:
            return ""
    return socket.inet_ntoa(said[20:24])


def _ask(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
