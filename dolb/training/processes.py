"""More processes for a sweep on a CPU: each works on the same store, one thread to a run.

A small network gains nothing from a second thread, and loses much where cores are shared; two runs at a time on two
cores do. Workers need no orders: the store's claims deal out the runs, and what a dead worker held is taken over.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

CORES = len(os.sched_getaffinity(0))


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread meanwhile, so that a CPU run has the same result on any number of cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def helping(at_once: int | None, work: Callable[..., Any], arguments: dict[str, Any]) -> Iterator[None]:
    """Keep processes meanwhile that call ``work(**arguments)``; they end with the block or this process.

    With this one they are ``at_once``, by default one to a core, and not more than there are configs.
    """
    count = min(at_once or CORES, len(arguments["configs"])) - 1
    command = [sys.executable, "-m", "dolb.training.processes"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    workers = [
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
        )
        for _ in range(count)
    ]
    try:
        for worker in workers:
            assert worker.stdin
            with contextlib.suppress(BrokenPipeError):
                pickle.dump((work, arguments), worker.stdin)
                worker.stdin.flush()
        yield
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait()


def _leave_with_parent() -> None:
    sys.stdin.buffer.read()  # returns when the parent's end of the pipe closes, however the parent ended
    os._exit(1)


if __name__ == "__main__":
    work, arguments = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    work(**arguments, device="cpu", at_once=1, progress=False)
