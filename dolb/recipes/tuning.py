"""How the recipes of the experiments on filtering were tuned, on full data alone: those of runs and of extractors."""

from __future__ import annotations

from collections.abc import Sequence

from dolb.recipes.filtered import WORKERS
from dolb.recipes.study import STUDIES, tuned_run
from dolb.training.config import RunConfig

# About the rate that was taken at each of the two, which is one of them.
RATES: dict[str, dict[int, tuple[float, ...]]] = {
    "paper": {256: (0.001, 0.003, 0.01, 0.03), 6272: (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4)},
    "demo": {64: (0.05, 0.2), 1024: (0.2, 0.8)},
}
SEEDS = {"paper": (0, 1), "demo": (0,)}
# A batch that divides the images leaves no small rest at the end of an epoch; at one rate also one that does not.
EXTRACTOR_RATES: dict[str, dict[int, tuple[float, ...]]] = {
    "paper": {250: (0.01, 0.03, 0.1), 256: (0.03,)},
    "demo": {64: (0.05, 0.2)},
}


def tuning(
    scale: str,
    *,
    batch_sizes: Sequence[int] | None = None,
    lrs: Sequence[float] | None = None,
    seeds: Sequence[int] | None = None,
    epochs: int | None = None,
) -> list[RunConfig]:
    """Runs of the recipe on full data at other rates than its own, and at its own.

    The larger batch is the work of eight workers, as in the experiment on large batches.
    """
    (small, _), _ = STUDIES[scale].tuned
    return [
        tuned_run(
            scale, "tuning", STUDIES[scale].trained, size, epochs=epochs, lr=lr, seed=seed,
            bn_workers=1 if size == small else WORKERS,
        )
        for size, rates in RATES[scale].items()
        if batch_sizes is None or size in batch_sizes
        for lr in lrs or rates
        for seed in seeds or SEEDS[scale]
    ]  # fmt: skip


def extractor_tuning(
    scale: str, *, lrs: Sequence[float] | None = None, seeds: Sequence[int] | None = None, epochs: int | None = None
) -> list[RunConfig]:
    """Runs of the first extractor by rate, at a batch size without a rest, and at one with."""
    return [
        tuned_run(scale, "extractor-tuning", STUDIES[scale].extractors[0], size, epochs=epochs, lr=lr, seed=seed)
        for size, rates in EXTRACTOR_RATES[scale].items()
        for lr in lrs or rates
        for seed in seeds or (0,)
    ]
