"""Strong or weak scaling: time to a target loss by number of workers, under four rules; and the time of their steps.

Strong scaling deals one batch to all workers; weak scaling gives each worker a batch of its own, so that the global
batch grows, and with it, by two of the rules, the rate. No batch is larger than the data: a sampler deals each worker
an equal share of an epoch. The rate was chosen with one worker, and every run ends at its target loss.
"""

from dataclasses import dataclass, replace
from typing import Any

from dolb.config import require_known
from dolb.profiling.config import SYNTHETIC, ScalingConfig, strong, weak
from dolb.recipes.asked import Asked, chosen, recipe
from dolb.training.config import RunConfig

EXPERIMENT, STEPS = "strong-weak", "strong-weak-steps"
LUNA16 = "luna16-"
RULES: dict[str, dict[str, Any]] = {
    "strong": {},
    "weak": {},
    "weak-linear": {"lr_scaling": "linear"},
    "weak-linear-warmup": {"lr_scaling": "linear", "warmup_epochs": 5.0},
}
# A weak run sees up to so many times the examples of one worker's whole run, and no more updates than that has.
MORE_EXAMPLES = 4


@dataclass(frozen=True)
class _Workload:
    """What is trained: data, network, batch, rate and epochs of one worker, and the loss to reach."""

    data: str
    examples: int
    arch: str
    batch: int
    lr: float
    epochs: int
    target: float
    subset: str = "full"
    precision: str = "fp32"
    weight_decay: float = 0.0
    seeds: int = 5


def _volumes(side: int, **more: Any) -> _Workload:
    usual: dict[str, Any] = {"examples": 888, "arch": "volumenet", "batch": 32, "seeds": 10}  # a verdict is by these
    return _Workload(data=f"nodules-{side}", **usual | more)


def _images(share: float, **more: Any) -> _Workload:
    return _Workload(
        data="cifar10", examples=round(50_000 * share), arch="resnet18", batch=64, subset=f"share-{share:g}",
        precision="bf16", weight_decay=5e-4, **more,
    )  # fmt: skip


# The parts of the grid. Rate and target of volumes are by earlier runs of one worker: half the rate that ends lowest,
# as twice that one fails, and a loss that it reaches after about half of its epochs. The rate of images is the best at
# this batch on the page on batch size.
_WORKLOADS = {
    "paper": {
        "volumes": _volumes(32, lr=4.0, epochs=12, target=0.0100),
        "images": _images(0.02, lr=0.01, epochs=40, target=1.9),
        "more-images": _images(0.2, lr=0.01, epochs=15, target=1.4),
        "small-volumes": _volumes(16, lr=4.0, epochs=12, target=0.0075),  # what a CPU trains in minutes
    },
    "demo": {"small-volumes": _volumes(8, lr=4.0, epochs=4, target=0.0105, seeds=2)},
}
_WORKERS = {"paper": (1, 2, 4, 8, 16, 32), "demo": (1, 2)}


@recipe("part", "workers", "seeds", "epochs", "data")
def strong_weak(scale: str, ask: Asked) -> list[RunConfig]:
    """Runs to a target loss by rule of scaling and number of workers.

    ``part`` is ``volumes`` or ``small-volumes`` for the 3-D generator, ``images`` or ``more-images`` for ResNet-18 on
    2% and 20% of CIFAR-10, or ``all``. ``data`` are other volumes for the part of their side, such as ``luna16-32``.
    """
    loads = _WORKLOADS[scale] if ask.data is None else _on_volumes(scale, ask.data)
    cells = {
        name: [
            (load, count, rule)
            for count in ask.workers or _WORKERS[scale]
            for rule in (RULES if count > 1 else ("strong",))  # one worker is the same under all
        ]
        for name, load in loads.items()
    }
    return [
        _run(load, count, rule, ask.epochs or load.epochs, seed)
        for load, count, rule in chosen(cells, ask.part)
        for seed in ask.seeds or range(load.seeds)
    ]


def _on_volumes(scale: str, data: str) -> dict[str, _Workload]:
    loads = _WORKLOADS[scale]
    known = {load.data.replace("nodules-", LUNA16): name for name, load in loads.items() if load.arch == "volumenet"}
    if data not in known:
        raise ValueError(f"data {data!r} do not fit {EXPERIMENT} at {scale} scale; accepted: {', '.join(known)}")
    return {known[data]: replace(loads[known[data]], data=data, examples=800)}  # of 888 scans; one subset of ten tests


def _run(load: _Workload, workers: int, rule: str, epochs: int, seed: int) -> RunConfig:
    is_strong = rule == "strong"
    own = dict(RULES[rule])
    own["warmup_epochs"] = min(own.get("warmup_epochs", 0.0), epochs)
    return RunConfig(
        experiment=EXPERIMENT, data=load.data, subset=load.subset, arch=load.arch, precision=load.precision,
        batch_size=load.batch if is_strong else min(load.batch * workers, load.examples), bn_workers=workers,
        lr=load.lr, base_batch_size=load.batch, weight_decay=load.weight_decay, target_loss=load.target, seed=seed,
        epochs=epochs if is_strong else epochs * min(workers, MORE_EXAMPLES), **own,
    )  # fmt: skip


# Batches of this machine's ranks, each network once; images of CIFAR-10's shape stand for it.
_STEPS = {
    "paper": (("nodules-16", "volumenet", 32), ("nodules-32", "volumenet", 32), (SYNTHETIC, "resnet18", 64)),
    "demo": (("nodules-8", "volumenet", 32),),
}
_RANKS = {"paper": (2, 4, 8), "demo": (2,)}


@recipe("workers", "ranks", "repeats", part="cpu")
def strong_weak_steps(scale: str, ask: Asked) -> list[ScalingConfig]:
    """The time of a step: on one rank by its share of the batch, and on real ranks under strong and weak scaling.

    ``part`` is ``cpu``, a core to a rank, or ``cuda``, one GPU.
    """
    require_known("part", ask.part, ("cpu", "cuda"))
    made: list[ScalingConfig] = []
    counts = ask.ranks or (_RANKS[scale] if ask.part == "cpu" else ())
    for repeat in range(ask.repeats or (1 if scale == "demo" else 3)):
        for data, arch, batch in _STEPS[scale]:
            few = {"steps": 4, "warmup_steps": 1} if ask.part == "cpu" else {"steps": 40, "warmup_steps": 20}
            same: dict[str, Any] = {
                "experiment": STEPS, "arch": arch, "data": data, "device_kind": ask.part, "repeat": repeat, **few,
                "pinned": ask.part == "cpu",
            }  # fmt: skip
            shares = {batch // count for count in ask.workers or _WORKERS[scale]}
            made += [one for share in sorted(shares) for one in weak([1], share, **same)]
            several = [count for count in counts if count > 1]
            made += [*strong(several, batch, **same), *weak(several, batch, **same)]
    return made
