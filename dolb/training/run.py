"""One run in flight on a device: its state, its step, eager or captured as a CUDA graph, and what it has measured.

Everything a step needs is on the device before the epoch starts: the images, the epoch's order and augmentation draws,
the rate of every update. A step reads its place from a counter on the device, so on CUDA a whole step is one graph
launch. There are two steps: torch's own operations (``eager``, the reference, and ``graph``, the same captured), and
``fused``, which computes the same with fewer and larger kernels and is always captured on CUDA.
"""

from __future__ import annotations

import contextlib
import math
import pickle
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xarray as xr
from tqdm.auto import tqdm

from dolb import models, results, volumes
from dolb.augment import DeviceImages, EpochDraw, Place, default_augment, draw_epoch
from dolb.data import ImageData
from dolb.results.files import write_whole
from dolb.training.config import EVAL_BATCH, RunConfig
from dolb.training.convolution import with_fast_gradients
from dolb.training.device import Mark, device_name, host_peak
from dolb.training.step import EagerNetwork

if TYPE_CHECKING:
    from dolb.kernels.fused import FusedNetwork

BURST = 16  # steps enqueued on one stream before the next stream gets its turn
PICTURED = 6  # test volumes of which a run of volumes keeps a picture


def dealt(examples: int, batch_size: int, drop_last: bool = False) -> list[tuple[int, int]]:
    """Return the batches of an epoch, each size with how often it comes: full ones, then the rest unless it is dropped.

    A rest of one example joins the last full batch: batch norm cannot normalize a single value.
    """
    full, rest = divmod(examples, batch_size)
    if drop_last:
        return [(batch_size, full)]
    if rest == 1:
        return ([(batch_size, full - 1)] if full > 1 else []) + [(batch_size + 1, 1)]
    return [(batch_size, full)] + ([(rest, 1)] if rest else [])


class Run:
    """One run in flight on one device: its state, its step, and what it has measured."""

    # What a run that is stopped goes on with, besides its tensors.
    progress: tuple[str, ...] = (
        "epoch", "launched", "measured", "train_seconds", "eval_seconds", "neighbours", "parts", "started_at"
    )  # fmt: skip

    def __init__(
        self,
        config: RunConfig,
        data: ImageData,
        train: DeviceImages,
        test: DeviceImages,
        device: torch.device,
        step: str,
    ):
        self.config, self.data, self.train, self.test, self.device = config, data, train, test, device
        self.of_volumes = models.require(config.arch).of_volumes
        # Our kernels are those of images; torch's own step is captured for volumes.
        self.step = ("graph" if device.type == "cuda" else "eager") if self.of_volumes and step == "fused" else step
        count = len(data.train_labels)
        if config.batch_size > count:
            raise ValueError(
                f"batch_size {config.batch_size} is larger than the {count} training examples of {data.name}"
            )
        self.count = count
        self.batches = dealt(count, config.batch_size, config.drop_last)
        self.epoch_examples = sum(size * repeats for size, repeats in self.batches)
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.epoch_rates = config.rates(steps_per_epoch=sum(repeats for _, repeats in self.batches))
        self.memory = self.reserved = 0  # bytes of the device: peak in use by tensors, peak taken from it for them
        if self.stream:
            torch.backends.cudnn.deterministic = True  # one seed, one result, alone or beside other runs
            torch.backends.cudnn.allow_tf32 = False  # fp32 is float32; torch's default rounds convolutions to ten bits
            # Of float32's deterministic algorithms the one that cuDNN takes unasked is up to 3.6 times slower. Which it
            # finds fastest may be another in another process, so only where torch's own step is asked for.
            torch.backends.cudnn.benchmark = self._plain and not self.of_volumes
            torch.cuda.synchronize(device)
            torch.cuda.empty_cache()  # what ended runs left behind must not hide what this one takes
            torch.cuda.reset_peak_memory_stats(device)
            used, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
        with self._on_stream():
            self._allocate()
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.measured: list[tuple[float, float, float]] = []  # per epoch: train loss, test loss, test accuracy
        self.started_at = time.time()
        self.train_seconds = self.eval_seconds = 0.0
        self.neighbours: list[int] = []  # runs on the device after each epoch
        self.parts: list[float] = []  # of the device, this run's own, after each epoch
        self.epoch = self.launched = 0  # the epoch that is being enqueued, and how many of its steps have been
        self._unread: list[tuple[list[Mark], torch.Tensor]] = []  # epochs that are enqueued but not yet measured
        if self.stream:  # from here on it needs no more: its first steps and its evaluation have been done
            self._prepare()
            self.memory = torch.cuda.max_memory_allocated(device) - used
            self.reserved = torch.cuda.max_memory_reserved(device) - reserved

    @property
    def _plain(self) -> bool:
        """Whether steps are torch's own in float32, the reference, which has torch's own layout too."""
        return self.config.precision == "fp32" and self.step != "fused"

    def _network(self, bn_workers: int) -> torch.nn.Module:
        """Return the initial network, on the device, for training."""
        config, data = self.config, self.data
        network = models.initialize(config.arch, data.num_classes, data.channels, bn_workers, config.seed)
        if self.device.type == "cpu":
            network = with_fast_gradients(network)
        images_first = self.device.type == "cpu" or self.of_volumes or self._plain
        layout = torch.contiguous_format if images_first else torch.channels_last
        return network.to(self.device).to(memory_format=layout).train()  # type: ignore[call-overload]

    def _allocate(self) -> None:
        config, device = self.config, self.device
        self.network = self._network(config.bn_workers)
        self.program = _program(self.step, self.network, config)
        rates = torch.tensor(np.append(self.epoch_rates, 0.0), dtype=torch.float32, device=device)
        self.place = Place.start(self.count, rates)
        self.outcome = torch.zeros(3, dtype=torch.float64, device=device)

    # -- the step and the evaluation, the same tensor code everywhere ------------------------------------------------

    def _step(self, size: int) -> None:
        self.program.step(size, self.train, self.place)

    @torch.no_grad()
    def _evaluate(self) -> None:
        total = len(self.data.test_labels)
        self.outcome[0] = self.place.loss_sum / self.epoch_examples
        self.outcome[1:] = 0.0
        for start in range(0, total, EVAL_BATCH):
            stop = min(start + EVAL_BATCH, total)
            scores = self.program.evaluate(self.test, start, stop).float()
            labels = self.test.labels[start:stop]
            weight = (stop - start) / total
            if self.of_volumes:
                self.outcome[1] += models.msle(scores, self.test.centre(start, stop)).double() * weight
                self.outcome[2].fill_(math.nan)  # nothing is classified
            else:
                self.outcome[1] += models.loss(scores, labels).double() * weight
                self.outcome[2] += (scores.argmax(1) == labels).double().sum() / total
        self.place.loss_sum.zero_()
        self.place.cursor.zero_()

    def _on_stream(self) -> contextlib.AbstractContextManager:
        return torch.cuda.stream(self.stream) if self.stream else contextlib.nullcontext()

    # -- capture -----------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Do first steps and an evaluation, capture them unless the step is eager, and put the initial state back."""
        with self._on_stream():
            self._load_draws(0)
            initial = [tensor.clone() for tensor in self._state()]
            for size, _ in self.batches:
                for _ in range(2):
                    self._step(size)
                    self.place.cursor.zero_()
            self._evaluate()
        torch.cuda.synchronize(self.device)
        if self.step != "eager":
            with self._on_stream():  # a capture that fails would leave its stream behind as the current one
                self._capture()
        with self._on_stream(), torch.no_grad():
            state = self._state()  # with what the first step made, such as momenta, which start from zero
            for tensor, value in zip(state, initial + [None] * (len(state) - len(initial)), strict=True):
                tensor.zero_() if value is None else tensor.copy_(value)
        torch.cuda.synchronize(self.device)

    def _capture(self) -> None:
        """Capture one graph per batch size and one for evaluation."""
        pool = torch.cuda.graph_pool_handle()
        for name in [*(size for size, _ in self.batches), 0]:
            self.program.forget_gradients()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, stream=self.stream, capture_error_mode="thread_local"):
                self._step(name) if name else self._evaluate()
            self.graphs[name] = graph

    def _state(self) -> list[torch.Tensor]:
        return [self.place.cursor, self.place.updates, self.place.loss_sum, *self.program.state()]

    # -- driving -----------------------------------------------------------------------------------------------------

    def _draws(self, epoch: int, examples: int) -> EpochDraw:
        """Draw the order and the augmentation of an epoch of so many examples, on the host."""
        augment, pad = default_augment(self.data.name)
        if self.config.augment != "default":
            augment = self.config.augment
        return draw_epoch(examples, self.config.seed, epoch, augment, pad)

    def _load_draws(self, epoch: int) -> None:
        for name, values in vars(self._draws(epoch, self.count)).items():
            host = torch.from_numpy(values)
            getattr(self.place, name).copy_(host.pin_memory() if self.stream else host, non_blocking=True)

    def steps(self) -> Iterator[int | None]:
        """Train to the end; yields an epoch's number once it is read, and None when another run may have its turn."""
        try:
            yield from self._epochs()
        finally:
            if self.stream:  # what is still enqueued must not outlive the run's memory
                self.stream.synchronize()

    def _epochs(self) -> Iterator[int | None]:
        while self.epoch < self.config.epochs and not self.ended:
            with self._on_stream():
                self._load_draws(self.epoch)
            marks = yield from self._train_epoch()
            marks.append(self._launch(0))
            with self._on_stream():
                outcome = torch.empty(3, dtype=torch.float64, pin_memory=self.stream is not None)
                outcome.copy_(self.outcome, non_blocking=True)
                marks.append(Mark(self.device))
            self._unread.append((marks, outcome))
            self.epoch, self.launched = self.epoch + 1, 0
            # On CUDA the next epoch is enqueued before this one is read, so that the device never waits for the host.
            while len(self._unread) > (1 if self.stream and self.epoch < self.config.epochs else 0):
                while not self._unread[0][0][-1].passed():
                    yield None
                self._read(*self._unread.pop(0))
                yield len(self.measured)
                if self.ended:
                    break

    def _train_epoch(self) -> Generator[int | None, None, list[Mark]]:
        """Enqueue the steps that the epoch lacks, a few bursts ahead; return the marks of its begin and end."""
        with self._on_stream():
            first = last = Mark(self.device)
        waiting: list[Mark] = []
        before = 0  # steps of the epoch of earlier batch sizes
        try:
            for size, repeats in self.batches:
                while self.launched < before + repeats:
                    burst = min(BURST if self.stream else 1, before + repeats - self.launched)
                    last = self._launch(size, burst)
                    self.launched += burst
                    waiting.append(last)
                    yield None
                    while len(waiting) > 2:
                        if waiting[0].passed():
                            waiting.pop(0)
                        else:
                            yield None
                before += repeats
        except GeneratorExit:
            last.wait()
            self.train_seconds += first.until(last)
            raise
        return [first, last]

    def _launch(self, name: int, repeats: int = 1) -> Mark:
        """Enqueue steps of one batch size, or the evaluation (0), and mark their end."""
        with self._on_stream():
            for _ in range(repeats):
                if name in self.graphs:
                    self.graphs[name].replay()
                elif name:
                    self._step(name)
                else:
                    self._evaluate()
            return Mark(self.device)

    def _read(self, marks: Sequence[Mark], outcome: torch.Tensor) -> None:
        train_loss, test_loss, accuracy = outcome.tolist()
        self.measured.append((train_loss, test_loss, accuracy))
        self.train_seconds += marks[0].until(marks[1])
        self.eval_seconds += marks[1].until(marks[2])

    # -- leaving off and going on ------------------------------------------------------------------------------------

    def pause(self) -> dict[str, Any]:
        """Return where a run is whose steps were closed, on the host: what ``resume`` needs."""
        while self._unread:
            self._read(*self._unread.pop(0))
        return {
            "provenance": self._provenance(),
            "tensors": [tensor.detach().to("cpu", copy=True) for tensor in self._state()],
            **{name: getattr(self, name) for name in self.progress},
        }

    def resume(self, paused: Mapping[str, Any]) -> bool:
        """Go on from where a run of this config was paused; False if that was another program, device or data."""
        if paused["provenance"] != self._provenance():
            return False
        progress = {name: paused[name] for name in self.progress}  # before anything changes: one may be missing
        if len(self._state()) < len(paused["tensors"]):
            self._step(self.batches[0][0])  # the first step makes the momenta
        with self._on_stream(), torch.no_grad():
            for tensor, value in zip(self._state(), paused["tensors"], strict=True):
                tensor.copy_(value)
        for name, value in progress.items():
            setattr(self, name, value)
        return True

    @property
    def diverged(self) -> bool:
        """Whether the training loss stopped being finite."""
        return bool(self.measured) and not math.isfinite(self.measured[-1][0])

    @property
    def ended(self) -> bool:
        """Whether the run has nothing more to do before its epochs are over: it diverged, or is at its target."""
        target = self.config.target_loss
        return self.diverged or (target > 0 and bool(self.measured) and self.measured[-1][1] <= target)

    def result(self) -> xr.Dataset:
        """Return the finished run as a Dataset; epochs after its end, by a divergence or at its target, are NaN."""
        config, done = self.config, len(self.measured)
        rows = np.full((config.epochs, 3), np.nan)
        rows[:done] = self.measured
        rates = self.epoch_rates.reshape(config.epochs, -1)[:, -1].copy()
        rates[done:] = np.nan
        host_memory = host_peak()
        run = {
            **config.as_dict(),
            "key": config.key,
            "diverged": self.diverged,
            "images_per_second": done * self.epoch_examples / self.train_seconds,
            "seconds": self.train_seconds + self.eval_seconds,
            "started_at": self.started_at,
            "ended_at": max(self.started_at, time.time()),  # the clock may have been set back
            "peak_memory_bytes": self.memory if self.stream else host_memory,
            "peak_host_memory_bytes": float(host_memory),
            "concurrent_runs": float(np.mean(self.neighbours or [1])),
            "device_share": float(np.mean(self.parts or [1.0])),
            "parameters": sum(p.numel() for p in self.network.parameters()),
            "training_examples": self.count,
            "test_examples": len(self.data.test_labels),
            **self._provenance(),
        }
        if self.of_volumes:
            run["picture"] = self._picture()
        names = ("train_loss", "test_loss", "test_accuracy")
        return results.run_dataset(run, {**dict(zip(names, rows.T, strict=True)), "learning_rate": rates})

    def _picture(self) -> str:
        """Return some test volumes and what the network makes of them."""
        shown = min(PICTURED, len(self.data.test_labels))
        with self._on_stream():
            again = self.program.evaluate(self.test, 0, shown).float()
            return volumes.picture(self.test.centre(0, shown).cpu().numpy(), again.cpu().numpy())

    def _provenance(self) -> dict[str, Any]:
        return results.provenance(
            torch_version=str(torch.__version__),
            device=device_name(self.device),
            engine=self.step,
            data_fingerprint=self.data.fingerprint,
        )


def _program(step: str, network: torch.nn.Module, config: RunConfig) -> EagerNetwork | FusedNetwork:
    if step != "fused":
        return EagerNetwork(network, config)
    from dolb.kernels.fused import FusedNetwork  # needs Triton, which a machine without a GPU may lack
    from dolb.kernels.rules import Rule

    dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
    rule = Rule(**{name: getattr(config, name) for name in Rule._fields})
    return FusedNetwork(network, config.bn_workers, dtype, rule, config.label_smoothing)


class PausedRuns:
    """A folder with one file per run that was stopped before its end, from where it goes on another time.

    It ends with the same bits as one that was never stopped, and goes on only under what it was begun with: the same
    code, torch, device and data; else it begins anew, so that a result has one origin.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)

    def path(self, key: str) -> Path:
        """Return where the paused run of that key is, or would be."""
        return self.folder / f"{key}.pt"

    def keep(self, run: Run) -> None:
        """Keep where a run is whose steps were closed; a full disk costs the run's epochs, not the sweep."""
        try:
            write_whole(self.path(run.config.key), lambda handle: torch.save(run.pause(), handle), seal=False)
        except RuntimeError as error:
            tqdm.write(f"notice: where the run {run.config.key} left off cannot be kept ({error}); it will begin anew")

    def resume(self, run: Run) -> bool:
        """Let a run go on from where one of its config was paused; False if it begins at its beginning."""
        path = self.path(run.config.key)
        try:
            went_on = run.resume(torch.load(path, map_location="cpu", weights_only=True))
        except FileNotFoundError:
            return False
        except (OSError, RuntimeError, EOFError, KeyError, pickle.UnpicklingError) as error:
            tqdm.write(f"notice: {path.name} cannot be read back ({error}); the run begins anew")
            return False
        if not went_on:
            tqdm.write(f"notice: {path.name} was paused under other code, torch, device or data; the run begins anew")
        return went_on

    def drop(self, key: str) -> None:
        """Forget a paused run, such as one that has ended."""
        with contextlib.suppress(FileNotFoundError):
            self.path(key).unlink()
