"""Whether speed changes the science: the fast path and the plain one, the same cells, many seeds."""

from typing import Any

from dolb.config import require_known
from dolb.recipes.asked import Asked, recipe
from dolb.recipes.batch_sizes import MOMENTUM, WEIGHT_DECAY, WORKERS
from dolb.recipes.study import tuned_run
from dolb.training.config import RunConfig

# A network, a batch size, how many seeds, and what differs from the recipe of the experiments on filtering; two of
# them are of the batch-size study, large batches past the best size.
_CONSTANT = {"momentum": MOMENTUM, "weight_decay": WEIGHT_DECAY, "decay": "constant", "warmup_epochs": 0.0}
_CELLS: dict[str, tuple[tuple[str, int, int, dict[str, Any]], ...]] = {
    "paper": (
        ("resnet18", 256, 10, {}),
        ("resnet18", 6272, 10, {}),
        ("resnet50", 6272, 5, {}),
        ("resnet18", 2048, 10, _CONSTANT | {"lr": 0.03}),
        ("resnet18", 8192, 10, _CONSTANT | {"lr": 0.1}),
    ),
    "demo": (("smallnet-4", 64, 2, {}),),
}
PRECISIONS = {"plain": "fp32", "fast": "bf16"}


@recipe("part", "archs", "batch_sizes", "seeds", "epochs")
def fidelity(scale: str, ask: Asked) -> list[RunConfig]:
    """Runs of the experiments on filtering, as these make them and in plain float32.

    The plain ones are meant for torch's own operations: ``dolb sweep fidelity --part plain --step graph``, or
    ``eager``, which waits for the host. A demo has only these: a CPU has no other path.
    """
    require_known("part", ask.part, ("all", *PRECISIONS))
    known = {"plain": "fp32"} if scale == "demo" else PRECISIONS
    return [
        tuned_run(
            scale, "fidelity", arch, size, epochs=ask.epochs, seed=seed, precision=precision, bn_workers=WORKERS, **more
        )
        for name, precision in known.items()
        if ask.part in (name, "all")
        for arch, size, seeds, more in _CELLS[scale]
        if (ask.archs is None or arch in ask.archs) and (ask.batch_sizes is None or size in ask.batch_sizes)
        for seed in ask.seeds or range(seeds)
    ]  # fmt: skip
