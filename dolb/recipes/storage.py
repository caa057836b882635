"""The measurements of storage: six forms of the same images, read, counted, and fed to a trainer."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from dolb.config import require_known
from dolb.profiling.config import FORMATS, StorageConfig
from dolb.recipes.asked import Asked, recipe

_PARTS = ("reading", "small-images", "counting", "decoding", "training")


@dataclass(frozen=True)
class _Grid:
    """What is measured of storage at one scale."""

    data: str
    images: int
    small: tuple[str, ...]  # data sets whose images are a few kilobytes
    workers: tuple[int, ...]
    small_workers: tuple[int, ...]
    decoders: int
    seeds: int
    more_seeds: int  # of what differs more: reading whole images, and the trainer
    sample: tuple[int, int]  # images of a measurement, cold and warm
    counted: int
    fed: tuple[str, ...]  # orders in which a trainer is fed
    training: dict[str, Any]


# On a CPU the trainer is a small network that takes about as many images as one core decodes: where it matters most.
# On a GPU it is ResNet-50 on whole crops.
_GPU: dict[str, Any] = {
    "arch": "resnet50", "image_size": 224, "batch_size": 128, "steps": 40, "warmup_steps": 20, "loader_workers": 16,
}  # fmt: skip
_GRIDS = {
    "paper": _Grid(
        data="imagenet-like", images=50_000, small=("cifar10",), workers=(1, 2, 8), small_workers=(1, 8),
        decoders=2, seeds=3, more_seeds=5, sample=(256, 512), counted=128, fed=("random", "sequential"),
        training={"arch": "smallnet-4", "image_size": 64, "batch_size": 32, "steps": 24, "warmup_steps": 4},
    ),
    "demo": _Grid(
        data="digits", images=1437, small=(), workers=(1, 2), small_workers=(), decoders=1, seeds=2, more_seeds=2,
        sample=(256, 256),
        counted=64, fed=("random",),
        training={"arch": "smallnet-4", "image_size": 16, "batch_size": 32, "steps": 6, "warmup_steps": 2},
    ),
}  # fmt: skip


@recipe("part", "workers", "seeds", "device", formats=FORMATS)
def data_pipeline(scale: str, ask: Asked) -> list[StorageConfig]:
    """Six forms of the same images: how fast they are read, and how a trainer starves.

    ``part`` is ``reading`` (the bytes alone, in order and at random, cold and warm, by number of processes),
    ``small-images`` (the same of CIFAR-10, at random), ``counting`` (system calls, and bytes from the disk),
    ``decoding``, ``training``, or ``all``. A seed, one order of reading, is made whole before the next, form by form.
    """
    require_known("part", ask.part, ("all", *_PARTS))
    grid = _GRIDS[scale]
    kind = "cuda" if ask.device.startswith("cuda") else "cpu"
    same = {"experiment": "data-pipeline", "device_kind": kind}
    whole = {**same, "data": grid.data, "images": grid.images, "sample": grid.sample[0]}
    trained = {
        **(_GPU if kind == "cuda" else grid.training),
        **({"loader_workers": ask.workers[-1]} if ask.workers else {}),
    }
    orders, caches, counts = ("random", "sequential"), ("cold", "warm"), ask.workers or grid.workers
    made: list[StorageConfig] = []

    def add(name: str, settings: dict[str, Any], **varied: Sequence[Any]) -> None:
        if ask.part in ("all", name):
            for values in product(*varied.values()):
                cell = {**settings, **dict(zip(varied, values, strict=True)), "seed": seed}
                if cell.get("cache") == "warm":
                    cell["sample"] = grid.sample[1]
                made.extend(StorageConfig(**cell, storage=form) for form in ask.formats)

    for number, seed in enumerate(ask.seeds or range(grid.more_seeds)):  # noqa: B007
        add("reading", whole, access=orders, loader_workers=counts, cache=caches)
        if ask.seeds or number < grid.seeds:
            for data in grid.small:
                small = {**whole, "data": data}
                add("small-images", small, loader_workers=ask.workers or grid.small_workers, cache=caches)
            add("decoding", {**whole, "task": "decoding", "loader_workers": grid.decoders})
        if number == 0:
            counted = {**whole, "task": "counting", "sample": grid.counted}
            add("counting", counted, access=grid.fed)
            for data in grid.small:
                add("counting", {**counted, "data": data})
        add("training", {**whole, "task": "training", **trained}, access=grid.fed)
    return made
