"""Programs that do the training step on a GPU, to be timed side by side: what a user would write, and this package's.

All train the same network by SGD with momentum in bfloat16, with the crops and mirrored images of CIFAR-10's usual
augmentation. Each is a function that does a number of steps and returns when the device has done them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from PIL import Image
from torch.nn import functional as F
from torchvision.transforms import v2

from dolb import models, results
from dolb.augment import DeviceImages, default_augment, draw_epoch
from dolb.data import ImageData
from dolb.training import engine
from dolb.training.config import RunConfig
from dolb.training.device import device_name
from dolb.training.packing import runs_at_once

BENCHMARK = "training step on a GPU"
EAGER = "plain eager loop"
COMPILED = "torch.compile"
MODES = {COMPILED: "default", f"{COMPILED} with graphs": "reduce-overhead"}
LOADER = "DataLoader"
ENGINE = "dolb, "  # with how many runs share the device
WORKERS = 8
PREFETCHED = 2  # batches by each worker, torch's default
# The first losses, all of one batch: the second and third follow from updates. In bfloat16 they may differ from those
# of the first program by a share of the loss and one of how far it has fallen; without updates all of that is missing.
CHECKED_STEPS = 3
TOLERANCE, OF_THE_FALL = 0.02, 0.25
Burst = Callable[[int], None]
Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]


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
    programs: dict[str, Program] = {} if engine_only else {EAGER: _resident_loop(config, train)}
    if loader:
        programs[f"{LOADER}, {WORKERS} workers"] = _loader_loop(config, data, train)
    if compiled:
        torch._dynamo.reset()
        programs |= {name: _resident_loop(config, train, mode) for name, mode in MODES.items()}
    if not plain_only:
        programs |= _packed(config, data, train, test, (1, runs_at_once(config)))
    _check(programs)
    about = {
        "benchmark": BENCHMARK,
        **{name: getattr(config, name) for name in ("arch", "batch_size", "data", "optimizer", "precision")},
        **results.provenance(
            torch_version=str(torch.__version__),
            device=device_name(device),
            engine="fused",
            data_fingerprint=data.fingerprint,
        ),
    }
    return programs, about


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
    names = {many: f"{ENGINE}{many} runs at once" if many > 1 else f"{ENGINE}one run" for many in counts}
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
