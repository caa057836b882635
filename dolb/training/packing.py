"""Which runs share a GPU: the order they start in, how many at once, and whether one more fits its memory.

Everything here computes on configs and numbers; the engine measures, and acts on the answers.
"""

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction

from dolb.training.config import RunConfig

DEVICE_SHARE = 0.9  # of a GPU's memory, whoever uses it: what planning does not see must not end a sweep

# What a run's memory depends on: network, batch size, bn_workers, precision, optimizer.
Shape = tuple[str, int, int, str, str]

# How many runs at once give the most images a second together, from a batch size on. Measured with ResNet-18 (fused
# step, CIFAR-10, one H200): 16 at a batch of 64 (21 are a tenth slower), 8 at 256, 4 at 1024, 2 from 8192 on, where
# more gain nothing. Sizes in between go by the larger neighbour's measurement below 1024, and by the smaller one's
# above; other networks too.
_AT_ONCE = {1: 16, 65: 8, 257: 4, 8192: 2}


def runs_at_once(config: RunConfig) -> int:
    """Return how many runs like this one should share a GPU."""
    return _AT_ONCE[max(size for size in _AT_ONCE if size <= config.batch_size)]


def share(config: RunConfig, at_once: int | None = None) -> Fraction:
    """Return the part of the device that a run counts for; runs may share it while their parts sum up to 1 at most."""
    return Fraction(1, at_once or runs_at_once(config))


def part(config: RunConfig, active: Iterable[RunConfig], at_once: int | None = None) -> float:
    """Return the part of the device that a run has among the active ones, itself counted; all parts sum up to 1."""
    return float(share(config, at_once) / sum((share(one, at_once) for one in active), Fraction()))


def shape(config: RunConfig) -> Shape:
    """Return what a run's memory depends on."""
    return config.arch, config.batch_size, config.bn_workers, config.precision, config.optimizer


def in_packs(configs: Iterable[RunConfig]) -> list[RunConfig]:
    """Order runs so that those of like cost follow each other: network by network as given, then the longest first.

    The more updates, the longer a run; the short ones at the end fill the gaps that the long ones leave.
    """
    packs: dict[str, dict[tuple[Shape, int], list[RunConfig]]] = {}
    for config in configs:
        packs.setdefault(config.arch, {}).setdefault((shape(config), config.epochs), []).append(config)

    def updates(pack: list[RunConfig]) -> float:
        return pack[0].epochs / pack[0].batch_size  # for each training example

    ordered = [sorted(network.values(), key=updates, reverse=True) for network in packs.values()]
    return [config for network in ordered for pack in network for config in pack]


def predicted_need(config: RunConfig, measured: Mapping[Shape, float]) -> float | None:
    """Return the bytes of device memory that a run will take, or None where nothing like it has been measured.

    A run of the same shape takes the same. Else those of the same network and optimizer bound it: memory is a fixed
    part and one in proportion to the batch, so it takes no more than a larger batch does, or a smaller one times the
    batches' ratio.
    """
    if (known := measured.get(shape(config))) is not None:
        return known
    bounds = [
        need * max(1.0, config.batch_size / size)
        for (arch, size, _, *same), need in measured.items()
        if (arch, *same) == (config.arch, config.precision, config.optimizer)
    ]
    return min(bounds, default=None)


def fits(need: float | None, used: float, limit: float) -> bool:
    """Whether a run that needs so many bytes may start beside others; one whose need is not known may not."""
    return math.isinf(limit) or (need is not None and used + need <= limit)


def lack_of_memory(config: RunConfig, need: float | None, used: float, limit: float) -> str:
    """Say in one clause which run lacks memory, how much it needs, and how much there is."""
    free = max(limit - used, 0.0)
    needs = f"more than {_gib(free)}" if need is None else _gib(need)
    return (
        f"{config.arch} at batch size {config.batch_size} needs {needs} of device memory, "
        f"and {_gib(free)} of {_gib(limit)} allowed are free"
    )


def named(config: RunConfig) -> str:
    """Name a run among those of its shape."""
    return f"rate {config.lr:g}, seed {config.seed}" + (f", {config.subset}" if config.subset != "full" else "")


def set_aside_error(runs: Iterable[tuple[RunConfig, str]]) -> str:
    """Say which runs did not fit alone, and what they lack, those of one shape together, by the last of them."""
    lacks: dict[Shape, str] = {}
    names: dict[Shape, list[str]] = {}
    for config, lack in runs:
        lacks[shape(config)] = lack
        names.setdefault(shape(config), []).append(named(config))
    return "; ".join(f"{lack} ({'; '.join(names[one])})" for one, lack in lacks.items())


def _gib(count: float) -> str:
    return f"{count / 2**30:.2f} GiB"
