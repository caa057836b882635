"""Update rules by name, with a learning rate that lives in a tensor so that a captured graph can change it."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from dolb.training.config import OPTIMIZERS, RunConfig


def build(config: RunConfig, parameters: Iterable[nn.Parameter], rate: torch.Tensor) -> torch.optim.Optimizer:
    """Build the run's optimizer; it reads its learning rate from ``rate`` at every step."""
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            parameters, lr=rate, momentum=config.momentum, weight_decay=config.weight_decay, fused=True
        )
    raise ValueError(f"optimizer {config.optimizer!r} is not known; accepted: {', '.join(OPTIMIZERS)}")
