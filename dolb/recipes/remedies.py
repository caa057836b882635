"""Remedies for large batches: each alone beside a plain recipe and the best together, all tuned by one search.

Every method has as many trials at every batch size, at points of the unit cube that all methods share. So a trial of
one method and that of another differ in the method alone, as far as both read the same rates. The best trial of each
is then run with seeds that no trial had: choosing by a seed flatters that seed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dolb.config import require_known
from dolb.recipes.asked import Asked, chosen, recipe
from dolb.training.config import RunConfig

EXPERIMENT = "large-batch-remedies"
SEARCH_SEED = 0
MOMENTUM = 0.9
LONGER = 4  # times the epochs: as many updates as a quarter of the batch has
DROPS = (0.6, 0.9)  # parts of a run after which the plain recipe's rate falls to a tenth
WARMUP = 0.1  # part of a run
LONGEST_WARMUP = 0.4  # LEGW: part of a run
# What a point of the search says, in order: the first two to every method, the others to the one that they name.
AXES = ("rate", "weight decay", "label-smoothing", "polynomial", "ghost-batch-norm", "legw", "lars")
# Peak rates at the smallest batch size; above it both ends are higher. That of LARS is for a trust of 0.001.
RATES = {"sgd": (0.03, 1.0), "nesterov": (0.03, 1.0), "lars": (1.0, 32.0), "lamb": (0.002, 0.05)}
HIGHER = 1.6
LEGW_RATES = (0.02, 0.64)  # at the smallest batch size; its rule says the others
LEGW_WARMUPS = (0.3, 1.2)  # epochs at the smallest batch size
TRUSTS = (0.001, 0.02)  # the defaults of LARS and of LARC, from the ImageNet studies and the libraries
WEIGHT_DECAYS = {"lamb": (1e-3, 1.0)}  # LAMB adds it to a step, where the others add it to a gradient
USUAL_WEIGHT_DECAYS = (2e-4, 2e-2)
SMOOTHINGS = (0.05, 0.2)
POWERS = (1.0, 3.0)
# Ghost batch norm: a share's images at least, and the most shares: an epoch's last batch, of 848 images, is dealt too.
SMALLEST_SHARE, MOST_SHARES = 32, 128

PLAIN, STACK = "plain", "stack"
OPTIMIZERS = (PLAIN, "nesterov", "lars", "lamb")  # of which a stack has the best
SHAPES = ("polynomial", "cosine")  # of which a stack has the better
STACKED = ("label-smoothing", "no-decay-on-norms", "ghost-batch-norm")
METHODS = (*OPTIMIZERS, "legw", *STACKED, *SHAPES, "longer")


@dataclass(frozen=True)
class _Study:
    """What the experiment is at one scale."""

    data: str
    arch: str
    precision: str
    epochs: int
    batch_sizes: tuple[int, ...]
    methods: tuple[str, ...]
    trials: int
    seeds: tuple[int, ...]  # of the winners


_STUDIES = {
    "paper": _Study(
        data="cifar10", arch="resnet18", precision="bf16", epochs=50, batch_sizes=(1024, 4096, 16384), methods=METHODS,
        trials=8, seeds=(1, 2, 3, 4, 5),
    ),
    "demo": _Study(
        data="digits", arch="smallnet-4", precision="fp32", epochs=6, batch_sizes=(128, 512),
        methods=(PLAIN, "lars", "label-smoothing", "cosine"), trials=2, seeds=(1, 2),
    ),
}  # fmt: skip


@recipe("part", "batch_sizes", "methods", "seeds", "epochs", "tried", "data")
def large_batch_remedies(scale: str, ask: Asked) -> list[RunConfig]:
    """Trials of every remedy, those of the best of them together, and the winners with other seeds.

    ``part`` is ``search``, ``stack``, ``winners`` or ``all``. The last two follow from ``tried``, the final accuracy of
    finished runs by their keys, 0 for one that diverged: a method's winner is known once all its trials at the batch
    size are there, the stack once all methods' are. Of ``all``, what is not known yet is left out. ``seeds`` are the
    winners'; ``methods`` are of `METHODS` or ``stack``, for which all are searched, and ``plain``, to which they are
    compared, is always among them.
    """
    study, tried = replace(_STUDIES[scale], data=ask.data or _STUDIES[scale].data), ask.tried or {}
    asked = tuple(ask.methods or (*study.methods, STACK))
    for name in asked:
        require_known("method", name, (*METHODS, STACK))
    alone = tuple(name for name in METHODS if name in (PLAIN, *asked) or (STACK in asked and name in study.methods))
    search: dict[tuple[str, int], list[RunConfig]] = {}
    stack: dict[tuple[str, int], list[RunConfig]] = {}
    lacking = 0
    for size in ask.batch_sizes or study.batch_sizes:
        own = {name: _trials(study, (name,), size, ask.epochs) for name in alone if _has(study, name, size)}
        search |= {(name, size): runs for name, runs in own.items()}
        missing = sum(run.key not in tried for runs in own.values() for run in runs)
        lacking += missing
        if STACK in asked and not missing:
            best = {name: tried[_best(runs, tried).key] for name, runs in own.items()}
            stack[STACK, size] = _trials(study, _together(best), size, ask.epochs)
    if ask.part in ("stack", "winners") and lacking:
        raise ValueError(
            f"part {ask.part!r} follows from the search, of which {lacking} runs are not there; run part 'search'"
        )
    wanted = {cell: runs for cell, runs in (search | stack).items() if cell[0] in (PLAIN, *asked)}
    done = [runs for runs in wanted.values() if all(run.key in tried for run in runs)]
    parts = {
        "search": [run for runs in search.values() for run in runs],
        "stack": [run for runs in stack.values() for run in runs],
        "winners": [replace(_best(runs, tried), seed=seed) for runs in done for seed in ask.seeds or study.seeds],
    }
    if not (found := chosen(parts, ask.part)):
        raise ValueError(f"part {ask.part!r} has no runs of methods {', '.join(asked)}; accepted: also {STACK}")
    return found


def _has(study: _Study, method: str, batch_size: int) -> bool:
    """Return whether a method is run at a batch size: more epochs are too dear where they have most updates."""
    return method != "longer" or batch_size > study.batch_sizes[0]


def _best(runs: Sequence[RunConfig], tried: Mapping[str, float]) -> RunConfig:
    return max(runs, key=lambda run: tried[run.key])


def _together(best: Mapping[str, float]) -> tuple[str, ...]:
    """Return the best optimizer, and of the other remedies those whose best trial is above the plain recipe's."""
    optimizer = max((name for name in OPTIMIZERS if name in best), key=best.__getitem__)
    shape = [max((name for name in SHAPES if name in best), key=best.__getitem__)] if set(SHAPES) & set(best) else []
    return (optimizer, *(name for name in (*STACKED, *shape) if best.get(name, 0.0) > best[PLAIN]))


def _trials(study: _Study, methods: Sequence[str], batch_size: int, epochs: int | None) -> list[RunConfig]:
    """Return the trials of some methods together."""
    return [_run(study, methods, batch_size, epochs, point) for point in _points(study.trials)]


def _points(count: int) -> list[dict[str, float]]:
    """Return points of a Latin hypercube by axis: on every axis each of ``count`` equal parts holds one of them."""
    rng = np.random.default_rng(0)
    strata = np.stack([rng.permutation(count) for _ in AXES], axis=1)
    cube = (strata + rng.random(strata.shape)) / count
    return [dict(zip(AXES, map(float, row), strict=True)) for row in cube]


def _run(
    study: _Study, methods: Sequence[str], batch_size: int, epochs: int | None, point: Mapping[str, float]
) -> RunConfig:
    """Return the run of some methods at one point of the search."""
    smallest = study.batch_sizes[0]
    length = (epochs or study.epochs) * (LONGER if "longer" in methods else 1)
    optimizer = next((name for name in methods if name in RATES), "sgd")
    low, high = RATES[optimizer]
    higher = HIGHER if batch_size > smallest else 1.0
    decays = WEIGHT_DECAYS.get(optimizer, USUAL_WEIGHT_DECAYS)
    values: dict[str, Any] = {
        "batch_size": batch_size,
        "optimizer": optimizer,
        "lr": _between(point["rate"], low * higher, high * higher),
        "weight_decay": _between(point["weight decay"], *decays),
        "warmup_epochs": round(WARMUP * length, 6),
        "decay": "step:" + ",".join(f"{drop * length:.6g}" for drop in DROPS),
    }
    if "legw" in methods:
        epochs_at_smallest = _between(point["legw"], *LEGW_WARMUPS) * length / study.epochs
        warmup = min(epochs_at_smallest * batch_size / smallest, LONGEST_WARMUP * length)
        values |= {"lr": _between(point["rate"], *LEGW_RATES), "lr_scaling": "sqrt", "base_batch_size": smallest}
        values["warmup_epochs"] = _rounded(warmup)
    if "lars" in methods:
        values["trust"] = _between(point["lars"], *TRUSTS)
        values["lr"] = _rounded(values["lr"] * TRUSTS[0] / values["trust"])
    if {"lars", "lamb", "no-decay-on-norms"} & set(methods):
        values["weight_decay_on"] = "filters"
    if "label-smoothing" in methods:
        low, high = SMOOTHINGS
        values["label_smoothing"] = _rounded(low + (high - low) * point["label-smoothing"])
    if "polynomial" in methods:
        values["decay"] = f"polynomial:{_between(point['polynomial'], *POWERS):g}"
    if "cosine" in methods:
        values["decay"] = "cosine"
    if "ghost-batch-norm" in methods:
        most = min(batch_size // SMALLEST_SHARE, MOST_SHARES)
        values["bn_workers"] = max(2, most >> int(4 * point["ghost-batch-norm"]))
    return RunConfig(
        experiment=EXPERIMENT, data=study.data, arch=study.arch, precision=study.precision, epochs=length,
        momentum=MOMENTUM, seed=SEARCH_SEED, **values,
    )  # fmt: skip


def _between(part: float, low: float, high: float) -> float:
    """Return the number at a part of the way from one to another by their logarithms, to three digits."""
    return _rounded(low * (high / low) ** part)


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
