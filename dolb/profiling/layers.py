"""The time of a forward and a backward pass, tensor by tensor: when each gradient is ready to be reduced.

Moments are marked while passes run: on a GPU as events in its stream, for which nobody waits before the last pass. So a
GPU is timed as in training: at its own speed, or at the host's where the host takes longer to start the work. The time
of a module is from its start to the start of the next one with parameters, so that activations and pooling count with
the module before them, and the loss with the last. A gradient is ready when autograd has accumulated it. Marks take
time of their own, so all times are scaled to what passes without them take, half of which run before the marked ones
and half after.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from dolb import models
from dolb.profiling.simulator.tensors import Tensors, parameters

_FORWARD, _BACKWARD = "end of the forward pass", "end of the backward pass"  # no name of a module has spaces


@dataclass(frozen=True, eq=False)
class Timing:
    """The tensors of a network with their times, and the passes that they were taken from, in seconds."""

    tensors: Tensors
    ready_spread: np.ndarray  # by tensor, the range of the middle half of passes
    pass_seconds: float  # median of passes without marks; what the times of the tensors add up to
    pass_spread: float
    marked_pass_seconds: float


@contextlib.contextmanager
def arithmetic(precision: str) -> Iterator[None]:
    """Let products of fp32 tensors be rounded to TF32, by cuDNN and cuBLAS, only where that is asked for."""
    rounded, matmul, cudnn = precision == "tf32", torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32
    with cudnn.flags(enabled=cudnn.enabled, benchmark=cudnn.benchmark, allow_tf32=rounded):
        matmul.allow_tf32 = rounded
        try:
            yield
        finally:
            matmul.allow_tf32 = before


def time_tensors(
    network: nn.Module,
    images: torch.Tensor,
    labels: torch.Tensor,
    *,
    half: bool,
    passes: int,
    warmup: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Timing:
    """Time forward and backward passes of one batch; ``half`` multiplies in bfloat16, ``clock`` is a CPU's."""
    batch = _Passes(network, images, labels, half, clock)
    plain = [batch.run(warmup + (passes + 1) // 2)[warmup:]]
    with batch.marked():
        marked = batch.run(warmup + passes)[warmup:]
    if passes > 1:
        plain.append(batch.run(warmup + passes // 2)[warmup:])
    return _timing(network, pd.concat(plain), marked)


class _Passes:
    """Forward and backward passes of one batch, one after the other, and the moments that are marked in them."""

    def __init__(
        self, network: nn.Module, images: torch.Tensor, labels: torch.Tensor, half: bool, clock: Callable[[], float]
    ):
        self.network, self.images, self.labels, self.half, self.clock = network, images, labels, half, clock
        self.device = images.device
        self.moments: dict[str, Any] = {}

    @contextlib.contextmanager
    def marked(self) -> Iterator[None]:
        """Mark the start of every module with parameters, and every gradient that is ready, meanwhile."""
        handles: list[Any] = []
        for name, module in self.network.named_modules():
            if any(weight.requires_grad for weight in module.parameters(recurse=False)):
                handles.append(module.register_forward_pre_hook(lambda *_, name=name: self._mark(f"start {name}")))
        for name, weight in parameters(self.network):
            handles.append(weight.register_post_accumulate_grad_hook(lambda _, name=name: self._mark(name)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def run(self, count: int) -> pd.DataFrame:
        """Run so many passes and return the moments of each in seconds since its start, in the order of the first."""
        rows = []
        for _ in range(count):
            self.network.zero_grad(set_to_none=True)
            self.moments = {}
            start = self._now()
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
                loss = models.loss(self.network(self.images), self.labels)
            self._mark(_FORWARD)
            loss.backward()
            self._mark(_BACKWARD)
            rows.append((start, self.moments))
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        if not torch.isfinite(loss):
            raise ValueError(f"the loss is {loss.item()}; times of a pass over numbers that are not finite are refused")
        return pd.DataFrame(
            [{name: self._seconds(start, moment) for name, moment in moments.items()} for start, moments in rows]
        )

    def _mark(self, name: str) -> None:
        self.moments[name] = self._now()

    def _now(self) -> Any:
        if self.device.type != "cuda":
            return self.clock()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def _seconds(self, start: Any, end: Any) -> float:
        return start.elapsed_time(end) / 1e3 if self.device.type == "cuda" else end - start


def _timing(network: nn.Module, plain: pd.DataFrame, marked: pd.DataFrame) -> Timing:
    names = [name for name, _ in parameters(network)]
    _refuse_other_orders([name for name in marked if name in set(names)], names)
    whole, forward = float(plain[_BACKWARD].median()), float(plain[_FORWARD].median())
    # Two tensors of a module may come in either order, microseconds apart; the first registered counts as the later.
    # A median over passes keeps the order of moments, so what lies between two is never negative.
    ready = marked[names[::-1]].sub(marked[_FORWARD], axis=0).cummax(axis=1).median().to_numpy()
    backward = np.diff(ready, prepend=0.0)[::-1] * (whole - forward) / ready[-1]
    starts = marked[[name for name in marked if str(name).startswith("start ")]].median()
    between = np.diff([0.0, *starts.to_numpy()[1:], marked[_FORWARD].median()]) * forward / marked[_FORWARD].median()
    last = {_module(name): name for name in names}  # a module's work stands at its last tensor, as in `tensors.work`
    by_tensor = {
        last[str(name).removeprefix("start ")]: seconds for name, seconds in zip(starts.index, between, strict=True)
    }
    quartiles = marked[names].quantile([0.25, 0.75])
    return Timing(
        tensors=Tensors(
            tuple(names),
            np.array([weight.numel() * weight.element_size() for _, weight in parameters(network)]),
            np.array([by_tensor.get(name, 0.0) for name in names]),
            backward,
        ),
        ready_spread=(quartiles.loc[0.75] - quartiles.loc[0.25]).to_numpy(),
        pass_seconds=whole,
        pass_spread=float(np.subtract(*plain[_BACKWARD].quantile([0.75, 0.25]))),
        marked_pass_seconds=float(marked[_BACKWARD].median()),
    )


def _module(tensor: str) -> str:
    return tensor.rpartition(".")[0]


def _refuse_other_orders(ready: Sequence[str], names: Sequence[str]) -> None:
    """Refuse a network whose modules do not give gradients in the reverse of registration, as the simulator has it."""
    if lacking := sorted(set(names) - set(ready)):
        raise ValueError(f"no gradient of {', '.join(lacking)}; networks that use all of their parameters are accepted")
    came, registered = (list(dict.fromkeys(map(_module, order))) for order in (ready, names[::-1]))
    if came != registered:
        got, wanted = next(pair for pair in zip(came, registered, strict=True) if pair[0] != pair[1])
        raise ValueError(
            f"gradients of {got!r} come before those of {wanted!r}, which is registered later; networks whose modules "
            "run in the order of registration are accepted"
        )
