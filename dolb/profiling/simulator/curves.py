"""The simulated half of the comparison as results: rows of a scaling table, marked simulated.

Curves of both libraries on Summit with a band for what is not known, Horovod with one mechanism off at a time, Horovod
tuned at the number of GPUs at which the study tuned it, and the steps of a ring all-reduce, counted.
"""

from __future__ import annotations

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
from dolb.profiling.simulator.network import MICROSECOND, Link
from dolb.profiling.simulator.step import MECHANISMS, SOURCE, Scenario, simulate, without

ARCH, BATCH_PER_RANK = "resnet50", 32
STUDIED_GPUS, MOST_GPUS, TUNED_GPUS = 1536, 27_000, 96  # of the study, of all Summit, and where the study tuned
NODE = network.preset("summit").ranks_per_node
# Horovod as it was when the study ran; without the cache that spares it the coordinator; and with later defaults.
POLICIES: tuple[Policy, ...] = (DDP(), horovod("0.20"), horovod("0.20", response_cache=False), horovod("0.21"))
BENT = POLICIES[2].name  # the one whose curve bends, of which mechanisms are switched off
TUNED = f"{POLICIES[1].name}, tuned"
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

    def share(self, value: float) -> float:
        """Return how far of the way a value is; the inverse of `at`."""
        if self.log:
            return float(np.log(value / self.low) / np.log(self.high / self.low))
        return (value - self.low) / (self.high - self.low)


# Judged from what such machines usually do, but for the jitter, which published points tell: its middle nine tenths
# hold what each of them asks for alone, and a test holds both lines to them. The knobs are explained in `turn`.
FITTED_JITTER = 0.036  # fitted to all of these points, `fit.published`
UNKNOWN: dict[str, Range] = {
    "bandwidth": Range(0.4, 0.95),
    "latency": Range(0.5, 4.0, log=True),
    "message_seconds": Range(0.3 * MICROSECOND, 3 * MICROSECOND, log=True),
    "request_seconds": Range(0.1 * MICROSECOND, 1 * MICROSECOND, log=True),
    "jitter": Range(0.015, 0.12, log=True),
}
KNOBS = (*UNKNOWN, "tensor_seconds", "compute")


def turn(scenario: Scenario, knobs: Knobs) -> Scenario:
    """Return the scenario with some of its unknowns set.

    ``bandwidth``: share of the links' peak that is achieved. ``latency``: factor on every latency. ``message_seconds``,
    ``request_seconds``: work of Horovod's coordinator per rank, and per tensor of a rank. ``tensor_seconds``: work of
    the library per gradient. ``jitter``: standard deviation of compute times over ranks. ``compute``: factor on the
    time of compute.
    """
    unknown = set(knobs) - set(KNOBS)
    if unknown:
        raise ValueError(f"knobs {sorted(unknown)} are not known; accepted: {', '.join(KNOBS)}")
    network, policy, tensors = scenario.network, scenario.policy, scenario.tensors
    factor = knobs.get("latency", 1.0)
    intra, inter = (Link(link.latency * factor, link.bandwidth) for link in (network.intra, network.inter))
    network = replace(
        network,
        intra=intra,
        inter=inter,
        launch=network.launch * factor,
        achieved=knobs.get("bandwidth", network.achieved),
    )
    policy = replace(policy, tensor_seconds=knobs.get("tensor_seconds", policy.tensor_seconds))
    if isinstance(policy, Horovod):
        policy = replace(
            policy,
            latency=policy.latency * factor,
            message_seconds=knobs.get("message_seconds", policy.message_seconds),
            request_seconds=knobs.get("request_seconds", policy.request_seconds),
        )
    slower = knobs.get("compute", 1.0)
    tensors = replace(
        tensors,
        forward_seconds=tensors.forward_seconds * slower,
        backward_seconds=tensors.backward_seconds * slower,
        optimizer_seconds=tensors.optimizer_seconds * slower,
    )
    jitter = knobs.get("jitter", scenario.jitter)
    return replace(scenario, tensors=tensors, network=network, policy=policy, jitter=jitter)


def draw(
    scenarios: Mapping[str, Scenario],
    ranks: Sequence[int],
    ranges: Mapping[str, Range] = UNKNOWN,
    draws: int = 64,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the curves of every scenario at quasi-random values of what is unknown, the same for all of them.

    Rows have ``draw``, the knobs, and the times of a step.
    """
    sampler = qmc.Sobol(len(ranges), rng=np.random.default_rng(seed))
    shares = sampler.random_base2(int(np.ceil(np.log2(draws))))[:draws]
    values = {name: limits.at(shares[:, column]) for column, (name, limits) in enumerate(ranges.items())}
    tables = []
    for index in range(draws):
        knobs = {name: float(column[index]) for name, column in values.items()}
        turned = {library: turn(scenario, knobs) for library, scenario in scenarios.items()}
        tables.append(_sweep(turned, ranks).assign(draw=index, **knobs))
    return pd.concat(tables, ignore_index=True)


def _sweep(scenarios: Mapping[str, Scenario], ranks: Sequence[int]) -> pd.DataFrame:
    """Return a row per scenario and number of ranks."""
    rows = [
        {"library": library, **vars(simulate(scenario, count))}
        for library, scenario in scenarios.items()
        for count in ranks
    ]
    return pd.DataFrame(rows)


def band(drawn: pd.DataFrame, mass: float = 0.9) -> pd.DataFrame:
    """Return low, median and high efficiency by library and ranks: the middle ``mass`` of what `draw` returned."""
    tails = [(1 - mass) / 2, 0.5, (1 + mass) / 2]
    table = drawn.groupby(["library", "ranks"], sort=False)["efficiency"].quantile(np.array(tails)).unstack()  # noqa: PD010
    table.columns = pd.Index(["low", "median", "high"])
    return table.reset_index().assign(source=SOURCE)


def bends(drawn: pd.DataFrame, drop: float = 0.05, mass: float = 0.9) -> pd.DataFrame:
    """Return low and high of the fewest ranks whose doubling costs more than ``drop``, by library, over the draws.

    Of every draw it is one of the ranks that were drawn, with the curve straight between them over the logarithm of
    ranks, and infinite where it does not bend.
    """
    found: dict[str, list[float]] = {}
    for (library, _), curve in drawn.groupby(["library", "draw"], sort=False):
        ranks, efficiency = curve["ranks"].to_numpy(float), curve["efficiency"].to_numpy()
        lost = efficiency - np.interp(np.log(2 * ranks), np.log(ranks), efficiency)
        bent = ranks[(lost > drop) & (2 * ranks <= ranks[-1]) & (ranks > 1)]
        found.setdefault(str(library), []).append(float(bent[0]) if len(bent) else np.inf)
    # Values of draws, not between them: some may be infinite.
    tails = {
        library: np.quantile(at, [(1 - mass) / 2, (1 + mass) / 2], method="nearest") for library, at in found.items()
    }
    return pd.DataFrame.from_dict(tails, orient="index", columns=["low", "high"])


def leads(drawn: pd.DataFrame, library: str, over: str, mass: float = 0.9) -> pd.DataFrame:
    """Return, by ranks, low and high of one library's efficiency over another's in the same draw."""
    curves = _curves(drawn)
    ratio = curves[library] / curves[over]
    tails = ratio.groupby("ranks").quantile(np.array([(1 - mass) / 2, (1 + mass) / 2])).unstack()  # noqa: PD010
    return tails.set_axis(["low", "high"], axis=1)


def wins(drawn: pd.DataFrame, library: str, over: str) -> pd.Series:
    """Return, by ranks, the share of draws in which one library is more efficient than another."""
    curves = _curves(drawn)
    return curves[library].gt(curves[over]).groupby("ranks").mean()


def _curves(drawn: pd.DataFrame) -> dict[str, pd.Series]:
    return {str(name): part.set_index(["draw", "ranks"])["efficiency"] for name, part in drawn.groupby("library")}


# Rows


def on_summit(policy: Policy, arch: str = ARCH, batch_per_rank: int = BATCH_PER_RANK) -> Scenario:
    """Return training on Summit's V100 GPUs, at their published speed.

    The jitter of compute times is what published points of other machines ask for; bandwidth is the assumed share of
    the peak, which these points do not tell.
    """
    step = tensors.v100(arch, batch_per_rank)
    return Scenario(step, network.preset("summit"), policy, batch_per_rank, jitter=FITTED_JITTER)


def simulated(points_per_doubling: int = 3, draws: int = 64) -> xr.Dataset:
    """Return every simulated row of the comparison; ``draws`` is of what is not known, for the bands."""
    scenarios = {policy.name: on_summit(policy) for policy in POLICIES}
    nodes = 2 ** np.arange(0, np.log2(MOST_GPUS / NODE), 1 / points_per_doubling)
    counts = sorted({1, *(NODE * round(count) for count in nodes.tolist()), TUNED_GPUS, STUDIED_GPUS, MOST_GPUS})
    rows = [
        *_with_band(scenarios, counts, draws),
        *_ablation(scenarios[BENT], counts),
        *_tuning(scenarios[POLICIES[1].name]),
        *(_ring_row(ranks) for ranks in RING_RANKS),
    ]
    return simulated_rows(rows)


def row(scenario: Scenario, ranks: int, arch: str, **more: Any) -> Row:
    """Return the row of one simulated step."""
    policy, step = scenario.policy, simulate(scenario, ranks)
    config = ScalingConfig(
        experiment="ddp-vs-horovod",
        library="ddp" if isinstance(policy, DDP) else "horovod",
        ranks=ranks,
        arch=arch,
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
        cycle = max(policy.cycle_seconds / MILLISECOND, 1e-9)  # a cycle that was switched off takes no time
        return {"fusion_threshold_mb": policy.fusion_bytes / MIB, "cycle_time_ms": cycle}
    return {"bucket_mb": max(policy.bucket_bytes / MIB, 1e-9)}


def _with_band(scenarios: dict[str, Scenario], counts: Sequence[int], draws: int) -> Iterable[Row]:
    drawn = draw(scenarios, counts, draws=draws)
    middle, bent = band(drawn).set_index(["library", "ranks"]), bends(drawn)
    ddp = POLICIES[0].name
    for name, scenario in scenarios.items():
        ahead, lead = wins(drawn, ddp, name), leads(drawn, ddp, name)
        for ranks in counts:
            compared = name != ddp and ranks > 1
            yield row(
                scenario,
                ranks,
                ARCH,
                efficiency_low=middle.loc[(name, ranks), "low"],
                efficiency_high=middle.loc[(name, ranks), "high"],
                bend_low=bent.loc[name, "low"],
                bend_high=bent.loc[name, "high"],
                ddp_ahead=ahead[ranks] if compared else np.nan,
                ddp_lead_low=lead.loc[ranks, "low"] if compared else np.nan,
                ddp_lead_high=lead.loc[ranks, "high"] if compared else np.nan,
            )


def _ablation(scenario: Scenario, counts: Sequence[int]) -> Iterable[Row]:
    for mechanism in MECHANISMS:
        off = without(scenario, mechanism)
        for ranks in counts:
            # Named by what it was before: what is off stands in a column of its own.
            yield row(off, ranks, ARCH) | {"variant": scenario.policy.name, "switched_off": mechanism}


def _tuning(scenario: Scenario) -> Iterable[Row]:
    policy = scenario.policy
    assert isinstance(policy, Horovod)  # of the two policies it alone is tuned so
    for fusion in FUSIONS_MB:
        for cycle in CYCLES_MS:
            tuned = replace(policy, fusion_bytes=fusion * MIB, cycle_seconds=cycle * MILLISECOND)
            yield row(replace(scenario, policy=tuned), TUNED_GPUS, ARCH, variant=TUNED)


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
    base = row(on_summit(POLICIES[0]), ranks, ARCH)
    unknown = ("step_seconds", "images_per_second", "efficiency", "communication_seconds", "negotiation_seconds")
    return {
        **base,
        **dict.fromkeys(unknown, np.nan),
        "library": "ring",
        "variant": "ring all-reduce",
        "network": "none",
        "message_steps": float(ring_message_steps(ranks)),
    }


def simulated_rows(rows: Sequence[Row]) -> xr.Dataset:
    """Make a Dataset of simulated rows, each with a key of its own and the provenance of something computed."""
    table = pd.DataFrame(list(rows))
    named = ["variant", "network", "ranks", "switched_off", "bucket_mb", "fusion_threshold_mb", "cycle_time_ms", "arch"]
    table["key"] = [_key(json.dumps({SOURCE: list(values)})) for values in table[named].itertuples(index=False)]
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


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def named(measured: xr.Dataset) -> xr.Dataset:
    """Give measured runs the words that simulated rows have: library, network, and that nothing was switched off.

    On GPUs that is NCCL under either library: `launch` starts no Horovod there that was built without it. Peak memory
    is left out, as a simulated step has none.
    """
    libraries, kinds = (measured[name].to_numpy().tolist() for name in ("library", "device_kind"))
    hosts = measured["hosts"].to_numpy()
    words = {
        "variant": [_NAMES[library] for library in libraries],
        "network": np.where(hosts > 1, "links", ["loopback" if kind == "cpu" else "NCCL" for kind in kinds]),
        "switched_off": ["none"] * len(kinds),
    }
    columns = {name: ("run", np.array(values)) for name, values in words.items()}
    return results.describe(measured.drop_vars("peak_memory_bytes", errors="ignore").assign(columns))
