"""Warmup and rate scaling: the runs of a study on ImageNet, brought to CIFAR-10 at equal updates an epoch.

The study trains for 90 epochs with batches of 3,840 to 30,720, which leave 334 to 42 updates an epoch. On 50,000 images
batches of 150 to 1,200 leave as many, and these are its batch sizes here. At its own sizes an epoch would have 2 to 14
updates; the part ``equal-batch`` shows what becomes of that.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dolb.recipes.asked import Asked, chosen, recipe
from dolb.recipes.batch_sizes import asked
from dolb.training.config import RunConfig, StartConfig


@dataclass(frozen=True)
class _Study:
    """What both experiments share at one scale."""

    data: str
    precision: str
    archs: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    compared: tuple[int, int]  # two of these, at which warmups are compared
    share: int  # of one worker, in images
    epochs: int
    milestones: tuple[float, float]  # a tenth of the rate from each of these epochs on
    warmups: tuple[float, ...]
    reported_warmups: tuple[float, ...]  # those of the study
    usual_warmup: float
    lrs: tuple[float, ...]  # for `base`; the first is the study's
    base: int
    ladder: tuple[float, ...]  # of peak rates
    ladder_epochs: int  # of its runs, so that it can have many rungs
    decisive_seeds: int
    seeds: int
    ladder_seeds: int
    recorded_epochs: int  # of the first, update by update
    equal_batches: tuple[int, ...] = ()
    equal_workers: int = 1


_STUDIES = {
    # A share is the nearest to the study's 32 images that divides all batch sizes. Momentum is not reported.
    "paper": _Study(
        data="cifar10", precision="bf16", archs=("resnet50", "resnet18"), batch_sizes=(150, 300, 600, 900, 1200),
        compared=(300, 1200), share=30, epochs=90, milestones=(30, 60), warmups=(0, 1, 2, 5, 10, 20, 30),
        reported_warmups=(0, 5, 10, 20), usual_warmup=5, lrs=(0.0125, 0.00125), base=32,
        ladder=tuple(0.0125 * 2**step for step in range(-2, 8)), ladder_epochs=30, decisive_seeds=10, seeds=5,
        ladder_seeds=3, recorded_epochs=6, equal_batches=(7680, 30720), equal_workers=240,
    ),
    "demo": _Study(
        data="digits", precision="fp32", archs=("smallnet-4",), batch_sizes=(64, 128, 256), compared=(64, 256),
        share=64, epochs=6, milestones=(3, 5), warmups=(0, 1, 2, 4), reported_warmups=(0, 1, 2, 4), usual_warmup=1,
        lrs=(0.2,), base=64, ladder=tuple(0.05 * 4**step for step in range(4)), ladder_epochs=3,
        decisive_seeds=2, seeds=2, ladder_seeds=2, recorded_epochs=3,
    ),
}  # fmt: skip
WEIGHT_DECAY = 5e-5


@recipe("part", "archs", "batch_sizes", "warmups", "lrs", "seeds", "epochs", "data")
def warmup(scale: str, ask: Asked) -> list[RunConfig]:
    """Accuracy by epochs of warmup, under linear scaling of a base rate.

    ``part`` is ``warmups`` for two batch sizes with every warmup and base rate, ``batches`` for all batch sizes with
    the usual warmup, ``equal-batch`` for the study's own batch sizes, or ``all``. Arguments narrow the grid, and may go
    beyond it.
    """
    study = _on(scale, ask.data)
    first, lrs, lengths = study.archs[0], ask.lrs or study.lrs, ask.warmups or study.warmups
    known = (*study.batch_sizes, *study.equal_batches)
    cells: dict[str, list[dict[str, Any]]] = {
        "warmups": [
            {"arch": arch, "lr": lr, "batch_size": size, "warmup_epochs": length}
            for arch in ask.archs or study.archs
            for lr in lrs
            for size in asked(ask.batch_sizes, study.compared, known)
            for length in lengths
        ],
        "batches": [
            {"arch": arch, "lr": lr, "batch_size": size, "warmup_epochs": study.usual_warmup}
            for arch in ask.archs or study.archs
            for lr in lrs
            for size in asked(ask.batch_sizes, study.batch_sizes, known)
            if study.usual_warmup in lengths
        ],
        "equal-batch": [
            {"arch": arch, "lr": lr, "batch_size": size, "warmup_epochs": length, "bn_workers": study.equal_workers}
            for arch in asked(ask.archs, [first], study.archs)
            for lr in lrs
            for size in study.equal_batches
            if ask.batch_sizes is None or size in ask.batch_sizes
            for length in lengths
            if length in study.reported_warmups
        ],
    }

    def count(cell: dict[str, Any]) -> int:
        if "bn_workers" in cell:
            return 1
        decisive = (cell["arch"], cell["lr"]) == (first, study.lrs[0])
        return study.decisive_seeds if decisive and cell["warmup_epochs"] in study.reported_warmups else study.seeds

    return [
        _run("warmup", study, ask.epochs, seed=seed, lr_scaling="linear", base_batch_size=study.base, **cell)
        for cell in chosen(cells, ask.part)
        for seed in ask.seeds or range(count(cell))
    ]


@recipe("archs", "batch_sizes", "warmups", "seeds", "epochs", "data")
def warmup_start(scale: str, ask: Asked) -> list[StartConfig]:
    """The first epochs of runs of warmup, update by update: without warmup and with the usual one."""
    study = _STUDIES[scale]
    runs = warmup(
        scale, part="warmups", archs=ask.archs or study.archs[:1], batch_sizes=ask.batch_sizes or study.compared[1:],
        warmups=ask.warmups or (0, study.usual_warmup), lrs=study.lrs[:1], seeds=ask.seeds or (0, 1), epochs=ask.epochs,
        data=ask.data,
    )  # fmt: skip
    recorded = min(study.recorded_epochs, ask.epochs or study.epochs)
    return [StartConfig(**run.as_dict() | {"experiment": "warmup-start", "recorded_epochs": recorded}) for run in runs]


@recipe("part", "archs", "batch_sizes", "lrs", "seeds", "epochs", "data")
def lr_scaling(scale: str, ask: Asked) -> list[RunConfig]:
    """Accuracy by batch size and peak rate, with the usual warmup.

    A rule of scaling is a line through this map, so one ladder of rates serves them all. Its runs are shorter than
    the study's, with warmup and decay after the same parts. ``part`` is ``ladder``, ``study`` for the study's base rate
    as it is at its batch sizes, whose linear twin is in ``warmup``, or ``all``.
    """
    study = _on(scale, ask.data)

    def grid(own_sizes: Sequence[int], own_lrs: Sequence[float], own_epochs: int) -> list[dict[str, Any]]:
        return [
            {"arch": arch, "lr": lr, "batch_size": size, "epochs": ask.epochs or own_epochs}
            for arch in ask.archs or study.archs
            for size in asked(ask.batch_sizes, own_sizes, study.batch_sizes)
            for lr in asked(ask.lrs, own_lrs, study.ladder)
        ]

    cells = {
        "study": grid(study.compared, study.lrs[:1], study.epochs),
        "ladder": grid(study.batch_sizes, study.ladder, study.ladder_epochs),
    }
    return [
        _run("lr-scaling", study, seed=seed, warmup_epochs=study.usual_warmup, **cell)
        for cell in chosen(cells, ask.part)
        for seed in ask.seeds or range(study.seeds if cell in cells["study"] else study.ladder_seeds)
    ]


def _on(scale: str, data: str | None) -> _Study:
    """Return the study at a scale, on another data set if one is named."""
    return _STUDIES[scale] if data is None else replace(_STUDIES[scale], data=data)


def _run(experiment: str, study: _Study, epochs: int | None, **cell: Any) -> RunConfig:
    """Return one run; with other epochs than the study's, warmup ends and decay comes after the same part of them."""
    epochs = epochs or study.epochs
    stretch = epochs / study.epochs
    values = {
        "experiment": experiment,
        "data": study.data,
        "decay": "step:" + ",".join(f"{milestone * stretch:.6g}" for milestone in study.milestones),
        "weight_decay": WEIGHT_DECAY,
        "epochs": epochs,
        "bn_workers": max(1, cell["batch_size"] // study.share),
        "precision": study.precision,
    } | cell
    values["warmup_epochs"] = round(values["warmup_epochs"] * stretch, 6)
    return RunConfig(**values)
