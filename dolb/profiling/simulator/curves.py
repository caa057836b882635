"""The simulated half of the comparison as results: rows of a scaling table, marked simulated.

Curves of both libraries on Summit with a band for what is not known, Horovod if agreeing cost nothing, Horovod tuned at
the number of GPUs at which the study tuned it, and the steps of a ring all-reduce, counted.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from scipy.stats import qmc

from dolb import results
from dolb.profiling.config import ScalingConfig
from dolb.profiling.simulator import network, tensors
from dolb.profiling.simulator.libraries import DDP, MIB, MILLISECOND, Horovod, Policy, horovod
from dolb.profiling.simulator.network import Link
from dolb.profiling.simulator.step import SOURCE, Scenario, simulate

ARCH, BATCH_PER_RANK = "resnet50", 32
STUDIED_GPUS, MOST_GPUS, TUNED_GPUS = 1536, 27_000, 96  # of the study, of all Summit, and where the study tuned
NODE = network.preset("summit").ranks_per_node
# Horovod as it was when the study ran; without the cache that spares it the coordinator; and with later defaults.
_OF_THE_STUDY, _UNCACHED = horovod("0.20"), horovod("0.20", response_cache=False)
POLICIES: tuple[Policy, ...] = (DDP(), _OF_THE_STUDY, _UNCACHED, horovod("0.21"))
FUSIONS_MB, CYCLES_MS = (1, 64, 256), (0.5, 1, 5, 10, 25)
RING_RANKS = (2, 3, 4, 8, 16, 64)
_NAMES = {"ddp": "DDP", "horovod": "Horovod"}

Row = dict[str, Any]


# What is not known

Knobs = Mapping[str, float]


@dataclass(frozen=True)
class Range:
    """What is known of a number: it lies between two limits, evenly, or evenly on a logarithmic scale."""

    low: float
    high: float
    log: bool = False

    def at(self, share: np.ndarray) -> np.ndarray:
        """Return the values at shares from 0 to 1 of the way."""
        if self.log:
            return self.low * (self.high / self.low) ** share
        return self.low + (self.high - self.low) * share


# Factors on what a scenario has, judged from what such machines usually do. They are explained in `turn`.
_THREEFOLD = Range(1 / 3, 3.0, log=True)
UNKNOWN: dict[str, Range] = {
    "bandwidth": Range(0.5, 1.2),
    "latency": Range(0.5, 4.0, log=True),
    "message_seconds": _THREEFOLD,
    "request_seconds": _THREEFOLD,
    "host": _THREEFOLD,
    "interference": _THREEFOLD,
    "contention": _THREEFOLD,
    "jitter": _THREEFOLD,
}
MIDDLE = (0.05, 0.95)  # the tails beyond a band, which holds nine tenths of what is drawn


def turn(scenario: Scenario, knobs: Knobs) -> Scenario:
    """Return the scenario with some of its numbers multiplied.

    ``bandwidth``: the share of the links' peak that is achieved, at most all of it. ``latency``: every latency.
    ``message_seconds``, ``request_seconds``: work of Horovod's coordinator per rank, and per tensor of a rank.
    ``host``: what tensors and collectives cost the host. ``interference``, ``contention``, ``jitter``: as in `Network`.
    ``compute``: the time of compute.
    """
    over, policy = scenario.network, scenario.policy

    def times(value: float, name: str, most: float = np.inf) -> float:
        return min(value * knobs.get(name, 1.0), most)

    over = replace(
        over,
        intra=Link(times(over.intra.latency, "latency"), over.intra.bandwidth),
        inter=Link(times(over.inter.latency, "latency"), over.inter.bandwidth),
        launch=times(over.launch, "latency"),
        achieved=times(over.achieved, "bandwidth", most=1.0),
        interference=times(over.interference, "interference", most=1.0),
        contention=times(over.contention, "contention"),
        jitter=times(over.jitter, "jitter"),
    )
    tensor, collective = (times(cost, "host") for cost in (policy.tensor_seconds, policy.collective_seconds))
    policy = replace(policy, tensor_seconds=tensor, collective_seconds=collective)
    if isinstance(policy, Horovod):
        policy = replace(
            policy,
            latency=times(policy.latency, "latency"),
            message_seconds=times(policy.message_seconds, "message_seconds"),
            request_seconds=times(policy.request_seconds, "request_seconds"),
        )
    return replace(scenario, tensors=scenario.tensors.slower(times(1.0, "compute")), network=over, policy=policy)


def draw(scenarios: Mapping[str, Scenario], ranks: Sequence[int], draws: int) -> dict[str, np.ndarray]:
    """Return the efficiencies of every scenario, draws by ranks, at quasi-random values of `UNKNOWN`.

    A draw has the same values for all scenarios, so that these can be compared within it.
    """
    sampler = qmc.Sobol(len(UNKNOWN), rng=np.random.default_rng(0))
    shares = sampler.random_base2(int(np.ceil(np.log2(draws))))[:draws]
    values = np.column_stack([limits.at(column) for limits, column in zip(UNKNOWN.values(), shares.T, strict=True)])
    drawn = [dict(zip(UNKNOWN, row, strict=True)) for row in values.tolist()]
    return {
        name: np.array([[simulate(turn(scenario, knobs), count).efficiency for count in ranks] for knobs in drawn])
        for name, scenario in scenarios.items()
    }


# Rows


def on_summit(policy: Policy) -> Scenario:
    """Return training of the study's network on Summit's V100 GPUs, at their published speed."""
    step = tensors.on_gpu(ARCH, BATCH_PER_RANK, "V100")
    return Scenario(step, network.preset("summit"), policy, BATCH_PER_RANK)


def simulated(points_per_doubling: int = 3, draws: int = 64) -> xr.Dataset:
    """Return every simulated row of the comparison; ``draws`` is of what is not known, for the bands."""
    scenarios = {policy.name: on_summit(policy) for policy in POLICIES}
    nodes = 2 ** np.arange(0, np.log2(MOST_GPUS / NODE), 1 / points_per_doubling)
    counts = sorted({1, *(NODE * round(count) for count in nodes.tolist()), TUNED_GPUS, STUDIED_GPUS, MOST_GPUS})
    # The curve that bends, if agreeing cost nothing.
    free = on_summit(replace(_UNCACHED, latency=0.0, message_seconds=0.0, request_seconds=0.0))
    rows = [
        *_with_band(scenarios, counts, draws),
        *(row(free, ranks, switched_off="negotiation") for ranks in counts),
        *_tuning(),
        *(_ring_row(ranks) for ranks in RING_RANKS),
    ]
    return simulated_rows(rows)


def row(scenario: Scenario, ranks: int, **more: Any) -> Row:
    """Return the row of one simulated step of the study's network; ``more`` are further columns, or other values."""
    policy, step = scenario.policy, simulate(scenario, ranks)
    config = ScalingConfig(
        experiment="ddp-vs-horovod",
        library="ddp" if isinstance(policy, DDP) else "horovod",
        ranks=ranks,
        arch=ARCH,
        batch_size_per_rank=scenario.batch_per_rank,
        steps=1,
        warmup_steps=0,
        device_kind="cuda",
        **_settings(policy),
    )
    return {
        **config.as_dict(),
        "batch_size": config.batch_size,
        "variant": policy.name,
        "network": scenario.network.name,
        "switched_off": "none",
        "step_seconds": step.step_seconds,
        "images_per_second": step.images_per_second,
        "efficiency": step.efficiency,
        "communication_seconds": step.communication_seconds,
        "negotiation_seconds": step.negotiation_seconds,
        "messages": float(step.messages),
        "parameters": int(scenario.tensors.bytes.sum()) // 4,
        **more,
    }


def _settings(policy: Policy) -> dict[str, Any]:
    if isinstance(policy, Horovod):
        milliseconds = policy.cycle_seconds / MILLISECOND
        return {"fusion_threshold_mb": policy.fusion_bytes / MIB, "cycle_time_ms": milliseconds}
    return {"bucket_mb": policy.bucket_bytes / MIB}


def _with_band(scenarios: dict[str, Scenario], counts: Sequence[int], draws: int) -> Iterable[Row]:
    drawn = draw(scenarios, counts, draws)
    of_ddp = drawn[POLICIES[0].name]
    for name, scenario in scenarios.items():
        bounds = np.quantile(drawn[name], MIDDLE, axis=0).T
        leads = np.quantile(of_ddp / drawn[name], MIDDLE, axis=0).T
        for ranks, (low, high), lead in zip(counts, bounds, leads, strict=True):
            compared = scenario.policy != POLICIES[0] and ranks > 1
            lead_low, lead_high = lead if compared else (np.nan, np.nan)
            band = {"efficiency_low": low, "efficiency_high": high}
            yield row(scenario, ranks, **band, ddp_lead_low=lead_low, ddp_lead_high=lead_high)


def _tuning() -> Iterable[Row]:
    for fusion in FUSIONS_MB:
        for cycle in CYCLES_MS:
            tuned = replace(_OF_THE_STUDY, fusion_bytes=fusion * MIB, cycle_seconds=cycle * MILLISECOND)
            yield row(on_summit(tuned), TUNED_GPUS, variant=f"{tuned.name}, tuned")


def ring_message_steps(ranks: int) -> int:
    """Carry out a ring all-reduce and return after how many steps every rank has the sum.

    The buffer has a part for each rank. At every step each rank sends one part to the next: first what it has summed so
    far, then, as soon as a part is summed over all, that part.
    """
    rng = np.random.default_rng(ranks)
    held = rng.integers(0, 1000, size=(ranks, ranks))  # by rank and part
    total = held.sum(axis=0)
    steps = 0
    while not (held == total).all():
        sent = (np.arange(ranks) - steps) % ranks
        before = held.copy()
        for rank in range(ranks):
            part, to = sent[rank], (rank + 1) % ranks
            held[to, part] = before[rank, part] + (before[to, part] if steps < ranks - 1 else 0)
        steps += 1
    return steps


def _ring_row(ranks: int) -> Row:
    unknown = ("step_seconds", "images_per_second", "efficiency", "communication_seconds", "negotiation_seconds")
    words = {"library": "ring", "variant": "ring all-reduce", "network": "none"}
    steps = float(ring_message_steps(ranks))
    return row(on_summit(POLICIES[0]), ranks, **words, message_steps=steps, **dict.fromkeys(unknown, np.nan))


def simulated_rows(rows: Sequence[Row]) -> xr.Dataset:
    """Make a Dataset of simulated rows, each with a key of its own and the provenance of something computed."""
    table = pd.DataFrame(list(rows))
    named = ["variant", "network", "ranks", "switched_off", "bucket_mb", "fusion_threshold_mb", "cycle_time_ms", "arch"]
    told = [json.dumps({SOURCE: list(values)}) for values in table[named].itertuples(index=False)]
    table["key"] = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in told]
    about = results.provenance(
        torch_version=torch.__version__, device="none: simulated", engine="simulated", data_fingerprint="none"
    )
    table = table.assign(**about | {"source": SOURCE, "world_size": table["ranks"]})
    columns = {
        name: ("run", table[name].to_numpy(str if results.SCHEMA[name].kind == "text" else None))
        for name in map(str, table)
    }
    coordinates = [*ScalingConfig().as_dict(), "batch_size", "key"]
    return results.describe(results.validate(xr.Dataset(columns).set_coords(coordinates)))


def named(measured: xr.Dataset) -> xr.Dataset:
    """Give measured runs the words that simulated rows have: library, network, and that nothing was switched off.

    On GPUs that is NCCL under either library: `launch` starts no Horovod there that was built without it.
    """
    on_cpu, linked = measured["device_kind"].to_numpy() == "cpu", measured["hosts"].to_numpy() > 1
    apart = measured["nodes"].to_numpy() > 1 if "nodes" in measured else np.zeros(len(linked), bool)
    words = {
        "variant": np.array([_NAMES[library] for library in measured["library"].to_numpy().tolist()]),
        "network": np.select([apart, linked, on_cpu], ["nodes", "links", "loopback"], "NCCL"),
        "switched_off": np.full(len(linked), "none"),
    }
    return results.describe(measured.assign({name: ("run", values) for name, values in words.items()}))
