"""Time the training step on a GPU: a plain eager loop, a DataLoader pipeline, torch.compile, and dolb's engine.

    python benchmarks/gpu_step.py --batch-sizes 64 256 1024 16384
    python benchmarks/gpu_step.py --arch resnet34 resnet50 --batch-sizes 16 256 20480 --plain
    python benchmarks/gpu_step.py --arch resnet34 resnet50 --batch-sizes 16 256 20480 --engine
    python benchmarks/gpu_step.py --arch resnet18 resnet50 --batch-sizes 1024 4096 16384 --optimizers

A step is everything: batch, augmentation, forward, loss, backward, SGD update. The programs train the same network on
random images in the shape of CIFAR-10, and take turns in one process, in a random order at each repetition. What the
DataLoader's workers have prepared while others had their turn is used up untimed before its own, and a repetition of it
has hundreds of steps. With the programs go the device's own limits, measured in the same process, and the step's
arithmetic and memory traffic, counted. Results are added to the file of published benchmarks, in place of earlier ones
of the same device, network and batch size, of which all programs are timed again.

With ``--plain`` only the eager loop is timed, at that speed the book says what a study would have taken; with
``--engine`` only dolb's engine, at that speed it says what a run costs. Either passes over what the file has of this
device already, and leaves what was timed of other programs; between programs that were not timed in one process no
ratio is given. ``--optimizers`` times dolb's engine, one run, with each optimizer in turns, as a benchmark of its own.
"""

import argparse
import gc
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from PIL import Image
from torch.nn import functional as F
from torchvision.transforms import v2

from benchmarks import roofline
from benchmarks.cpu_step import random_images
from dolb import models, results
from dolb.augment import DeviceImages, default_augment, draw_epoch
from dolb.data import ImageData
from dolb.findings import engine as findings
from dolb.profiling import steps
from dolb.training import engine
from dolb.training.config import OPTIMIZERS, RunConfig
from dolb.training.device import device_name, resolve_device
from dolb.training.packing import runs_at_once

PUBLISHED = Path(__file__).resolve().parents[1] / "results" / "benchmarks.nc"
EXAMPLES = 50_000
COMPILED, LOADER = "torch.compile", "DataLoader"
BY_OPTIMIZER = "training step on a GPU by optimizer"  # whose programs are the engine's, one run, named by the optimizer
TIMES_READY = 15
MODES = {COMPILED: "default", f"{COMPILED} with graphs": "reduce-overhead"}
WORKERS = 8
PREFETCHED = 2  # batches by each worker, torch's default
# The first losses, all of one batch: the second and third follow from updates. In bfloat16 they may differ from those
# of the first program by a share of the loss and one of how far it has fallen; without updates all of that is missing.
CHECKED_STEPS = 3
TOLERANCE, OF_THE_FALL = 0.02, 0.25
Burst = Callable[[int], None]
Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]


def main() -> None:
    """Measure, say what was measured, save."""
    parser = argparse.ArgumentParser(description="Time the training step on a GPU: plain PyTorch and dolb.")
    parser.add_argument("--arch", nargs="+", default=["resnet18"], help="networks (default: %(default)s)")
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[64, 256, 1024, 16384])
    parser.add_argument("--compiled", nargs="*", type=int, default=[], help="batch sizes at which to try torch.compile")
    parser.add_argument("--loader", nargs="*", type=int, default=[], help="batch sizes at which to try a DataLoader")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--plain", action="store_true", help="only the eager loop, where it was not timed before")
    only.add_argument("--engine", action="store_true", help="only dolb's engine, where it was not timed before")
    only.add_argument("--optimizers", action="store_true", help="dolb's engine with each optimizer, beside SGD")
    parser.add_argument("--repeats", type=int, default=5, help="repetitions (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.4, help="of a repetition (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=PUBLISHED, help="(default: results/benchmarks.nc)")
    asked = parser.parse_args()

    device = resolve_device("cuda")
    data = random_images(EXAMPLES)
    peak_flops, peak_bandwidth = roofline.peaks(device)
    print(f"matrix product {peak_flops / 1e12:.0f} TFLOP/s, copy {peak_bandwidth / 1e12:.2f} TB/s", flush=True)
    for arch in asked.arch:
        work = roofline.count(arch)
        for size in asked.batch_sizes:
            before = results.load(asked.output) if asked.output.exists() else None
            cell = (BY_OPTIMIZER if asked.optimizers else steps.ON_GPU, device_name(device), arch, size)
            known = programs_of(before, *cell) if before is not None else set()
            again = set() if asked.plain or asked.engine or asked.optimizers else known
            if asked.plain and steps.EAGER in known:
                continue
            if asked.engine and any(program.startswith(steps.ENGINE) for program in known):
                continue
            # What takes the place of earlier figures has all that they compared.
            others = {
                "compiled": size in asked.compiled or COMPILED in again,
                "loader": size in asked.loader or any(program.startswith(LOADER) for program in again),
            }
            only_one = {"plain_only": asked.plain, "engine_only": asked.engine}
            if asked.optimizers:
                timed, about = by_optimizer(data, arch, size, device)
            else:
                timed, about = training_step(data, arch, size, device, **others, **only_one)
            floors = {
                "step_flops": work.flops(size),
                "step_bytes": work.bytes(size),
                "peak_flops": peak_flops,
                "peak_bandwidth": peak_bandwidth,
            }
            measured = time_bursts(
                {name: program.burst for name, program in timed.items()},
                {name: program.runs for name, program in timed.items()},
                {**about, **floors},
                ready={name: program.ready for name, program in timed.items()},
                repeats=asked.repeats,
                seconds=asked.seconds,
            )
            if asked.optimizers:
                measured = measured.assign_coords(optimizer=("run", measured["program"].to_numpy()))
            cells = findings.compare(measured, next(iter(timed)))  # the eager loop, or one run where it is left out
            print(f"{arch}, batch {size}")
            print(cells[["program", "images_per_second", "ratio", "ratio_low", "ratio_high"]].to_string(), flush=True)
            kept = steps.replace(before, [measured], by_program=asked.plain or asked.engine)
            results.save(kept, asked.output)  # at once: the next one may not fit in time
            del timed
            gc.collect()
            torch.cuda.empty_cache()
    print(f"wrote {asked.output}")


@dataclass(frozen=True, eq=False)
class Program:
    """One way to do the step, how many runs it does at once, and its losses on the first batch, where they compare.

    ``ready`` is how many batches it may have prepared while other programs had their turn.
    """

    burst: Burst
    runs: int = 1
    first_losses: tuple[float, ...] = ()
    ready: int = 0


def training_step(
    data: ImageData,
    arch: str,
    batch_size: int,
    device: torch.device,
    *,
    compiled: bool = False,
    loader: bool = False,
    plain_only: bool = False,
    engine_only: bool = False,
) -> tuple[dict[str, Program], dict[str, Any]]:
    """Return the programs for one network and batch size by name, and what they share.

    They are all, or the plain loop alone, or this package's alone: one run, and as many as share a device best.
    """
    if engine_only and (plain_only or compiled or loader):
        raise ValueError("engine_only leaves out every other program; plain_only, compiled and loader must be False")
    config = RunConfig(arch=arch, data=data.name, batch_size=batch_size, lr=1e-3, precision="bf16", epochs=1000)
    if not plain_only:  # the engine turns it on, and so it has to be before other programs choose or capture kernels
        torch.backends.cudnn.deterministic = True
    train, test = engine.on_device(data, device)
    programs: dict[str, Program] = {} if engine_only else {steps.EAGER: _resident_loop(config, train)}
    if loader:
        programs[f"{LOADER}, {WORKERS} workers"] = _loader_loop(config, data, train)
    if compiled:
        torch._dynamo.reset()
        programs |= {name: _resident_loop(config, train, mode) for name, mode in MODES.items()}
    if not plain_only:
        programs |= _packed(config, data, train, test, (1, runs_at_once(config)))
    _check(programs)
    return programs, _about(steps.ON_GPU, config, data, device)


# Rates at which the first losses move: LARS and LAMB go by parts of a tensor's length.
RATES = {"sgd": 1e-3, "nesterov": 1e-3, "lars": 1.0, "lamb": 1e-3}


def by_optimizer(
    data: ImageData, arch: str, batch_size: int, device: torch.device
) -> tuple[dict[str, Program], dict[str, Any]]:
    """Return this package's step, one run, with each optimizer by name, and what they share.

    The first losses of each are held to those of the plain step with the same optimizer.
    """
    same = RunConfig(arch=arch, data=data.name, batch_size=batch_size, weight_decay=5e-4, precision="bf16", epochs=1000)
    train, test = engine.on_device(data, device)
    programs = {}
    for optimizer in OPTIMIZERS:
        config = replace(same, optimizer=optimizer, lr=RATES[optimizer])
        plain = engine.Run(config, data, train, test, device, "eager")
        with plain._on_stream():
            plain._load_draws(0)
        reference = Program(lambda steps: None, first_losses=_first_losses(plain))
        del plain
        gc.collect()
        torch.cuda.empty_cache()
        (programs[optimizer],) = _packed(config, data, train, test, (1,)).values()
        _check({f"plain step with {optimizer}": reference, optimizer: programs[optimizer]})
    return programs, _about(BY_OPTIMIZER, same, data, device)


def _about(benchmark: str, config: RunConfig, data: ImageData, device: torch.device) -> dict[str, Any]:
    return {
        "benchmark": benchmark,
        **{name: getattr(config, name) for name in ("arch", "batch_size", "data", "optimizer", "precision")},
        **results.provenance(
            torch_version=str(torch.__version__),
            device=device_name(device),
            engine="fused",
            data_fingerprint=data.fingerprint,
        ),
    }


def _check(programs: dict[str, Program]) -> None:
    """Refuse programs whose first losses differ: what one of them leaves out, such as the update, takes it no time."""
    known = {name: program.first_losses for name, program in programs.items() if program.first_losses}
    reference, expected = next(iter(known.items()))
    for name, losses in known.items():
        for number, (loss, other) in enumerate(zip(losses, expected, strict=True), start=1):
            accepted = TOLERANCE * abs(other) + OF_THE_FALL * abs(expected[0] - other)
            if not abs(loss - other) <= accepted:  # a loss that is no number is refused too, that of the reference too
                raise RuntimeError(
                    f"loss {number} of {name!r} on the first batch is {loss:.4g} and that of {reference!r} is "
                    f"{other:.4g}; a difference up to {accepted:.2g} is accepted"
                )


def _loop(config: RunConfig, train: DeviceImages, batches: Batches, mode: str | None = None) -> Program:
    """Return the usual loop over batches: forward, loss, backward, update; the network compiled in a mode, if named."""
    network = models.initialize(config.arch, 10, train.channels, 1, config.seed)
    network = network.to(train.device).to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(network.parameters(), lr=config.lr, momentum=config.momentum)
    forward = torch.compile(network, dynamic=False, mode=mode) if mode else network

    def step(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        torch.compiler.cudagraph_mark_step_begin()  # what the last step's graphs hold may be written over
        with torch.autocast(train.device.type, torch.bfloat16):
            loss = F.cross_entropy(forward(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    def burst(steps: int) -> None:
        for _ in range(steps):
            step(*next(batches))
        torch.cuda.synchronize(train.device)

    first = next(batches)
    return Program(burst, first_losses=tuple(step(*first).item() for _ in range(CHECKED_STEPS)))


def _resident_loop(config: RunConfig, train: DeviceImages, mode: str | None = None) -> Program:
    """Return the loop over images that are on the device already, and an epoch's random choices with them."""
    draw = draw_epoch(len(train), config.seed, 0, *default_augment(config.data))
    choices = [torch.from_numpy(values).to(train.device) for values in (draw.order, draw.dy, draw.dx, draw.flip)]
    whole = len(train) // config.batch_size * config.batch_size

    def batches() -> Batches:
        while True:
            for index, dy, dx, flip in zip(*(c[:whole].split(config.batch_size) for c in choices), strict=True):
                yield train.batch(index, dy, dx, flip), train.labels[index]

    return _loop(config, train, batches(), mode)


class _Pictures(torch.utils.data.Dataset):
    """Images as torchvision's own data sets give them: one at a time, through the transforms."""

    def __init__(self, data: ImageData):
        self.data = data
        self.transform = v2.Compose(
            [
                v2.RandomCrop(data.train_images.shape[1], padding=4),
                v2.RandomHorizontalFlip(),
                v2.PILToTensor(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(data.mean, data.std),
            ]
        )

    def __len__(self) -> int:
        return len(self.data.train_labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(Image.fromarray(self.data.train_images[index])), int(self.data.train_labels[index])


def _loader_loop(config: RunConfig, data: ImageData, train: DeviceImages) -> Program:
    loader = torch.utils.data.DataLoader(
        _Pictures(data), config.batch_size, shuffle=True, num_workers=WORKERS, pin_memory=True, drop_last=True,
        persistent_workers=True, prefetch_factor=PREFETCHED,
    )  # fmt: skip

    def batches() -> Batches:
        for images, labels in itertools.chain.from_iterable(itertools.repeat(loader)):
            moved = images.to(train.device, non_blocking=True, memory_format=torch.channels_last)
            yield moved, labels.to(train.device, non_blocking=True)

    program = _loop(config, train, batches())
    # Its images are cut otherwise, so its losses are its own.
    return Program(program.burst, ready=WORKERS * PREFETCHED)


def _packed(
    config: RunConfig, data: ImageData, train: DeviceImages, test: DeviceImages, counts: tuple[int, ...]
) -> dict[str, Program]:
    """Return this package's step, for each number of runs that share the device, over one epoch's batches again.

    The runs of the largest number are made once, and the smaller numbers take the first of them.
    """
    configs = [replace(config, seed=seed) for seed in range(max(counts))]
    runs = [engine.Run(c, data, train, test, train.device, "fused") for c in configs]
    for run in runs:
        with run._on_stream():
            run._load_draws(0)
    per_epoch = runs[0].batches[0][1]
    done = [0] * len(runs)

    def burst(many: int, steps: int) -> None:
        for start in range(0, steps, engine.BURST):
            for position, run in enumerate(runs[:many]):
                for _ in range(min(engine.BURST, steps - start)):
                    if done[position] % per_epoch == 0:
                        with run._on_stream():
                            run.place.cursor.zero_()
                    run._launch(config.batch_size)
                    done[position] += 1
        torch.cuda.synchronize(train.device)

    first_losses = _first_losses(runs[0])
    burst(len(runs), 1)
    names = {many: f"{steps.ENGINE}{many} runs at once" if many > 1 else f"{steps.ENGINE}one run" for many in counts}
    return {name: Program(partial(burst, many), many, first_losses) for many, name in names.items()}


def _first_losses(run: engine.Run) -> tuple[float, ...]:
    """Do the first steps of a run that has its draws, all on the first batch, and return their losses."""
    losses = []
    for _ in range(CHECKED_STEPS):
        with run._on_stream():
            run.place.cursor.zero_()
            run.place.loss_sum.zero_()
        run._launch(run.config.batch_size)
        if run.stream:
            run.stream.synchronize()
        losses.append(run.place.loss_sum.item() / run.config.batch_size)
    return tuple(losses)


def programs_of(ds: xr.Dataset, benchmark: str, device: str, arch: str, batch_size: int) -> set[str]:
    """Return the programs that were timed on a device with a network and a batch size; maybe none."""
    names = ("benchmark", "device", "arch", "batch_size", "program")
    rows = zip(*(ds[name].to_numpy().tolist() for name in names), strict=True)
    return {program for *cell, program in rows if cell == [benchmark, device, arch, batch_size]}


def time_bursts(
    bursts: Mapping[str, Burst],
    runs_at_once: Mapping[str, int],
    about: Mapping[str, Any],
    *,
    ready: Mapping[str, int] | None = None,
    repeats: int = 5,
    seconds: float = 0.4,
) -> xr.Dataset:
    """Time programs that run ahead of the host, many steps at a time, in a random order at each repetition.

    Each function does that many steps and returns when the device has done them; with several runs at once, that many
    of each. A repetition of a program takes about ``seconds``.

    ``ready`` says of a program how many batches others' turns give it time to prepare. It does as many steps untimed
    before each repetition, so that none of them flatters it, and a repetition has `TIMES_READY` times as many steps or
    more, so that it lasts over many rounds of the workers that prepare them.
    """
    rng = np.random.default_rng(0)
    ready = dict.fromkeys(bursts, 0) | dict(ready or {})
    counts = {name: max(_steps_within(burst, seconds), TIMES_READY * ready[name]) for name, burst in bursts.items()}
    rows: list[dict[str, Any]] = []
    for repeat in range(repeats):
        taken = {}
        for name in map(str, rng.permutation(list(bursts))):
            if ready[name]:
                bursts[name](ready[name])
            taken[name] = _timed(bursts[name], counts[name])
        for name, runs in ((name, runs_at_once[name]) for name in bursts):
            each = taken[name] / (counts[name] * runs)
            rows.append({"program": name, "repeat": repeat, "step_seconds": each, "runs_at_once": runs})
    return steps.dataset(pd.DataFrame(rows), about, examples=about["batch_size"])


def _steps_within(burst: Burst, seconds: float) -> int:
    """Warm a program up, and return how many of its steps take about that long."""
    burst(3)
    count, taken = 4, 0.0
    while taken < seconds / 8 and count < 2**20:
        count *= 2
        taken = _timed(burst, count)
    return max(1, round(count * seconds / taken))


def _timed(burst: Burst, count: int) -> float:
    start = time.perf_counter()
    burst(count)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
