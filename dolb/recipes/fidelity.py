"""Whether speed changes the science: the fast path and the plain one, the same cells, many seeds."""

from typing import Any

from dolb.config import require_known
from dolb.recipes.asked import Asked, recipe
from dolb.recipes.batch_sizes import MOMENTUM, WEIGHT_DECAY, WORKERS
from dolb.recipes.study import tuned_run
from dolb.training.config import RunConfig

# Two cells of the batch-size study: large batches at two rates, past the best size of either, where bf16 and the
# statistics of eight workers are both at work.
_CELLS = {"paper": ((2048, 0.03), (8192, 0.1)), "demo": ((64, 0.1),)}
# Of the recipe of the experiments on filtering: a network, a batch size, and how many seeds.
_TUNED = {"paper": (("resnet18", 256, 10), ("resnet18", 6272, 10), ("resnet50", 6272, 5)), "demo": ()}
_SEEDS = {"paper": range(10), "demo": range(2)}
PRECISIONS = {"plain": "fp32", "fast": "bf16"}


@recipe("part", "seeds", "epochs")
def fidelity(scale: str, ask: Asked) -> list[RunConfig]:
    """Runs of the batch-size study and the tuned recipe, ``fast`` as these make them and ``plain`` in float32, or both.

    The plain ones are meant for torch's own operations, one after the other: ``dolb sweep fidelity --part plain --step
    eager``. A demo has only these: a CPU has no other path.
    """
    require_known("part", ask.part, ("all", *PRECISIONS))
    known = {"plain": "fp32"} if scale == "demo" else PRECISIONS
    chosen = [precision for name, precision in known.items() if ask.part in (name, "all")]
    same: dict[str, Any] = (
        {"data": "digits", "arch": "smallnet-4", "epochs": ask.epochs or 6}
        if scale == "demo"
        else {"data": "cifar10", "arch": "resnet18", "epochs": ask.epochs or 50, "bn_workers": WORKERS}
    )
    cells = [
        RunConfig(
            experiment="fidelity", lr=lr, batch_size=size, seed=seed, precision=precision, momentum=MOMENTUM,
            weight_decay=WEIGHT_DECAY, **same,
        )
        for precision in chosen
        for seed in ask.seeds or _SEEDS[scale]
        for size, lr in _CELLS[scale]
    ]  # fmt: skip
    tuned = [
        tuned_run(
            scale, "fidelity", arch, size, epochs=ask.epochs, seed=seed, precision=precision, bn_workers=WORKERS
        )
        for precision in chosen
        for arch, size, count in _TUNED[scale]
        for seed in ask.seeds or range(count)
    ]  # fmt: skip
    return cells + tuned
