"""The simulated half of the comparison as results: rows of a scaling table, marked simulated.

Curves of both libraries on Summit with a band for what is not known, Horovod with one mechanism off at a time, Horovod
tuned at the number of GPUs at which the study tuned it, and the steps of a ring all-reduce, counted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr

from dolb import results
from dolb.profiling.config import ScalingConfig
from dolb.profiling.simulator import network, scaling, tensors
from dolb.profiling.simulator.libraries import DDP, MIB, MILLISECOND, Horovod, Policy, horovod
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


def on_summit(
    policy: Policy, arch: str = ARCH, batch_per_rank: int = BATCH_PER_RANK, profile: tensors.Tensors | None = None
) -> Scenario:
    """Return training on Summit's V100 GPUs, at their published speed; ``profile`` as in `tensors.v100`.

    The spread of compute times is what published points of other machines ask for; bandwidth is the assumed share of
    the peak, which these points do not tell.
    """
    step = tensors.v100(arch, batch_per_rank, profile=profile)
    return Scenario(step, network.preset("summit"), policy, batch_per_rank, jitter=scaling.FITTED_JITTER)


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
    drawn = scaling.draw(scenarios, counts, draws=draws)
    band, bends = scaling.band(drawn).set_index(["library", "ranks"]), scaling.bends(drawn)
    ddp = POLICIES[0].name
    for name, scenario in scenarios.items():
        ahead, lead = scaling.wins(drawn, ddp, name), scaling.leads(drawn, ddp, name)
        for ranks in counts:
            compared = name != ddp and ranks > 1
            yield row(
                scenario,
                ranks,
                ARCH,
                efficiency_low=band.loc[(name, ranks), "low"],
                efficiency_high=band.loc[(name, ranks), "high"],
                bend_low=bends.loc[name, "low"],
                bend_high=bends.loc[name, "high"],
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

    On GPUs that is NCCL under either library: `workers` starts no Horovod there that was built without it. Peak memory
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
