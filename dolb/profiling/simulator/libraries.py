"""When gradients are reduced and which go together: PyTorch's DDP, and Horovod by version.

Facts are from the libraries: DDP's buckets from torch itself (a test compares), Horovod's defaults from its changelog
(0.21.0 changed the cycle from 5 ms to 1 ms and the fusion buffer from 64 MB to 128 MB), its negotiation from
horovod/common/response_cache.cc, mpi_controller.cc and gloo_controller.cc. What a message costs the coordinator is
assumed; `curves.UNKNOWN` says within which limits. What a tensor and a collective cost the host is from the README of
PyTorch's DDP benchmark, of four networks.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dolb.profiling.simulator.network import MICROSECOND, levels, ring_steps

MIB = 1024 * 1024
MILLISECOND = 1e-3
PHASES = 8
GLOO_THREADS = 2  # of torch's Gloo backend, each of which runs a collective; a test asks torch
# The response cache came with horovod/horovod#902, after 0.16.1. Up to 0.13.2 the thread slept for a whole cycle after
# its work, since then for what is left of the cycle (#276).
_FIRST_CACHED, _FIRST_FAST, _FIRST_ON_TIME = (0, 16, 2), (0, 21), (0, 13, 3)
# One V100 under DDP takes 3, 9, 2 and 10 ms longer than without it, for 161, 314, 161 and 314 tensors. On eight V100
# buckets of 1 MiB instead of 25 take another 2.7, 6.3, 2.4 and 5.8 ms, for 30, 78, 25 and 78 collectives more.
TENSOR_SECONDS, COLLECTIVE_SECONDS = 24 * MICROSECOND, 80 * MICROSECOND

Cost = Callable[[float], float]  # bytes to seconds


class Message(NamedTuple):
    """One all-reduce: how many tensors, their bytes, and when it ran."""

    tensors: int
    bytes: int
    start: float
    end: float


class Cycle(NamedTuple):
    """One negotiation: when its first tensor was ready, when ranks began to agree and when they had, on how many."""

    ready: float
    start: float
    end: float
    tensors: int


class Pass:
    """The clock of a backward pass, which loses a share of its speed while an all-reduce runs beside it."""

    def __init__(self, interference: float = 0.0):
        self.speed = 1 - interference
        self.moments, self.done = [0.0], [0.0]  # corners of the line of seconds computed over time

    def beside(self, start: float, end: float) -> None:
        """Tell of an all-reduce; they come in the order of their ends."""
        start = max(start, self.moments[-1])
        if self.speed < 1 and end > start:
            done = self.done[-1] + start - self.moments[-1]
            self.moments += [start, end]
            self.done += [done, done + self.speed * (end - start)]

    def when(self, seconds: float) -> float:
        """Return the moment at which so many seconds are computed."""
        return _along(self.done, self.moments, seconds)

    def until(self, moment: float) -> float:
        """Return how many seconds are computed at a moment."""
        return _along(self.moments, self.done, moment)


def _along(xs: list[float], ys: list[float], x: float) -> float:
    """Follow a line through corners, beyond the last of them with slope 1."""
    after = bisect_right(xs, x)
    x0, y0 = xs[after - 1], ys[after - 1]
    if after == len(xs):
        return y0 + x - x0
    return y0 + (x - x0) * (ys[after] - y0) / (xs[after] - x0)


class Schedule(NamedTuple):
    """What a library did in one step, and the backward pass beside it."""

    messages: list[Message]
    cycles: list[Cycle]
    clock: Pass
    work: Sequence[float]  # for each gradient the seconds of computing, the host's included, after which it is there

    @property
    def ready(self) -> list[float]:
        """When each gradient is there, in backward order."""
        return [self.clock.when(seconds) for seconds in self.work]

    @property
    def reduced(self) -> float:
        """When the pass is through and everything is reduced."""
        return max(self.clock.when(self.work[-1]), self.messages[-1].end)


@dataclass(frozen=True)
class DDP:
    """PyTorch's DistributedDataParallel: buckets fixed beforehand, reduced in order as soon as each is full.

    The first bucket is small so that communication starts early. The buckets are those after the first step, when
    torch has rebuilt them in the order in which gradients came.
    """

    bucket_bytes: int = 25 * MIB
    first_bucket_bytes: int = MIB
    # How many buckets are reduced at once: one by NCCL, which has a stream, `GLOO_THREADS` by Gloo. Lanes wait for
    # messages side by side and take turns with bytes, which have one core or link to go through.
    lanes: int = 1
    # By which the host holds up the backward pass for the hook and the copy of a tensor, and to start a collective.
    tensor_seconds: float = TENSOR_SECONDS
    collective_seconds: float = COLLECTIVE_SECONDS
    name: str = field(default="DDP", init=False)

    @property
    def phases(self) -> tuple[float, ...]:
        """A static order has no clock."""
        return (0.0,)

    def schedule(
        self,
        ready: Sequence[float],
        sizes: Sequence[int],
        allreduce: Cost,
        ranks: int,
        phase: float = 0.0,
        interference: float = 0.0,
    ) -> Schedule:
        """Reduce each bucket when its last gradient is ready, a lane is free, and bytes before its own are through."""
        messages: list[Message] = []
        work: list[float] = []
        clock = Pass(interference)
        free, through, hops = [0.0] * self.lanes, 0.0, allreduce(0)
        for first, end in buckets(sizes, self.first_bucket_bytes, self.bucket_bytes):
            size = sum(sizes[first:end])
            held = len(messages) * self.collective_seconds
            work += [ready[i] + held + (i + 1) * self.tensor_seconds for i in range(first, end)]
            start = max(free[0], clock.when(work[-1] + self.collective_seconds))
            through = max(start + hops, through) + (allreduce(size) - hops)
            clock.beside(start, through)
            free = [*free[1:], through]  # bytes go in order, so the lane that began first is free first
            messages.append(Message(end - first, size, start, through))
        work[-1] += self.collective_seconds
        return Schedule(messages, [], clock, work)


def ddp(bucket_bytes: int = DDP.bucket_bytes, **more: Any) -> DDP:
    """Return DDP as torch makes it: its default has a small first bucket, and any other size makes all alike."""
    usual = bucket_bytes == DDP.bucket_bytes
    return DDP(bucket_bytes, DDP.first_bucket_bytes if usual else bucket_bytes, **more)


@dataclass(frozen=True)
class Horovod:
    """Horovod: a background thread wakes every cycle, agrees with all ranks on what is ready, fuses and reduces it."""

    cycle_seconds: float = 1 * MILLISECOND
    fusion_bytes: int = 128 * MIB
    # With it ranks agree by one all-reduce, a bitwise AND; the OR that could follow is for entries of the cache that
    # have become invalid, and in training none does. Without it rank 0 gathers a list from every rank, counts every
    # tensor of every list, and broadcasts its answer: work that grows with ranks times tensors.
    response_cache: bool = True
    # How that all-reduce goes: ``tree`` for MPI, which halves the distance at every step, as on Summit; ``ring`` for
    # Gloo, whose own all-reduce goes twice around however small it is.
    agreement: str = "tree"
    latency: float = 3 * MICROSECOND  # of a small message between ranks, by which control messages are costed
    message_seconds: float = 1 * MICROSECOND  # of rank 0, for the list of one rank
    request_seconds: float = 0.3 * MICROSECOND  # of rank 0, for one tensor in it
    blocking: bool = False  # whether the background thread waits for an all-reduce (Gloo on CPUs), or goes on (NCCL)
    on_time: bool = True  # whether the thread wakes a cycle after it last woke, or a cycle after its work was done
    tensor_seconds: float = TENSOR_SECONDS  # by which the hook of a tensor holds up the backward pass, as under DDP
    collective_seconds: float = COLLECTIVE_SECONDS  # of the thread, to fill the buffer and start a collective
    name: str = "Horovod"

    @property
    def phases(self) -> tuple[float, ...]:
        """Where in its cycle the thread may be when a step begins: the two clocks are independent."""
        return tuple((i + 0.5) / PHASES for i in range(PHASES))

    def negotiation_seconds(self, ranks: int, tensors: int) -> float:
        """Return the seconds in which ranks agree on so many tensors; a cycle with none has its cost too."""
        if ranks == 1:
            return 0.0
        if self.response_cache:
            return self.latency * (ring_steps(ranks) if self.agreement == "ring" else levels(ranks))
        tree = levels(ranks) * self.latency
        gathered = (ranks - 1) * (self.message_seconds + tensors * self.request_seconds)
        return 4 * tree + gathered  # lengths and lists are gathered; a length and a list are broadcast

    def schedule(
        self,
        ready: Sequence[float],
        sizes: Sequence[int],
        allreduce: Cost,
        ranks: int,
        phase: float = 0.0,
        interference: float = 0.0,
    ) -> Schedule:
        """Run cycles until everything is reduced; cycles in which nothing is ready are skipped over at once."""
        agreeing = self.negotiation_seconds(ranks, 0)
        idle = max(self.cycle_seconds, agreeing) if self.on_time else self.cycle_seconds + agreeing
        messages: list[Message] = []
        cycles: list[Cycle] = []
        clock = Pass(interference)
        work = [seconds + (i + 1) * self.tensor_seconds for i, seconds in enumerate(ready)]
        now, free, first = phase * idle, 0.0, 0
        while first < len(sizes):
            begin = clock.when(work[first])
            if begin > now:
                wait = math.ceil((begin - now) / idle) * idle if idle else 0.0
                now = max(now + wait, begin)
            end = max(bisect_right(work, clock.until(now), first), first + 1)
            agreed = now + self.negotiation_seconds(ranks, end - first)
            cycles.append(Cycle(begin, now, agreed, end - first))
            for low, high in fuse(sizes, first, end, self.fusion_bytes):
                size = sum(sizes[low:high])
                start = max(free, agreed)
                free = start + self.collective_seconds + allreduce(size)
                clock.beside(start, free)
                messages.append(Message(high - low, size, start, free))
            worked = free if self.blocking else agreed
            now = max(now + self.cycle_seconds, worked) if self.on_time else worked + self.cycle_seconds
            first = end
        return Schedule(messages, cycles, clock, work)


Policy = DDP | Horovod


def horovod(version: str = "0.28", response_cache: bool | None = None) -> Horovod:
    """Return Horovod with the defaults of a version, such as ``0.20``; the cache is on where the version has it."""
    numbers = tuple(int(part) for part in version.split("."))
    fast = numbers >= _FIRST_FAST
    return Horovod(
        cycle_seconds=(1 if fast else 5) * MILLISECOND,
        fusion_bytes=(128 if fast else 64) * MIB,
        response_cache=numbers >= _FIRST_CACHED if response_cache is None else response_cache,
        on_time=numbers >= _FIRST_ON_TIME,
        name=f"Horovod {version}" + (", no cache" if response_cache is False else ""),
    )


def buckets(sizes: Sequence[int], first_limit: int, limit: int) -> Iterator[tuple[int, int]]:
    """Yield DDP's buckets as ranges: one is closed by the tensor that fills it, so it may exceed its limit."""
    begin, total, bound = 0, 0, first_limit
    for index, size in enumerate(sizes):
        total += size
        if total >= bound:
            yield begin, index + 1
            begin, total, bound = index + 1, 0, limit
    if begin < len(sizes):
        yield begin, len(sizes)


def fuse(sizes: Sequence[int], begin: int, end: int, limit: int) -> Iterator[tuple[int, int]]:
    """Yield Horovod's fused tensors as ranges: none exceeds the buffer, unless one tensor does.

    Horovod also looks further down its queue for tensors that still fit; this keeps to the order.
    """
    total = 0
    first = begin
    for index in range(begin, end):
        if index > first and total + sizes[index] > limit:
            yield first, index
            first, total = index, 0
        total += sizes[index]
    if first < end:
        yield first, end
