"""The measurements of communication: both libraries by number of ranks, and traced steps."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from dolb.config import require_known
from dolb.profiling.config import LIBRARIES, SYNTHETIC, ScalingConfig, strong, weak
from dolb.recipes.asked import Asked, recipe


@dataclass(frozen=True)
class _Scaling:
    """What is measured of communication: networks, of which some by strong scaling too, ranks, settings, and links."""

    data: str
    archs: tuple[str, ...]
    strong_archs: tuple[str, ...]
    ranks: tuple[int, ...]
    repeats: int
    few_repeats: int  # of settings, and of one rank under a library, which says what that costs without others
    steps: Mapping[str, tuple[int, int]]  # of each network, and of one rank without a library, before and again after
    tuned: tuple[str, int]  # the network and the ranks of these settings
    fusion_thresholds_mb: tuple[float, ...]
    cycle_times_ms: tuple[float, ...]
    buckets_mb: tuple[float, ...]
    links_archs: tuple[str, ...]
    links_steps: int
    links_repeats: int
    hosts: tuple[int, ...]
    links_mbit: tuple[float, ...]


# Batches are small, so that communication weighs as it does on GPUs, whose arithmetic is faster and links slower.
_BATCH_PER_RANK, _STRONG_BATCH = {"cpu": 16, "cuda": 128}, {"cpu": 64, "cuda": 512}
_GPU_STEPS = (40, 20)  # of every network, and before they count
_SCALING = {
    "paper": _Scaling(
        data=SYNTHETIC, archs=("smallnet-8", "resnet18", "resnet50", "vgg11"),
        strong_archs=("smallnet-8", "resnet18", "resnet50", "vgg11"), ranks=(1, 2, 4, 8, 16), repeats=3, few_repeats=3,
        # Steps of one launch differ by a tenth (VGG-11: by 3%), launches by as much and more: few steps do.
        steps={"smallnet-8": (30, 15), "resnet18": (10, 4), "resnet50": (6, 2), "vgg11": (3, 1)},
        tuned=("resnet18", 8), fusion_thresholds_mb=(1.0, 128.0), cycle_times_ms=(1.0, 5.0, 25.0),
        buckets_mb=(1.0, 25.0, 100.0), links_archs=("resnet18", "vgg11"), links_steps=4, links_repeats=2,
        hosts=(2, 4, 8), links_mbit=(100.0, 1000.0, 10_000.0, math.inf),
    ),
    "demo": _Scaling(
        data="digits", archs=("smallnet-8",), strong_archs=(), ranks=(1, 2), repeats=2, few_repeats=1,
        steps={"smallnet-8": (8, 8)}, tuned=("smallnet-8", 2), fusion_thresholds_mb=(128.0,),
        cycle_times_ms=(1.0, 25.0), buckets_mb=(25.0,), links_archs=("smallnet-8",), links_steps=8, links_repeats=1,
        hosts=(2,), links_mbit=(20.0, math.inf),
    ),
}  # fmt: skip
_PARTS = ("weak", "strong", "tuning")
LINKS = "links"  # not among `all`: it needs root
_USUAL_STEPS = (10, 4)  # of a network beyond the grid
# VGG-11 has 129 million parameters: on eight hosts 100 Mbit/s would make a minute of every step.
_LEAST_MBIT = {"vgg11": 1000.0}


@recipe("part", "archs", "ranks", "repeats", "steps", "nodes", "device", libraries=LIBRARIES)
def ddp_vs_horovod(scale: str, ask: Asked) -> list[ScalingConfig]:
    """Throughput of training under DDP and Horovod, by number of ranks.

    A repetition is made whole before the next, so that runs that are compared lie close in time. Each is compared with
    one rank that trains without a library, measured by the same processes. ``part`` is ``weak`` (the batch of a rank
    stays), ``strong`` (the global batch stays), ``tuning`` (bucket size, fusion threshold and cycle time of one network
    on one number of ranks), or ``all`` for these; and ``links`` (every rank on a host of its own, over links of several
    rates), which is not among ``all`` as it needs root. Networks, ranks and repetitions that are named may go beyond
    the grid: every part is then made of them. On several ``nodes``, machines of a Slurm job, it is made of the numbers
    of ranks that they can share equally. With ``device`` cuda each rank has a GPU, larger batches and more steps.
    """
    require_known("part", ask.part, ("all", *_PARTS, LINKS))
    grid = _SCALING[scale]
    every = sorted(ask.ranks or grid.ranks)
    kind = "cuda" if ask.device.startswith("cuda") else "cpu"
    share, whole = _BATCH_PER_RANK[kind], _STRONG_BATCH[kind]
    same = {"experiment": "ddp-vs-horovod", "data": grid.data, "device_kind": kind, "pinned": kind == "cpu"}
    same["warmup_steps"] = 2 if kind == "cpu" else _GPU_STEPS[1]
    made: list[ScalingConfig] = []

    def of(arch: str, usual: int | None = None) -> dict[str, Any]:
        own, alone = grid.steps.get(arch, _USUAL_STEPS) if kind == "cpu" else (_GPU_STEPS[0], _GPU_STEPS[0])
        return {**same, "arch": arch, "steps": ask.steps or usual or own, "alone_steps": alone, "repeat": repeat}

    for repeat in range(ask.repeats or grid.repeats):
        counts = [count for count in every if count > 1 or repeat < (ask.repeats or grid.few_repeats)]
        for arch, library in product((ask.archs or grid.archs) if ask.part in ("weak", "all") else (), ask.libraries):
            made += weak(counts, share, library=library, **of(arch))
        for arch, library in product(
            (ask.archs or grid.strong_archs) if ask.part in ("strong", "all") else (), ask.libraries
        ):
            made += _strong(counts, share, whole, library=library, **of(arch))
        if ask.part in ("tuning", "all") and repeat < (ask.repeats or grid.few_repeats):
            arch, most = grid.tuned
            arch = arch if ask.archs is None or arch in ask.archs else ask.archs[0]
            for settings in (one for one in _settings(grid) if one["library"] in ask.libraries):
                made += weak([min(most, every[-1])], share, **settings, **of(arch))
        if ask.part == LINKS and repeat < (ask.repeats or grid.links_repeats):
            hosts = [count for count in ask.ranks or grid.hosts if count > 1]
            for arch in ask.archs or grid.links_archs:
                for library in ask.libraries:
                    made += weak([1], share, library=library, **of(arch))
                rates = [rate for rate in grid.links_mbit if rate >= _LEAST_MBIT.get(arch, 0.0)]
                for count, rate, library in product(hosts, rates, ask.libraries):  # libraries that are compared in turn
                    where = {"library": library, "hosts": count, "link_mbit": rate}
                    made += weak([count], share, **where, **of(arch, grid.links_steps))
    return list({run.key: run for run in _on_nodes(made, ask.nodes)}.values())


def _on_nodes(runs: Sequence[ScalingConfig], nodes: int) -> list[ScalingConfig]:
    """Return those runs whose ranks machines can share equally, on so many of them."""
    if nodes == 1:
        return list(runs)
    if dealt := [replace(run, nodes=nodes) for run in runs if run.ranks % nodes == 0 and run.hosts == 1]:
        return dealt
    raise ValueError(f"no number of ranks can be dealt equally to {nodes} nodes; name some by --ranks")


def _strong(counts: Sequence[int], share: int, whole: int, **same: Any) -> list[ScalingConfig]:
    """Return runs of one global batch; where weak scaling has the same, one run is for both and is called weak."""
    runs = strong(counts, whole, **same)
    return [replace(run, scaling="weak") if run.batch_size_per_rank == share else run for run in runs]


def _settings(grid: _Scaling) -> list[dict[str, Any]]:
    """Return the settings of claim G21, and of DDP its counterpart; the libraries' defaults are among them."""
    horovod = [
        {"library": "horovod", "fusion_threshold_mb": size, "cycle_time_ms": time}
        for size, time in product(grid.fusion_thresholds_mb, grid.cycle_times_ms)
    ]
    return [*horovod, *({"library": "ddp", "bucket_mb": size} for size in grid.buckets_mb)]


@recipe("archs", "ranks", "repeats", libraries=LIBRARIES)
def step_timeline(scale: str, ask: Asked) -> list[ScalingConfig]:
    """A few traced steps of one network on a few ranks under DDP and Horovod.

    DDP's buckets are small enough that a step has several of them even where the network is small.
    """
    few: dict[str, Any] = {"data": "digits"} if scale == "demo" else {"pinned": True}
    arch_of, ranks_of, times = ("smallnet-8", 2, 1) if scale == "demo" else ("resnet18", 4, 5)
    return [
        ScalingConfig(
            experiment="step-timeline", library=library, ranks=count, arch=arch, steps=1, warmup_steps=2,
            trace_steps=3, bucket_mb=0.02 if arch.startswith("smallnet") else 25.0, repeat=repeat,
            **few,
        )
        for repeat in range(ask.repeats or times)
        for arch in ask.archs or (arch_of,)
        for count in ask.ranks or (ranks_of,)
        for library in ask.libraries
    ]  # fmt: skip
