"""What one map or one mask is: a frozen record whose key names it, as a run's does; and what can be asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dolb import names
from dolb.config import Keyed, require_known

ON_THE_MAP = ("dbscan", "share", "knee", "hdbscan")
# Filters that remove as many as another, and what each goes by.
BASELINES = {
    "random": "nothing",
    "grid": "map",
    "el2n": "young networks",
    "forgetting": "training",
    "confident": "held-out predictions",
    "neighbours": "features",
}
FLAGGED = "flagged"  # what confident learning finds wrongly labelled, however many that are
FILTERS = ("none", *ON_THE_MAP, *BASELINES, FLAGGED)
WEIGHTS = ("trained", "imagenet", "given")  # the last: no network, but features of one's own
STARTS = ("pca", "random")
# By which data of one's own are filtered; "paper" is DBSCAN, with a radius or a share.
METHODS = ("paper", "knee", "hdbscan", "neighbours", "el2n", "forgetting", "confident", "grid", "random")
PLACED = ("map_seed", "perplexity", "map_rate", "map_start")  # by which a network's maps differ
_OF_THE_MASK = ("experiment", "eps", "min_samples", "share", "networks", "size_of", "within")


@dataclass(frozen=True, kw_only=True)
class FilterConfig(Keyed):
    """One map, or the mask that one filter makes: the same config and the same network give the same mask.

    ``filter`` ``none`` is the map alone, of training and test set. The others make a mask of the training set: from the
    map (``ON_THE_MAP``), of the size of another mask, class by class (``BASELINES``), or without all that confident
    learning flags (``FLAGGED``). ``share`` is DBSCAN with the radius at which that share of the map is noise. With
    ``within`` it is one more round of filtering: the network was trained on what another mask keeps, and the map is of
    that alone; the radius is that of the round before.
    """

    experiment: str = "adhoc"
    data: str = "digits"
    arch: str = "smallnet-4"
    weights: str = "trained"
    trained_by: str = ""  # key of the run that trained the network, or of the first of several
    seed: int = 0  # of that run; of the draw for a random mask
    filter: str = "dbscan"
    perplexity: float = 30.0
    iterations: int = 500
    map_seed: int = 0
    map_rate: float = 0.0  # learning rate of t-SNE; 0 follows the number of points
    map_start: str = "pca"
    eps: float = 0.5
    min_samples: int = 5
    share: float = 0.0  # of the training set that is to be noise
    networks: int = 1  # EL2N: networks, with seeds from `seed` on; confident learning: folds
    size_of: str = ""  # key of the mask whose size a baseline has
    within: str = ""  # key of the mask of the round before; what that removes stays removed

    def __post_init__(self) -> None:
        super().__post_init__()
        names.require(self.arch)
        self.refuse_unknown(filter=FILTERS, weights=WEIGHTS, map_start=STARTS)
        self.refuse_below(0, "map_rate")

    @property
    def map(self) -> FilterConfig:
        """The map alone on which the mask is made; masks on one map have the same."""
        return replace(self, filter="none", **{name: getattr(FilterConfig(), name) for name in _OF_THE_MASK})

    def usual(self, *names: str) -> bool:
        """Return whether these fields are at their defaults."""
        return all(getattr(self, name) == getattr(FilterConfig(), name) for name in names)

    @property
    def subset(self) -> str:
        """What runs call the examples that the mask keeps: the kind of set, the network, and part of the key."""
        on_the_map = "recursive" if self.within else "network" if self.weights == "trained" else "pretrained"
        return f"{on_the_map if self.filter in ON_THE_MAP else self.filter}-{self.arch}-{self.key[:8]}"


@dataclass(frozen=True, kw_only=True)
class PlantedConfig(Keyed):
    """A training set with known faults, and what every method removes of it.

    Of ``drawn_examples`` training images, 0 for all, ``flipped_share`` get the label of another class and
    ``garbage_share`` become noise, blank or scrambled. ``removed_share`` is what methods that take a share remove, by
    what networks ``arch`` say or by their features. ``seed`` draws images and faults.
    """

    experiment: str = "adhoc"
    data: str = "digits"
    drawn_examples: int = 0
    flipped_share: float = 0.0
    garbage_share: float = 0.0
    removed_share: float = 0.05
    arch: str = "smallnet-8"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        names.require(self.arch)


def refuse(
    methods: Sequence[str] = (),
    share: float | None = None,
    eps: float | None = None,
    arch: str | None = None,
    features: object = None,
) -> None:
    """Refuse what cannot be asked for of data of one's own, before torch is imported or anything is trained."""
    only = methods[0] if len(methods) == 1 else ""
    for name in methods:
        require_known("method", name, (*METHODS, "all"))
    if share is not None and not 0 < share < 1:
        raise ValueError(f"share is {share}; accepted: above 0 and below 1")
    if eps is not None and not 0 < eps < math.inf:
        raise ValueError(f"eps is {eps}; accepted: a finite number above 0")
    if share is not None and eps is not None:
        raise ValueError("share and eps both say how much is removed; accepted: one of them")
    if only not in ("", "paper") and eps is not None:
        raise ValueError(f"eps is no option of method {only}; accepted: with paper")
    if only in ("knee", "hdbscan") and share is not None:
        raise ValueError(f"share is no option of method {only}, which finds it out; accepted: with all others")
    if arch is not None:
        if features is not None:
            raise ValueError("an extractor makes features, and features are given; accepted: one of them")
        if arch in names.WITH_WEIGHTS and not methods:
            raise ValueError(f"{arch} comes with weights, as an extractor; accepted: a network to train")
        if names.require(arch).of_volumes:
            raise ValueError(f"{arch} is a network for volumes; accepted: one for images, such as resnet18")
