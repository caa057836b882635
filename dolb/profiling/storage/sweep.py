"""Many measurements of storage, making only those that the store lacks, on containers that are packed for them."""

import contextlib
import math
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from dolb import results
from dolb.profiling.config import StorageConfig
from dolb.profiling.ranks.cores import machine_name
from dolb.profiling.storage import feeding, formats, pictures, reading
from dolb.results.files import scratch
from dolb.results.fill import Todo, fill

_MOST_BYTES = {pictures.MADE: 120_000}  # of an image and its part of what a format adds, for what is left of a disk


def measure_all(
    configs: Sequence[StorageConfig],
    *,
    store: str | Path | None = None,
    time_limit: float | None = None,
    folder: str | Path | None = None,
    progress: bool = True,
) -> xr.Dataset:
    """Return the measurements of ``configs`` as one Dataset, making those that the store lacks.

    ``folder`` is on the disk that is measured, has data sets, and keeps the containers for later calls; without one
    they are in a temporary folder, and removed at the end. ``store`` and ``time_limit`` are as in `fill`.
    """
    if any(config.device_kind == "cuda" for config in configs) and not torch.cuda.is_available():
        raise formats.StorageError("device_kind 'cuda' needs a GPU, and torch finds none here; accepted: cpu")

    def make(todo: Todo[StorageConfig]) -> Iterator[xr.Dataset]:
        with scratch("dolb-storage-") if folder is None else contextlib.nullcontext(Path(folder)) as place:
            for config in todo.claim():
                yield measure(config, container(place, config, todo.waiting, folder))

    return fill(
        configs, make, store=store, time_limit=time_limit, what="measurements", unit="measurement", progress=progress
    )


def container(
    place: Path, config: StorageConfig, others: Sequence[StorageConfig] = (), data_dir: str | Path | None = None
) -> Path:
    """Return the container that a measurement reads, packed if it is not there; ``others`` will need theirs too."""
    target = place / f"{config.data}-{config.images}" / config.storage
    if not target.exists():
        reading.require_disk(place)
        lacking = {(one.data, one.images, one.storage) for one in [config, *others]}
        lacking = {one for one in lacking if not (place / f"{one[0]}-{one[1]}" / one[2]).exists()}
        # One of them is written twice over for a while.
        needed = sum(count * _MOST_BYTES.get(data, 10_000) for data, count, _ in lacking)
        free = shutil.disk_usage(place).free
        if needed > free:
            raise formats.StorageError(f"{place} has {free / 1e9:.1f} GB free; the containers need {needed / 1e9:.1f}")
        formats.write(pictures.examples(config.data, config.images, data_dir), config.storage, target)
    return target


def measure(config: StorageConfig, packed: Path) -> xr.Dataset:
    """Make one measurement on a container and return its row."""
    dataset = formats.load(packed)
    sample = min(config.sample, len(dataset))
    if config.task == "training":
        found = feeding.train(packed, config)
    elif config.task == "counting":
        found = reading.count(packed, access=config.access, sample=sample, seed=config.seed)
    else:
        found = reading.speed(
            packed, access=config.access, cache=config.cache, workers=config.loader_workers, sample=sample,
            seed=config.seed, decoded=config.task == "decoding",
        )  # fmt: skip
    unknown = dict.fromkeys(
        ("images_per_second", "starved", "trainer_images_per_second", "syscalls_per_image", "read_bytes_per_image",
         "image_bytes"), math.nan,
    )  # fmt: skip
    on_gpu = config.device_kind == "cuda"
    asked: dict[str, Any] = {**config.as_dict(), "key": config.key}
    values = {
        **unknown, "parameters": 0, **found,
        "file_system": reading.require_disk(packed), "cores": len(os.sched_getaffinity(0)),
        **results.provenance(
            torch_version=torch.__version__, device=torch.cuda.get_device_name() if on_gpu else machine_name(),
            engine="eager", data_fingerprint=dataset.about["fingerprint"],
        ),
    }  # fmt: skip
    on_run = {name: ("run", np.array([value])) for name, value in {**values, **asked}.items()}
    return results.describe(results.validate(xr.Dataset(on_run).set_coords(list(asked))))
