"""Other processes in tests: signals to them, waiting for what they do, and the time that they took."""

import contextlib
import os
import resource
import time
from collections.abc import Callable


def wait_until(
    condition: Callable[[], object], seconds: float = 60.0, what: str = "what is waited for", every: float = 0.02
) -> None:
    """Return once the condition holds, asked every so many seconds; fail if that takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} took more than {seconds} s"
        time.sleep(every)


def send_signal(number: int, *processes: int) -> None:
    """Send a signal to those of the processes that still run."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def cpu_seconds() -> float:
    """Return the time of all processes started here that have ended; what others take of the machine is not in it."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
