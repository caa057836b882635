"""One data-parallel training step, simulated: its time, throughput and efficiency, and the events of a few ranks.

Ranks are alike but for their speed of compute in this step, and an all-reduce waits for the slowest. So one schedule,
that of the slowest rank, holds for all, and the work of simulating it does not grow with ranks. The optimizer's step
follows the last all-reduce. Left out: the input pipeline, and other jobs on the network.
"""

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
from scipy.special import digamma

from dolb.profiling.simulator.libraries import Policy, Schedule
from dolb.profiling.simulator.network import Network
from dolb.profiling.simulator.tensors import Tensors

SOURCE = "simulated"
EULER = float(np.euler_gamma)


@dataclass(frozen=True)
class Scenario:
    """Everything that a step depends on but the number of ranks; the batch of a rank stays as ranks are added."""

    tensors: Tensors
    network: Network
    policy: Policy
    batch_per_rank: int

    def __post_init__(self) -> None:
        whole("batch_per_rank", self.batch_per_rank)


@dataclass(frozen=True)
class Step:
    """The times of one step, in seconds, and what follows from them."""

    ranks: int
    step_seconds: float
    communication_seconds: float  # sum over all-reduces, hidden or not
    negotiation_seconds: float  # sum over cycles that reduced something
    messages: float  # all-reduces
    images_per_second: float
    efficiency: float  # throughput over ranks times that of one rank (claim J1)


def slowest_of(ranks: int, jitter: float) -> float:
    """Return the expected maximum of so many compute times, as a multiple of their mean.

    The maximum of n standard logistic draws has expectation H(n - 1), the harmonic number.
    """
    return 1 + jitter * math.sqrt(3) / math.pi * float(digamma(ranks) + EULER)


def whole(what: str, value: int) -> int:
    """Return the value as Python's own whole number, or raise a ``ValueError`` where it is none from 1 on."""
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise ValueError(f"{what} is {value}; whole numbers from 1 are accepted")
    return number


def slowdown(network: Network, ranks: int) -> float:
    """Return how many times as long as alone the slowest of so many ranks computes: for its neighbours, and by luck."""
    return (1 + network.contention * (network.shape(ranks)[1] - 1)) * slowest_of(ranks, network.jitter)


def simulate(scenario: Scenario, ranks: int) -> Step:
    """Simulate one step on so many ranks."""
    ranks = whole("ranks", ranks)
    alone = scenario.tensors.step_seconds
    if ranks == 1:
        return Step(1, alone, 0.0, 0.0, 0, scenario.batch_per_rank / alone, 1.0)
    runs = _schedules(scenario, ranks)
    step = float(np.mean([run.reduced for run in runs])) + scenario.tensors.optimizer_seconds
    return Step(
        ranks=ranks,
        step_seconds=step,
        communication_seconds=float(np.mean([sum(m.end - m.start for m in run.messages) for run in runs])),
        negotiation_seconds=float(np.mean([sum(c.end - c.start for c in run.cycles) for run in runs])),
        messages=float(np.mean([len(run.messages) for run in runs])),
        images_per_second=ranks * scenario.batch_per_rank / step,
        efficiency=alone / step,
    )


def _schedules(scenario: Scenario, ranks: int) -> list[Schedule]:
    """Return the schedule for every phase of the library's clock: a step is their mean, none of them is special."""
    over, library, sizes = scenario.network, scenario.policy, scenario.tensors.bytes[::-1].tolist()
    # Of the slowest rank, if it communicated with nobody.
    ready = (scenario.tensors.ready_seconds() * slowdown(over, ranks)).tolist()

    @cache  # the phases reduce much the same messages
    def allreduce(size: float) -> float:
        return over.allreduce_seconds(ranks, size)

    return [library.schedule(ready, sizes, allreduce, ranks, phase, over.interference) for phase in library.phases]


def events(scenario: Scenario, ranks: int) -> pd.DataFrame:
    """Return one step on several ranks as the table of events that traces give, in order of their start.

    Three ranks stand for all: rank 0, one in the middle, both of mean speed, and the last, which is the slowest. Of the
    phases of Horovod's clock it shows the one whose step is nearest to the mean.
    """
    ranks = whole("ranks", ranks)
    runs = _schedules(scenario, ranks)
    reduced = [run.reduced for run in runs]
    shown = int(np.argmin(np.abs(np.array(reduced) - np.mean(reduced))))
    run, summed = runs[shown], reduced[shown] * 1e6
    end = summed + scenario.tensors.optimizer_seconds * 1e6
    forward = np.cumsum(scenario.tensors.forward_seconds) * slowdown(scenario.network, ranks)
    rows: list[tuple[int, str, str, float, float, int]] = []
    for rank in sorted({0, ranks // 2, ranks - 1}):
        # A rank that is ahead of the slowest has its gradients earlier by that ratio, and waits for as much longer.
        early = 1.0 if rank == ranks - 1 else 1 / slowest_of(ranks, scenario.network.jitter)
        rows.append((rank, "step", "step 0", 0.0, end, 0))
        rows += [(rank, *row) for row in _compute_events(scenario.tensors.names, forward * early, run, early)]
        rows += [(rank, *row) for row in _library_events(run, early)]
        if end > summed:
            rows.append((rank, "compute", "optimizer", summed, end, 0))
    table = pd.DataFrame(rows, columns=["rank", "lane", "name", "start_us", "end_us", "bytes"])
    return table.sort_values(["start_us", "rank"], kind="stable", ignore_index=True)


Row = tuple[str, str, float, float, int]  # lane, name, start and end in microseconds, bytes


def _compute_events(names: Sequence[str], forward: np.ndarray, run: Schedule, early: float) -> Iterator[Row]:
    backward = np.array(run.ready) * early
    now = 0.0
    for which, order, ends in (("forward", names, forward), ("backward", names[::-1], backward)):
        for name, end in zip(order, (ends * 1e6).tolist(), strict=True):
            if end > now:  # what takes no time of its own ran with its neighbour
                yield "compute", f"{which} {name}", now, end, 0
            now = max(now, end)


def _library_events(run: Schedule, early: float) -> Iterator[Row]:
    for cycle in run.cycles:
        what = f"{cycle.tensors} tensors"
        yield "queue", f"wait {what}", cycle.ready * early * 1e6, cycle.start * 1e6, 0
        yield "negotiation", f"negotiate {what}", cycle.start * 1e6, cycle.end * 1e6, 0
    for message in run.messages:
        what = f"allreduce {message.tensors} tensors"
        yield "communication", what, message.start * 1e6, message.end * 1e6, message.bytes
