"""Faults planted in a data set: how many of them each way to filter finds, and what else it takes for one.

A label is flipped to another class, or an image becomes garbage. Which ones is known, so that a choice can be judged.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import xarray as xr

from dolb import data as datasets
from dolb import own, results
from dolb.filtering.config import METHODS, PlantedConfig
from dolb.images import Splits, assemble
from dolb.results.fill import Todo, fill
from dolb.training.device import device_name, resolve_device

GARBAGE = ("noise", "blank", "scrambled")
FAULTS = ("flipped", *GARBAGE)


@dataclass(frozen=True, eq=False)
class Planted:
    """A data set with faults in its training images; ``faults`` has the place in `FAULTS` of each, -1 for none."""

    data: datasets.ImageData
    faults: np.ndarray


def plant(base: datasets.ImageData, config: PlantedConfig) -> Planted:
    """Draw images of a data set and plant faults among those for training; the same config plants the same.

    A label is flipped to each other class alike. Of the garbage a third each is noise, in which every value is drawn
    alike, blank, in one shade, and scrambled, the image's own pixels in another order; it keeps its label. Of the test
    images as large a part is drawn, and they stay as they are.
    """
    rng, n = np.random.default_rng(config.seed), len(base.train_labels)
    count = config.drawn_examples or n
    if count > n:
        raise ValueError(f"drawn_examples is {count}; accepted: up to {n}, the training images of {base.name}")
    chosen = np.sort(rng.permutation(n)[:count])
    tested = np.sort(rng.permutation(len(base.test_labels))[: round(len(base.test_labels) * count / n)])
    images, labels = base.train_images[chosen].copy(), base.train_labels[chosen].copy()
    flipped, spoiled = round(config.flipped_share * count), round(config.garbage_share * count)
    order, faults = rng.permutation(count), np.full(count, -1)
    wrong = order[:flipped]
    labels[wrong] = (labels[wrong] + rng.integers(1, base.num_classes, flipped)) % base.num_classes
    faults[wrong] = 0
    for number, k in enumerate(order[flipped : flipped + spoiled]):
        kind = GARBAGE[number % len(GARBAGE)]
        if kind == "noise":
            images[k] = rng.integers(0, 256, images[k].shape, dtype=np.uint8)
        elif kind == "blank":
            images[k] = rng.integers(0, 256)
        else:
            images[k] = rng.permutation(images[k].reshape(-1, base.channels)).reshape(images[k].shape)
        faults[k] = FAULTS.index(kind)
    splits = Splits(images, labels, base.test_images[tested], base.test_labels[tested])
    return Planted(assemble(base.name, splits, base.classes), faults)


def measure_all(
    configs: Sequence[PlantedConfig],
    *,
    store: str | Path | None = None,
    device: str = "auto",
    data_dir: str | Path | None = None,
    time_limit: float | None = None,
    progress: bool = True,
) -> xr.Dataset:
    """Return what every method finds of planted faults as one Dataset, making what the store lacks."""
    bases = {name: datasets.load(name, data_dir) for name in {config.data for config in configs}}

    def make(todo: Todo[PlantedConfig]) -> Iterator[xr.Dataset]:
        for config in todo.claim():
            yield measure(config, bases[config.data], todo.store.folder, device)

    return fill(
        configs, make, store=store, fingerprint=lambda config: bases[config.data].fingerprint, time_limit=time_limit,
        foresee=True, what="planted data sets", unit="data set", progress=progress,
    )  # fmt: skip


def measure(config: PlantedConfig, base: datasets.ImageData, store: Path, device: str) -> xr.Dataset:
    """Plant faults, let every method choose, and count."""
    begun, planted = time.perf_counter(), plant(base, config)
    how = {"share": config.removed_share, "arch": config.arch, "store": store, "device": device, "progress": False}
    found = own.choose(planted.data, METHODS, **how)  # type: ignore[arg-type]
    if found.passed_over:
        raise ValueError("; ".join(f"{name}: {why}" for name, why in found.passed_over.items()))
    gone = np.stack([~one.keep for one in found.chosen.values()])
    is_fault = planted.faults == np.arange(len(FAULTS))[:, None]
    asked = {**config.as_dict(), "key": config.key}
    values = {
        "training_examples": len(planted.faults), "network_accuracy": found.accuracy,
        "seconds": time.perf_counter() - begun,  # of what was not in the store
        **results.provenance(
            torch_version=torch.__version__, device=device_name(resolve_device(device)), engine="eager",
            data_fingerprint=base.fingerprint,
        ),
    }  # fmt: skip
    ds = xr.Dataset(
        {name: ("run", np.array([value])) for name, value in {**values, **asked}.items()}
        | {
            "planted_examples": (("run", "fault"), is_fault.sum(axis=1)[None]),
            "removed_examples": (("run", "method"), gone.sum(axis=1)[None]),
            "method_seconds": (("run", "method"), np.array([[one.seconds for one in found.chosen.values()]])),
            "found_examples": (("run", "method", "fault"), (gone.astype(int) @ is_fault.T.astype(int))[None]),
        },
        {"method": list(found.chosen), "fault": list(FAULTS)},
    )
    return results.describe(results.validate(ds.set_coords(list(asked))))
