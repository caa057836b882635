"""What one training run is: a frozen record whose key names its result."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from dolb import models
from dolb.keyed import Keyed
from dolb.training import schedule

AUGMENTS = ("default", "none", "crop", "crop-flip")
PRECISIONS = ("fp32", "bf16")
OPTIMIZERS = ("sgd",)


@dataclass(frozen=True, kw_only=True)
class RunConfig(Keyed):
    """One training run, complete: the same config gives the same result."""

    experiment: str = "adhoc"
    data: str = "digits"
    subset: str = "full"
    arch: str = "smallnet-4"
    batch_size: int = 64
    lr: float = 0.1
    lr_scaling: str = "none"
    base_batch_size: int = 256
    warmup_epochs: float = 0.0
    decay: str = "constant"
    optimizer: str = "sgd"
    momentum: float = 0.9
    weight_decay: float = 0.0
    label_smoothing: float = 0.0
    epochs: int = 10
    bn_workers: int = 1
    augment: str = "default"
    precision: str = "fp32"
    seed: int = 0

    def __post_init__(self) -> None:
        """Coerce whole numbers to float where a float is meant, and refuse what cannot be run."""
        for field in fields(self):
            object.__setattr__(self, field.name, _coerce(field.name, getattr(self, field.name), field.type))
            if isinstance(getattr(self, field.name), float) and not math.isfinite(getattr(self, field.name)):
                raise ValueError(f"{field.name} must be a finite number, got {getattr(self, field.name)}")
        models.require(self.arch)
        schedule.parse_decay(self.decay)
        self.refuse_unknown(lr_scaling=schedule.SCALINGS, augment=AUGMENTS, precision=PRECISIONS, optimizer=OPTIMIZERS)
        self.refuse_below(1, "batch_size", "base_batch_size", "epochs", "bn_workers")
        self.refuse_below(0, "warmup_epochs", "momentum", "weight_decay", "label_smoothing", "seed")
        if not self.lr > 0:
            raise ValueError(f"lr must be positive, got {self.lr}")
        if self.label_smoothing > 1:
            raise ValueError(f"label_smoothing must not exceed 1, got {self.label_smoothing}")
        if self.warmup_epochs > self.epochs:
            raise ValueError(f"warmup_epochs ({self.warmup_epochs:g}) must not exceed epochs ({self.epochs})")
        if self.bn_workers > self.batch_size:
            raise ValueError(f"bn_workers ({self.bn_workers}) must not exceed batch_size ({self.batch_size})")


_TYPES: dict[str, type] = {"str": str, "int": int, "float": float}


def _coerce(name: str, value: Any, annotation: Any) -> Any:
    wanted = _TYPES[annotation if isinstance(annotation, str) else annotation.__name__]
    value = value.item() if hasattr(value, "item") else value
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise TypeError(f"{name} must be {wanted.__name__}, got {value!r} ({type(value).__name__})")
    return value
