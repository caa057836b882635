"""What each experiment runs at each scale: a slug and a scale give a list of configs.

``paper`` is the study's own grid on CIFAR-10, ``demo`` the same question on scikit-learn's digits with small networks.
Keyword arguments narrow or change a grid, by the names of the notebooks' parameters.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from itertools import product

from dolb.training.config import RunConfig

SCALES = ("published", "demo", "paper")

# Momentum and weight decay are not reported by the study; these are the common ones, and the same at both scales.
MOMENTUM, WEIGHT_DECAY = 0.9, 5e-4

BATCH_SIZES = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 20480)


def batch_size(
    scale: str,
    *,
    archs: Sequence[str] | None = None,
    batch_sizes: Sequence[int] | None = None,
    lrs: Sequence[float] | None = None,
    seeds: Sequence[int] | None = None,
    epochs: int | None = None,
) -> list[RunConfig]:
    """Accuracy against batch size, by network and rate: constant rate, no warmup, a fixed number of epochs."""
    if scale == "demo":
        grid = product(
            archs or ("smallnet-4", "smallnet-8"),
            lrs or (0.01, 0.1, 0.5),
            batch_sizes or (8, 32, 128, 512, 1437),
            seeds or (0,),
        )
        return [
            RunConfig(
                experiment="batch-size", data="digits", arch=arch, lr=lr, batch_size=size, seed=seed,
                epochs=epochs or 8, bn_workers=8 if size >= 128 else 1, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY,
            )
            for arch, lr, size, seed in grid
        ]  # fmt: skip
    runs = [
        _cifar10(arch, lr, size, seed, epochs or 50, bn_workers=8 if size >= 256 else 1)
        for arch, lr, size, seed in product(
            archs or ("resnet18",), lrs or (0.003, 0.01, 0.03, 0.1, 0.3), batch_sizes or BATCH_SIZES, seeds or (0,)
        )
    ]
    return runs + _shares(archs, batch_sizes, lrs, seeds, epochs or 50)


def _cifar10(arch: str, lr: float, size: int, seed: int, epochs: int, bn_workers: int) -> RunConfig:
    return RunConfig(
        experiment="batch-size", data="cifar10", arch=arch, lr=lr, batch_size=size, seed=seed, epochs=epochs,
        bn_workers=bn_workers, precision="bf16", momentum=MOMENTUM, weight_decay=WEIGHT_DECAY,
    )  # fmt: skip


def _shares(
    archs: Sequence[str] | None,
    batch_sizes: Sequence[int] | None,
    lrs: Sequence[float] | None,
    seeds: Sequence[int] | None,
    epochs: int,
) -> list[RunConfig]:
    """Batch norm over ever smaller shares of one batch: what noisy statistics do while the gradient's batch stays."""
    size, lr = 256, 0.03
    if "resnet18" not in (archs or ("resnet18",)) or size not in (batch_sizes or (size,)) or lr not in (lrs or (lr,)):
        return []
    return [
        _cifar10("resnet18", lr, size, seed, epochs, bn_workers=workers)
        for workers, seed in product((1, 2, 4, 16, 32, 64, 128), seeds or (0, 1, 2))
    ] + [_cifar10("resnet18", lr, size, seed, epochs, bn_workers=8) for seed in seeds or (1, 2)]


RECIPES: dict[str, Callable[..., list[RunConfig]]] = {"batch-size": batch_size}


def require(slug: str) -> Callable[..., list[RunConfig]]:
    """Return the recipe of that slug, or raise a ``ValueError`` that lists what there is."""
    if slug not in RECIPES:
        close = difflib.get_close_matches(slug, RECIPES, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"experiment {slug!r} is not known{hint}; accepted: {', '.join(RECIPES)}")
    return RECIPES[slug]


def configs(slug: str, scale: str, **changes: object) -> list[RunConfig]:
    """Return the runs of an experiment at ``demo`` or ``paper`` scale; ``None`` among the changes means as it is."""
    if scale not in ("demo", "paper"):
        raise ValueError(f"scale {scale!r} has no runs; accepted: demo, paper")
    return require(slug)(scale, **{name: value for name, value in changes.items() if value is not None})
