"""Runs that are watched: the trained network, and what it says of every training example as training goes on.

Filtering needs more of a run than its accuracies: the weights, whether each example was right after each epoch, and
the class probabilities early in training or of examples that were held out. The run is the engine's own, with its
fastest step; what is read of it is enqueued behind each epoch, before the next one changes the weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
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
    correct: np.ndarray = field(default_factory=lambda: np.empty(0))
    probabilities: np.ndarray = field(default_factory=lambda: np.empty(0))

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
    """A run that evaluates further images behind every epoch; in slices, so that memory stays that of a slice."""

    def __init__(self, *args: object, seen: DeviceImages, checkpoints: Sequence[int], follow: bool):
        self.seen, self.checkpoints, self.follow = seen, set(checkpoints), follow
        self.epochs_launched = 0
        self.correct: list[torch.Tensor] = []
        self.probabilities: list[torch.Tensor] = []
        super().__init__(*args)  # type: ignore[arg-type]

    def _launch(self, name: int, repeats: int = 1) -> Mark:
        if name:
            return super()._launch(name, repeats)
        super()._launch(name)
        self.epochs_launched += 1
        asked, ends = self.epochs_launched in self.checkpoints, [*range(0, len(self.seen), EVAL_BATCH), len(self.seen)]
        with self._on_stream(), torch.no_grad():
            if self.follow or asked:
                scores = [self.program.evaluate(self.seen, *part).float() for part in itertools.pairwise(ends)]
                if self.follow:
                    self.correct.append(torch.cat([part.argmax(1) for part in scores]) == self.seen.labels)
                if asked:
                    self.probabilities.append(torch.cat([part.softmax(1) for part in scores]))
            return Mark(self.device)

    def observed(self, result: xr.Dataset) -> Observed:
        """Return what was seen of a run that has ended."""
        says = [np.array([one.cpu().numpy() for one in rows]) for rows in (self.correct, self.probabilities)]
        return Observed(self.config, result, _weights(self), *says)


def networks(
    configs: Sequence[RunConfig],
    data: ImageData | engine.DataOf,
    *,
    device: str = "auto",
    at_once: int | None = None,
    step: str | None = None,
    paused: PausedRuns | None = None,
    keep_ended: bool = False,
    stop: Callable[[], bool] = lambda: False,
    progress: bool = True,
) -> Iterator[Observed]:
    """Train runs, several at a time, as in ``engine.train_many``, and yield each with its network.

    Once ``stop()`` is True, what is in flight is left in ``paused``, if there is one, and goes on another time. With
    ``keep_ended`` runs that have ended are left there too, until the caller drops them: another time they are at their
    end at once. The network of a run that diverged has no weights.
    """

    def watch(run: engine.Run, epoch: int) -> None:
        if keep_ended and paused and epoch == run.config.epochs:
            paused.keep(run)

    how: dict[str, Any] = {"at_once": at_once, "step": step, "paused": paused, "stop": stop, "progress": progress}
    for config, run, result in _trained(configs, data, resolve_device(device), watch=watch, **how):
        kept = _weights(run) if run and result is not None and not result["diverged"].item() else {}
        del run  # whose memory the next one may need
        if result is not None:
            yield Observed(config, result, kept)


def observe_all(
    configs: Sequence[RunConfig],
    data: ImageData | engine.DataOf,
    *,
    held: engine.DataOf | None = None,
    device: str = "auto",
    checkpoints: Sequence[int] = (),
    follow: bool = False,
    stop: Callable[[], bool] = lambda: False,
    progress: bool = True,
) -> list[Observed]:
    """Train runs and return each with its network and what that says of the training examples.

    ``checkpoints`` are epochs, from 1, after which the class probabilities of every example are kept; ``follow`` keeps
    after every epoch which are right; ``held`` are examples to ask about in place of those that a run is trained on.
    Once ``stop()`` is True, all is given up with ``engine.RunAbandoned``.
    """
    where = resolve_device(device)
    ended: dict[str, Observed] = {}

    def make(config: RunConfig, own: ImageData, train: DeviceImages, *rest: Any) -> _WatchedRun:
        seen = train
        if held is not None:
            others = held(config)
            seen = DeviceImages(others.train_images, others.train_labels, own.mean, own.std, where, 0)
        return _WatchedRun(config, own, train, *rest, seen=seen, checkpoints=checkpoints, follow=follow)

    for config, run, result in _trained(configs, data, where, make=make, stop=stop, progress=progress):
        if result is None:
            break
        assert isinstance(run, _WatchedRun)
        if run.diverged:
            raise ValueError(f"the run {config} diverged in epoch {len(run.measured)}; it says nothing of the examples")
        ended[config.key] = run.observed(result)
        del run  # whose memory the next one may need
    if len(ended) < len({config.key for config in configs}):
        raise engine.RunAbandoned
    return [ended[config.key] for config in configs]


def _trained(
    configs: Sequence[RunConfig],
    data: ImageData | engine.DataOf,
    device: torch.device,
    *,
    make: Callable[..., engine.Run] | None = None,
    watch: engine.Watcher = lambda run, epoch: None,
    progress: bool,
    **how: Any,
) -> Iterator[tuple[RunConfig, engine.Run | None, xr.Dataset | None]]:
    """Train runs as ``engine.train_many`` does, and yield each with its result, if it came to its end."""
    runs: dict[str, engine.Run] = {}

    def noted(config: RunConfig, *rest: Any) -> engine.Run:
        runs[config.key] = (make or engine.Run)(config, *rest)
        return runs[config.key]

    def watched(run: engine.Run, epoch: int) -> None:
        bar.update()
        watch(run, epoch)

    names = ", ".join(dict.fromkeys(f"{config.arch} on {config.subset}" for config in configs))
    bar = shown.bar(sum(c.epochs for c in configs), names, "epoch", progress)
    with processes.one_thread(), bar:
        for config, result in engine.train_many(
            packing.in_packs(configs), data, device, make=noted, watch=watched, **how
        ):
            yield config, runs.pop(config.key, None), result


def out_of_fold(
    config: RunConfig,
    data: ImageData,
    folds: int,
    *,
    device: str = "auto",
    stop: Callable[[], bool] = lambda: False,
    progress: bool = True,
) -> OutOfFold:
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
        held=lambda run: held[run.subset], device=device, checkpoints=(config.epochs,), stop=stop, progress=progress,
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


def _weights(run: engine.Run) -> dict[str, torch.Tensor]:
    """Return the state dict of a run whose last epoch is done, on the host."""
    return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in run.network.state_dict().items()}
