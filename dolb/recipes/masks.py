"""Maps and masks: of each extractor, by each way to choose, and those that runs are trained on."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dolb.filtering.config import BASELINES, FLAGGED, FilterConfig
from dolb.recipes.asked import Asked, chosen, recipe
from dolb.recipes.study import STUDIES, tuned_run
from dolb.training.config import RunConfig

SHARE = 0.0512  # of CIFAR-10 that the study removes by its first extractor, in its Table I
SHARES = {"paper": (0.02, SHARE, 0.1, 0.2, 0.4, 0.6), "demo": (SHARE, 0.4)}  # that are removed to see how much is best
REMOVERS = ("network", "random", "neighbours", "el2n", "forgetting", "confident")  # of as many images


def _extractor(scale: str, arch: str, seed: int) -> RunConfig:
    """Return the run that trains an extractor: at the batch size and rate that ``extractor_tuning`` found good.

    The rates of the other runs were taken so that they come near the paper's accuracies, which are lower.
    """
    study = STUDIES[scale]
    return replace(_weaker(scale, arch, seed), batch_size=study.extractor_batch_size, lr=study.extractor_rate)


def _weaker(scale: str, arch: str, seed: int) -> RunConfig:
    """Return the run that trains an extractor by the recipe of the other runs."""
    return tuned_run(scale, "extractor", arch, STUDIES[scale].tuned[0][0], seed=seed)


def _again(scale: str) -> RunConfig:
    """Return the run that trains the first extractor once more, on what its mask keeps."""
    first = STUDIES[scale].extractors[0]
    return replace(_extractor(scale, first, 0), subset=_share(scale, first).subset)


def _early(scale: str) -> RunConfig:
    """Return the run that EL2N asks: the first epochs of the one that is trained, and no more."""
    whole = _extractor(scale, STUDIES[scale].trained, 0)
    return replace(whole, epochs=STUDIES[scale].el2n[1])


def networks(scale: str) -> dict[str, RunConfig]:
    """Return the runs whose networks the maps and masks need, by key."""
    scale = "demo" if scale == "demo" else "paper"
    study = STUDIES[scale]
    runs = [_extractor(scale, arch, seed) for arch in study.extractors for seed in study.train_seeds]
    runs += [_extractor(scale, study.extractors[0], seed) for seed in study.mask_seeds]
    runs += [_extractor(scale, study.trained, 0), _early(scale), _again(scale), _weaker(scale, study.extractors[0], 0)]
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


def _share(scale: str, arch: str, seed: int = 0, share: float = SHARE, **more: object) -> FilterConfig:
    """Return the mask of a network by the radius at which a share, by default the study's, is noise.

    Masks that are drawn on the page about noise are of the experiment of that name, and all others of ``masks``.
    """
    drawn = share == SHARE and seed in STUDIES[scale].train_seeds
    return _map(scale, "noise" if drawn else "masks", arch, seed, filter="share", share=share, **more)


def default_masks(scale: str, seed: int = 0) -> dict[str, FilterConfig]:
    """Return what DBSCAN keeps with its library's own radius, however much that is, and a random set of that size.

    The network is trained by the recipe of the runs that are trained on them.
    """
    scale = "demo" if scale == "demo" else "paper"
    first = STUDIES[scale].extractors[0]
    network = _map(scale, "noise", first, trained_by=_weaker(scale, first, 0).key)
    return {"network": network, "random": _random(network, seed)}


def masks_of_2020(scale: str, seed: int = 0) -> dict[str, FilterConfig]:
    """Return what DBSCAN's default radius keeps on a map by openTSNE 0.3's defaults, and as large a random set."""
    scale = "demo" if scale == "demo" else "paper"
    study = STUDIES[scale]
    rate, start, iterations = (study.of_2020 or study.placed)[0]
    placed: dict[str, Any] = {"map_rate": rate, "map_start": start, "iterations": iterations}
    network = replace(_map(scale, "noise", study.extractors[0]), **placed)
    return {"network": network, "random": _random(network, seed)}


def other_trainings(scale: str, seed: int = 0) -> dict[str, FilterConfig]:
    """Return the masks of further trainings of the first extractor; they are the same for runs of every seed."""
    scale = "demo" if scale == "demo" else "paper"
    study = STUDIES[scale]
    return {f"network {training}": _share(scale, study.extractors[0], training) for training in study.mask_seeds}


def masks_by_share(scale: str, seed: int = 0) -> dict[str, FilterConfig]:
    """Return what each way to choose keeps when a share is removed, by the name of both, such as ``network 0.2``."""
    shares = SHARES["demo" if scale == "demo" else "paper"]
    every = {share: masks(scale, seed, share) for share in shares}
    return {f"{name} {share:g}": of[name] for share, of in every.items() for name in REMOVERS}


def _random(network: FilterConfig, seed: int) -> FilterConfig:
    return replace(network, filter="random", experiment="random-sets", size_of=network.key, seed=seed, share=0.0)


def masks(scale: str, seed: int = 0, share: float = SHARE) -> dict[str, FilterConfig]:
    """Return the masks that runs of a seed are trained on, by the name of the set; those of ``REMOVERS`` of any share.

    Each seed has a random set of its own; all other sets are the same for all seeds. The recursive set is what a
    second round of the filter leaves, on the map by a network that was trained on what the first one kept.
    """
    scale = "demo" if scale == "demo" else "paper"
    study = STUDIES[scale]
    network = _share(scale, study.extractors[0], share=share)
    whole, (count, _) = _extractor(scale, study.trained, 0), study.el2n
    trained = {"arch": study.trained, "trained_by": whole.key}
    said_by: dict[str, dict[str, Any]] = {
        "map": {},
        "features": {},
        "young networks": {"arch": study.trained, "trained_by": _early(scale).key, "networks": count},
        "training": trained,
        "held-out predictions": {**trained, "networks": study.folds},
    }
    same: dict[str, Any] = {"share": 0.0, "size_of": network.key}
    ways = {name: said_by[by] for name, by in BASELINES.items() if by != "nothing"}
    others = {name: replace(network, filter=name, **same, **more) for name, more in ways.items()}
    recursive = replace(network, trained_by=_again(scale).key, within=network.key)
    if study.pretrained:
        others["pretrained"] = _share(scale, study.pretrained[-1], weights="imagenet")
    return {"network": network, "recursive": recursive, "random": _random(network, seed), **others}


def masks_of(runs: Sequence[RunConfig], scale: str) -> list[FilterConfig]:
    """Return the masks that these runs are trained on or judged over, each after the one that it follows from.

    The network's mask, whose size others have, is always the first of them; a person's own masks are not among them.
    """
    wanted, seeds = {name for run in runs for name in run.subsets}, sorted({run.seed for run in runs})
    by_default = {one.subset for seed in seeds for one in default_masks(scale, seed).values()}
    network = (default_masks if wanted & by_default else masks)(scale)["network"]
    named = {one.subset: one for family in FAMILIES for seed in seeds for one in family(scale, seed).values()}
    keyed = {one.key: one for one in named.values()}
    found = {network.key: network}
    for one in (named[name] for name in named if name in wanted):
        found |= {key: keyed[key] for key in (one.size_of, one.within) if key} | {one.key: one}
    return list(found.values())


FAMILIES = (masks, default_masks, masks_of_2020, other_trainings, masks_by_share)


@recipe("part")
def more_masks(scale: str, ask: Asked) -> list[FilterConfig]:
    """Masks for training of which no page shows more: of other trainings of the extractor, and of other shares."""
    shares = [mask for name, mask in masks_by_share(scale).items() if not name.startswith("random")]
    parts = {"trainings": list(other_trainings(scale).values()), "shares": shares}
    return [mask for mask in chosen(parts, ask.part) if mask.experiment == "masks"]


def kept_by(sizes: Mapping[str, int]) -> tuple[int, int] | None:
    """Return how many examples the study's mask keeps and of how many, by the sizes of sets; None without it."""
    networks = [family("paper")["network"].subset for family in (masks, default_masks)]
    return next(((sizes[name], STUDIES["paper"].examples) for name in networks if name in sizes), None)


@recipe("archs", "seeds")
def features(scale: str, ask: Asked) -> list[FilterConfig]:
    """Maps of training and test set, one for each extractor."""
    study = STUDIES[scale]
    found = [
        _map(scale, "features", arch, seed, filter="none")
        for arch in ask.archs or study.extractors
        for seed in ask.seeds or study.train_seeds[:1]
    ]
    imagenet = [_map(scale, "features", arch, filter="none", weights="imagenet") for arch in study.pretrained]
    return found + [one for one in imagenet if ask.archs is None or one.arch in ask.archs]


@recipe("archs", "seeds", "part")
def noise(scale: str, ask: Asked) -> list[FilterConfig]:
    """Masks: of each extractor over seeds, of one map by other parameters, and by other ways to choose.

    On every map there are two: by the library's own radius, and by the one at which the study's share is noise. The
    part ``of-2020`` are maps of each extractor by the defaults of then, with the library's radius; ``today`` is the
    rest.
    """
    study = STUDIES[scale]
    first = study.extractors[0]
    networks: list[tuple[str, int, dict[str, Any]]] = [
        (arch, seed, {}) for arch in ask.archs or study.extractors for seed in ask.seeds or study.train_seeds
    ]
    then = [
        replace(_map(scale, "noise", arch, seed), map_rate=rate, map_start=start, iterations=n)
        for arch, seed, _ in networks
        for rate, start, n in study.of_2020
    ]
    if ask.archs is None and ask.seeds is None:
        networks += [(arch, 0, {"weights": "imagenet"}) for arch in study.pretrained]
    grid = [
        mask
        for arch, seed, more in networks
        for map_seed in study.map_seeds
        for mask in (
            _map(scale, "noise", arch, seed, map_seed=map_seed, **more),
            _share(scale, arch, seed, map_seed=map_seed, **more),
        )
    ]
    one, weaker = _map(scale, "noise", first), _weaker(scale, first, 0).key
    if ask.archs is None and ask.seeds is None:
        grid += [replace(mask, trained_by=weaker) for mask in grid if mask.trained_by == one.trained_by]
    others = [replace(one, perplexity=value) for value in study.perplexities]
    others += [replace(one, map_rate=rate, map_start=start, iterations=n) for rate, start, n in study.placed]
    others += [replace(one, min_samples=value) for value in study.min_samples]
    others += [replace(one, filter=name) for name in ("knee", "hdbscan")]
    others += [mask for name, mask in masks(scale).items() if name != "random"]
    others.append(replace(masks(scale)["confident"], filter=FLAGGED, size_of=""))
    today = grid + [other for other in others if ask.archs is None and ask.seeds is None]
    return chosen({"today": today, "of-2020": then}, ask.part)
