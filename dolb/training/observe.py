"""Runs that are watched: the trained network, and what it says of every training example as training goes on.

Filtering needs more of a run than its accuracies: the weights, whether each example was right after each epoch, and
the class probabilities early in training or of examples that were held out. The run is the engine's own, with its
fastest step; what is read of it is enqueued behind each epoch, before the next one changes the weights.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from torch import nn

from dolb import models, results
from dolb import progress as shown
from dolb.augment import DeviceImages
from dolb.data import ImageData
from dolb.training import engine, packing, processes
from dolb.training.config import EVAL_BATCH, RunConfig
from dolb.training.device import Mark, resolve_device
from dolb.training.run import PausedRuns


@dataclass(frozen=True, eq=False)
class Observed:
    """A finished run, its network, and what the network said of the training examples.

    ``weights`` is the network's state dict, on the host; ``correct`` is boolean, (epoch, example); ``probabilities`` is
    float32, (checkpoint, example, class), one checkpoint for each of the epochs that were asked for. What was not asked
    for is empty.
    """

    config: RunConfig
    result: xr.Dataset
    weights: dict[str, torch.Tensor]
    correct: np.ndarray
    probabilities: np.ndarray

    @property
    def device_seconds(self) -> float:
        """The seconds for which it had the device, with others its part of the time; set-up left out."""
        return results.device_seconds(self.result).item()

    def network(self, data: ImageData) -> nn.Module:
        """Return the trained network, on the host, ready for evaluation."""
        network = models.build(self.config.arch, data.num_classes, data.channels)
        network.load_state_dict(self.weights)
        return network.eval()


class OutOfFold(NamedTuple):
    """Class probabilities (example, class), and the seconds that training took."""

    probabilities: np.ndarray
    seconds: float


class _WatchedRun(engine.Run):
    """A run that evaluates further images behind epochs; in slices, so that memory stays that of a slice."""

    def __init__(self, *args: Any, seen: DeviceImages, checkpoints: Sequence[int], follow: bool, into: dict):
        self.seen, self.checkpoints, self.follow, self.into = seen, checkpoints, follow, into
        self.correct: list[torch.Tensor] = []
        self.probabilities: list[torch.Tensor] = []
        super().__init__(*args)

    def _launch(self, name: int, repeats: int = 1) -> Mark:
        mark, asked = super()._launch(name, repeats), self.epoch + 1 in self.checkpoints
        if name or not (self.follow or asked):
            return mark
        ends = [*range(0, len(self.seen), EVAL_BATCH), len(self.seen)]
        with self._on_stream(), torch.no_grad():
            scores = [self.program.evaluate(self.seen, *part).float() for part in itertools.pairwise(ends)]
            if self.follow:
                self.correct.append(torch.cat([part.argmax(1) for part in scores]) == self.seen.labels)
            if asked:
                self.probabilities.append(torch.cat([part.softmax(1) for part in scores]))
            return Mark(self.device)

    def result(self) -> xr.Dataset:
        """Return the finished run, and leave what was seen of it; a network that diverged has no weights."""
        ds, known = super().result(), {} if self.diverged else self.network.state_dict()
        weights = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in known.items()}
        says = [np.array([one.cpu().numpy() for one in rows]) for rows in (self.correct, self.probabilities)]
        self.into[self.config.key] = Observed(self.config, ds, weights, *says)
        return ds


def networks(
    configs: Sequence[RunConfig],
    data: ImageData | engine.DataOf,
    *,
    held: engine.DataOf | None = None,
    device: str = "auto",
    checkpoints: Sequence[int] = (),
    follow: bool = False,
    paused: PausedRuns | None = None,
    keep_ended: bool = False,
    progress: bool = True,
    **how: Any,
) -> Iterator[Observed]:
    """Train runs, several at a time, as ``engine.train_many`` does with ``how``, and yield each with its network.

    ``checkpoints`` are epochs, from 1, after which the class probabilities of every example are kept; ``follow`` keeps
    after every epoch which are right; ``held`` are examples to ask about in place of those that a run is trained on.
    What a stop leaves in flight goes on another time from ``paused``, if there is one. With ``keep_ended`` runs that
    have ended are left there too, until the caller drops them: another time they are at their end at once.
    """
    where = resolve_device(device)
    ended: dict[str, Observed] = {}

    def make(config: RunConfig, own: ImageData, train: DeviceImages, *rest: Any) -> _WatchedRun:
        seen = train
        if held is not None:
            others = held(config)
            seen = DeviceImages(others.train_images, others.train_labels, own.mean, own.std, where, 0)
        asked: dict[str, Any] = {"seen": seen, "checkpoints": checkpoints, "follow": follow}
        return _WatchedRun(config, own, train, *rest, **asked, into=ended)

    def watch(run: engine.Run, epoch: int) -> None:
        bar.update()
        if keep_ended and paused and epoch == run.config.epochs:
            paused.keep(run)

    names = ", ".join(dict.fromkeys(f"{config.arch} on {config.subset}" for config in configs))
    bar = shown.bar(sum(c.epochs for c in configs), names, "epoch", progress)
    with processes.one_thread(), bar:
        packs = packing.in_packs(configs)
        for config, result in engine.train_many(packs, data, where, make=make, watch=watch, paused=paused, **how):
            if result is not None:
                yield ended.pop(config.key)


def observe_all(configs: Sequence[RunConfig], data: ImageData | engine.DataOf, **asked: Any) -> list[Observed]:
    """Return all that ``networks`` yields, in the order of the configs; where it stops, ``engine.RunAbandoned``."""
    ended: dict[str, Observed] = {}
    for got in networks(configs, data, **asked):
        if not got.weights:
            raise ValueError(f"the run {got.config} diverged; it says nothing of the examples")
        ended[got.config.key] = got
    if len(ended) < len({config.key for config in configs}):
        raise engine.RunAbandoned
    return [ended[config.key] for config in configs]


def out_of_fold(config: RunConfig, data: ImageData, folds: int, **how: Any) -> OutOfFold:
    """Return class probabilities (example, class) of each example by a network that was trained without it.

    The examples of each class are dealt to ``folds`` parts at random, by the config's seed; a run is trained on all
    parts but one, for each.
    """
    parts = fold_of(data.train_labels, folds, config.seed)
    names = [f"{config.subset}-without-{fold + 1}-of-{folds}" for fold in range(folds)]
    rest = {name: data.subset(parts != fold, name) for fold, name in enumerate(names)}
    held = {name: data.subset(parts == fold, name) for fold, name in enumerate(names)}
    got = observe_all(
        [replace(config, subset=name) for name in names], lambda run: rest[run.subset],
        held=lambda run: held[run.subset], checkpoints=(config.epochs,), **how,
    )  # fmt: skip
    found = np.empty((len(parts), data.num_classes), dtype=np.float32)
    for fold, one in enumerate(got):
        found[parts == fold] = one.probabilities[0]
    return OutOfFold(found, sum(one.device_seconds for one in got))


def fold_of(labels: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Return the fold of each example, 0 to ``folds`` - 1: classes in equal parts, the members drawn by ``seed``."""
    smallest = np.unique(labels, return_counts=True)[1].min()
    if not 2 <= folds <= smallest:
        raise ValueError(f"folds is {folds}; accepted: 2 to {smallest}, the examples of the smallest class")
    order = np.random.default_rng(seed).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    parts = np.empty(len(labels), dtype=np.int64)
    parts[order] = np.arange(len(labels)) % folds
    return parts
