"""Faults planted in Fashion-MNIST, or in digits: which way to filter one's own data finds them."""

from typing import Any

from dolb.config import require_known
from dolb.filtering.config import PlantedConfig
from dolb.recipes.asked import Asked, recipe

SHARE = 0.05  # of the training images that have a fault: what `dolb filter` removes unless told
REMOVED = (0.025, SHARE, 0.1)  # too few, as many as there are, too many
KINDS = ("flipped", "garbage")
# ``drawn`` is small enough for a CPU, ``whole`` is for a GPU, each with the network that `dolb filter` takes there.
_PARTS: dict[str, dict[str, Any]] = {
    "drawn": {"drawn_examples": 1_000, "arch": "smallnet-8"},
    "whole": {"arch": "resnet18"},
}


@recipe("sets", "seeds", part="drawn")
def own_data(scale: str, ask: Asked) -> list[PlantedConfig]:
    """Flipped labels and garbage images, each planted alone, and three shares to remove; seed after seed.

    ``part`` is ``drawn``, a thousand images for a CPU, or ``whole``, all of Fashion-MNIST for a GPU; ``sets`` are
    the kinds of fault.
    """
    require_known("part", ask.part, _PARTS)
    for kind in ask.sets or ():
        require_known("set", kind, KINDS)
    demo = scale == "demo"
    same: dict[str, Any] = (
        {"data": "digits", "drawn_examples": 400} if demo else {"data": "fashion-mnist", **_PARTS[ask.part]}
    )
    shares: dict[str, dict[str, Any]] = {kind: {f"{kind}_share": SHARE} for kind in KINDS}
    return [
        PlantedConfig(experiment="own-data", **same, **shares[kind], removed_share=removed, seed=seed)
        for seed in (ask.seeds or range(2 if demo else 10))
        for kind in ask.sets or KINDS
        for removed in REMOVED
    ]
