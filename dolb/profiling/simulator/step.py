"""One data-parallel training step, simulated: its time, throughput and efficiency, and the events of a few ranks.

Ranks are alike but for their speed of compute in this step, and an all-reduce waits for the slowest. So one schedule,
that of the slowest rank, holds for all, and the work of simulating it does not grow with ranks. The optimizer's step
follows the last all-reduce. Left out: the input pipeline, other jobs on the network, and compute that runs slower while
communication runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import xarray as xr

from dolb import results
from dolb.profiling.simulator.libraries import Horovod, Policy, Schedule
from dolb.profiling.simulator.network import Network, without_bandwidth, without_latency
from dolb.profiling.simulator.tensors import Tensors

SOURCE = "simulated"
EULER = 0.5772156649015329  # Euler's and Mascheroni's constant
MECHANISMS = ("negotiation", "cycle", "fusion", "jitter", "latency", "bandwidth", "overlap")


@dataclass(frozen=True)
class Scenario:
    """Everything that a step depends on but the number of ranks; the batch of a rank stays as ranks are added.

    Parameters
    ----------
    jitter
        Standard deviation of a rank's compute time over ranks, as a share of its mean. Draws are logistic: bell-shaped
        with tails heavier than normal, and with an expected maximum in closed form.
    overlap
        Whether a gradient may be reduced while the backward pass still runs.
    """

    tensors: Tensors
    network: Network
    policy: Policy
    batch_per_rank: int
    jitter: float = 0.0
    overlap: bool = True

    def __post_init__(self) -> None:
        """Refuse what no scenario can be."""
        if self.batch_per_rank < 1:
            raise ValueError(f"batch_per_rank is {self.batch_per_rank}; numbers from 1 are accepted")
        if self.jitter < 0:
            raise ValueError(f"jitter is {self.jitter}; a share of the compute time from 0 is accepted")


@dataclass(frozen=True)
class Step:
    """The times of one step, in seconds, and what follows from them."""

    ranks: int
    step_seconds: float
    compute_seconds: float  # forward and backward pass of the slowest rank
    communication_seconds: float  # sum over all-reduces, hidden or not
    negotiation_seconds: float  # sum over cycles that reduced something
    messages: float  # all-reduces
    images_per_second: float
    efficiency: float  # throughput over ranks times that of one rank (claim J1)


def slowest_of(ranks: int, jitter: float) -> float:
    """Return the expected maximum of so many compute times, as a multiple of their mean.

    The maximum of n standard logistic draws has expectation H(n - 1), the harmonic number.
    """
    return 1 + jitter * math.sqrt(3) / math.pi * _harmonic(ranks - 1)


def _harmonic(n: int) -> float:
    if n < 32:
        return sum(1 / k for k in range(1, n + 1))
    return math.log(n) + EULER + 1 / (2 * n) - 1 / (12 * n**2) + 1 / (120 * n**4)


def simulate(scenario: Scenario, ranks: int) -> Step:
    """Simulate one step on so many ranks."""
    _check(ranks)
    alone = scenario.tensors.step_seconds
    if ranks == 1:
        passes = scenario.tensors.compute_seconds
        return Step(1, alone, passes, 0.0, 0.0, 0, scenario.batch_per_rank / alone, 1.0)
    compute = _ready(scenario, ranks)[-1]
    runs = _schedules(scenario, ranks)
    step = float(np.mean([_reduced_seconds(compute, run) for run in runs])) + scenario.tensors.optimizer_seconds
    return Step(
        ranks=ranks,
        step_seconds=step,
        compute_seconds=compute,
        communication_seconds=float(np.mean([sum(m.end - m.start for m in run.messages) for run in runs])),
        negotiation_seconds=float(np.mean([sum(c.end - c.start for c in run.cycles) for run in runs])),
        messages=float(np.mean([len(run.messages) for run in runs])),
        images_per_second=ranks * scenario.batch_per_rank / step,
        efficiency=alone / step,
    )


def _check(ranks: int) -> None:
    if ranks != int(ranks) or ranks < 1:
        raise ValueError(f"ranks is {ranks}; whole numbers from 1 are accepted")


def _ready(scenario: Scenario, ranks: int) -> list[float]:
    """Return when the slowest rank has each gradient, in backward order."""
    ready = scenario.tensors.ready_seconds(_library_seconds(scenario, ranks)) * slowest_of(ranks, scenario.jitter)
    return ready.tolist() if scenario.overlap else [float(ready[-1])] * len(ready)


def _library_seconds(scenario: Scenario, ranks: int) -> float:
    # On one rank neither library reduces anything; that DDP copies into its buckets even then is left out.
    return scenario.policy.tensor_seconds if ranks > 1 else 0.0


def _schedules(scenario: Scenario, ranks: int) -> list[Schedule]:
    """Return the schedule for every phase of the library's clock: a step is their mean, none of them is special."""
    ready, sizes = _ready(scenario, ranks), scenario.tensors.bytes[::-1].tolist()

    @cache  # the phases reduce much the same messages
    def allreduce(size: float) -> float:
        return scenario.network.allreduce_seconds(ranks, size)

    return [scenario.policy.schedule(ready, sizes, allreduce, ranks, phase) for phase in scenario.policy.phases]


def _reduced_seconds(compute: float, schedule: Schedule) -> float:
    return max([compute, *(message.end for message in schedule.messages[-1:])])


def without(scenario: Scenario, mechanism: str) -> Scenario:
    """Return the scenario with one mechanism off; what a library does not have stays as it is.

    Off means free for ``negotiation``, ``cycle``, ``jitter``, ``latency`` and ``bandwidth``. ``fusion`` off reduces
    every tensor by itself, and ``overlap`` off reduces all after the backward pass: both mostly cost time.
    """
    policy = scenario.policy
    if mechanism == "jitter":
        return replace(scenario, jitter=0.0)
    if mechanism == "overlap":
        return replace(scenario, overlap=False)
    if mechanism == "bandwidth":
        return replace(scenario, network=without_bandwidth(scenario.network))
    if mechanism == "latency":
        policy = replace(policy, latency=0.0) if isinstance(policy, Horovod) else policy
        return replace(scenario, network=without_latency(scenario.network), policy=policy)
    if mechanism not in MECHANISMS:
        raise ValueError(f"mechanism {mechanism!r} is not known; accepted: {', '.join(MECHANISMS)}")
    if isinstance(policy, Horovod):
        changes: dict[str, dict[str, Any]] = {
            "negotiation": {"latency": 0.0, "message_seconds": 0.0, "request_seconds": 0.0},
            "cycle": {"cycle_seconds": 0.0},
            "fusion": {"fusion_bytes": 0},
        }
        return replace(scenario, policy=replace(policy, **changes[mechanism]))
    if mechanism == "fusion":
        return replace(scenario, policy=replace(policy, bucket_bytes=0, first_bucket_bytes=0))
    return scenario


def events(scenario: Scenario, ranks: int) -> xr.Dataset:
    """Return one step as the table of events that traces give: rank, lane, name, start_us, end_us, bytes.

    Three ranks stand for all: rank 0, one in the middle, both of mean speed, and the last, which is the slowest. Of the
    phases of Horovod's clock it shows the one whose step is nearest to the mean.
    """
    _check(ranks)
    rows: list[tuple[int, str, str, float, float, int]] = []
    compute = _ready(scenario, ranks)[-1]
    runs = _schedules(scenario, ranks) if ranks > 1 else [Schedule([], [])]
    steps = [_reduced_seconds(compute, run) for run in runs]
    shown = int(np.argmin(np.abs(np.array(steps) - np.mean(steps))))
    run, summed = runs[shown], steps[shown] * 1e6
    slow, optimizer = slowest_of(ranks, scenario.jitter), scenario.tensors.optimizer_seconds
    for rank in sorted({0, ranks // 2, ranks - 1}):
        speed = slow if rank == ranks - 1 else 1.0
        rows += [(rank, *row) for row in _compute_events(scenario, ranks, speed)]
        rows += [(rank, *row) for row in _library_events(run, speed / slow)]
        if optimizer > 0:
            rows.append((rank, "compute", "optimizer", summed, summed + optimizer * 1e6, 0))
    columns = dict(zip(("rank", "lane", "name", "start_us", "end_us", "bytes"), zip(*rows, strict=True), strict=True))
    ds = xr.Dataset({name: ("event", np.array(values)) for name, values in columns.items()})
    ds.attrs = {
        "source": SOURCE,
        "library": scenario.policy.name,
        "network": scenario.network.name,
        "ranks": ranks,
        "batch_per_rank": scenario.batch_per_rank,
        "step_seconds": float(np.mean(steps)) + optimizer,
    }
    return results.validate(results.describe(ds))


Row = tuple[str, str, float, float, int]  # lane, name, start and end in microseconds, bytes


def _compute_events(scenario: Scenario, ranks: int, speed: float) -> Iterator[Row]:
    tensors = scenario.tensors
    passes = (
        ("forward", tensors.names, tensors.forward_seconds),
        ("backward", tensors.names[::-1], tensors.backward_seconds[::-1] + _library_seconds(scenario, ranks)),
    )
    now = 0.0
    for which, names, seconds in passes:
        for name, end in zip(names, now + np.cumsum(seconds) * speed * 1e6, strict=True):
            if end > now:  # what takes no time of its own ran with its neighbour
                yield "compute", f"{which} {name}", now, float(end), 0
            now = float(end)


def _library_events(run: Schedule, early: float) -> Iterator[Row]:
    # A rank that is ahead of the slowest has its gradients earlier by that ratio, and waits for as much longer.
    for cycle in run.cycles:
        what = f"{cycle.tensors} tensors"
        yield "queue", f"wait {what}", cycle.ready * early * 1e6, cycle.start * 1e6, 0
        yield "negotiation", f"negotiate {what}", cycle.start * 1e6, cycle.end * 1e6, 0
    for message in run.messages:
        yield (
            "communication",
            f"allreduce {message.tensors} tensors",
            message.start * 1e6,
            message.end * 1e6,
            message.bytes,
        )
