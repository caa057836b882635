"""The runs of the batch-size study, and like ones whose batch divides the data evenly."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dolb.recipes.asked import Asked, chosen, recipe
from dolb.training.config import NoiseScaleConfig, RunConfig

# The study reports neither; these are the usual values, the same for every run.
MOMENTUM, WEIGHT_DECAY = 0.9, 5e-4

BATCH_SIZES = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 20480)
RATES = (0.003, 0.01, 0.03, 0.1, 0.3)  # two decades; some networks have those in the middle alone
DISTRIBUTED_FROM = 256  # from here on a batch is the work of eight workers
WORKERS = 8


@dataclass(frozen=True)
class _Curves:
    """What is run of one network: its rates, its batch sizes, and its seeds where the batch is distributed.

    Cells whose interval over the usual seeds is the widest have more of them, and so have some that dropped late.
    """

    lrs: tuple[float, ...]
    batch_sizes: tuple[int, ...]
    distributed_seeds: tuple[int, ...] = (0,)
    more_seeds: Mapping[tuple[float, int], Sequence[int]] = field(default_factory=dict)  # of a rate and batch size

    def seeds(self, lr: float, batch_size: int) -> Sequence[int]:
        """Return the seeds of a cell."""
        usual = self.distributed_seeds if batch_size >= DISTRIBUTED_FROM else (0,)
        return self.more_seeds.get((lr, batch_size), usual)


# How a curve falls is read from its end, so every network has three seeds there.
_ENDS = {(lr, size): range(3) for lr in RATES[1:-1] for size in BATCH_SIZES[-3:]}
_MORE_SEEDS: dict[str, dict[tuple[float, int], range]] = {
    "resnet18": {
        **_ENDS,
        **{(0.1, size): range(8) for size in (8192, 16384, 20480)},
        **{(0.3, size): range(6) for size in (8192, 16384)},
        (0.1, 16): range(2),
    },
    "resnet34": {**_ENDS, (0.1, 16): range(2)},
    "resnet50": {**_ENDS, **{(0.3, size): range(2) for size in (64, 2048, 4096, 8192, 16384, 20480)}},
    "resnet101": {**_ENDS, **{(lr, 128): range(2) for lr in (0.01, 0.03)}},
    "resnet152": {**_ENDS, **{(lr, size): range(2) for lr, size in ((0.03, 256), (0.1, 512))}},
}
# In the order in which a sweep makes them. The deepest start at a larger batch: there a run takes longest.
_NETWORKS = {
    "paper": {
        "resnet18": _Curves(RATES, BATCH_SIZES, (0, 1), _MORE_SEEDS["resnet18"]),
        "resnet50": _Curves(RATES, BATCH_SIZES, more_seeds=_MORE_SEEDS["resnet50"]),
        "resnet152": _Curves(RATES[1:-1], BATCH_SIZES[3:], more_seeds=_MORE_SEEDS["resnet152"]),
        "resnet34": _Curves(RATES[1:-1], BATCH_SIZES, more_seeds=_MORE_SEEDS["resnet34"]),
        "resnet101": _Curves(RATES[1:-1], BATCH_SIZES[3:], more_seeds=_MORE_SEEDS["resnet101"]),
    },
    "demo": {arch: _Curves((0.01, 0.1, 0.5), (16, 64, 256, 1024)) for arch in ("smallnet-4", "smallnet-8")},
}
# Batch norm is studied with the first network at one rate, over ever smaller shares of one batch. The paper's data set
# is a multiple of that batch: a last partial batch would be dealt to the same workers, a few examples each.
_ONE_RATE = {"paper": 0.03, "demo": 0.1}
# With deeper networks only where shares are smallest: from one worker's batch to eight workers' the curves have a seam.
_SEAM = {"paper": {"resnet50": (256, 512), "resnet152": (256, 512)}, "demo": {}}
_SHARED_BATCH = {"paper": 400, "demo": 256}
_SHARES = {"paper": (1, 5, 10, 25, 50, 100, 200), "demo": (1, 4, 8, 16)}
_SHARE_SEEDS = {"paper": (0, 1, 2), "demo": (0,)}
# A batch that does leave a partial one, which the workers share: what that alone does.
_BATCH_WITH_REST = {"paper": 256, "demo": 64}
_RESTS_SHARED = {"paper": (1, 2, 4, 8, 16, 32, 64, 128), "demo": ()}
# Each is within a tenth of a size of the study that leaves a small partial batch, and divides the data, or nearly.
_EVEN_SIZES: dict[str, dict[str, tuple[int, ...]]] = {
    "paper": {"resnet18": (16667,), "resnet50": (16667,), "resnet152": (250, 16667)},
    "demo": {"smallnet-4": (240,)},
}
_EVEN_SEEDS = {"resnet18": (0, 1)}
_TWO_EACH = {"paper": ((16, 32), (0.003, 0.01, 0.03)), "demo": ((16,), (0.1,))}  # batch sizes and rates
# The noise of the gradient is measured at the largest batch of one worker, near which accuracy is best; images of one
# gradient, and how many of these.
_MEASURED = {"paper": (128, 128), "demo": (64, 32)}
_DEPTHS = {
    "paper": ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"),
    "demo": ("smallnet-4", "smallnet-8"),
}
_COUNTED: dict[str, dict[str, Any]] = {"paper": {}, "demo": {"batch_sizes": (16, 64, 256, 1024), "lrs": (0.1, 0.5)}}
_NOISE_SEEDS = {"resnet18": (0, 1, 2), "resnet34": (0, 1, 2)}


@recipe("part", "archs", "batch_sizes", "lrs", "seeds", "epochs", "data")
def batch_size(scale: str, ask: Asked) -> list[RunConfig]:
    """Accuracy against batch size, by network and rate: constant rate, no warmup, a fixed number of epochs.

    ``part`` is ``curve`` for that grid, where the batch is one worker's below a size and eight workers' from there on;
    ``statistics`` for one network at one rate with one worker's batch norm at the distributed sizes, and for two deeper
    ones at the smallest of these, which shows what the eight workers' statistics do; ``shares`` for batch norm over
    ever smaller shares of one batch, which shows what noisy statistics do while the gradient's batch stays; ``rests``
    for the same with a batch that leaves a partial one; or ``all``, network by network.

    Arguments narrow the grid, and may go beyond it: networks that are named are run with the rates and sizes that are
    given; without names, a rate or size of the study is run with the networks that have it in the study, and another
    one with all. The last three parts keep their networks and rate; arguments can only leave them out.
    """
    networks = _NETWORKS[scale]
    whole = _Curves(
        tuple({lr for own in networks.values() for lr in own.lrs}),
        tuple({size for own in networks.values() for size in own.batch_sizes}),
    )
    make = _digits_run if scale == "demo" else _cifar10_run
    first, rate = next(iter(networks)), _ONE_RATE[scale]
    apart = _within(first, ask.archs) and _within(rate, ask.lrs)
    seams = {arch: sizes for arch, sizes in _SEAM[scale].items() if _within(arch, ask.archs) and _within(rate, ask.lrs)}
    parts = {
        "curve": [
            make(arch=arch, lr=lr, batch_size=size, seed=seed, bn_workers=WORKERS if distributed else 1)
            for arch in ask.archs or networks
            for own in [networks.get(arch, whole)]
            for lr in asked(ask.lrs, own.lrs, () if ask.archs else whole.lrs)
            for size in asked(ask.batch_sizes, own.batch_sizes, () if ask.archs else whole.batch_sizes)
            for distributed in [size >= DISTRIBUTED_FROM]
            for seed in ask.seeds or own.seeds(lr, size)
        ],
        "statistics": [
            make(arch=first, lr=rate, batch_size=size, seed=seed, bn_workers=1)
            for size in networks[first].batch_sizes
            for seed in ask.seeds or networks[first].distributed_seeds
            if apart and size >= DISTRIBUTED_FROM and _within(size, ask.batch_sizes)
        ]
        + [
            make(arch=arch, lr=rate, batch_size=size, seed=seed, bn_workers=1)
            for arch, sizes in seams.items()
            for size in sizes
            for seed in ask.seeds or networks[arch].distributed_seeds
            if _within(size, ask.batch_sizes)
        ],
    } | {
        name: [
            make(arch=first, lr=rate, batch_size=size, seed=seed, bn_workers=workers)
            for workers in shares[scale]
            for seed in ask.seeds or _SHARE_SEEDS[scale]
            if apart and _within(size, ask.batch_sizes)
        ]
        for name, size, shares in (
            ("shares", _SHARED_BATCH[scale], _SHARES),
            ("rests", _BATCH_WITH_REST[scale], _RESTS_SHARED),
        )
    }
    order = list(ask.archs or networks)
    # A stable sort: within a network, part after part.
    runs = sorted(chosen(parts, ask.part), key=lambda run: order.index(run.arch))
    given = {name: value for name, value in (("epochs", ask.epochs), ("data", ask.data)) if value is not None}
    return list(dict.fromkeys(replace(run, **given) for run in runs))


@recipe("archs", "batch_sizes", "seeds", "epochs", "data")
def even_batches(scale: str, ask: Asked) -> list[RunConfig]:
    """Runs like some of the study's, with eight workers and a batch that divides the data evenly."""
    return [
        RunConfig(**run.as_dict() | {"experiment": "even-batches", "bn_workers": WORKERS})
        for arch, sizes in _EVEN_SIZES[scale].items()
        for size in sizes
        if _within(arch, ask.archs) and _within(size, ask.batch_sizes)
        for run in batch_size(
            scale, part="curve", archs=[arch], batch_sizes=[size], lrs=[_ONE_RATE[scale]],
            seeds=ask.seeds or _EVEN_SEEDS.get(arch, (0,)), epochs=ask.epochs, data=ask.data,
        )
    ]  # fmt: skip


@recipe("batch_sizes", "lrs", "seeds", "epochs", "data")
def two_each(scale: str, ask: Asked) -> list[RunConfig]:
    """Runs of the study's smallest batches as workers with two images each have them, who share a gradient alone.

    Of two numbers that bfloat16 rounds to one, batch norm has no variance to divide by; so the first seed also in
    float32.
    """
    (sizes, rates), arch, seeds = _TWO_EACH[scale], next(iter(_NETWORKS[scale])), ask.seeds or _SHARE_SEEDS[scale]
    runs = batch_size(
        scale, part="curve", archs=[arch], batch_sizes=ask.batch_sizes or sizes, lrs=ask.lrs or rates, seeds=seeds,
        epochs=ask.epochs, data=ask.data,
    )  # fmt: skip
    runs = [replace(run, experiment="two-each", bn_workers=max(1, run.batch_size // 2)) for run in runs]
    exact = [replace(run, precision="fp32") for run in runs if run.seed == seeds[0]]
    return list({run.key: run for run in runs + exact}.values())


@recipe("archs", "batch_sizes", "lrs", "seeds", "epochs", "data")
def critical_batch(scale: str, ask: Asked) -> list[NoiseScaleConfig]:
    """Runs of the study during which the noise of the gradient is measured early, halfway and at the end.

    Batch norm takes its statistics over as many images in training as in measuring, so that what is measured is the
    gradient that training follows. A larger batch is therefore the work of more workers.
    """
    share, gradients = _MEASURED[scale]
    runs = [
        run
        for arch in ask.archs or _DEPTHS[scale]
        for run in batch_size(
            scale, part="curve", archs=[arch], batch_sizes=ask.batch_sizes or [share],
            lrs=ask.lrs or [_ONE_RATE[scale]], seeds=ask.seeds or _NOISE_SEEDS.get(arch, (0,)), epochs=ask.epochs,
            data=ask.data,
        )
    ]  # fmt: skip
    return [
        NoiseScaleConfig(
            **run.as_dict()
            | {"experiment": "critical-batch", "bn_workers": max(1, run.batch_size // share)}
            | {"small_batch": share, "measured_batches": gradients, "measured_after": _phases(run.epochs)}
        )
        for run in runs
    ]


@recipe("archs", "seeds", "epochs", "data")
def trade_off(scale: str, ask: Asked) -> list[RunConfig]:
    """Runs of the study by which the updates to a training loss are counted: its curves, of the demo's a part."""
    return batch_size(
        scale, part="curve", archs=ask.archs, seeds=ask.seeds, epochs=ask.epochs, data=ask.data, **_COUNTED[scale]
    )


def _phases(epochs: int) -> str:
    """Return the epochs after which the noise is measured: 2, 15 and 50 of 50, and in proportion of others."""
    return ",".join(map(str, sorted({max(1, round(share * epochs)) for share in (0.04, 0.3, 1.0)})))


def asked(values: Sequence | None, own: Sequence, whole: Sequence) -> Sequence:
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
