"""Whether the rest of the data that ends an epoch matters: batches of which the data is a multiple, or nearly."""

from __future__ import annotations

from collections.abc import Sequence

from dolb.recipes.batch_sizes import WORKERS, batch_size
from dolb.training.config import RunConfig

# Each is within a tenth of a size of the batch-size study that leaves a small rest, at one of its rates.
_RATE = {"paper": 0.03, "demo": 0.1}
_SIZES: dict[str, dict[str, tuple[int, ...]]] = {
    "paper": {"resnet18": (16667,), "resnet50": (16667,), "resnet152": (250, 16667)},
    "demo": {"smallnet-4": (240,)},
}
_SEEDS = {"resnet18": (0, 1)}


def even_batches(
    scale: str,
    *,
    archs: Sequence[str] | None = None,
    batch_sizes: Sequence[int] | None = None,
    seeds: Sequence[int] | None = None,
    epochs: int | None = None,
) -> list[RunConfig]:
    """Runs like some of the batch-size study's, with eight workers and a batch that divides the data evenly."""
    return [
        RunConfig(**run.as_dict() | {"experiment": "even-batches", "bn_workers": WORKERS})
        for arch, sizes in _SIZES[scale].items()
        if archs is None or arch in archs
        for size in sizes
        if batch_sizes is None or size in batch_sizes
        for run in batch_size(
            scale, part="curve", archs=[arch], batch_sizes=[size], lrs=[_RATE[scale]],
            seeds=seeds or _SEEDS.get(arch, (0,)), epochs=epochs,
        )
    ]  # fmt: skip
