"""What bounds training on many nodes: layers by local batch, products, and what is sent in the gradients' place."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dolb.config import require_known
from dolb.profiling.config import POWER_SGD, SYNTHETIC, LayerConfig, ScalingConfig
from dolb.recipes.asked import Asked, recipe


@dataclass(frozen=True)
class _Layers:
    """What is timed of layers: networks with their largest batch on a CPU, and their fully connected layers."""

    data: str
    most: Mapping[str, int]
    products: Mapping[str, tuple[str, ...]]
    most_inputs: int  # of a product
    seeds: tuple[int, ...]


# The study's two networks beside ResNet-50. On a CPU a network gets as many images as minutes allow.
_LAYERS = {
    "paper": _Layers(
        data=SYNTHETIC, most={"alexnet": 256, "googlenet": 64, "resnet50": 16},
        products={
            "alexnet": ("classifier.1", "classifier.4", "classifier.6"), "googlenet": ("fc",), "resnet50": ("fc",),
        },
        most_inputs=256, seeds=tuple(range(6)),
    ),
    "demo": _Layers(
        data="digits", most={"smallnet-4": 64, "smallnet-16": 64}, products={"smallnet-4": ("fc",)}, most_inputs=64,
        seeds=(0, 1),
    ),
}  # fmt: skip
_MOST_ON_GPU = 256
PARTS = ("layers", "products")


@recipe("part", "archs", "batch_sizes", "seeds", "device_kind")
def limits(scale: str, ask: Asked) -> list[LayerConfig]:
    """Times of whole networks, layer by layer, and of single products, by batch size.

    A seed's measurements are made whole before the next, so that whatever slows the machine slows a whole curve.
    """
    require_known("part", ask.part, ("all", *PARTS))
    grid, gpu = _LAYERS[scale], ask.device_kind == "cuda"
    same: dict[str, Any] = {"experiment": "limits", "data": grid.data, "device_kind": ask.device_kind}

    def sizes(most: int) -> Iterable[int]:
        return ask.batch_sizes or [2**power for power in range(int(math.log2(most)) + 1)]

    made = []
    for seed in ask.seeds or grid.seeds:
        for arch in ask.archs or grid.most:
            most = _MOST_ON_GPU if gpu and scale == "paper" else grid.most.get(arch, max(grid.most.values()))
            made += [
                LayerConfig(arch=arch, batch_size=size, passes=20 if gpu else _passes(size), seed=seed, **same)
                for size in (sizes(most) if ask.part in ("layers", "all") else ())
            ]
        made += [
            LayerConfig(arch=arch, product=product, batch_size=size, passes=20 if gpu else 5, seed=seed, **same)
            for arch in ask.archs or grid.products
            for product in (grid.products.get(arch, ()) if ask.part in ("products", "all") else ())
            for size in sizes(grid.most_inputs)
        ]
    return made


def _passes(size: int) -> int:
    """Return over how many passes of a CPU a median is taken: few where one takes seconds."""
    return 2 if size <= 2 else 1


# Ways to send less: a hook under DDP, or weights that are averaged after so many updates. PowerSGD reduces a bucket
# several times, from callbacks; over Gloo those of two buckets can meet in another order on each rank, so it gets one.
_ONE_BUCKET_MB = 100.0
WAYS: tuple[dict[str, Any], ...] = (
    {}, {"hook": "fp16"}, {"hook": f"{POWER_SGD}4", "bucket_mb": _ONE_BUCKET_MB},
    {"hook": f"{POWER_SGD}1", "bucket_mb": _ONE_BUCKET_MB}, {"average_every": 4}, {"average_every": 16},
)  # fmt: skip
_PERIOD = 16  # updates after which weights are averaged under every way


@recipe("part", "repeats", "seeds")
def mitigations(scale: str, ask: Asked) -> list[ScalingConfig]:
    """Two ranks, each on a host of its own, that send less: the time of a step, and the accuracy.

    Time is of a few steps over links of several rates. Accuracy is after as many updates under every way, over links
    that are not held back, as their rate does not change what is learned. Links need root.
    """
    require_known("part", ask.part, ("all", "time", "accuracy"))
    demo = scale == "demo"
    same: dict[str, Any] = {"experiment": "mitigations", "ranks": 2, "hosts": 2, "pinned": True, "lr": 0.02}
    same["batch_size_per_rank"] = 16
    same |= {"data": "digits", "arch": "smallnet-8"} if demo else {"data": "cifar10", "arch": "resnet18"}
    made = []
    for repeat in range(ask.repeats or (1 if demo else 3)) if ask.part in ("time", "all") else ():
        for rate in (20.0,) if demo else (100.0, 1000.0):
            for way in WAYS:
                steps = max(way.get("average_every", 1), 4)
                how = {"steps": steps, "warmup_steps": steps, "link_mbit": rate, "repeat": repeat}
                made.append(ScalingConfig(**same, **way, **how))
    updates = 4 * _PERIOD if demo else 10 * _PERIOD
    for seed in ask.seeds or ((0,) if demo else (0, 1, 2)) if ask.part in ("accuracy", "all") else ():
        how = {"steps": updates - _PERIOD, "warmup_steps": _PERIOD, "seed": seed, "evaluated": 256 if demo else 2048}
        made += [ScalingConfig(**same, **way, **how) for way in WAYS]
    return made
