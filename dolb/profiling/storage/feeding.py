"""A trainer fed from a container by torch's loader, and the share of its time in which it waits for images."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from dolb import models
from dolb.profiling.config import StorageConfig
from dolb.profiling.storage import reading
from dolb.profiling.storage.formats import Dataset, load
from dolb.profiling.storage.pictures import CLASSES


class _Pictures(IterableDataset):
    """What each worker of a loader reads and decodes of a container, in order or at random."""

    def __init__(self, dataset: Dataset, config: StorageConfig, sample: int):
        self.dataset, self.config, self.sample = dataset, config, sample

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        info, config = get_worker_info(), self.config
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        for batch in reading.read(self.dataset, config.access, self.sample, worker, workers, config.seed):
            for data, label in batch:
                pixels = self.dataset.pixels(data, config.image_size)
                yield torch.from_numpy(pixels.copy()).permute(2, 0, 1), label


def train(container: Path, config: StorageConfig) -> dict[str, Any]:
    """Train on a container's images for some steps; return the share of time that the trainer waited for a batch.

    On a CPU the trainer has a core of its own and the loader's workers share the others, as beside an accelerator. The
    first steps, which find batches that were prepared while the trainer started, do not count.
    """
    device, cores = torch.device(config.device_kind), sorted(os.sched_getaffinity(0))
    on_cpu, threads = device.type == "cpu", torch.get_num_threads()
    network = models.initialize(config.arch, CLASSES, 3, 1, config.seed).to(device)
    layout = torch.contiguous_format if on_cpu else torch.channels_last
    network = network.to(memory_format=layout).train()  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    whole = config.warmup_steps + config.steps
    workers = config.loader_workers
    sample = min(len(load(container)), (whole + 2 * workers) * config.batch_size)

    def step(images: torch.Tensor, labels: torch.Tensor) -> None:
        images, labels = (part.to(device, non_blocking=True) for part in (images, labels))
        with torch.autocast(device.type, torch.bfloat16, enabled=not on_cpu):
            scores = network(images.to(memory_format=layout).float().div(255))
            loss = F.cross_entropy(scores, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if not on_cpu:
            torch.cuda.synchronize()

    def apart(_worker: int) -> None:
        torch.set_num_threads(1)
        if on_cpu and len(cores) > 1:
            os.sched_setaffinity(0, cores[1:])

    loader = DataLoader(
        _Pictures(load(container), config, sample), batch_size=config.batch_size, num_workers=workers,
        worker_init_fn=apart, pin_memory=not on_cpu, drop_last=True, multiprocessing_context="fork",
    )  # fmt: skip
    how = reading.cool(container) if config.cache == "cold" else ""
    batches = iter(loader)
    try:
        if on_cpu:
            torch.set_num_threads(1)
            os.sched_setaffinity(0, cores[:1])
        waited = begin = 0.0
        for number in range(whole):
            if number == config.warmup_steps:
                waited, begin = 0.0, time.perf_counter()
            asked = time.perf_counter()
            batch = next(batches)
            waited += time.perf_counter() - asked
            step(*batch)
        seconds = time.perf_counter() - begin
    finally:
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(threads)
        del batches  # ends the workers
    images = config.steps * config.batch_size
    return {
        "images_per_second": images / seconds, "seconds": seconds, "starved": waited / seconds, "cooled_by": how,
        "trainer_images_per_second": images / (seconds - waited),
        "parameters": sum(weight.numel() for weight in network.parameters()),
    }  # fmt: skip
