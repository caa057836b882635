"""The measurements of communication: both libraries by number of ranks, and traced steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from dolb.profiling.config import LIBRARIES, ScalingConfig, strong, weak


@dataclass(frozen=True)
class _Scaling:
    """What is measured of communication: networks, of which some by strong scaling too, ranks, settings, and links."""

    archs: tuple[str, ...]
    strong_archs: tuple[str, ...]
    tuned_arch: str
    tuned_ranks: int
    ranks: tuple[int, ...]
    repeats: int
    same: Mapping[str, Any]
    steps: Mapping[str, int]  # of each network, so that a measurement of any takes some seconds
    alone_steps: Mapping[str, int]  # of one rank without a library, before and again after
    links_steps: int
    links_repeats: int
    tuned_repeats: int
    one_rank_repeats: int  # of one rank under a library, which says what that costs without anybody to talk to
    fusion_thresholds_mb: tuple[float, ...]
    cycle_times_ms: tuple[float, ...]
    buckets_mb: tuple[float, ...]
    links_archs: tuple[str, ...]
    hosts: tuple[int, ...]
    links_mbit: tuple[float, ...]


# Batches are small, so that communication weighs as it does on GPUs, whose arithmetic is faster and links slower.
_BATCH_PER_RANK, _STRONG_BATCH = 16, 64
_SCALING = {
    "paper": _Scaling(
        archs=("smallnet-8", "resnet18", "resnet50", "vgg11"),
        strong_archs=("smallnet-8", "resnet18", "resnet50", "vgg11"),
        tuned_arch="resnet18",
        tuned_ranks=8,
        ranks=(1, 2, 4, 8, 16),
        repeats=3,
        same={"warmup_steps": 2},
        # Steps of one launch differ by a tenth (VGG-11: by 3%), launches by as much and more: few steps do.
        steps={"smallnet-8": 30, "resnet18": 10, "resnet50": 6, "vgg11": 3},
        alone_steps={"smallnet-8": 15, "resnet18": 4, "resnet50": 2, "vgg11": 1},
        links_steps=4,
        links_repeats=2,
        tuned_repeats=3,
        one_rank_repeats=3,
        fusion_thresholds_mb=(1.0, 128.0),
        cycle_times_ms=(1.0, 5.0, 25.0),
        buckets_mb=(1.0, 25.0, 100.0),
        links_archs=("resnet18", "vgg11"),
        hosts=(2, 4, 8),
        links_mbit=(100.0, 1000.0, 10_000.0, math.inf),
    ),
    "demo": _Scaling(
        archs=("smallnet-8",),
        strong_archs=(),
        tuned_arch="smallnet-8",
        tuned_ranks=2,
        ranks=(1, 2),
        repeats=2,
        same={"warmup_steps": 2, "data": "digits"},
        steps={"smallnet-8": 8},
        alone_steps={"smallnet-8": 8},
        links_steps=8,
        links_repeats=1,
        tuned_repeats=1,
        one_rank_repeats=1,
        fusion_thresholds_mb=(128.0,),
        cycle_times_ms=(1.0, 25.0),
        buckets_mb=(25.0,),
        links_archs=("smallnet-8",),
        hosts=(2,),
        links_mbit=(20.0, math.inf),
    ),
}
_PARTS = ("weak", "strong", "tuning")
LINKS = "links"  # not among `all`: it needs root
DEFAULT_STEPS, DEFAULT_ALONE_STEPS = 10, 4
# VGG-11 has 129 million parameters: on eight hosts 100 Mbit/s would make a minute of every step.
_LEAST_MBIT = {"vgg11": 1000.0}


def ddp_vs_horovod(
    scale: str,
    *,
    part: str = "all",
    archs: Sequence[str] | None = None,
    ranks: Sequence[int] | None = None,
    repeats: int | None = None,
    steps: int | None = None,
    libraries: Sequence[str] = LIBRARIES,
) -> list[ScalingConfig]:
    """Throughput of training under both libraries, or those that are named, by number of ranks, repeated.

    A repetition is made whole before the next, so that runs that are compared lie close in time. Each is compared with
    one rank that trains without a library, measured by the same processes. Where weak and strong scaling meet, as many
    ranks with the same batch, one run is for both and is called weak. ``part`` is ``weak`` (the batch of
    a rank stays), ``strong`` (the global batch stays), ``tuning`` (bucket size, fusion threshold and cycle time of one
    network on one number of ranks), or ``all`` for these; and ``links`` (every rank on a host of its own, over links of
    several rates), which is not among ``all`` as it needs root. Networks, ranks and repetitions that are named may go
    beyond the grid: every part is then made of them.
    """
    if part not in ("all", *_PARTS, LINKS):
        raise ValueError(f"part {part!r} is not known; accepted: all, {', '.join((*_PARTS, LINKS))}")
    grid = _SCALING[scale]
    every = sorted(ranks or grid.ranks)
    made: list[ScalingConfig] = []

    def long(arch: str, standard: int | None = None) -> dict[str, Any]:
        alone = grid.alone_steps.get(arch, DEFAULT_ALONE_STEPS)
        return {"arch": arch, "steps": steps or standard or grid.steps.get(arch, DEFAULT_STEPS), "alone_steps": alone}

    for repeat in range(repeats or grid.repeats):
        counts = [count for count in every if count > 1 or repeat < (repeats or grid.one_rank_repeats)]
        again = {**grid.same, "experiment": "ddp-vs-horovod", "repeat": repeat, "pinned": True}
        for arch, library in product((archs or grid.archs) if part in ("weak", "all") else (), libraries):
            made += weak(counts, _BATCH_PER_RANK, library=library, **long(arch), **again)
        for arch, library in product((archs or grid.strong_archs) if part in ("strong", "all") else (), libraries):
            made += _strong(counts, library=library, **long(arch), **again)
        if part in ("tuning", "all") and repeat < (repeats or grid.tuned_repeats):
            arch = grid.tuned_arch if archs is None or grid.tuned_arch in archs else archs[0]
            for settings in (one for one in _tuned(grid) if one["library"] in libraries):
                made += weak([min(grid.tuned_ranks, every[-1])], _BATCH_PER_RANK, **settings, **long(arch), **again)
        if part == LINKS and repeat < (repeats or grid.links_repeats):
            hosts = [count for count in ranks or grid.hosts if count > 1]
            for arch in archs or grid.links_archs:
                for library in libraries:
                    made += weak([1], _BATCH_PER_RANK, library=library, **long(arch), **again)
                made += _over_links(libraries, hosts, grid.links_mbit, **long(arch, grid.links_steps), **again)
    return list({run.key: run for run in made}.values())


def _strong(counts: Sequence[int], **same: Any) -> list[ScalingConfig]:
    runs = strong(counts, _STRONG_BATCH, **same)
    return [replace(run, scaling="weak") if run.batch_size_per_rank == _BATCH_PER_RANK else run for run in runs]


def _over_links(
    libraries: Sequence[str], hosts: Sequence[int], links_mbit: Sequence[float], arch: str, **same: Any
) -> Iterator[ScalingConfig]:
    """Yield a rank on each of several hosts at every rate, libraries that are compared in turn."""
    rates = [rate for rate in links_mbit if rate >= _LEAST_MBIT.get(arch, 0.0)]
    for count, rate, library in product(hosts, rates, libraries):
        where = {"hosts": count, "link_mbit": rate}
        yield from weak([count], _BATCH_PER_RANK, arch=arch, library=library, **where, **same)


def _tuned(grid: _Scaling) -> list[dict[str, Any]]:
    """Return the settings of claim G21, and of DDP its counterpart; the libraries' defaults are among them."""
    horovod = [
        {"library": "horovod", "fusion_threshold_mb": size, "cycle_time_ms": time}
        for size in grid.fusion_thresholds_mb
        for time in grid.cycle_times_ms
    ]
    return [*horovod, *({"library": "ddp", "bucket_mb": size} for size in grid.buckets_mb)]


def step_timeline(
    scale: str,
    *,
    archs: Sequence[str] | None = None,
    ranks: Sequence[int] | None = None,
    repeats: int | None = None,
    libraries: Sequence[str] = LIBRARIES,
) -> list[ScalingConfig]:
    """A few traced steps of one network on a few ranks under both libraries, or those that are named, repeated.

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
        for repeat in range(repeats or times)
        for arch in archs or (arch_of,)
        for count in ranks or (ranks_of,)
        for library in libraries
    ]  # fmt: skip
