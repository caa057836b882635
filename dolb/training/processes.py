"""More processes for a sweep on a CPU: each works on the same store, one thread to a run.

A small network gains nothing from a second thread, and loses much where cores are shared; two runs at a time on two
cores do. The store's claims deal out the runs, and what a dead process held is taken over.
"""

import contextlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from dolb.results import RunStore

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


def beside(
    device: torch.device, at_once: int | None, work: Callable[..., Any], **orders: Any
) -> Callable[[Sequence, RunStore], contextlib.AbstractContextManager]:
    """Return what keeps further processes at work on a store, for ``fill``; on a CPU only.

    They call ``work(configs, store=..., **orders)``, and end with the block or this process. With this one they are
    ``at_once``, by default one to a core, and not more than there are configs.
    """

    @contextlib.contextmanager
    def helping(lacking: Sequence, store: RunStore) -> Iterator[None]:
        if device.type != "cpu":
            yield
            return
        command = [sys.executable, "-m", "dolb.training.processes"]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
        count = min(at_once or CORES, len(lacking)) - 1
        started = [subprocess.Popen(command, stdin=subprocess.PIPE, **quiet) for _ in range(count)]
        try:
            for process in started:
                assert process.stdin
                with contextlib.suppress(BrokenPipeError):
                    pickle.dump((work, {"configs": lacking, "store": store.folder, **orders}), process.stdin)
                    process.stdin.flush()
            with one_thread():
                yield
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait()

    return helping


def _leave_with_parent() -> None:
    sys.stdin.buffer.read()  # returns when the parent's end of the pipe closes, however the parent ended
    os._exit(1)


if __name__ == "__main__":
    work, arguments = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    work(**arguments, device="cpu", at_once=1, progress=False)
