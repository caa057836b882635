"""Where a run is: the epoch's draws, the place in them, the rates of all updates, and what was summed so far."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, eq=False)
class Place:
    """Tensors on the device from which a step reads its batch and rate, so that a captured step needs no argument."""

    order: torch.Tensor
    dy: torch.Tensor
    dx: torch.Tensor
    flip: torch.Tensor
    cursor: torch.Tensor  # examples of this epoch that are done
    updates: torch.Tensor  # updates done since the start
    rates: torch.Tensor  # the rate of each update
    loss_sum: torch.Tensor  # of this epoch's examples so far

    @classmethod
    def start(cls, examples: int, rates: torch.Tensor) -> Place:
        """Return the place before the first step, without draws yet."""
        device = rates.device
        order, dy, dx = (torch.zeros(examples, dtype=torch.int64, device=device) for _ in range(3))
        flip = torch.zeros(examples, dtype=torch.bool, device=device)
        cursor, updates = (torch.zeros(1, dtype=torch.int64, device=device) for _ in range(2))
        loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        return cls(order, dy, dx, flip, cursor, updates, rates, loss_sum)
