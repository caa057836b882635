"""What one training run is, and one of which more is measured: a frozen record whose key names its result."""

import math
import re
from dataclasses import dataclass, fields

import numpy as np

from dolb import names
from dolb.config import Keyed
from dolb.training import schedule

AUGMENTS = ("default", *names.AUGMENTS)
EVAL_BATCH = 5000  # test images that are looked at together
PRECISIONS = ("fp32", "bf16")
# Update rules, each with the fields that it alone reads.
OPTIMIZERS: dict[str, tuple[str, ...]] = {"sgd": (), "nesterov": (), "lars": ("trust",), "lamb": ("max_gradient_norm",)}
MOST_EPOCHS = 10**6  # the rate of every update is in memory
DECAYED = ("all", "filters")
SHARE = "share-"  # a subset with the share in its name, such as share-0.02: as much of each class
HELD_OUT = "held-out-"  # the same, with as much of each class taken out of the training set to be the test set
GRADIENT_GROUPS = 8  # of the gradients whose noise is measured: what it is without each of them tells how sure it is


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
    weight_decay_on: str = "all"  # or filters: norms and biases go without, and LARS and LAMB leave their rate alone
    trust: float = 0.001  # LARS: part of a tensor's length that it moves by at a rate of 1
    max_gradient_norm: float = 1.0  # LAMB: a longer gradient, over all weights, is shortened to this; 0: none is
    drop_last: bool = False  # an epoch ends with its last full batch
    target_loss: float = 0.0  # the run ends after the epoch whose test loss reaches this; 0: after all its epochs

    def __post_init__(self) -> None:
        super().__post_init__()
        self.coerce()
        for name, value in self.as_dict().items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{name} must be a finite number, got {value}")
        names.require(self.arch)
        schedule.parse_decay(self.decay)
        self.refuse_unknown(
            lr_scaling=schedule.SCALINGS, augment=AUGMENTS, precision=PRECISIONS, optimizer=tuple(OPTIMIZERS),
            weight_decay_on=DECAYED,
        )  # fmt: skip
        self.refuse_below(1, "batch_size", "base_batch_size", "epochs", "bn_workers")
        self.refuse_below(
            0, "warmup_epochs", "momentum", "weight_decay", "label_smoothing", "seed", "max_gradient_norm",
            "target_loss",
        )  # fmt: skip
        self._refuse_options()
        self.refuse_not_positive("lr", "trust")
        if self.epochs > MOST_EPOCHS:
            raise ValueError(f"epochs must not exceed {MOST_EPOCHS:,}, got {self.epochs}")
        if self.label_smoothing > 1:
            raise ValueError(f"label_smoothing must not exceed 1, got {self.label_smoothing}")
        if self.warmup_epochs > self.epochs:
            raise ValueError(f"warmup_epochs ({self.warmup_epochs:g}) must not exceed epochs ({self.epochs})")
        if self.bn_workers > self.batch_size:
            raise ValueError(f"bn_workers ({self.bn_workers}) must not exceed batch_size ({self.batch_size})")

    def _refuse_options(self) -> None:
        """Refuse an option that the optimizer does not read, or a momentum that it cannot have."""
        own = OPTIMIZERS[self.optimizer]
        others = {name for names in OPTIMIZERS.values() for name in names}.difference(own)
        for field in fields(self):
            if field.name in others and getattr(self, field.name) != field.default:
                accepted = ", ".join(("momentum", "weight_decay", "weight_decay_on", *own))
                raise ValueError(f"{field.name} is no option of optimizer {self.optimizer!r}; accepted: {accepted}")
        if self.optimizer == "nesterov" and not self.momentum > 0:
            raise ValueError(f"momentum of optimizer 'nesterov' must be positive, got {self.momentum}")
        if self.optimizer == "lamb" and not self.momentum < 1:
            raise ValueError(f"momentum of optimizer 'lamb' must be below 1, got {self.momentum}")

    def rates(self, steps_per_epoch: int) -> np.ndarray:
        """Return the rate of every update."""
        names = ("lr", "lr_scaling", "batch_size", "base_batch_size", "warmup_epochs", "decay", "epochs")
        return schedule.learning_rates(**{name: getattr(self, name) for name in names}, steps_per_epoch=steps_per_epoch)

    @property
    def subsets(self) -> tuple[str, ...]:
        """The names of the sets of examples that the run needs, of those that are not known by their name alone."""
        return ("full",) if self.subset.startswith((SHARE, HELD_OUT)) else (self.subset,)


@dataclass(frozen=True, kw_only=True)
class LandscapeConfig(RunConfig):
    """A training run, and how the loss landscape around its trained weights is measured.

    The seed is also that of the examples, of the first vector and the probes, and of the directions of the surface.
    """

    judged_on: str = "full"  # the sets over which the loss is taken, with commas
    judged_examples: int = 2048  # of each set
    eigenvalue_tolerance: float = 0.01
    most_products: int = 40  # with the Hessian, for one eigenvalue
    trace_probes: int = 8
    sharpness_radius: float = 0.05  # as sharpness-aware minimization takes it (Foret et al., 2021)
    # Where every filter has length one, a network has the length of the root of their number, far more than its weights
    # as they are; adaptive sharpness-aware minimization goes ten times as far there (Kwon et al., 2021).
    normalized_radius: float = 0.5
    ascent_steps: int = 1
    surface_points: int = 17  # along each direction
    surface_reach: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        super().__post_init__()
        self.refuse_below(1, "judged_examples", "most_products", "ascent_steps")
        self.refuse_below(2, "trace_probes")
        self.refuse_not_positive("eigenvalue_tolerance", "sharpness_radius", "normalized_radius", "surface_reach")
        if self.surface_points < 3 or self.surface_points % 2 == 0:
            raise ValueError(f"surface_points must be odd, with a middle, and 3 or more, got {self.surface_points}")
        kinds = [name.split("-")[0] for name in self.judged]
        if "full" not in kinds or len(set(kinds)) != len(kinds):
            raise ValueError(f"judged_on is {self.judged_on!r}; accepted: full and one of each other kind, with commas")

    @property
    def judged(self) -> tuple[str, ...]:
        """The names of the sets over which the loss is taken."""
        return tuple(self.judged_on.split(","))

    @property
    def subsets(self) -> tuple[str, ...]:
        """The names of the sets of examples that training and measuring need."""
        return (self.subset, *self.judged)


@dataclass(frozen=True, kw_only=True)
class StartConfig(RunConfig):
    """The first epochs of a training run, by the rates of the whole of it, with every update recorded."""

    recorded_epochs: int = 1

    def __post_init__(self) -> None:
        """Refuse what cannot be recorded."""
        super().__post_init__()
        self.refuse_below(1, "recorded_epochs")
        if self.recorded_epochs > self.epochs:
            raise ValueError(f"recorded_epochs ({self.recorded_epochs}) must not exceed epochs ({self.epochs})")


@dataclass(frozen=True, kw_only=True)
class NoiseScaleConfig(RunConfig):
    """A training run, and how the noise of its gradient is measured after some of its epochs."""

    measured_after: str = "1,3,10"  # epochs, with commas
    small_batch: int = 128  # images of one gradient, over which batch norm takes its statistics too
    measured_batches: int = 128  # gradients each time

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        super().__post_init__()
        self.refuse_below(2, "small_batch")
        self.refuse_below(2 * GRADIENT_GROUPS, "measured_batches")
        if self.measured_batches % GRADIENT_GROUPS:
            raise ValueError(f"measured_batches must be a multiple of {GRADIENT_GROUPS}, got {self.measured_batches}")
        asked = self.phases if re.fullmatch(r"[0-9]+(,[0-9]+)*", self.measured_after) else (0,)
        if list(asked) != sorted(set(asked)) or not 1 <= asked[0] <= asked[-1] <= self.epochs:
            accepted = f"rising epochs from 1 to {self.epochs}, with commas, such as 1,3,10"
            raise ValueError(f"measured_after is {self.measured_after!r}; accepted: {accepted}")

    @property
    def phases(self) -> tuple[int, ...]:
        """The epochs after which the noise is measured."""
        return tuple(map(int, self.measured_after.split(",")))
