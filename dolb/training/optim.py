"""Update rules by name, with a learning rate that lives in a tensor so that a captured graph can change it.

They are no ``torch.optim.Optimizer``: the first of these in a process imports torch's compiler, which takes longer than
many a run. SGD is the operation that ``torch.optim.SGD`` calls.

LARS (You et al., 2017) and LAMB (You et al., 2020) give each tensor a rate of its own, by its length and that of its
gradient or step. They are as the timm library has them, and not to the letter of the papers: the rate of LARS
multiplies the velocity and is no part of it, and LAMB shortens long gradients first.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from dolb.kernels import LAMB_EPS, LARS_EPS, SECOND_MOMENTUM
from dolb.training.config import RunConfig

Tensors = list[torch.Tensor]


def build(config: RunConfig, parameters: Iterable[nn.Parameter], rate: torch.Tensor) -> Rule:
    """Build the run's optimizer; it reads its learning rate from ``rate`` at every step."""
    parameters = list(parameters)
    groups: list[dict[str, Any]] = [{"params": parameters}]
    if config.weight_decay_on == "filters":
        groups = [{"params": [p for p in parameters if p.ndim > 1]}]
        groups.append({"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0})
    same: dict[str, Any] = {"lr": rate, "momentum": config.momentum, "weight_decay": config.weight_decay}
    if config.optimizer in ("sgd", "nesterov"):
        return Sgd(groups, same | {"nesterov": config.optimizer == "nesterov"})
    groups = [group | {"adapted": number == 0} for number, group in enumerate(groups)]
    if config.optimizer == "lars":
        return Lars(groups, same | {"trust": config.trust})
    return Lamb(groups, same | {"max_gradient_norm": config.max_gradient_norm})


class Rule:
    """What every rule has: groups of tensors with their options, a state of each tensor, and a step on all of them."""

    def __init__(self, groups: Iterable[dict[str, Any]], options: dict[str, Any]):
        self.groups, self.options = [options | group for group in groups], options
        self.state: dict[torch.Tensor, dict[str, torch.Tensor]] = defaultdict(dict)

    def forget_gradients(self) -> None:
        """Drop the gradient of every tensor."""
        for group in self.groups:
            for weight in group["params"]:
                weight.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update every tensor that has a gradient, without a word to the host."""
        groups = [(group, [p for p in group["params"] if p.grad is not None]) for group in self.groups]
        slopes = self._shortened([[p.grad for p in weights] for _, weights in groups])
        for (group, weights), own in zip(groups, slopes, strict=True):
            if weights:
                self._update(group, weights, own)

    @abstractmethod
    def _update(self, group: dict[str, Any], weights: Tensors, slopes: Tensors) -> None:
        """Update the tensors of one group."""

    def _shortened(self, slopes: list[Tensors]) -> list[Tensors]:
        return slopes

    def _kept(self, name: str, weights: Tensors) -> Tensors:
        """Return a state of each tensor, zero at first."""
        for weight in weights:
            if name not in self.state[weight]:
                self.state[weight][name] = torch.zeros_like(weight)
        return [self.state[weight][name] for weight in weights]


class Sgd(Rule):
    """Stochastic gradient descent with momentum, by one operation for all tensors."""

    def _update(self, group: dict[str, Any], weights: Tensors, slopes: Tensors) -> None:
        velocities = self._kept("velocity", weights) if group["momentum"] else []
        torch._fused_sgd_(
            weights, slopes, velocities, lr=group["lr"], momentum=group["momentum"], nesterov=group["nesterov"],
            weight_decay=group["weight_decay"], dampening=0.0, maximize=False, is_first_step=False,
        )  # fmt: skip


class _Layerwise(Rule):
    """What LARS and LAMB share: a move of each tensor, which the rate then scales."""

    def _update(self, group: dict[str, Any], weights: Tensors, slopes: Tensors) -> None:
        torch._foreach_add_(weights, torch._foreach_mul(self._moves(group, weights, slopes), -group["lr"]))

    @abstractmethod
    def _moves(self, group: dict[str, Any], weights: Tensors, slopes: Tensors) -> Tensors:
        """Return what is taken from each tensor at a rate of 1."""


def _ratios(weights: Tensors, others: Tensors, ratio: Callable[[Any, Any], torch.Tensor]) -> Tensors:
    """Return a function of two lengths for each tensor, and 1 where one of them is zero."""
    lengths = zip(torch._foreach_norm(weights), torch._foreach_norm(others), strict=True)
    return [torch.where((own > 0) & (other > 0), ratio(own, other), 1.0) for own, other in lengths]


class Lars(_Layerwise):
    """SGD in which a tensor's gradient is scaled to a part of the tensor's own length, before the momentum."""

    def _moves(self, group: dict[str, Any], weights: Tensors, slopes: Tensors) -> Tensors:
        decay, trust = group["weight_decay"], group["trust"]
        scaled = torch._foreach_add(slopes, weights, alpha=decay)
        if group["adapted"]:
            ratios = _ratios(weights, slopes, lambda own, slope: trust * own / (slope + decay * own + LARS_EPS))
            scaled = torch._foreach_mul(scaled, ratios)
        velocities = self._kept("velocity", weights)
        torch._foreach_mul_(velocities, group["momentum"])
        torch._foreach_add_(velocities, scaled)
        return velocities


class Lamb(_Layerwise):
    """Adam whose step, with the weight decay in it, is scaled to the length of the tensor."""

    def _shortened(self, slopes: list[Tensors]) -> list[Tensors]:
        longest = self.options["max_gradient_norm"]
        if not longest:
            return slopes
        length = torch.stack(torch._foreach_norm([slope for own in slopes for slope in own])).norm()
        return [list(torch._foreach_div(own, (length / longest).clamp(min=1.0))) if own else own for own in slopes]

    def _moves(self, group: dict[str, Any], weights: Tensors, slopes: Tensors) -> Tensors:
        betas = group["momentum"], SECOND_MOMENTUM
        zero = torch.zeros((), dtype=torch.float64, device=weights[0].device)  # 1 - 0.999 has four digits in float32
        count = self.state[weights[0]].setdefault("updates", zero)
        count.add_(1)
        first, second = (self._kept(name, weights) for name in ("first", "second"))
        torch._foreach_lerp_(first, slopes, 1 - betas[0])
        torch._foreach_mul_(second, betas[1])
        torch._foreach_addcmul_(second, slopes, slopes, 1 - betas[1])
        rise, spread = ((1 - beta**count).to(weights[0].dtype) for beta in betas)
        bottoms = torch._foreach_div(torch._foreach_sqrt(second), spread.sqrt())
        torch._foreach_add_(bottoms, LAMB_EPS)
        steps = torch._foreach_div(torch._foreach_div(first, rise), bottoms)
        torch._foreach_add_(steps, weights, alpha=group["weight_decay"])
        if group["adapted"]:
            steps = torch._foreach_mul(steps, _ratios(weights, list(steps), lambda own, step: own / step))
        return list(steps)
