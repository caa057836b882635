"""What each experiment runs at each scale: a slug and a scale give a list of configs.

``paper`` is the study's own grid (on CIFAR-10, or for communication on random images of its shape), ``demo`` the same
question on scikit-learn's digits with small networks.
Keyword arguments narrow or change a grid, by the names of the notebooks' parameters.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dolb.profiling.config import LIBRARIES, ScalingConfig, strong, weak
from dolb.training.config import RunConfig

SCALES = ("published", "demo", "paper")

# The study reports neither; these are the usual values, the same for every run.
MOMENTUM, WEIGHT_DECAY = 0.9, 5e-4

BATCH_SIZES = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 20480)
RATES = (0.003, 0.01, 0.03, 0.1)
DISTRIBUTED_FROM = 256  # from here on a batch is the work of eight workers
WORKERS = 8


@dataclass(frozen=True)
class _Curves:
    """What is run of one network: its rates, its batch sizes, and its seeds where the batch is distributed."""

    lrs: tuple[float, ...]
    batch_sizes: tuple[int, ...]
    distributed_seeds: tuple[int, ...] = (0,)


# In the order in which a sweep makes them. The deepest start at a larger batch: there a run takes longest.
_NETWORKS = {
    "paper": {
        "resnet18": _Curves(RATES, BATCH_SIZES, (0, 1)),
        "resnet50": _Curves(RATES, BATCH_SIZES),
        "resnet152": _Curves(RATES[1:], BATCH_SIZES[3:]),
        "resnet34": _Curves(RATES[1:], BATCH_SIZES),
        "resnet101": _Curves(RATES[1:], BATCH_SIZES[3:]),
    },
    "demo": {arch: _Curves((0.01, 0.1, 0.5), (16, 64, 256, 1024, 1437)) for arch in ("smallnet-4", "smallnet-8")},
}
# Batch norm is studied with the first network at one rate, over ever smaller shares of one batch. The paper's data set
# is a multiple of that batch: a rest would be dealt to the same workers, in shares of very few examples.
_ONE_RATE = {"paper": 0.03, "demo": 0.1}
_SHARED_BATCH = {"paper": 400, "demo": 256}
_SHARES = {"paper": (1, 5, 10, 25, 50, 100, 200), "demo": (1, 4, 8, 16)}
_SHARE_SEEDS = {"paper": (0, 1, 2), "demo": (0,)}


def batch_size(
    scale: str,
    *,
    part: str = "all",
    archs: Sequence[str] | None = None,
    batch_sizes: Sequence[int] | None = None,
    lrs: Sequence[float] | None = None,
    seeds: Sequence[int] | None = None,
    epochs: int | None = None,
) -> list[RunConfig]:
    """Accuracy against batch size, by network and rate: constant rate, no warmup, a fixed number of epochs.

    ``part`` is ``curve`` for that grid, where the batch is one worker's below a size and eight workers' from there on;
    ``statistics`` for one network at one rate with one worker's batch norm at the distributed sizes, which shows what
    the eight workers' statistics do; ``shares`` for batch norm over ever smaller shares of one batch, which shows what
    noisy statistics do while the gradient's batch stays; or ``all``, network by network.

    Arguments narrow the grid, and may go beyond it: networks that are named are run with the rates and sizes that are
    given; without names, a rate or size of the study is run with the networks that have it in the study, and another
    one with all. The last two parts keep their network and rate; arguments can only leave them out.
    """
    networks = _NETWORKS[scale]
    whole = _Curves(
        tuple({lr for own in networks.values() for lr in own.lrs}),
        tuple({size for own in networks.values() for size in own.batch_sizes}),
    )
    make = _digits_run if scale == "demo" else _cifar10_run
    first, rate = next(iter(networks)), _ONE_RATE[scale]
    apart = _within(first, archs) and _within(rate, lrs)
    parts = {
        "curve": [
            make(arch=arch, lr=lr, batch_size=size, seed=seed, bn_workers=WORKERS if distributed else 1)
            for arch in archs or networks
            for own in [networks.get(arch, whole)]
            for lr in _asked(lrs, own.lrs, () if archs else whole.lrs)
            for size in _asked(batch_sizes, own.batch_sizes, () if archs else whole.batch_sizes)
            for distributed in [size >= DISTRIBUTED_FROM]
            for seed in seeds or (own.distributed_seeds if distributed else (0,))
        ],
        "statistics": [
            make(arch=first, lr=rate, batch_size=size, seed=seed, bn_workers=1)
            for size in networks[first].batch_sizes
            for seed in seeds or networks[first].distributed_seeds
            if apart and size >= DISTRIBUTED_FROM and _within(size, batch_sizes)
        ],
        "shares": [
            make(arch=first, lr=rate, batch_size=_SHARED_BATCH[scale], seed=seed, bn_workers=workers)
            for workers in _SHARES[scale]
            for seed in seeds or _SHARE_SEEDS[scale]
            if apart and _within(_SHARED_BATCH[scale], batch_sizes)
        ],
    }
    if part not in (*parts, "all"):
        raise ValueError(f"part {part!r} is not known; accepted: all, {', '.join(parts)}")
    chosen = [run for name, runs in parts.items() if part in (name, "all") for run in runs]
    order = list(archs or networks)
    chosen.sort(key=lambda run: order.index(run.arch))  # a stable sort: within a network, part after part
    if epochs is not None:
        chosen = [RunConfig(**run.as_dict() | {"epochs": epochs}) for run in chosen]
    return list({run.key: run for run in chosen}.values())


def _asked(values: Sequence | None, own: Sequence, whole: Sequence) -> Sequence:
    """Return the network's own values or those asked for, less those that the whole study has and this network not."""
    return own if values is None else [value for value in values if value in own or value not in whole]


def _within(value: object, wanted: Sequence | None) -> bool:
    return wanted is None or value in wanted


def _digits_run(*, arch: str, lr: float, batch_size: int, seed: int, bn_workers: int) -> RunConfig:
    return RunConfig(
        experiment="batch-size", data="digits", arch=arch, lr=lr, batch_size=batch_size, seed=seed, epochs=6,
        bn_workers=bn_workers, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY,
    )  # fmt: skip


def _cifar10_run(*, arch: str, lr: float, batch_size: int, seed: int, bn_workers: int) -> RunConfig:
    return RunConfig(
        experiment="batch-size", data="cifar10", arch=arch, lr=lr, batch_size=batch_size, seed=seed, epochs=50,
        bn_workers=bn_workers, precision="bf16", momentum=MOMENTUM, weight_decay=WEIGHT_DECAY,
    )  # fmt: skip


# -- communication -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Scaling:
    """What is measured of communication: networks, of which some by strong scaling too, ranks, and settings to tune."""

    archs: tuple[str, ...]
    strong_archs: tuple[str, ...]
    tuned_arch: str
    ranks: tuple[int, ...]
    repeats: int
    same: Mapping[str, Any]
    fusion_thresholds_mb: tuple[float, ...]
    cycle_times_ms: tuple[float, ...]
    buckets_mb: tuple[float, ...]


# Batches are small, so that communication weighs as it does on GPUs, whose arithmetic is faster and links slower.
_BATCH_PER_RANK, _STRONG_BATCH = 16, 64
_SCALING = {
    "paper": _Scaling(
        archs=("smallnet-8", "resnet18", "resnet50", "vgg11"),
        strong_archs=("smallnet-8", "resnet18"),
        tuned_arch="resnet18",
        ranks=(1, 2, 4, 8, 16),
        repeats=3,
        same={"steps": 8, "warmup_steps": 2},
        fusion_thresholds_mb=(1.0, 128.0),
        cycle_times_ms=(1.0, 5.0, 25.0),
        buckets_mb=(1.0, 25.0, 100.0),
    ),
    "demo": _Scaling(
        archs=("smallnet-8",),
        strong_archs=(),
        tuned_arch="smallnet-8",
        ranks=(1, 2),
        repeats=2,
        same={"steps": 8, "warmup_steps": 2, "data": "digits"},
        fusion_thresholds_mb=(128.0,),
        cycle_times_ms=(1.0, 25.0),
        buckets_mb=(25.0,),
    ),
}
_PARTS = ("weak", "strong", "tuning")


def ddp_vs_horovod(
    scale: str,
    *,
    part: str = "all",
    archs: Sequence[str] | None = None,
    ranks: Sequence[int] | None = None,
    repeats: int | None = None,
    steps: int | None = None,
) -> list[ScalingConfig]:
    """Throughput of training under both libraries by number of ranks, repeated.

    A repetition is made whole before the next, so that runs that are compared lie close in time. ``part`` is ``weak``
    (the batch of a rank stays), ``strong`` (the global batch stays), ``tuning`` (bucket size, fusion threshold and
    cycle time of one network on the most ranks), or ``all``. Networks, ranks and repetitions that are named may go
    beyond the grid: every part is then made of them.
    """
    if part not in ("all", *_PARTS):
        raise ValueError(f"part {part!r} is not known; accepted: all, {', '.join(_PARTS)}")
    grid = _SCALING[scale]
    counts = sorted(ranks or grid.ranks)
    same = {**grid.same, "experiment": "ddp-vs-horovod", **({} if steps is None else {"steps": steps})}
    made: list[ScalingConfig] = []
    for repeat in range(repeats or grid.repeats):
        again = {**same, "repeat": repeat}
        for arch in (archs or grid.archs) if part in ("weak", "all") else ():
            for library in LIBRARIES:
                made += weak(counts, _BATCH_PER_RANK, arch=arch, library=library, **again)
        for arch in (archs or grid.strong_archs) if part in ("strong", "all") else ():
            for library in LIBRARIES:
                made += strong(counts, _STRONG_BATCH, arch=arch, library=library, **again)
        if part in ("tuning", "all"):
            arch = grid.tuned_arch if archs is None or grid.tuned_arch in archs else archs[0]
            for settings in _tuned(grid):
                made += weak([counts[-1]], _BATCH_PER_RANK, arch=arch, **settings, **again)
    return list({run.key: run for run in made}.values())


def _tuned(grid: _Scaling) -> list[dict[str, Any]]:
    """Return the settings of claim G21, and of DDP its counterpart; the libraries' defaults are among them."""
    horovod = [
        {"library": "horovod", "fusion_threshold_mb": size, "cycle_time_ms": time}
        for size in grid.fusion_thresholds_mb
        for time in grid.cycle_times_ms
    ]
    return [*horovod, *({"library": "ddp", "bucket_mb": size} for size in grid.buckets_mb)]


def step_timeline(
    scale: str, *, archs: Sequence[str] | None = None, ranks: Sequence[int] | None = None, repeats: int | None = None
) -> list[ScalingConfig]:
    """A few traced steps of one network on two ranks under both libraries, repeated.

    DDP's buckets are small enough that a step has several of them even where the network is small.
    """
    changes: dict[str, Any] = {"data": "digits"} if scale == "demo" else {}
    return [
        ScalingConfig(
            experiment="step-timeline", library=library, ranks=count, arch=arch, steps=1, warmup_steps=2,
            trace_steps=3, bucket_mb=0.02 if arch.startswith("smallnet") else 25.0, repeat=repeat,
            **changes,
        )
        for repeat in range(repeats or (1 if changes else 5))
        for arch in archs or ("smallnet-8",)
        for count in ranks or (2,)
        for library in LIBRARIES
    ]  # fmt: skip


RECIPES: dict[str, Callable[..., list[Any]]] = {
    "batch-size": batch_size,
    "ddp-vs-horovod": ddp_vs_horovod,
    "step-timeline": step_timeline,
}


def require(slug: str) -> Callable[..., list[Any]]:
    """Return the recipe of that slug, or raise a ``ValueError`` that lists what there is."""
    if slug not in RECIPES:
        close = difflib.get_close_matches(slug, RECIPES, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"experiment {slug!r} is not known{hint}; accepted: {', '.join(RECIPES)}")
    return RECIPES[slug]


def configs(slug: str, scale: str, **changes: object) -> list[Any]:
    """Return the runs of an experiment; ``published`` means those of ``paper``, and a change of None means as it is."""
    if scale not in SCALES:
        raise ValueError(f"scale {scale!r} is not known; accepted: {', '.join(SCALES)}")
    paper_or_demo = "demo" if scale == "demo" else "paper"
    return require(slug)(paper_or_demo, **{name: value for name, value in changes.items() if value is not None})
