"""Time the training step on this CPU: stock PyTorch, stock PyTorch with channels_last, and dolb's engine.

    python benchmarks/cpu_step.py --batch-sizes 32 128

A step is everything: a batch from data in memory, forward, loss, backward, SGD update. The programs start from the same
weights, see the same batches (random images in the shape of CIFAR-10; nothing is downloaded) and take turns in one
process, in a random order at each step. If their losses differ, nothing is saved. Results are added to the file of
published benchmarks, in place of earlier ones of the same device, network and batch size.
"""

import argparse
import hashlib
import itertools
import os
import platform
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.nn import functional as F

from dolb import models, results
from dolb.augment import DeviceImages
from dolb.data import ImageData
from dolb.findings import engine as findings
from dolb.profiling import steps
from dolb.training import engine
from dolb.training.config import RunConfig

PUBLISHED = Path(__file__).resolve().parents[1] / "results" / "benchmarks.nc"
BATCHES = 8  # batches in an epoch, after which they come again in the same order
CIFAR10 = (32, 32, 3)

Step = Callable[[], float]  # does one step and returns its loss


def main() -> None:
    """Measure, say what was measured, save."""
    parser = argparse.ArgumentParser(description="Time the training step on this CPU: stock PyTorch and dolb.")
    parser.add_argument("--arch", nargs="+", default=["resnet18"], help="networks (default: %(default)s)")
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[32], help="(default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=20, help="repetitions (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=5, help="steps in a repetition (default: %(default)s)")
    parser.add_argument(
        "--image-shape", nargs=3, type=int, default=CIFAR10, metavar=("HEIGHT", "WIDTH", "CHANNELS"),
        help="of the random images (default: those of CIFAR-10)",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, default=PUBLISHED, help="(default: results/benchmarks.nc)")
    asked = parser.parse_args()
    for name in ("repeats", "steps"):
        if getattr(asked, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(asked, name)}")

    measured = []
    for arch in asked.arch:
        for size in asked.batch_sizes:
            print(f"{arch}, batch {size}; load of the machine {os.getloadavg()[0]:.1f}", flush=True)
            timed = training_step(arch, size, tuple(asked.image_shape))
            measured.append(steps.time_programs(*timed, repeats=asked.repeats, steps=asked.steps))
            print(_table(findings.compare(measured[-1], steps.STOCK)), flush=True)
    before = results.load(asked.output) if asked.output.exists() else None
    results.save(steps.replace(before, measured), asked.output)
    print(f"wrote {asked.output}")


def _table(cells: pd.DataFrame) -> str:
    shown = cells[["program", "milliseconds", "images_per_second", "ratio", "ratio_low", "ratio_high", "repeats"]]
    return shown.to_string(index=False, float_format="%.2f")


def training_step(
    arch: str, batch_size: int, image_shape: tuple[int, int, int] = CIFAR10
) -> tuple[dict[str, Step], dict[str, Any]]:
    """Return programs that each do the training step of a network on this CPU, by name, and what they have in common.

    The images are random, in the shape of CIFAR-10 unless said otherwise: the time of a step does not depend on what
    is in them, and nothing has to be downloaded.
    """
    data = random_images(BATCHES * batch_size, image_shape)
    config = RunConfig(arch=arch, data=data.name, batch_size=batch_size, lr=1e-3, augment="none", epochs=1000)
    train, test = engine.on_device(data, torch.device("cpu"))
    run = engine.Run(config, data, train, test, torch.device("cpu"), "eager")
    run._load_draws(0)
    programs = {
        steps.STOCK: _plain_loop(config, train, run.place.order, torch.contiguous_format),
        f"{steps.STOCK}, channels_last": _plain_loop(config, train, run.place.order, torch.channels_last),
        "dolb": _engine_step(run),
    }
    about = {
        "benchmark": steps.ON_CPU,
        **{name: getattr(config, name) for name in ("arch", "batch_size", "data", "optimizer", "precision")},
        **results.provenance(
            torch_version=str(torch.__version__),
            device=_cpu_name(),
            engine="eager",
            data_fingerprint=data.fingerprint,
        ),
    }
    return programs, about


def random_images(count: int, shape: tuple[int, int, int] = CIFAR10) -> ImageData:
    """Return random images, by default in the shape of CIFAR-10: a step's time does not depend on what is in them."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
    labels = rng.integers(0, 10, count)
    fingerprint = hashlib.sha256(images.tobytes() + labels.astype("<i8").tobytes()).hexdigest()
    channels = shape[2]
    classes = tuple(map(str, range(10)))
    # One test image, because there must be some; nothing is evaluated.
    return ImageData(
        "random", images, labels, images[:1], labels[:1], classes, fingerprint, (0.5,) * channels, (0.3,) * channels
    )


def _plain_loop(config: RunConfig, train: DeviceImages, order: torch.Tensor, layout: torch.memory_format) -> Step:
    """Return the step as anyone would write it, with the images normalised beforehand."""
    network = models.initialize(config.arch, 10, train.channels, 1, config.seed)
    network = network.to(memory_format=layout).train()  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(network.parameters(), lr=config.lr, momentum=config.momentum)
    images = train.centre(0, len(train)).contiguous(memory_format=layout)
    batches = itertools.cycle(order.split(config.batch_size))

    def step() -> float:
        index = next(batches)
        loss = F.cross_entropy(network(images[index].contiguous(memory_format=layout)), train.labels[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def _engine_step(run: engine.Run) -> Step:
    """Return the engine's own step; where an epoch would end, its batches come again without an evaluation."""

    def step() -> float:
        if run.place.cursor.item() == run.count:
            run.place.cursor.zero_()
        run._launch(run.config.batch_size)
        loss = run.place.loss_sum.item() / run.config.batch_size
        run.place.loss_sum.zero_()
        return loss

    return step


def _cpu_name() -> str:
    try:
        said = subprocess.run(["lscpu"], capture_output=True, text=True, env={"LC_ALL": "C"}, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        said = ""
    found = re.search(r"^Model name:\s*(.+)$", said, flags=re.MULTILINE)
    model = found[1].strip() if found else platform.processor()
    return ", ".join(filter(None, [f"CPU {platform.machine()}", model, f"{torch.get_num_threads()} threads"]))


if __name__ == "__main__":
    main()
