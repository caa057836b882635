"""The device a run is on: finding it, its name and its clock."""

from __future__ import annotations

import platform
import time

import torch


class DeviceError(RuntimeError):
    """A device was asked for that is not there."""


def resolve_device(name: str = "auto") -> torch.device:
    """Return the torch device of that name; ``auto`` is CUDA where there is a GPU, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise DeviceError(f"device {name!r} is not known; accepted: auto, cpu, cuda, cuda:N") from error
    if device.type not in ("cpu", "cuda"):
        raise DeviceError(f"device {name!r} is not supported; accepted: auto, cpu, cuda, cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        have = torch.cuda.device_count()
        raise DeviceError(f"device {name!r} was asked for, but torch sees {have} CUDA device(s); use cpu or auto")
    return device


def device_name(device: torch.device) -> str:
    """Return what the device calls itself."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU {platform.machine()}"


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

    def until(self, later: Mark) -> float:
        """Return the seconds from this moment to a later one."""
        return self.event.elapsed_time(later.event) / 1e3 if self.event else later.clock - self.clock
