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

# The study reports neither; these are the usual values, the same for every run.
MOMENTUM, WEIGHT_DECAY = 0.9, 5e-4

BATCH_SIZES = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 20480)
DISTRIBUTED_FROM = 256  # from here on a batch is the work of eight workers


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
    ``shares`` for batch norm over ever smaller shares of one batch, which shows what noisy statistics do while the
    gradient's batch stays; or ``all``. The shares are run with one network at one rate; other arguments can only
    leave them out.
    """
    make = _digits_run if scale == "demo" else _cifar10_run
    parts = {
        "curve": [
            make(arch=arch, lr=lr, batch_size=size, seed=seed, bn_workers=8 if size >= DISTRIBUTED_FROM else 1)
            for arch, lr, size, seed in product(
                archs or (("smallnet-4", "smallnet-8") if scale == "demo" else ("resnet18",)),
                lrs or ((0.01, 0.1, 0.5) if scale == "demo" else (0.003, 0.01, 0.03, 0.1, 0.3)),
                batch_sizes or ((16, 64, 256, 1024, 1437) if scale == "demo" else BATCH_SIZES),
                seeds or (0,),
            )
        ],
        "shares": [
            make(arch=arch, lr=lr, batch_size=DISTRIBUTED_FROM, seed=seed, bn_workers=workers)
            for arch, lr, workers, seed in product(
                ("smallnet-4",) if scale == "demo" else ("resnet18",),
                (0.1,) if scale == "demo" else (0.03,),
                (1, 8, 32, 64) if scale == "demo" else (1, 2, 4, 8, 16, 32, 64, 128),
                seeds or ((0,) if scale == "demo" else (0, 1, 2)),
            )
            if _within(arch, archs) and _within(lr, lrs) and _within(DISTRIBUTED_FROM, batch_sizes)
        ],
    }
    if part not in (*parts, "all"):
        raise ValueError(f"part {part!r} is not known; accepted: all, {', '.join(parts)}")
    chosen = parts.values() if part == "all" else [parts[part]]
    runs = [
        run if epochs is None else RunConfig(**run.as_dict() | {"epochs": epochs}) for runs in chosen for run in runs
    ]
    return list({run.key: run for run in runs}.values())


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


RECIPES: dict[str, Callable[..., list[RunConfig]]] = {"batch-size": batch_size}


def require(slug: str) -> Callable[..., list[RunConfig]]:
    """Return the recipe of that slug, or raise a ``ValueError`` that lists what there is."""
    if slug not in RECIPES:
        close = difflib.get_close_matches(slug, RECIPES, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"experiment {slug!r} is not known{hint}; accepted: {', '.join(RECIPES)}")
    return RECIPES[slug]


def configs(slug: str, scale: str, **changes: object) -> list[RunConfig]:
    """Return the runs of an experiment; ``published`` means those of ``paper``, and a change of None means as it is."""
    if scale not in SCALES:
        raise ValueError(f"scale {scale!r} is not known; accepted: {', '.join(SCALES)}")
    paper_or_demo = "demo" if scale == "demo" else "paper"
    return require(slug)(paper_or_demo, **{name: value for name, value in changes.items() if value is not None})
