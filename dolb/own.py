"""Filter a data set of one's own by one method or all, and train on what is left beside full and random data.

Like ``maps``, whose stages it composes, it is where filtering and training meet. A study knows its masks by their keys;
here a person asks for a method and a share, and wants to know which files go, and why.
"""

import contextlib
import hashlib
import math
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr

from dolb import data as datasets
from dolb import maps, models, results
from dolb.filtering import baselines, masks, noise
from dolb.filtering.checks import every_class_stays, finite_rows
from dolb.filtering.config import FilterConfig, refuse
from dolb.findings import filtered
from dolb.findings.intervals import student
from dolb.recipes.study import STUDIES, tuned_run
from dolb.results.fill import interrupts
from dolb.training.config import RunConfig
from dolb.training.device import resolve_device
from dolb.training.engine import RunAbandoned
from dolb.training.sweep import sweep

SHARE = 0.05  # what the study removes, about
_PIXELS = 24  # of the shorter side, from which on a GPU trains a ResNet
# A network learns wrong labels by heart. Of digits with one label in twenty wrong, the paper's method removed 70 after
# 10 epochs, 67 of them wrong; after 20 epochs 63 of 68, after 50 epochs 42 of 71: smallnet-8 on a CPU, one seed; 10
# was taken after seeing this. That of the ResNets is not tuned.
_EPOCHS = {"demo": 10, "paper": 20}
_UPDATES = 150  # at least, so that few images are looked at for longer
_FOLDS = 4
_FEWEST = 5  # images that have a map: t-SNE looks at three neighbours of each
_LARGEST = 1e18  # number among features: its square is still one
_NETWORKS = 3  # that EL2N asks
_FAR_MORE, _SEVERAL = 3.0, 3  # times the share of all, and images, that a class loses before it is named
_SMALL_REST = 0.25  # of a batch: an epoch's last one, if smaller, is a noisy update right before the test


@dataclass(frozen=True, eq=False)
class Filtered:
    """A data set on its map, and what each method chose; ``passed_over`` says why a method of all could not."""

    data: datasets.ImageData
    extractor: RunConfig | None
    accuracy: float
    coordinates: np.ndarray
    noise_until: np.ndarray
    chosen: Mapping[str, maps.Chosen]
    passed_over: Mapping[str, str]


def even(most: int, counts: Sequence[int]) -> int:
    """Return the largest batch size up to ``most`` whose last batch of an epoch is not small on sets of these sizes."""
    sizes = range(most, most // 2, -1)
    return next((size for size in sizes if _last(size, counts) >= _SMALL_REST), most)


def check_even(batch_size: int, counts: Sequence[int]) -> None:
    """Warn of a batch size that leaves a small last batch on a set of one of these sizes, and name a better one."""
    count = min(counts, key=lambda count: _last(batch_size, [count]))
    if _last(batch_size, [count]) < _SMALL_REST:
        better = even(batch_size, counts)
        warnings.warn(
            f"batches of {batch_size} leave {count % batch_size} of {count:,} images to the last update of an epoch, "
            "whose noise costs accuracy" + (f"; batches of {better} do not" if better != batch_size else ""),
            stacklevel=2,
        )


def _last(batch_size: int, counts: Sequence[int]) -> float:
    """Return the smallest part of a batch that an epoch's last one has; one image more joins a full batch."""
    rests = [count % batch_size for count in counts]
    return min(rest / batch_size if rest > 1 else 1.0 for rest in rests)


def extractor(
    data: datasets.ImageData,
    device: torch.device,
    arch: str | None = None,
    epochs: int | None = None,
    beside: Sequence[int] = (),
) -> RunConfig:
    """Return the run that trains the extractor of a data set: the study's, or on a CPU and for few pixels the demo's.

    Unless told, it ends before wrong labels are learned by heart; no batch is over an eighth of the images, and none of
    the last ones is small, nor on sets of the sizes ``beside``.
    """
    n = len(data.train_labels)
    if data.channels not in (1, 3) or (arch and models.require(arch).of_volumes):
        what = arch if data.channels in (1, 3) else f"{data.name}, of {data.channels} channels,"
        raise ValueError(f"{what} is for volumes; accepted: images of 1 or 3 channels, and a network for them")
    small = device.type == "cpu" or min(data.image_size) < _PIXELS
    scale = "demo" if (arch.startswith("smallnet") if arch else small) else "paper"
    study = STUDIES[scale]
    batch_size = even(max(min(study.extractor_batch_size, n // 8), min(8, n)), [n, *beside])
    return tuned_run(
        scale, "own", arch or (study.extractors[0] if scale == "demo" else study.trained), batch_size,
        epochs=epochs or max(_EPOCHS[scale], math.ceil(_UPDATES * batch_size / n)), data=data.name,
        lr=study.extractor_rate, precision=study.precision if device.type == "cuda" else "fp32", warmup_epochs=0.0,
        # A letter must not be mirrored, and a crop by four pixels leaves little of a very small image.
        augment="crop" if min(data.image_size) >= _PIXELS else "none",
    )  # fmt: skip


def choose(
    data: datasets.ImageData,
    methods: Sequence[str],
    *,
    share: float | None = None,
    eps: float | None = None,
    arch: str | None = None,
    epochs: int | None = None,
    features: np.ndarray | None = None,
    store: str | Path,
    device: str = "auto",
    progress: bool = True,
) -> Filtered:
    """Return what methods keep of a training set, making what the store lacks of networks, features and map.

    Parameters
    ----------
    methods
        Of ``METHODS``. ``paper`` is DBSCAN by class, with the radius ``eps`` or the one at which ``share`` is noise;
        ``knee`` and ``hdbscan`` find out themselves how much to remove, all others remove ``share`` of each class.
    arch, epochs
        The network that is trained, and how long; by default ``extractor`` takes what suits the data and the device.
        Of ``models.WITH_WEIGHTS`` it has ImageNet's weights, and is not trained.
    features
        A row for each training image, in the order of ``data.train_files``, in place of an extractor's.
    """
    refuse(methods, share, eps, arch, features)
    where, n = resolve_device(device), len(data.train_labels)
    if n < _FEWEST:
        raise ValueError(
            f"{data.name} has {n} training images; accepted: {_FEWEST} or more, or there is no map of them"
        )
    weights = arch in models.WITH_WEIGHTS
    if weights and data.channels != 3:
        raise ValueError(f"{arch} takes images in colour, and {data.name} has none; accepted: a network to train")
    run = extractor(data, where, None if weights else arch, epochs)
    early = replace(run, epochs=max(1, run.epochs // 5), decay="constant")  # EL2N asks networks early in training
    runs = results.RunStore(store)
    at = maps.Place(runs, {run.key: run, early.key: early}, data, where, lambda: False, progress)
    known_by = {"arch": arch, "weights": "imagenet"} if weights else {"arch": run.arch, "trained_by": run.key}
    if features is not None:
        if len(finite_rows("features", features)) != n:
            raise ValueError(f"features have {len(features)} rows; accepted: {n}, one for each training image")
        known_by |= {"weights": "given", "trained_by": maps.given(at, features)}
    config = FilterConfig(experiment="own", data=data.name, perplexity=min(30, (n - 2) // 3), **known_by)
    said = f"the network so far is kept in {store}" if progress else ""
    with interrupts(gentle=True, kept=said) as came, contextlib.suppress(RunAbandoned):
        accuracy, _ = maps.trained(replace(at, stop=lambda: bool(came)), config)
    on_map = maps.mapped(at, config)["train"]
    removed, smallest = share or SHARE, int(np.bincount(data.train_labels).min())
    asked: dict[str, dict[str, Any]] = {
        "paper": {"filter": "dbscan", "eps": eps} if eps else {"filter": "share", "share": removed},
        "el2n": {"trained_by": early.key, "networks": _NETWORKS},
        "forgetting": {"trained_by": run.key},
        "confident": {"trained_by": run.key, "networks": min(_FOLDS, smallest)},
    }
    chosen, passed_over = {}, {}
    for method in methods:
        try:
            if method == "confident" and smallest < 2:
                raise ValueError("a class has one image, and confident learning holds some out; accepted: 2 of each")
            with warnings.catch_warnings():  # a class that is kept whole is seen in the table of classes
                warnings.filterwarnings("ignore", ".*kept whole")
                how = {"filter": method} | asked.get(method, {})
                chosen[method] = maps.choose(at, replace(config, **how), 1 - removed)
        except ValueError as error:
            if len(methods) == 1:
                raise
            passed_over[method] = str(error)
    until = noise.noise_until(on_map, data.train_labels, config.min_samples)
    trained = run if features is None and not weights else None
    return Filtered(data, trained, accuracy, on_map, until, chosen, passed_over)


def require_writable(folder: Path) -> None:
    """Make a folder if there is none, and raise a ``ValueError`` now if nothing could be written there later."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"nothing can be written into {folder} ({error.strerror}); give another folder") from error


def read_features(path: Path) -> np.ndarray:
    """Return the features in a .npy file, or say what is wrong with it."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; accepted: a .npy file with a row for each training image")
    try:
        rows = finite_rows(f"the features in {path}", np.load(path, mmap_mode="r", allow_pickle=False))
        if (most := max(abs(float(rows.max())), abs(float(rows.min())))) > _LARGEST:
            raise ValueError(f"they hold numbers up to {most:.1e}; accepted: up to {_LARGEST:.0e}")
    except Exception as error:  # of a damaged header numpy raises what it happens to stumble over
        raise ValueError(f"{path} cannot be read as features: {error}") from error
    return rows


# What is said and written of it


def guessing(data: datasets.ImageData) -> float:
    """Return the share of the test images that are right if always the largest class is guessed."""
    return float(np.bincount(data.test_labels).max() / len(data.test_labels))


def above_guessing(data: datasets.ImageData) -> float:
    """Return the accuracy from which on a network is better than guessing, beyond chance."""
    share = guessing(data)
    return share + 2 * math.sqrt(share * (1 - share) / len(data.test_labels))


def emptied(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `by_class` that lose several images and a far larger share than all together."""
    share = table["removed"].sum() / table["images"].sum()
    return table[(table["share"] > _FAR_MORE * share) & (table["removed"] >= _SEVERAL)]


def by_class(found: Filtered, method: str) -> pd.DataFrame:
    """Return how many images of each class a method removes."""
    names = np.array(found.data.classes)[found.data.train_labels]
    gone = pd.Series(~found.chosen[method].keep).groupby(names).agg(images="size", removed="sum", share="mean")
    return gone.reindex(found.data.classes).rename_axis("class").reset_index()


def compared(found: Filtered) -> pd.DataFrame:
    """Return how many images each method removes, the minutes it takes alone, and how many it shares with others."""
    gone = {name: ~one.keep for name, one in found.chosen.items()}
    rows = [
        {"method": name, "removed": gone[name].sum(), "share": gone[name].mean(), "minutes": one.seconds / 60}
        | {f"also by {other}": int((gone[name] & there).sum()) for other, there in gone.items()}
        for name, one in found.chosen.items()
    ]
    return pd.DataFrame(rows)


def dropped(found: Filtered, method: str, files: Sequence[str]) -> pd.DataFrame:
    """Return the files that a method drops, with class, score and number on the page, by the score."""
    one, data = found.chosen[method], found.data
    gone = np.flatnonzero(~one.keep)
    classes = [data.classes[data.train_labels[k]] for k in gone]
    named = {"file": [files[k] for k in gone], "class": classes, "score": one.scores[gone], "example": gone}
    table = pd.DataFrame(named)
    return table.sort_values("score", ascending=False, kind="stable")


def save(found: Filtered, method: str, path: Path) -> Path:
    """Write the mask of a method with its map, for ``dolb view`` and for training."""
    one = found.chosen[method]
    about = {"filter": method, "eps": one.eps, "seconds": one.seconds, "network_accuracy": found.accuracy}
    if found.extractor is not None:
        about |= {"arch": found.extractor.arch, "trained_by": found.extractor.key}
    return masks.save_keep(
        path, one.keep, found.data, method, coordinates=found.coordinates.astype(np.float32),
        noise_until=found.noise_until.astype(np.float32), about=about,
    )  # fmt: skip


# Training on what is left


def compare(
    data: datasets.ImageData,
    keep: np.ndarray | None,
    *,
    seeds: int = 5,
    arch: str | None = None,
    epochs: int | None = None,
    store: str | Path,
    device: str = "auto",
    data_dir: str | Path | None = None,
    progress: bool = True,
    **changes: object,
) -> xr.Dataset:
    """Return runs on all of the data, on what a mask keeps, and on as much of each class at random, for each seed.

    The training is that of the ``extractor``, with ``changes`` of its config. Each seed has a random set of its own.
    """
    refuse(arch=arch)
    beside = [] if keep is None else [int(keep.sum())]
    run = replace(extractor(data, resolve_device(device), arch, epochs, beside), **changes)  # type: ignore[arg-type]
    check_even(run.batch_size, [len(data.train_labels), *beside])
    sets, subsets = [["full"] for _ in range(seeds)], dict[str, np.ndarray]()
    if keep is not None:
        every_class_stays("the mask", keep, data)
        if keep.all():
            raise ValueError("the mask removes nothing, so there is nothing to compare; accepted: one that does")
        mark = hashlib.sha256(np.packbits(keep).tobytes()).hexdigest()[:8]
        for seed in range(seeds):
            drawn = baselines.ByScore("random", keep, seed).fit(None, data.train_labels).keep_
            subsets |= {f"network-{mark}": keep, f"random-{mark}-{seed}": drawn}
            sets[seed] += [f"network-{mark}", f"random-{mark}-{seed}"]
    runs = [replace(run, subset=subset, seed=seed) for seed in range(seeds) for subset in sets[seed]]
    how: dict[str, Any] = {"store": store, "device": device, "data_dir": data_dir, "progress": progress}
    return sweep(runs, subsets=subsets, **how)


def accuracies(ds: xr.Dataset) -> pd.DataFrame:
    """Return the images of each set and the accuracy after training on it, mean and interval over seeds, in percent."""
    rows = []
    for name, frame in filtered.runs(ds).groupby("set", sort=False):
        found = student(frame["accuracy"]).points()
        low, high = max(0.0, found.low), min(100.0, found.high)
        rows.append((name, int(frame["training_examples"].iloc[0]), found.value, low, high, found.n))
    return pd.DataFrame(rows, columns=["set", "images", "accuracy", "low", "high", "seeds"])


def gains(ds: xr.Dataset) -> pd.DataFrame:
    """Return what filtered data gain over full and random data at equal epochs, in points, with 95% intervals."""
    table = filtered.gains(ds).query("equal == 'epochs'")
    return table[["one", "other", "points", "low", "high", "n"]].reset_index(drop=True)
