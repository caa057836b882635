"""The device a run is on: finding it, its name, its memory and its clock."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import platform
import re
import resource
import time
from collections.abc import Callable, Iterator

import torch

# How torch, cuBLAS and cuDNN say that memory ran out where they do not raise torch's own error for it. cuDNN finds no
# engine if there is no memory for any engine's workspace.
_OUT_OF_MEMORY = ("out of memory", "alloc_failed", "unable to find an engine")


class DeviceError(RuntimeError):
    """A device was asked for that is not there."""


class DeviceMemoryError(DeviceError):
    """A run needs more memory than the device has for it, even alone."""


def resolve_device(name: str = "auto") -> torch.device:
    """Return the torch device of that name; ``auto`` is CUDA where there is a GPU, else the CPU."""
    # Read as CUDA starts. Up to 16 runs share a GPU, each with its stream; in CUDA's usual 8 queues they wait for each
    # other, which cost 7% of their speed at a batch of 64 on one H200.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu|cuda(:[0-9]+)?", name):
        raise DeviceError(f"device {name!r} is not known; accepted: auto, cpu, cuda, cuda:N")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        have = torch.cuda.device_count()
        raise DeviceError(f"device {name!r} was asked for, but torch sees {have} CUDA device(s); use cpu or auto")
    return device


def device_name(device: torch.device) -> str:
    """Return what the device calls itself."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU {platform.machine()}"


def memory_in_use(device: torch.device) -> tuple[float, float]:
    """Return the bytes of a GPU that are in use, by any process, and all that it has; a CPU's are not planned."""
    if device.type == "cpu":
        return 0.0, math.inf
    free, total = torch.cuda.mem_get_info(device)
    return total - free, total


def host_peak() -> int:
    """Return the most bytes of the host's memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def release_memory(device: torch.device) -> None:
    """Give back to a GPU what ended runs held."""
    if device.type == "cuda":
        gc.collect()  # a run may be part of a cycle, and its graphs hold their memory as long as they exist
        torch.cuda.empty_cache()


@contextlib.contextmanager
def memory_cap(device: torch.device) -> Iterator[Callable[[float], None]]:
    """Yield a function that lets torch take a GPU's memory up to so many bytes in use by all; undone at the end.

    The plan keeps below a limit by prediction; under the cap a prediction that was too low is torch's ordinary error,
    in the run that has just been started, rather than a device too full for the runs in flight. The cap counts
    what others use as it is set, and not what the driver adds later for a run's graphs and kernels.
    """
    if device.type == "cpu":
        yield lambda limit: None
        return
    index = torch.cuda.current_device() if device.index is None else device.index
    before = torch.cuda.get_per_process_memory_fraction(index)

    def cap(limit: float) -> None:
        used, total = memory_in_use(device)
        allowed = limit - (used - torch.cuda.memory_reserved(index))
        torch.cuda.set_per_process_memory_fraction(min(max(allowed / total, 0.0), before), index)

    try:
        yield cap
    finally:
        torch.cuda.set_per_process_memory_fraction(before, index)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or one on the way to it, says that a GPU's memory ran out."""
    while error is not None:
        said = str(error).lower()
        if isinstance(error, torch.OutOfMemoryError) or any(words in said for words in _OUT_OF_MEMORY):
            return True
        error = error.__cause__ or error.__context__
    return False


class Mark:
    """A moment on a stream, or on the host clock where there is no stream."""

    def __init__(self, device: torch.device):
        self.event = torch.cuda.Event(enable_timing=True) if device.type == "cuda" else None
        if self.event:
            self.event.record()
        self.clock = time.perf_counter()

    def passed(self) -> bool:
        """Whether the stream has come this far."""
        return self.event is None or self.event.query()

    def wait(self) -> None:
        """Wait until the stream has come this far."""
        if self.event:
            self.event.synchronize()

    def until(self, later: Mark) -> float:
        """Return the seconds from this moment to a later one."""
        return self.event.elapsed_time(later.event) / 1e3 if self.event else later.clock - self.clock
