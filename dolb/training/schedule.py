"""Learning-rate schedules as pure functions of the update number.

A schedule has three independent parts: how the base rate grows with the batch (``scale_rate``), how the first updates
ramp up (``warmup_factor``) and how the rate falls afterwards (``decay_factor``). ``learning_rates`` multiplies them
into one table with an entry per update, so that a captured CUDA graph can read its rate from the device.
"""

import contextlib
import math

import numpy as np

# LEGW (You et al., 2019) is no schedule of its own: sqrt scaling, and warmup_epochs in proportion to the batch size.
SCALINGS = ("none", "linear", "sqrt")


def parse_decay(text: str) -> tuple[str, list[float]]:
    """Read ``constant``, ``cosine``, ``step:30,45`` (epochs, a tenth each) or ``polynomial:2`` (the power)."""
    kind, _, argument = text.partition(":")
    with contextlib.suppress(ValueError):
        numbers = [float(part) for part in argument.split(",")] if argument else []
        if kind in ("constant", "cosine") and not numbers:
            return kind, []
        if kind == "step" and numbers and numbers == sorted(set(numbers)) and 0 <= numbers[0] <= numbers[-1] < math.inf:
            return kind, numbers
        if kind == "polynomial" and len(numbers) < 2 and all(0 < power < math.inf for power in numbers):
            return kind, numbers or [1.0]
    raise ValueError(
        f"decay {text!r} is not known; accepted: constant, cosine, step:E1,E2,... (rising epochs), polynomial[:POWER]"
    )


def scale_rate(lr: float, scaling: str, batch_size: int, base_batch_size: int) -> float:
    """Return the peak rate for a batch size, given the rate that suits ``base_batch_size``."""
    ratio = batch_size / base_batch_size
    return lr * {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[scaling]


def warmup_factor(step: int, warmup_steps: int) -> float:
    """Return the gradual-warmup factor: rises linearly to 1 on the last warmup update; 1 throughout without warmup."""
    return min(1.0, (step + 1) / warmup_steps) if warmup_steps > 0 else 1.0


def decay_factor(
    step: int, kind: str, numbers: list[float], steps_per_epoch: int, warmup_steps: int, total_steps: int
) -> float:
    """Return the decay factor of one update; cosine and polynomial run from the end of warmup to the end of the run."""
    if kind == "step":
        return 0.1 ** sum(step >= milestone * steps_per_epoch for milestone in numbers)
    progress = min(1.0, max(0, step - warmup_steps) / max(1, total_steps - warmup_steps))
    if kind == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * progress))
    if kind == "polynomial":
        return (1.0 - progress) ** numbers[0]
    return 1.0


def learning_rates(
    *,
    lr: float,
    lr_scaling: str,
    batch_size: int,
    base_batch_size: int,
    warmup_epochs: float,
    decay: str,
    epochs: int,
    steps_per_epoch: int,
) -> np.ndarray:
    """Return the rate of every update of a run, as float64 of length ``epochs * steps_per_epoch``."""
    total = epochs * steps_per_epoch
    warmup = round(warmup_epochs * steps_per_epoch)
    peak = scale_rate(lr, lr_scaling, batch_size, base_batch_size)
    parsed = parse_decay(decay)
    return np.array(
        [
            peak * warmup_factor(step, warmup) * decay_factor(step, *parsed, steps_per_epoch, warmup, total)
            for step in range(total)
        ]
    )
