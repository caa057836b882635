"""What the experiments on filtering share: data, networks, the recipe of training and its rates.

The recipe of training was tuned once, on all of the data, at a small and at a large batch, so that it comes near the
paper's accuracies there (``tuning`` shows what was tried); the rate of every other batch size follows from those two by
one rule, ``rate``, and is the same for every set.
"""

import math
from dataclasses import dataclass

from dolb.training.config import RunConfig


@dataclass(frozen=True)
class _Study:
    """What the experiments on filtering share at one scale."""

    data: str
    examples: int  # of its training set
    precision: str
    extractors: tuple[str, ...]  # the first makes the masks that runs are trained on
    trained: str  # the network that is trained on what is kept
    tuned: tuple[tuple[int, float], tuple[int, float]]  # batch size and rate, on full data
    extractor_batch_size: int  # near the smaller of these; without a small rest, which costs the deepest networks much
    extractor_rate: float  # by `extractor_tuning`
    weight_decay: float
    epochs: int
    milestones: tuple[float, float]
    warmup_epochs: float  # above the smaller of the tuned batch sizes
    filter: str  # whose noise is counted; runs are trained on masks by ``share``
    iterations: int
    train_seeds: tuple[int, ...]
    mask_seeds: tuple[int, ...]  # of further trainings of the first extractor, by whose masks runs are trained too
    map_seeds: tuple[int, ...]
    perplexities: tuple[float, ...]
    placed: tuple[tuple[float, str, int], ...]  # other maps: rate and start of t-SNE, and iterations
    of_2020: tuple[tuple[float, str, int], ...]  # the same, by the defaults of then, for every extractor
    min_samples: tuple[int, ...]
    el2n: tuple[int, int]  # networks, and the epoch after which they are asked
    folds: int
    pretrained: tuple[str, ...]  # extractors with ImageNet weights; runs are trained on the mask of the last
    best_baseline: str = ""  # of the other ways to choose as many images, with small batches at this weight decay


# 800 is the rate of scikit-learn's t-SNE until 2022, with a random start: 200 there is 800 in openTSNE's units.
_SLOWER = ((800.0, "random", 750), (800.0, "pca", 750), (200.0, "random", 750), (200.0, "random", 250))
# openTSNE 0.3 and scikit-learn 0.22, each after its 250 exaggerated iterations.
_OF_2020 = ((200.0, "pca", 750), (800.0, "random", 750))
STUDIES = {
    "paper": _Study(
        data="cifar10", examples=50_000, precision="bf16", trained="resnet18",
        extractors=("resnet101", "resnet18", "resnet34", "resnet50", "resnet152"), tuned=((256, 0.003), (6272, 0.05)),
        extractor_batch_size=250, extractor_rate=0.03, weight_decay=0.005, epochs=50, milestones=(30, 45),
        warmup_epochs=5, filter="dbscan", iterations=500,
        train_seeds=(0, 1), mask_seeds=tuple(range(1, 10)), map_seeds=(0, 1, 2), perplexities=(10.0, 50.0, 100.0),
        placed=_SLOWER, of_2020=_OF_2020, min_samples=(2, 3, 10), el2n=(5, 10), folds=4,
        pretrained=("resnet101", "efficientnet-lite0"), best_baseline="confident",
    ),
    # On a map of 1,437 points almost every one is alone within the library's default radius, so the knee it is.
    "demo": _Study(
        data="digits", examples=1_437, precision="fp32", extractors=("smallnet-8", "smallnet-4"), trained="smallnet-4",
        tuned=((64, 0.2), (1024, 0.8)), extractor_batch_size=64, extractor_rate=0.2, weight_decay=0.0005, epochs=6,
        milestones=(3, 5), warmup_epochs=1,
        filter="knee", iterations=100, train_seeds=(0, 1), mask_seeds=(1, 2), map_seeds=(0, 1), perplexities=(10.0,),
        placed=((50.0, "random", 100),), of_2020=(), min_samples=(10,), el2n=(2, 3), folds=3, pretrained=(),
    ),
}  # fmt: skip


def data_of(scale: str) -> str:
    """Return the data set that the experiments on filtering train on at a scale; ``published`` trains on none."""
    if scale not in STUDIES:
        raise ValueError(f"scale {scale!r} trains nothing; accepted: {', '.join(reversed(STUDIES))}")
    return STUDIES[scale].data


def rate(scale: str, batch_size: int) -> float:
    """Return the learning rate of a batch size: a power of it, through the two that were tuned; to three digits."""
    (small, low), (large, high) = STUDIES[scale].tuned
    exponent = math.log(high / low) / math.log(large / small)
    return float(f"{low * (batch_size / small) ** exponent:.3g}")


def tuned(scale: str) -> dict[int, float]:
    """Return the rates that were taken, by the batch size at which they were tuned."""
    return dict(STUDIES["demo" if scale == "demo" else "paper"].tuned)


def tuned_run(
    scale: str, experiment: str, arch: str, batch_size: int, *, epochs: int | None = None, **more: object
) -> RunConfig:
    """Return one run of the tuned recipe; with other epochs than the study's, warmup and decay are stretched alike."""
    study = STUDIES[scale]
    stretch = (epochs or study.epochs) / study.epochs
    warmup = study.warmup_epochs if batch_size > study.tuned[0][0] else 0.0
    values: dict[str, object] = {
        "experiment": experiment,
        "data": study.data,
        "arch": arch,
        "batch_size": batch_size,
        "lr": rate(scale, batch_size),
        "warmup_epochs": round(warmup * stretch, 6),
        "decay": "step:" + ",".join(f"{milestone * stretch:.6g}" for milestone in study.milestones),
        "weight_decay": study.weight_decay,
        "epochs": epochs or study.epochs,
        "precision": study.precision,
    }
    return RunConfig(**values | more)  # type: ignore[arg-type]
