"""Loss landscapes: the runs on full, network filtered and random data at two batch sizes, and what is measured.

Training is that of the experiments on filtering, run for run. Every network is judged over the same three sets.
"""

from typing import Any

from dolb.recipes.asked import Asked, recipe
from dolb.recipes.filtered import MAIN_SETS, filtered_large_batch, filtered_small_batch
from dolb.recipes.masks import masks
from dolb.recipes.study import STUDIES
from dolb.training.config import LandscapeConfig, RunConfig

SEEDS = {"paper": tuple(range(10)), "demo": (0, 1)}
MEASURED: dict[str, dict[str, Any]] = {
    "paper": {},
    "demo": {"judged_examples": 64, "eigenvalue_tolerance": 0.1, "most_products": 20, "trace_probes": 3,
             "surface_points": 9},
}  # fmt: skip


@recipe("sets", "batch_sizes", "seeds", "epochs")
def loss_landscape(scale: str, ask: Asked) -> list[LandscapeConfig]:
    """Runs whose landscapes are measured, at the two batch sizes for which the recipe was tuned.

    Above the smaller of these a batch is the work of eight workers, as in the experiment on large batches.
    """
    study = STUDIES[scale]
    (small, _), (large, _) = study.tuned
    same: dict[str, Any] = {"sets": ask.sets or MAIN_SETS, "seeds": ask.seeds or SEEDS[scale], "epochs": ask.epochs}
    runs: list[RunConfig] = []
    for size in ask.batch_sizes or (small, large):
        if size <= small:
            runs += filtered_small_batch(scale, batch_sizes=[size], weight_decays=[study.weight_decay], **same)
        else:
            runs += filtered_large_batch(scale, batch_sizes=[size], **same)
    return [_judged(scale, run) for run in runs]


def _judged(scale: str, run: RunConfig) -> LandscapeConfig:
    """Return a run with how its landscape is measured: over full data, and the two masks of its seed."""
    known = masks(scale, run.seed)
    over = ",".join(["full", *(known[name].subset for name in MAIN_SETS if name != "full")])
    return LandscapeConfig(**run.as_dict() | MEASURED[scale] | {"experiment": "loss-landscape", "judged_on": over})
