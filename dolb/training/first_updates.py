"""The first updates of a run, one by one: the loss of each batch, the length of its gradient, the rate.

Epochs are too coarse for how a run begins, where warmup matters. The step is the plain one on every device, since it
has the gradients of all weights at hand; order, augmentation and rates are those of the run as a sweep trains it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr

from dolb import results
from dolb.training import engine
from dolb.training.config import StartConfig
from dolb.training.step import EagerNetwork
from dolb.training.sweep import sweep

_SERIES = [name for name, variable in results.SCHEMA.items() if variable.dims == ("run", "update")]


def record_all(configs: Sequence[StartConfig], **how: Any) -> xr.Dataset:
    """Return the first updates of these runs as one Dataset, recording what the store lacks, as in ``sweep``."""
    return sweep(configs, make_run=RecordedRun, **how | {"step": "eager"})


class RecordedRun(engine.Run):
    """A run that notes every update, and ends after the epochs that are asked for."""

    config: StartConfig
    progress = (*engine.Run.progress, "rows")

    def __init__(self, *args: Any):
        self.rows: list[torch.Tensor] = []  # loss, gradient norm and rate of each update
        super().__init__(*args)

    def _epochs(self) -> Iterator[int | None]:
        sizes = [size for size, repeats in self.batches for _ in range(repeats)]
        while self.epoch < self.config.recorded_epochs:
            with self._on_stream():
                self._load_draws(self.epoch)
            while self.launched < len(sizes):
                with self._on_stream():
                    self.rows.append(self._noted(sizes[self.launched]))
                self.launched += 1
                yield None
            with self._on_stream():
                self.place.cursor.zero_()
            self.epoch, self.launched = self.epoch + 1, 0
            yield self.epoch

    def _noted(self, size: int) -> torch.Tensor:
        self.place.loss_sum.zero_()
        self._step(size)
        assert isinstance(self.program, EagerNetwork)
        slopes = [p.grad for p in self.program.network.parameters() if p.grad is not None]
        length = torch.stack(torch._foreach_norm(slopes)).norm()
        return torch.stack([(self.place.loss_sum / size).float(), length, self.program.rate])

    def result(self) -> xr.Dataset:
        """Return the loss, gradient norm and rate of every update that was asked for."""
        config, rows = self.config, torch.stack([row.cpu() for row in self.rows]).numpy()
        known = {**config.as_dict(), "key": config.key, "training_examples": self.count, **self._provenance()}
        values = {name: ("run", np.array([value])) for name, value in known.items()}
        series = {name: (("run", "update"), row[np.newaxis]) for name, row in zip(_SERIES, rows.T, strict=True)}
        ds = xr.Dataset({**values, **series}, {"update": np.arange(1, len(rows) + 1)})
        return results.validate(results.describe(ds.set_coords([*config.as_dict(), "key"])))
