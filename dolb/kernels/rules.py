"""The update in a fused training step: an optimizer's options, and the launches of its kernels (``update``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from dolb.augment import Place
from dolb.kernels import LAMB_EPS, LARS_EPS, SECOND_MOMENTUM
from dolb.kernels import update as updates
from dolb.kernels.flow import Arrays, blocks_of

FOLLOW = 0.1  # how far batch norm's running estimates move towards a batch's: torch's own default
CHUNK = 4096  # elements of one tensor at most that a program of LARS and LAMB takes


class Rule(NamedTuple):
    """An optimizer by name, and its options, as a run names them."""

    optimizer: str = "sgd"
    momentum: float = 0.9
    weight_decay: float = 0.0
    weight_decay_on: str = "all"
    trust: float = 0.001
    max_gradient_norm: float = 1.0


class Update:
    """One optimizer for a network's arrays, which it does not hold: they go when the network does."""

    def __init__(self, arrays: Arrays, rule: Rule):
        self.rule = rule
        every = rule.weight_decay_on == "all"
        self.decayed = arrays.weights.numel() if every else arrays.filters
        self.norm_decay = rule.weight_decay if every else 0.0
        self.layerwise = rule.optimizer in ("lars", "lamb")
        if self.layerwise:
            chunks = _chunks(arrays.tensors, arrays.masters.numel() if every else arrays.filters)
            self.aligned = 1 if (chunks[:2] % 16).any() else 16  # numbers, as all networks here have it
            self.chunks = chunks.to(arrays.device)
            self.sums = torch.zeros(3, self.chunks.shape[1], device=arrays.device)  # of weights, gradients and steps
        self.seconds = torch.zeros_like(arrays.masters) if rule.optimizer == "lamb" else None

    def state(self) -> list[torch.Tensor]:
        """Return the tensors that updates change, beyond the arrays' own."""
        return [] if self.seconds is None else [self.seconds]

    def __call__(self, n: Arrays, shares: int, place: Place) -> None:
        """Update weights and batch norms, whose gradients are in so many shares."""
        rule = self.rule
        nesterov = rule.optimizer == "nesterov"
        if not self.layerwise:
            size = n.weights.numel()
            updates.update_weights[(blocks_of(size, 1024),)](
                n.grads, n.weights, n.velocities, n.working, place.rates, place.updates, size, self.decayed,
                rule.momentum, rule.weight_decay, NESTEROV=nesterov, BLOCK=1024,
            )  # fmt: skip
        updates.update_norms[(blocks_of(n.total, 128),)](
            n.norm_parameters, n.norm_velocities, n.weight_grads, n.bias_grads, n.norm_grads, n.running, n.means,
            n.variances, place.rates, place.updates, n.total, shares, rule.momentum, self.norm_decay, FOLLOW,
            ONLY_SUM=self.layerwise, NESTEROV=nesterov, BLOCK=128,
        )  # fmt: skip
        if self.layerwise:
            self._layerwise(n, place)

    def _layerwise(self, n: Arrays, place: Place) -> None:
        rule, count = self.rule, self.chunks.shape[1]
        edge, same = n.weights.numel(), {"CHUNK": CHUNK, "ALIGNED": self.aligned, "num_warps": 8}
        updates.length_sums[(count,)](n.grads, n.norm_grads, n.masters, self.chunks, self.sums, count, edge, **same)
        if self.seconds is None:
            updates.lars_update[(count,)](
                n.grads, n.norm_grads, n.masters, n.movements, n.working, self.chunks, self.sums, place.rates,
                place.updates, count, edge, rule.momentum, rule.weight_decay, rule.trust, LARS_EPS, **same,
            )  # fmt: skip
            return
        # 1 - 0.999 has four digits in float32, the type that kernels get numbers in; so has 1 - 0.999 ** updates.
        betas = rule.momentum, SECOND_MOMENTUM
        numbers = *(math.log2(max(beta, 1e-300)) for beta in betas), rule.weight_decay, LAMB_EPS
        updates.lamb_moments[(count,)](
            n.grads, n.norm_grads, n.masters, n.movements, self.seconds, self.chunks, self.sums, self.sums[1].sum(),
            place.updates, count, edge, *betas, *(1 - beta for beta in betas), rule.max_gradient_norm or math.inf,
            *numbers, **same,
        )  # fmt: skip
        updates.lamb_update[(count,)](
            n.masters, n.movements, self.seconds, n.working, self.chunks, self.sums, place.rates, place.updates, count,
            edge, *numbers, **same,
        )  # fmt: skip


def _chunks(tensors: Sequence[tuple[int, int]], adapted: int) -> torch.Tensor:
    """Return, for each chunk, its start and stop, its tensor's first chunk and how many it has, and if it is adapted.

    Tensors are given by start and size; those that start before ``adapted`` are.
    """
    rows: list[tuple[int, ...]] = []
    for start, size in tensors:
        pieces, first = blocks_of(size, CHUNK), len(rows)
        rows += [
            (piece, min(piece + CHUNK, start + size), first, pieces, int(start < adapted))
            for piece in range(start, start + size, CHUNK)
        ]
    return torch.tensor(rows, dtype=torch.int32).T.contiguous()
