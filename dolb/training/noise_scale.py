"""The noise of the gradient as training goes on: its variance over the examples, beside the square of its mean.

The ratio of the two is the simple noise scale of McCandlish et al. (2018), which predicts the batch size from which on
a larger one saves few updates. It is estimated as there (appendix A.1) from the lengths of gradients of two batch
sizes: here many small batches, and all of them together. They are drawn from the training set with replacement, so that
they are independent, and augmented as in training. Batch norm takes its statistics over a small batch, so that the
gradient of the large one is the mean of those of the small ones.

The run is the engine's own, with its fastest step. Measuring is enqueued behind an epoch, on a copy of the network and
with draws of its own: training has the same bits with it and without.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr

from dolb import results
from dolb.training import engine
from dolb.training.config import GRADIENT_GROUPS, NoiseScaleConfig
from dolb.training.device import Mark
from dolb.training.step import EagerNetwork
from dolb.training.sweep import sweep


def measure_all(configs: Sequence[NoiseScaleConfig], **how: Any) -> xr.Dataset:
    """Return runs with the noise of their gradients, training and measuring what the store lacks, as in ``sweep``."""
    return sweep(configs, make_run=MeasuredRun, **how)


class MeasuredRun(engine.Run):
    """A run that measures the noise of its gradient behind some of its epochs."""

    config: NoiseScaleConfig
    progress = (*engine.Run.progress, "lengths")

    def __init__(self, *args: Any):
        self.lengths: dict[int, torch.Tensor] = {}  # of gradients, by epoch, as `lengths_of` has them
        super().__init__(*args)

    def _launch(self, name: int, repeats: int = 1) -> Mark:
        mark = super()._launch(name, repeats)  # measuring does not count as a time of evaluation
        if not name and (epoch := self.epoch + 1) in self.config.phases:
            with self._on_stream():
                self.lengths[epoch] = lengths_of(self.gradients(epoch))
        return mark

    def gradients(self, epoch: int) -> Iterator[Iterator[list[torch.Tensor]]]:
        """Yield the groups of gradients that are measured after an epoch; a gradient has a tensor for each weight's."""
        config = self.config
        total = config.small_batch * config.measured_batches
        draw = self._draws(config.epochs + epoch, total)  # of an epoch that training does not come to
        chosen = np.random.default_rng([config.seed, epoch]).integers(self.count, size=total)
        how = [torch.from_numpy(values).to(self.device) for values in (chosen, draw.dy, draw.dx, draw.flip)]
        batches = list(zip(*(values.split(config.small_batch) for values in how), strict=True))
        network, size = self._network(bn_workers=1), len(batches) // GRADIENT_GROUPS
        network.load_state_dict(self.network.state_dict())
        program = EagerNetwork(network, config)
        for start in range(0, len(batches), size):
            yield (self.gradient(program, *batch) for batch in batches[start : start + size])

    def gradient(self, program: EagerNetwork, *batch: torch.Tensor) -> list[torch.Tensor]:
        """Return the gradient of the loss over some examples, without weight decay, in the run's arithmetic."""
        return list(torch.autograd.grad(program.loss(self.train, *batch), list(program.network.parameters())))

    def result(self) -> xr.Dataset:
        """Return the finished run; what was not measured, as after a divergence, is NaN."""
        config, phases = self.config, self.config.phases
        values = np.full((2, 1, len(phases), GRADIENT_GROUPS + 1), np.nan)
        size = config.measured_batches // GRADIENT_GROUPS
        for place, epoch in enumerate(phases):
            if epoch in self.lengths:
                values[:, 0, place] = estimates(self.lengths[epoch].cpu().numpy(), config.small_batch, size)
        over = ("run", "phase", "left_out")
        ds = super().result().assign(
            phase_epoch=(over[:2], np.array([phases], dtype=float)),
            gradient_square=(over, values[0]),
            gradient_variance=(over, values[1]),
        )  # fmt: skip
        ds = ds.assign_coords(phase=np.arange(1, len(phases) + 1), left_out=np.arange(GRADIENT_GROUPS + 1))
        return results.validate(results.describe(ds.set_coords(list(config.as_dict()))))


def lengths_of(groups: Iterable[Iterable[list[torch.Tensor]]]) -> torch.Tensor:
    """Return a row for each group of gradients: their mean squared length, then the products of their mean with others.

    Means are taken in the gradients' own precision, and squares and products summed up in float64.
    """
    squares, means = [], []
    for group in groups:
        lengths, total = [], list[torch.Tensor]()
        for gradient in group:
            lengths.append(torch.stack(torch._foreach_norm(gradient)).double().square().sum())
            total = total or [torch.zeros_like(part) for part in gradient]
            torch._foreach_add_(total, gradient)
        squares.append(torch.stack(lengths).mean())
        means.append(torch._foreach_div(total, float(len(lengths))))
    stacked = (torch.stack(parts).flatten(1).double() for parts in zip(*means, strict=True))
    products = torch.stack([part @ part.T for part in stacked]).sum(0)
    return torch.cat([torch.stack(squares)[:, None], products], 1)


def estimates(lengths: np.ndarray, small_batch: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the squared length of the mean gradient and the variance of one example's, both without bias.

    ``lengths`` are those of groups of ``size`` gradients of ``small_batch`` examples, as ``lengths_of`` has them. The
    first of the values is by all groups, the others are each without one group.
    """
    groups = len(lengths)
    kept = np.vstack([np.ones(groups), 1 - np.eye(groups)])
    count = kept.sum(1)
    small = kept @ lengths[:, 0] / count
    large = np.einsum("kg,gh,kh->k", kept, lengths[:, 1:], kept) / count**2
    large_batch = small_batch * size * count
    square = (large_batch * large - small_batch * small) / (large_batch - small_batch)
    variance = (small - large) / (1 / small_batch - 1 / large_batch)
    return square, variance
