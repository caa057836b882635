"""What each experiment runs at each scale: a slug and a scale give a list of configs.

``paper`` is the study's own grid (on CIFAR-10, or for communication on random images of its shape), ``demo`` the same
question on scikit-learn's digits with small networks. Keyword arguments narrow or change a grid, by the names of the
notebooks' parameters. Most experiments are lists of runs; ``features``, ``noise`` and ``masks`` are lists of maps and
masks, and those of communication and of storage lists of measurements.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from dolb.config import SCALES, require_known
from dolb.recipes.batch_sizes import batch_size, critical_batch, even_batches, trade_off, two_each
from dolb.recipes.communication import ddp_vs_horovod, step_timeline
from dolb.recipes.fidelity import fidelity
from dolb.recipes.filtered import (
    better_rate,
    crossover,
    default_of_2020,
    default_radius,
    extractor_tuning,
    filtered_large_batch,
    filtered_small_batch,
    of_the_study,
    other_masks,
    removal_share,
    tuning,
)
from dolb.recipes.landscape import loss_landscape
from dolb.recipes.learning_rates import lr_scaling, warmup, warmup_start
from dolb.recipes.limits import limits, mitigations
from dolb.recipes.masks import features, kept_by, masks, masks_of, more_masks, networks, noise
from dolb.recipes.planted import own_data
from dolb.recipes.remedies import large_batch_remedies
from dolb.recipes.storage import data_pipeline
from dolb.recipes.strong_weak import strong_weak, strong_weak_steps
from dolb.recipes.study import data_of, tuned
from dolb.training.config import RunConfig

__all__ = [
    "DEMO_DATA", "RECIPES", "SCALES", "configs", "data_of", "data_sets", "lacking", "masks", "masks_for", "masks_of",
    "networks", "of_the_study", "require", "require_own", "takes", "trade_off", "tuned",
]  # fmt: skip

DEMO_DATA = ("digits", "nodules-8")  # which no study's own grid has

# A recipe returns RunConfigs, FilterConfigs, PlantedConfigs, ScalingConfigs, LayerConfigs or StorageConfigs; all have
# experiment, data and key.
RECIPES: dict[str, Callable[..., list[Any]]] = {
    "batch-size": batch_size,
    "even-batches": even_batches,
    "two-each": two_each,
    "critical-batch": critical_batch,
    "features": features,
    "noise": noise,
    "masks": more_masks,
    "tuning": tuning,
    "extractor-tuning": extractor_tuning,
    "filtered-small-batch": filtered_small_batch,
    "filtered-large-batch": filtered_large_batch,
    "default-radius": default_radius,
    "default-of-2020": default_of_2020,
    "better-rate": better_rate,
    "other-masks": other_masks,
    "crossover": crossover,
    "removal-share": removal_share,
    "loss-landscape": loss_landscape,
    "fidelity": fidelity,
    "warmup": warmup,
    "warmup-start": warmup_start,
    "lr-scaling": lr_scaling,
    "large-batch-remedies": large_batch_remedies,
    "ddp-vs-horovod": ddp_vs_horovod,
    "step-timeline": step_timeline,
    "data-pipeline": data_pipeline,
    "strong-weak": strong_weak,
    "strong-weak-steps": strong_weak_steps,
    "limits": limits,
    "mitigations": mitigations,
    "own-data": own_data,
}


def require(slug: str) -> Callable[..., list[Any]]:
    """Return the recipe of that slug, or raise a ``ValueError`` that lists what there is."""
    require_known("experiment", slug, RECIPES)
    return RECIPES[slug]


def require_own(slug: str) -> None:
    """Raise a ``ValueError`` unless an experiment can train on masks of a person's own."""
    able = [name for name in RECIPES if takes(name, "own")]
    if slug not in able:
        raise ValueError(f"{slug} does not train on masks of your own; accepted: {', '.join(able)}")


def configs(slug: str, scale: str, **changes: object) -> list[Any]:
    """Return the runs of an experiment; ``published`` means those of ``paper``, and a change of None means as it is."""
    require_known("scale", scale, SCALES)
    recipe, asked = require(slug), {name: value for name, value in changes.items() if value is not None}
    known = list(getattr(recipe, "takes", ()))
    if odd := [name for name in asked if name not in known]:
        others = ", ".join(name for name in RECIPES if takes(name, odd[0])) or "no experiment"
        raise ValueError(
            f"{slug} has no {odd[0]} that could be changed; accepted: {', '.join(known)}; those that have: {others}"
        )
    if asked.get("repeats", 1) < 1:  # type: ignore[operator]
        raise ValueError(f"repeats is {asked['repeats']}; accepted: 1 or more")
    return recipe("demo" if scale == "demo" else "paper", **asked)


def data_sets(slug: str) -> set[str]:
    """Return the data sets of an experiment's own grid."""
    return {config.data for config in configs(slug, "paper")}


def takes(slug: str, name: str) -> bool:
    """Return whether the runs of an experiment follow from something of that name, such as ``kept`` or ``tried``."""
    return name in getattr(require(slug), "takes", ())


def lacking(slug: str, keys: Collection[str], sizes: Mapping[str, int], tried: Mapping[str, float]) -> str:
    """Say how many runs of the paper grid are not among these keys.

    ``sizes`` has the training examples of each set that was run, by which runs of equal updates are known; ``tried``
    the accuracy of each run, by which the winners of a search are.
    """
    twice, searched = takes(slug, "kept"), takes(slug, "tried")
    kept = kept_by(sizes) if twice else None
    wanted = configs(slug, "paper", kept=kept, tried=tried if searched else None)
    count = len({config.key for config in wanted}.difference(keys))
    unknown = ", and those of equal updates, whose epochs follow from a run on all data and one on the mask"
    later = ", and those that may follow from them"
    return f"{count}{unknown if twice and kept is None else later if searched and count else ''}"


def masks_for(slug: str) -> list[Any]:
    """Return the masks that the runs of an experiment's paper grid need; most experiments need none."""
    runs = [config for config in configs(slug, "paper") if isinstance(config, RunConfig)]
    return masks_of(runs, "paper") if any(set(run.subsets) - {"full"} for run in runs) else []
