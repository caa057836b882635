"""The first updates of a run, one by one: the loss of each batch, the length of its gradient, the rate.

Epochs are too coarse for how a run begins, where warmup matters. The step is the plain one on every device, since it
has the gradients of all weights at hand; order, augmentation and rates are those of the run as a sweep trains it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
import xarray as xr

from dolb import data as datasets
from dolb import results
from dolb.results.fill import Todo, fill
from dolb.training import engine, processes
from dolb.training.config import StartConfig
from dolb.training.device import resolve_device
from dolb.training.step import EagerNetwork
from dolb.training.sweep import data_by_run

_SERIES = [name for name, variable in results.SCHEMA.items() if variable.dims == ("run", "update")]


def record_all(
    configs: Sequence[StartConfig],
    *,
    store: str | Path | None = None,
    device: str = "auto",
    data_dir: str | Path | None = None,
    subsets: Mapping[str, np.ndarray] | None = None,
    at_once: int | None = None,
    time_limit: float | None = None,
    progress: bool = True,
) -> xr.Dataset:
    """Return the first updates of these runs as one Dataset, recording what the store lacks.

    On a CPU ``at_once`` is the number of processes; a GPU records one run at a time. The rest is as in ``sweep``.
    """
    where = resolve_device(device)
    data_of = data_by_run(configs, data_dir, subsets or {})

    def make(todo: Todo[StartConfig]) -> Iterator[xr.Dataset]:
        for config in todo.claim():
            yield first_updates(config, data_of[config.key], where)

    orders = {"data_dir": data_dir, "subsets": subsets, "time_limit": time_limit}
    return fill(
        configs, make, store=store, fingerprint=lambda config: data_of[config.key].fingerprint,
        beside=processes.beside(where, at_once, record_all, **orders), time_limit=time_limit, foresee=True,
        size=lambda config: config.recorded_epochs, what="starts of runs", unit="epoch", progress=progress,
    )  # fmt: skip


def first_updates(config: StartConfig, data: datasets.ImageData, device: torch.device) -> xr.Dataset:
    """Train the first epochs of a run and return its loss, gradient norm and rate by update."""
    run = _RecordedRun(config, data, *engine.on_device(data, device), device, "eager")
    rows = run.recorded(config.recorded_epochs)
    known = {**config.as_dict(), "key": config.key, "training_examples": run.count, **run._provenance()}
    values = {name: ("run", np.array([value])) for name, value in known.items()}
    series = {name: (("run", "update"), row[np.newaxis]) for name, row in zip(_SERIES, rows.T, strict=True)}
    ds = xr.Dataset({**values, **series}, {"update": np.arange(1, len(rows) + 1)})
    return results.validate(results.describe(ds.set_coords([*config.as_dict(), "key"])))


class _RecordedRun(engine.Run):
    """A run that notes every update."""

    def recorded(self, epochs: int) -> np.ndarray:
        """Train so many epochs and return loss, gradient norm and rate, a row for each update."""
        rows = []
        with self._on_stream():
            for epoch in range(epochs):
                self._load_draws(epoch)
                rows += [self._noted(size) for size, repeats in self.batches for _ in range(repeats)]
                self.place.cursor.zero_()
            return torch.stack(rows).cpu().numpy()

    def _noted(self, size: int) -> torch.Tensor:
        self.place.loss_sum.zero_()
        self._step(size)
        assert isinstance(self.program, EagerNetwork)
        slopes = [p.grad for p in self.program.network.parameters() if p.grad is not None]
        length = torch.stack(torch._foreach_norm(slopes)).norm()
        return torch.stack([(self.place.loss_sum / size).float(), length, self.program.rate])
