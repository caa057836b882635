"""Maps, masks, and the runs on what the masks keep: features, noise, and training with small and large batches.

The recipe of training was tuned once, on all of the data, at a small and at a large batch, so that it comes near the
paper's accuracies there (``tuning`` shows what was tried); the rate of every other batch size follows from those two by
one rule, ``rate``, and is the same for every set.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dolb.filtering.config import BASELINES, FLAGGED, FilterConfig
from dolb.training.config import RunConfig

WORKERS = 8
MAIN_SETS = ("full", "network", "random")
SETS = (*MAIN_SETS, "recursive", *(name for name in BASELINES if name not in MAIN_SETS))

DEMO_SETS = (*MAIN_SETS, "recursive", "neighbours", "confident")


@dataclass(frozen=True)
class _Study:
    """What the experiments on filtering share at one scale."""

    data: str
    precision: str
    extractors: tuple[str, ...]  # the first makes the masks that runs are trained on
    trained: str  # the network that is trained on what is kept
    tuned: tuple[tuple[int, float], tuple[int, float]]  # batch size and rate, on full data
    weight_decay: float
    epochs: int
    milestones: tuple[float, float]
    warmup_epochs: float  # above the smaller of the tuned batch sizes
    filter: str
    iterations: int
    train_seeds: tuple[int, ...]
    map_seeds: tuple[int, ...]
    perplexities: tuple[float, ...]
    min_samples: tuple[int, ...]
    el2n: tuple[int, int]  # networks, and the epoch after which they are asked
    folds: int
    pretrained: bool
    best_baseline: str = ""  # with small batches, as `summary.filtered.best_baseline` finds it


STUDIES = {
    "paper": _Study(
        data="cifar10", precision="bf16", extractors=("resnet101", "resnet18", "resnet34", "resnet50", "resnet152"),
        trained="resnet18", tuned=((256, 0.003), (6272, 0.05)), weight_decay=0.005, epochs=50, milestones=(30, 45),
        warmup_epochs=5, filter="dbscan", iterations=500, train_seeds=(0, 1), map_seeds=(0, 1, 2),
        perplexities=(10.0, 50.0, 100.0), min_samples=(3, 10, 20), el2n=(5, 10), folds=4, pretrained=True,
    ),
    # On a map of 1,437 points almost every one is alone within the library's default radius, so the knee it is.
    "demo": _Study(
        data="digits", precision="fp32", extractors=("smallnet-8", "smallnet-4"), trained="smallnet-4",
        tuned=((64, 0.2), (1024, 0.8)), weight_decay=0.0005, epochs=6, milestones=(3, 5), warmup_epochs=1,
        filter="knee", iterations=150, train_seeds=(0, 1), map_seeds=(0, 1), perplexities=(10.0,), min_samples=(10,),
        el2n=(2, 3), folds=3, pretrained=False,
    ),
}  # fmt: skip
# The study names 32 to 1310 examples for each of 8 workers, and 6272 and 10368 in all; powers of two lie between.
LARGE = {"paper": (256, 512, 1024, 2048, 4096, 6272, 8192, 10368, 10480), "demo": (256, 512, 1024)}
MORE_SEEDS_FROM = {"paper": 6272, "demo": 1024}  # where the study's finding lies
LARGE_SEEDS = {"paper": (4, 8), "demo": (3, 3)}  # below that, and from there on
SMALL = {"paper": (64, 128, 256), "demo": (128, 256)}
SMALL_SEEDS = {"paper": (0, 1, 2), "demo": (0, 1, 2)}
WEIGHT_DECAYS = {"paper": (0.005, 0.01, 0.012, 0.0135), "demo": (0.0005, 0.005)}


def data_of(scale: str) -> str:
    """Return the data set that the experiments on filtering train on at a scale; ``published`` trains on none."""
    if scale not in STUDIES:
        raise ValueError(f"scale {scale!r} trains nothing; accepted: {', '.join(reversed(STUDIES))}")
    return STUDIES[scale].data


def rate(scale: str, batch_size: int) -> float:
    """Return the learning rate of a batch size: a power of it, through the two that were tuned; to three digits."""
    (small, low), (large, high) = STUDIES[scale].tuned
    exponent = math.log(high / low) / math.log(large / small)
    return float(f"{low * (batch_size / small) ** exponent:.3g}")


def tuned(scale: str) -> dict[int, float]:
    """Return the rates that were taken, by the batch size at which they were tuned."""
    return dict(STUDIES["demo" if scale == "demo" else "paper"].tuned)


def rates_in_words(runs: Sequence[RunConfig]) -> str:
    """Say which rate each batch size has."""
    rates = {run.batch_size: run.lr for run in runs}
    return ", ".join(f"{lr:g} at batch {size:,}" for size, lr in sorted(rates.items()))


def tuned_run(
    scale: str, experiment: str, arch: str, batch_size: int, *, epochs: int | None = None, **more: object
) -> RunConfig:
    """Return one run of the tuned recipe; with other epochs than the study's, warmup and decay are stretched alike."""
    study = STUDIES[scale]
    stretch = (epochs or study.epochs) / study.epochs
    warmup = study.warmup_epochs if batch_size > study.tuned[0][0] else 0.0
    values: dict[str, object] = {
        "experiment": experiment,
        "data": study.data,
        "arch": arch,
        "batch_size": batch_size,
        "lr": rate(scale, batch_size),
        "warmup_epochs": round(warmup * stretch, 6),
        "decay": "step:" + ",".join(f"{milestone * stretch:.6g}" for milestone in study.milestones),
        "weight_decay": study.weight_decay,
        "epochs": epochs or study.epochs,
        "precision": study.precision,
    }
    return RunConfig(**values | more)  # type: ignore[arg-type]


def _extractor(scale: str, arch: str, seed: int) -> RunConfig:
    """Return the run that trains an extractor, at the smaller of the tuned batch sizes."""
    return tuned_run(scale, "extractor", arch, STUDIES[scale].tuned[0][0], seed=seed)


def _again(scale: str) -> RunConfig:
    """Return the run that trains the first extractor once more, on what its mask keeps."""
    first = STUDIES[scale].extractors[0]
    return replace(_extractor(scale, first, 0), subset=_map(scale, "noise", first).subset)


def _early(scale: str) -> RunConfig:
    """Return the run that EL2N asks: the first epochs of the one that is trained, and no more."""
    whole = _extractor(scale, STUDIES[scale].trained, 0)
    return replace(whole, epochs=STUDIES[scale].el2n[1])


def networks(scale: str) -> dict[str, RunConfig]:
    """Return the runs whose networks the maps and masks need, by key."""
    scale = "demo" if scale == "demo" else "paper"
    study = STUDIES[scale]
    runs = [_extractor(scale, arch, seed) for arch in study.extractors for seed in study.train_seeds]
    runs += [_extractor(scale, study.trained, 0), _early(scale), _again(scale)]
    return {one.key: one for one in runs}


def _map(scale: str, experiment: str, arch: str, seed: int = 0, **more: object) -> FilterConfig:
    study = STUDIES[scale]
    trained = more.get("weights", "trained") == "trained"
    values: dict[str, object] = {
        "trained_by": _extractor(scale, arch, seed).key if trained else "",
        "filter": study.filter,
    }
    values |= {"iterations": study.iterations, "seed": seed}
    return FilterConfig(experiment=experiment, data=study.data, arch=arch, **values | more)  # type: ignore[arg-type]


def masks(scale: str, seed: int = 0) -> dict[str, FilterConfig]:
    """Return the masks that runs of a seed are trained on, by the name of the set.

    Each seed has a random set of its own; all other sets are the same for all seeds. The recursive set is what a
    second round of the filter leaves, on the map by a network that was trained on what the first one kept.
    """
    scale = "demo" if scale == "demo" else "paper"
    study = STUDIES[scale]
    network = _map(scale, "noise", study.extractors[0])
    whole, (count, _) = _extractor(scale, study.trained, 0), study.el2n
    trained = {"arch": study.trained, "trained_by": whole.key}
    kinds: dict[str, dict[str, Any]] = {
        "random": {"experiment": "random-sets", "seed": seed},
        "grid": {},
        "neighbours": {},
        "el2n": {"arch": study.trained, "trained_by": _early(scale).key, "networks": count},
        "forgetting": trained,
        "confident": {**trained, "networks": study.folds},
    }
    others = {kind: replace(network, filter=kind, size_of=network.key, **more) for kind, more in kinds.items()}
    recursive = replace(network, trained_by=_again(scale).key, within=network.key)
    return {"network": network, "recursive": recursive, **others}


def masks_of(runs: Sequence[RunConfig], scale: str) -> list[FilterConfig]:
    """Return the masks that these runs are trained on or judged over, each after the one that it follows from.

    The network's mask, whose size others have, is always among them; a person's own masks are not.
    """
    named = {one.subset: one for seed in sorted({run.seed for run in runs}) for one in masks(scale, seed).values()}
    wanted = {name for run in runs for name in run.subsets}
    network = masks(scale)["network"]
    return [network, *(one for name, one in named.items() if name in wanted and one != network)]


def kept_by(sizes: Mapping[str, int]) -> tuple[int, int] | None:
    """Return how many examples the study's mask keeps and of how many, by the sizes of sets; None if one lacks."""
    network = masks("paper")["network"].subset
    return (sizes[network], sizes["full"]) if network in sizes and "full" in sizes else None


def features(
    scale: str, *, archs: Sequence[str] | None = None, seeds: Sequence[int] | None = None
) -> list[FilterConfig]:
    """Return the maps of training and test set, one for each extractor."""
    study = STUDIES[scale]
    pretrained = [study.extractors[0]] if study.pretrained else []
    found = [
        _map(scale, "features", arch, seed, filter="none")
        for arch in archs or study.extractors
        for seed in seeds or study.train_seeds[:1]
    ]
    imagenet = [_map(scale, "features", arch, filter="none", weights="imagenet") for arch in pretrained]
    return found + [one for one in imagenet if archs is None or one.arch in archs]


def noise(scale: str, *, archs: Sequence[str] | None = None, seeds: Sequence[int] | None = None) -> list[FilterConfig]:
    """Return the masks: of each extractor over seeds, of one map by other parameters, and by other ways to choose."""
    study = STUDIES[scale]
    first = study.extractors[0]
    grid = [
        _map(scale, "noise", arch, seed, map_seed=map_seed)
        for arch in archs or study.extractors
        for seed in seeds or study.train_seeds
        for map_seed in study.map_seeds
    ]
    if study.pretrained and archs is None and seeds is None:
        grid += [_map(scale, "noise", first, weights="imagenet", map_seed=map_seed) for map_seed in study.map_seeds]
    one = _map(scale, "noise", first)
    others = [replace(one, perplexity=value) for value in study.perplexities]
    others += [replace(one, min_samples=value) for value in study.min_samples]
    others += [replace(one, filter=name) for name in ("knee", "hdbscan")]
    others += [mask for name, mask in masks(scale).items() if name != "random"]
    others.append(replace(masks(scale)["confident"], filter=FLAGGED, size_of=""))
    chosen = grid + [other for other in others if archs is None and seeds is None]
    return list({one.key: one for one in chosen}.values())


def filtered_small_batch(
    scale: str,
    *,
    sets: Sequence[str] | None = None,
    batch_sizes: Sequence[int] | None = None,
    weight_decays: Sequence[float] | None = None,
    seeds: Sequence[int] | None = None,
    epochs: int | None = None,
    kept: tuple[int, int] | None = None,
    own: Mapping[str, np.ndarray] | None = None,
) -> list[RunConfig]:
    """Return runs of one worker with small batches, on full, network filtered and random data, by weight decay.

    Every other set is run at the largest of the batch sizes. With ``kept``, how many examples the masks keep and of how
    many, there are runs at that size that make as many updates as those on full data. ``own`` adds sets that are run
    like the network filtered one: masks by the name that runs call them, as ``masks.own_sets`` returns.
    """
    largest, study_sets = SMALL[scale][-1], SETS if scale == "paper" else DEMO_SETS
    added = _own_names(own)
    cells = [
        _Cell(size, name, seed, {"weight_decay": decay}, size == largest and name in (*MAIN_SETS, *added))
        for size in batch_sizes or SMALL[scale]
        for name in dict.fromkeys((*(sets or (study_sets if size == largest else MAIN_SETS)), *added))
        for decay in weight_decays or WEIGHT_DECAYS[scale]
        for seed in seeds or SMALL_SEEDS[scale]
    ]
    return _runs(scale, "filtered-small-batch", cells, epochs, kept, own)


def filtered_large_batch(
    scale: str,
    *,
    sets: Sequence[str] | None = None,
    batch_sizes: Sequence[int] | None = None,
    seeds: Sequence[int] | None = None,
    epochs: int | None = None,
    kept: tuple[int, int] | None = None,
    own: Mapping[str, np.ndarray] | None = None,
) -> list[RunConfig]:
    """Return runs of eight workers with large batches, on full, network filtered and random data.

    The best of the baselines with small batches is beside them, once it is known. With ``kept``, how many examples the
    masks keep and of how many, each smaller set also has runs that make as many updates as those on full data. ``own``
    adds sets, as in ``filtered_small_batch``.
    """
    few, many = (tuple(range(count)) for count in LARGE_SEEDS[scale])
    standard = (*MAIN_SETS, *filter(None, [STUDIES[scale].best_baseline]))
    cells = [
        _Cell(size, name, seed, {"bn_workers": WORKERS}, True)
        for size in batch_sizes or LARGE[scale]
        for name in dict.fromkeys((*(sets or standard), *_own_names(own)))
        for seed in seeds or (many if size >= MORE_SEEDS_FROM[scale] else few)
    ]
    return _runs(scale, "filtered-large-batch", cells, epochs, kept, own)


class _Cell(NamedTuple):
    """A batch size, a set, a seed, what else is special, and whether it is run with equal updates too."""

    batch_size: int
    set: str
    seed: int
    more: dict[str, object]
    twice: bool


def of_the_study(subset: str) -> bool:
    """Return whether runs call a set of the study so, all data or a mask of its own, rather than a person's mask."""
    return subset.split("-")[0] in (*SETS, FLAGGED, "none")


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
    own: Mapping[str, np.ndarray] | None,
) -> list[RunConfig]:
    study, own = STUDIES[scale], own or {}
    subsets = {"full": "full", **_own_names(own)}
    found = []
    for cell in cells:
        if cell.set not in (*SETS, *subsets):
            raise ValueError(f"set {cell.set!r} is not known; accepted: {', '.join((*SETS, *list(subsets)[1:]))}")
        subset = subsets.get(cell.set) or masks(scale, cell.seed)[cell.set].subset
        lengths, size = [epochs or study.epochs], kept
        if subset in own:
            size = int(own[subset].sum()), len(own[subset])
        if size and cell.twice and cell.set not in ("full", "recursive"):  # which has another size than the masks
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
