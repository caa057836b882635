"""The training engine: drives one run to its end, or several that share a device.

On CUDA each run has its own stream and its step is one graph launch, so that small runs fill the device together.
``packing`` decides which run may start beside which; here runs are started, and put off where memory does not suffice.
"""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np
import torch
import xarray as xr
from tqdm.auto import tqdm

from dolb.augment import DeviceImages, default_augment
from dolb.data import ImageData
from dolb.training import packing
from dolb.training.config import HELD_OUT, SHARE, RunConfig
from dolb.training.device import (
    DeviceMemoryError,
    is_out_of_memory,
    memory_cap,
    memory_in_use,
    release_memory,
    resolve_device,
)
from dolb.training.run import BURST, PausedRuns, Run

__all__ = [
    "BURST", "STEPS", "Run", "RunAbandoned", "Watcher", "fastest_step", "on_device", "resolve_device", "subset_of",
    "train", "train_many",
]  # fmt: skip

STEPS = ("eager", "graph", "fused")
POLL_SECONDS = 5e-4  # a run has two bursts or more enqueued, several milliseconds each: the host can rest meanwhile


class RunAbandoned(Exception):
    """A run that something else needs was stopped before its end."""


def fastest_step(device: torch.device) -> str:
    """Return the step that a device runs best: torch's own on a CPU, and on CUDA the fused one if Triton is there."""
    if device.type == "cpu":
        return "eager"
    return "fused" if importlib.util.find_spec("triton") else "graph"


def on_device(data: ImageData, device: torch.device) -> tuple[DeviceImages, DeviceImages]:
    """Put training and test images on a device, once for all runs that share them."""
    _, pad = default_augment(data.name)
    train = DeviceImages(data.train_images, data.train_labels, data.mean, data.std, device, pad)
    test = DeviceImages(data.test_images, data.test_labels, data.mean, data.std, device, 0)
    return train, test


class _Pack:
    """The runs in flight on one device, and the config that comes next."""

    def __init__(
        self,
        configs: Iterable[RunConfig],
        data_of: DataOf,
        device: torch.device,
        step: str,
        at_once: int | None,
        cap: Callable[[float], None],
        paused: PausedRuns | None,
        make: Callable[..., Run],
    ):
        self.waiting, self.data_of, self.device, self.step, self.at_once = iter(configs), data_of, device, step, at_once
        self.cap, self.paused, self.make = cap, paused, make
        self.limit = packing.DEVICE_SHARE * memory_in_use(device)[1]
        self.images: dict[int, tuple[DeviceImages, DeviceImages]] = {}  # by the identity of the data
        self.active: list[tuple[Run, Iterator[int | None]]] = []
        self.next: RunConfig | None = None
        self.too_many = math.inf  # so many runs in flight left too little memory for the next
        self.changed = True  # since the next one was last tried
        self.measured: dict[packing.Shape, float] = {}
        self.told: set[packing.Shape] = set()  # of these the user knows that they wait for memory
        self.set_aside: list[tuple[RunConfig, str]] = []  # what did not fit alone, and what it lacks

    def fill(self, stop: Callable[[], bool]) -> None:
        """Start runs for as long as there is room for the next."""
        while self.changed and self._taken() < 1 and not stop():
            self.next = self.next or next(self.waiting, None)
            if self.next is None:
                return
            self.changed = self._has_room(self.next) and self._start(self.next)

    def remove(self, run: Run) -> None:
        """Take out a run that has ended."""
        self.active = [(other, steps) for other, steps in self.active if other is not run]
        self.changed = True

    def turn(
        self, run: Run, steps: Iterator[int | None], watch: Watcher, stop: Callable[[], bool]
    ) -> tuple[bool, xr.Dataset | None]:
        """Give a run its turn; return whether it is out now, and its result if it came to its end."""
        if stop() and len(run.measured) < run.config.epochs:
            self.remove(run)
            steps.close()  # type: ignore[attr-defined]
            if self.paused:
                self.paused.keep(run)
            return True, None
        try:
            epoch = next(steps)
            if epoch is not None:
                run.neighbours.append(len(self.active))
                run.parts.append(packing.part(run.config, (other.config for other, _ in self.active), self.at_once))
                watch(run, epoch)
        except StopIteration:
            self.remove(run)
            return True, run.result()
        return False, None

    def _taken(self) -> Fraction:
        return sum((packing.share(run.config, self.at_once) for run, _ in self.active), Fraction())

    def _has_room(self, config: RunConfig) -> bool:
        if not self.active:
            release_memory(self.device)
            return True
        if self._taken() + packing.share(config, self.at_once) > 1 or len(self.active) >= self.too_many:
            return False
        need = packing.predicted_need(config, self.measured)
        if packing.fits(need, memory_in_use(self.device)[0], self.limit):
            return True
        release_memory(self.device)
        used, _ = memory_in_use(self.device)
        if packing.fits(need, used, self.limit):
            return True
        if need is not None:
            self._tell_it_waits(config, need, used)
        return False

    def _start(self, config: RunConfig) -> bool:
        """Start a run; if the device's memory does not suffice, put it off until fewer are in flight.

        One that does not fit alone is set aside for good. Returns whether the next may be tried.
        """
        data = self.data_of(config)
        used, _ = memory_in_use(self.device)
        need = packing.predicted_need(config, self.measured)
        self.cap(self.limit)
        try:
            images = self._images(data)  # not before: others may hold all the runs
            used, _ = memory_in_use(self.device)
            run = self.make(config, data, *images, self.device, self.step)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        else:
            shape = packing.shape(config)
            self.measured[shape] = max(run.reserved, self.measured.get(shape, 0))
            if self.paused:
                self.paused.resume(run)
            self.active.append((run, run.steps()))
            self.next, self.too_many = None, math.inf
            return True
        # The failed run's memory is free only out here, where the error that names its frames is gone.
        release_memory(self.device)
        if not self.active:
            lack = packing.lack_of_memory(config, need, used, self.limit)
            self.set_aside.append((config, f"{lack}, with no other run of this sweep beside it"))
            self.next = None
            tqdm.write(f"notice: {self.set_aside[-1][1]}; {packing.named(config)} is set aside")
            return True
        self.too_many = len(self.active)
        self._tell_it_waits(config, need, used)
        return False

    def _images(self, data: ImageData) -> tuple[DeviceImages, DeviceImages]:
        """Return a data set on the device, for all runs in flight that share it; those that no run needs are let go."""
        needed = {id(data), *(id(run.data) for run, _ in self.active)}
        self.images = {one: images for one, images in self.images.items() if one in needed}
        if id(data) not in self.images:
            self.images[id(data)] = on_device(data, self.device)
        return self.images[id(data)]

    def _tell_it_waits(self, config: RunConfig, need: float | None, used: float) -> None:
        if packing.shape(config) not in self.told:
            self.told.add(packing.shape(config))
            lack = packing.lack_of_memory(config, need, used, self.limit)
            fewer = "no other is" if len(self.active) == 1 else f"fewer than {len(self.active)} are"
            tqdm.write(f"notice: {lack}; such runs wait until {fewer} in flight")


Watcher = Callable[[Run, int], None]
DataOf = Callable[[RunConfig], ImageData]


def train_many(
    configs: Iterable[RunConfig],
    data: ImageData | DataOf,
    device: torch.device,
    *,
    at_once: int | None = None,
    step: str | None = None,
    paused: PausedRuns | None = None,
    watch: Watcher = lambda run, epoch: None,
    stop: Callable[[], bool] = lambda: False,
    make: Callable[..., Run] | None = None,
) -> Iterator[tuple[RunConfig, xr.Dataset | None]]:
    """Train runs on one device, several at a time, and yield each as it ends.

    ``data`` is what all are trained on, or what says it for each; whatever it says must stay the same object.
    ``at_once`` is how many at most; by default one on a CPU, and on CUDA as many as ``packing`` knows to be best.
    ``step`` is one of ``STEPS``, by default the device's fastest.
    A run is started only if it fits a GPU's memory by what earlier ones took, and waits, with a notice, where it does
    not after all. One that does not fit alone is set aside, and at the end ``DeviceMemoryError`` names all of these.
    ``watch(run, epoch)`` is called after every epoch.
    ``stop()`` is asked all the while, on CUDA within an epoch too; once True, every run in flight is yielded as None.
    ``paused`` keeps where those are, and lets a run that it knows go on from there.
    ``make`` makes a run of what `Run` takes, in place of it.
    """
    step = fastest_step(device) if step is None else step
    if step not in STEPS or (step == "graph" and device.type == "cpu"):
        raise ValueError(f"step {step!r} is not known on {device}; accepted: {', '.join(STEPS)} (graph on CUDA only)")
    if at_once is None and device.type == "cpu":
        at_once = 1
    with memory_cap(device) as cap:
        data_of = (lambda _: data) if isinstance(data, ImageData) else data
        pack = _Pack(configs, data_of, device, step, at_once, cap, paused, make or Run)
        while True:
            pack.fill(stop)
            if not pack.active:
                if pack.next is not None:  # stopped as it waited
                    yield pack.next, None
                if pack.set_aside:
                    raise DeviceMemoryError(packing.set_aside_error(pack.set_aside))
                return
            for run, steps in list(pack.active):
                out, ds = pack.turn(run, steps, watch, stop)
                if out:
                    yield run.config, ds
            del run, steps  # an ended run's memory is free only once nothing names it
            if device.type == "cuda":
                time.sleep(POLL_SECONDS)


def train(config: RunConfig, data: ImageData, device: str = "cpu", *, step: str | None = None) -> xr.Dataset:
    """Train one run to its end and return its Dataset."""
    (_, ds), *_ = train_many([config], data, resolve_device(device), step=step)
    assert ds is not None
    return ds


def subset_of(data: ImageData, name: str, subsets: Mapping[str, np.ndarray]) -> ImageData:
    """Return the data of a run's ``subset``: all of it, a share of each class, or the examples a named mask keeps.

    Where a share is held out, it stands in the place of the test set.
    """
    if name == "full":
        return data
    if name.startswith(SHARE):
        return data.subset(_share_of(data.train_labels, float(name.removeprefix(SHARE))), name)
    if name.startswith(HELD_OUT):
        held = _share_of(data.train_labels, float(name.removeprefix(HELD_OUT)))
        data = replace(data, test_images=data.train_images[held], test_labels=data.train_labels[held])
        return data.subset(~held, name)
    if name not in subsets:
        raise ValueError(f"subset {name!r} is not known; accepted: {', '.join(['full', f'{SHARE}0.1', *subsets])}")
    return data.subset(subsets[name], name)


def _share_of(labels: np.ndarray, share: float) -> np.ndarray:
    """Return a mask that keeps evenly spaced examples of the list sorted by class: a share of each class, undrawn."""
    if not 0 < share <= 1:
        raise ValueError(f"a share of the examples is {share:g}; accepted: above 0, to 1")
    places = (np.arange(round(share * len(labels))) / share).astype(int)
    keep = np.zeros(len(labels), dtype=bool)
    keep[np.argsort(labels, kind="stable")[places]] = True
    return keep
