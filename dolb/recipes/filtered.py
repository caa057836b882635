"""Runs on what the masks keep, with small and with large batches, at equal epochs and at equal updates.

And those by which the recipes of runs and of extractors were tuned, on full data alone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dolb.filtering.config import BASELINES, FLAGGED, FilterConfig
from dolb.recipes.asked import Asked, chosen, recipe
from dolb.recipes.batch_sizes import WORKERS
from dolb.recipes.masks import (
    REMOVERS,
    SHARE,
    SHARES,
    default_masks,
    masks,
    masks_by_share,
    masks_of_2020,
    other_trainings,
)
from dolb.recipes.study import STUDIES, tuned_run
from dolb.training.config import SHARE as OF_EACH_CLASS
from dolb.training.config import RunConfig

MAIN_SETS = ("full", "network", "random")
SETS = (*MAIN_SETS, "recursive", *(name for name in BASELINES if name not in MAIN_SETS))
OTHER_SETS = ("pretrained", FLAGGED, "none", OF_EACH_CLASS.strip("-"))  # that runs on the study's own data may name too
DEMO_SETS = (*MAIN_SETS, "recursive", "neighbours", "confident")
# The study names 32 to 1310 examples for each of 8 workers, and 6272 and 10368 in all; powers of two lie between.
LARGE = {"paper": (256, 512, 1024, 2048, 4096, 6272, 8192, 10368, 10480), "demo": (256, 512, 1024)}
MORE_SEEDS_FROM = {"paper": 6272, "demo": 1024}  # where the study's finding lies
LARGE_SEEDS = {"paper": (4, 8), "demo": (2, 2)}  # below that, and from there on; those of verdicts have more
MAIN_SEEDS = {"paper": 10, "demo": 2}  # of verdicts: the three main sets, and what a pretrained extractor keeps
OTHER_MASKS_AT = {"paper": (256, 1024, 6272, 10368), "demo": (256, 1024)}
OTHER_MASKS_SEEDS = {"paper": 4, "demo": 2}
# Twelve sizes about the study's border of 6000. At some of them an epoch of a smaller set has as many updates as one of
# all data, at others one fewer, and which these are depends on whether the last partial batch is dropped.
CROSSOVER = {
    "paper": (5000, 5500, 6000, 6500, 7000, 7500, 8000, 8500, 9000, 10000, 11000, 12000),
    "demo": (256, 465, 700),
}
CROSSOVER_SEEDS = {"paper": 4, "demo": 2}
REMOVED_AT = {"paper": (256, 6272), "demo": (256,)}
REMOVED_SEEDS = {"paper": 5, "demo": 2}
BETTER_RATES = {"paper": (0.1, 0.2), "demo": (1.6,)}  # on the paper's data `tuning` found both better, and 0.2 the best
SMALL = {"paper": (64, 128, 256), "demo": (128, 256)}
SMALL_SEEDS = {"paper": 3, "demo": 2}  # of the other sets, and of equal updates
WEIGHT_DECAYS = {"paper": (0.005, 0.01, 0.012, 0.0135), "demo": (0.0005, 0.005)}
# Accuracy rises up to the last of the study's weight decays; one beyond it, for the main sets, shows if it goes on.
BEYOND: dict[str, tuple[float, ...]] = {"paper": (0.02,), "demo": ()}
# About the rate that was taken at each of the two, which is one of them.
TUNING_RATES: dict[str, dict[int, tuple[float, ...]]] = {
    "paper": {256: (0.001, 0.003, 0.01, 0.03), 6272: (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4)},
    "demo": {64: (0.05, 0.2), 1024: (0.2, 0.8)},
}
TUNING_SEEDS = {"paper": (0, 1), "demo": (0,)}
# A batch that divides the images leaves no small rest at the end of an epoch; at one rate also one that does not.
EXTRACTOR_RATES: dict[str, dict[int, tuple[float, ...]]] = {
    "paper": {250: (0.01, 0.03, 0.1), 256: (0.03,)},
    "demo": {64: (0.05, 0.2)},
}


class _Cell(NamedTuple):
    """A batch size, a set, a seed, what else is special, and whether it is run with equal updates too.

    ``kept`` is how many examples the set has, where that is known without its mask.
    """

    batch_size: int
    set: str
    seed: int
    more: dict[str, object]
    twice: bool = True
    kept: int | None = None


@recipe("sets", "batch_sizes", "weight_decays", "seeds", "epochs", "kept", "own")
def filtered_small_batch(scale: str, ask: Asked) -> list[RunConfig]:
    """One worker with small batches, on full, filtered and random data, by weight decay.

    Every other set is run at the largest of the batch sizes, with fewer seeds and the study's weight decays alone. With
    ``kept``, how many examples the masks keep and of how many, there are runs at that size that make as many updates as
    those on full data, of the first seeds. ``own`` adds sets that are run like the network filtered one: masks by the
    name that runs call them, as ``masks.own_sets`` returns.
    """
    largest, study_sets = SMALL[scale][-1], SETS if scale == "paper" else DEMO_SETS
    added, few, many = _own_names(ask.own), SMALL_SEEDS[scale], MAIN_SEEDS[scale]
    main = (*MAIN_SETS, *added)
    cells = [
        _Cell(size, name, seed, {"weight_decay": decay}, twice)
        for size in ask.batch_sizes or SMALL[scale]
        for name in dict.fromkeys((*(ask.sets or (study_sets if size == largest else MAIN_SETS)), *added))
        for decay in ask.weight_decays or (*WEIGHT_DECAYS[scale], *(BEYOND[scale] if name in main else ()))
        for seed in ask.seeds or range(many if name in main else few)
        for twice in [size == largest and name in main and seed not in range(few, many)]
    ]
    return _runs(scale, "filtered-small-batch", cells, ask.epochs, ask.kept, ask.own)


@recipe("sets", "batch_sizes", "seeds", "epochs", "kept", "own")
def filtered_large_batch(scale: str, ask: Asked) -> list[RunConfig]:
    """Eight workers with large batches, on full, filtered and random data.

    The best of the baselines with small batches is beside them, once it is known, with fewer seeds. With ``kept``, how
    many examples the masks keep and of how many, each smaller set also has runs that make as many updates as those on
    full data. ``own`` adds sets, as in ``filtered_small_batch``.
    """
    added, (few, many) = _own_names(ask.own), LARGE_SEEDS[scale]
    main = (*MAIN_SETS, *added)
    study = STUDIES[scale]
    standard = (*MAIN_SETS, *filter(None, [study.best_baseline, "pretrained" if study.pretrained else ""]))
    cells = [
        _Cell(size, name, seed, {"bn_workers": WORKERS})
        for size in ask.batch_sizes or LARGE[scale]
        for fewer in [many if size >= MORE_SEEDS_FROM[scale] else few]
        for name in dict.fromkeys((*(ask.sets or standard), *added))
        for seed in ask.seeds or range(MAIN_SEEDS[scale] if name in (*main, "pretrained") else fewer)
    ]
    return _runs(scale, "filtered-large-batch", cells, ask.epochs, ask.kept, ask.own)


@recipe("sets", "batch_sizes", "seeds", "epochs", "kept")
def default_radius(scale: str, ask: Asked) -> list[RunConfig]:
    """Runs on what DBSCAN's own default radius keeps, and on random sets of that size.

    They are those of the experiment on large batches, where the study's finding lies; what runs on full data reach is
    known from there. The map is by a network that the recipe of these runs trains; it is weaker than the other
    extractors, and more of its map is noise.
    """
    cells = _by_default(scale, ask.sets, ask.batch_sizes, ask.seeds)
    return _runs(scale, "default-radius", cells, ask.epochs, ask.kept, family=default_masks)


@recipe("sets", "batch_sizes", "seeds", "epochs")
def default_of_2020(scale: str, ask: Asked) -> list[RunConfig]:
    """Runs on what the default radius keeps of a map by openTSNE 0.3's defaults, where little is noise.

    That little hardly changes the updates of an epoch, so all are of equal epochs.
    """
    cells = _by_default(scale, ask.sets, ask.batch_sizes, ask.seeds)
    return _runs(scale, "default-of-2020", cells, ask.epochs, None, family=masks_of_2020)


def _by_default(
    scale: str, sets: Sequence[str] | None, batch_sizes: Sequence[int] | None, seeds: Sequence[int] | None
) -> list[_Cell]:
    return [
        _Cell(size, name, seed, {"bn_workers": WORKERS})
        for size in batch_sizes or [size for size in LARGE[scale] if size >= MORE_SEEDS_FROM[scale]]
        for name in sets or ("network", "random")
        for seed in seeds or range(LARGE_SEEDS[scale][1])
    ]


@recipe("sets", "batch_sizes", "seeds", "epochs")
def other_masks(scale: str, ask: Asked) -> list[RunConfig]:
    """Runs with large batches on masks of further trainings of the extractor."""
    cells = [
        _Cell(size, name, seed, {"bn_workers": WORKERS})
        for size in ask.batch_sizes or OTHER_MASKS_AT[scale]
        for name in ask.sets or other_trainings(scale)
        for seed in ask.seeds or range(OTHER_MASKS_SEEDS[scale])
    ]
    return _runs(scale, "other-masks", cells, ask.epochs, None, family=other_trainings)


@recipe("part", "sets", "batch_sizes", "seeds", "epochs", "kept")
def crossover(scale: str, ask: Asked) -> list[RunConfig]:
    """Runs at many batch sizes about the one above which the study finds that filtered data gain.

    In the part ``whole`` an epoch has all its data, and with ``kept`` there are runs with equal updates too; in the
    part ``dropped`` it ends with its last full batch, on every set.
    """
    parts = {
        name: [
            _Cell(size, one, seed, {"bn_workers": WORKERS, "drop_last": dropped}, twice=not dropped)
            for size in ask.batch_sizes or CROSSOVER[scale]
            for one in ask.sets or MAIN_SETS
            for seed in ask.seeds or range(CROSSOVER_SEEDS[scale])
        ]
        for name, dropped in (("whole", False), ("dropped", True))
    }
    return _runs(scale, "crossover", chosen(parts, ask.part), ask.epochs, ask.kept)


@recipe("sets", "shares", "batch_sizes", "seeds", "epochs")
def removal_share(scale: str, ask: Asked) -> list[RunConfig]:
    """Runs on what each way to choose keeps when more or fewer images go, at equal epochs and at equal updates.

    Those of the study's share that the experiment on large batches has are left to it.
    """
    there, examples = ("network", "random", STUDIES[scale].best_baseline), STUDIES[scale].examples
    cells = [
        _Cell(size, f"{name} {share:g}", seed, {"bn_workers": WORKERS}, kept=round(examples * (1 - share)))
        for size in ask.batch_sizes or REMOVED_AT[scale]
        for share in ask.shares or SHARES[scale]
        for name in ask.sets or REMOVERS
        if share != SHARE or name not in there
        for seed in ask.seeds or range(REMOVED_SEEDS[scale])
    ]
    return _runs(scale, "removal-share", cells, ask.epochs, None, family=masks_by_share)


@recipe("sets", "lrs", "seeds", "epochs", "kept")
def better_rate(scale: str, ask: Asked) -> list[RunConfig]:
    """Runs at the batch size from which the study's finding lies, at rates that do better on full data.

    The recipe's rate was taken so that full data come near the study's accuracy, which is lower.
    """
    cells = [
        _Cell(MORE_SEEDS_FROM[scale], name, seed, {"bn_workers": WORKERS, "lr": lr})
        for lr in ask.lrs or BETTER_RATES[scale]
        for name in ask.sets or MAIN_SETS
        for seed in ask.seeds or range(LARGE_SEEDS[scale][1])
    ]
    return _runs(scale, "better-rate", cells, ask.epochs, ask.kept)


@recipe("batch_sizes", "lrs", "seeds", "epochs")
def tuning(scale: str, ask: Asked) -> list[RunConfig]:
    """Runs of the recipe on full data at other rates than its own, and at its own.

    The larger batch is the work of eight workers, as in the experiment on large batches.
    """
    (small, _), _ = STUDIES[scale].tuned
    return [
        tuned_run(
            scale, "tuning", STUDIES[scale].trained, size, epochs=ask.epochs, lr=lr, seed=seed,
            bn_workers=1 if size == small else WORKERS,
        )
        for size, rates in TUNING_RATES[scale].items()
        if ask.batch_sizes is None or size in ask.batch_sizes
        for lr in ask.lrs or rates
        for seed in ask.seeds or TUNING_SEEDS[scale]
    ]  # fmt: skip


@recipe("lrs", "seeds", "epochs")
def extractor_tuning(scale: str, ask: Asked) -> list[RunConfig]:
    """Runs of the first extractor by rate, at a batch size without a rest, and at one with."""
    return [
        tuned_run(scale, "extractor-tuning", STUDIES[scale].extractors[0], size, epochs=ask.epochs, lr=lr, seed=seed)
        for size, rates in EXTRACTOR_RATES[scale].items()
        for lr in ask.lrs or rates
        for seed in ask.seeds or (0,)
    ]


def of_the_study(subset: str) -> bool:
    """Return whether runs call a set of the study so, all data or a mask of its own, rather than a person's mask."""
    return subset.split("-")[0] in (*SETS, *OTHER_SETS)


def _own_names(own: Mapping[str, np.ndarray] | None) -> dict[str, str]:
    """Return what runs call each of a person's own sets, by its name, which must not be one of the study's."""
    names = {subset.split("-")[0]: subset for subset in own or {}}
    if taken := [name for name in names if of_the_study(name)]:
        raise ValueError(f"the study has a set {taken[0]!r} already; accepted: another name for a mask of your own")
    return names


def _runs(
    scale: str,
    slug: str,
    cells: Sequence[_Cell],
    epochs: int | None,
    kept: tuple[int, int] | None,
    own: Mapping[str, np.ndarray] | None = None,
    family: Callable[[str, int], Mapping[str, FilterConfig]] = masks,
) -> list[RunConfig]:
    study, own = STUDIES[scale], own or {}
    given = {"full": "full", **_own_names(own)}
    made = {seed: family(scale, seed) for seed in {cell.seed for cell in cells}}
    found = []
    for cell in cells:
        subsets = {name: mask.subset for name, mask in made[cell.seed].items()} | given
        if cell.set not in subsets:
            raise ValueError(f"set {cell.set!r} is not known; accepted: {', '.join(subsets)}")
        subset = subsets[cell.set]
        known = (cell.kept, study.examples) if cell.kept else kept
        size = (int(own[subset].sum()), len(own[subset])) if subset in own else known
        lengths = [epochs or study.epochs]
        if size and cell.twice and cell.set not in ("full", "recursive", "pretrained"):  # which have other sizes
            lengths.append(equal_updates(lengths[0], cell.batch_size, *size))
        for length in lengths:
            more = {"subset": subset, "seed": cell.seed, **cell.more}
            found.append(tuned_run(scale, slug, study.trained, cell.batch_size, epochs=length, **more))
    return list({one.key: one for one in found}.values())


def equal_updates(epochs: int, batch_size: int, kept: int, examples: int) -> int:
    """Return the epochs of ``kept`` examples whose updates come nearest to those of ``epochs`` on all ``examples``."""
    return round(epochs * _updates(examples, batch_size) / _updates(kept, batch_size))


def _updates(examples: int, batch_size: int) -> int:
    """Return the updates of an epoch: a rest is a batch of its own, unless it is one example, which joins the last."""
    full, rest = divmod(examples, batch_size)
    return full + (rest > 1)
