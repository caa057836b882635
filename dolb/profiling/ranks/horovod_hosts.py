"""Ranks of Horovod on hosts that are namespaces of this machine, which horovodrun would look for by ssh.

    python -m dolb.profiling.ranks.horovod_hosts HOSTS RANKS ADDRESS INTERFACE COMMAND ...

Horovod's own rendezvous and its own dealing of ranks to hosts are used, so every rank is told what it would be told on
a cluster: which host it is on, and which rank of that host it is. Each rank's command starts here; it goes on to its
host by itself (`supervise`).
"""

import os
import sys
import time
from threading import Event
from typing import Any

from horovod.runner.common.util.safe_shell_exec import execute
from horovod.runner.common.util.settings import Settings
from horovod.runner.gloo_run import launch_gloo


def start(command: str, slot: Any, events: list[Event]) -> tuple[int, float]:
    """Run one rank's command to its end and return its exit code, and when."""
    return execute(command, index=slot.rank, events=events), time.time()


def main(hosts: int, ranks: int, address: str, interface: str, command: list[str]) -> None:
    """Run a command for every rank, and raise if one fails."""
    named = ",".join(f"host{number}:{ranks // hosts}" for number in range(hosts))
    launch_gloo(command, start, Settings(num_proc=ranks, hosts=named), [interface], dict(os.environ), address)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5:])
