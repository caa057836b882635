"""Features, map, mask: train the network, extract features, place them on the map, choose what to keep.

Training and filtering are rooms that do not know each other; here one is handed what the other made. Networks, the
principal components of their features, maps, and what networks say of the examples are kept in the store, by the key of
their run or by what they are of, and masks by their own key. So the work can be stopped at any time and taken up again,
on another machine too: for more maps the components of features suffice, without weights, and for masks by another
radius on a map the mask that has that map's scores.
"""

import hashlib
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from sklearn.decomposition import PCA
from torch import nn

from dolb import data as datasets
from dolb import models, results
from dolb.filtering import baselines, masks, noise
from dolb.filtering import features as extraction
from dolb.filtering.config import BASELINES, FLAGGED, ON_THE_MAP, PLACED, FilterConfig
from dolb.filtering.embedding import TSNEMap, principal_components
from dolb.results.files import write_whole
from dolb.results.fill import Todo, fill
from dolb.training import observe
from dolb.training.config import RunConfig
from dolb.training.device import device_name, host_peak, resolve_device
from dolb.training.engine import RunAbandoned
from dolb.training.run import PausedRuns

# What a mask costs, by part, in the schema's names. For a further round the rounds before count too; the size that a
# baseline takes from another mask does not, as it is only for the comparison.
PARTS = ("network_seconds", "feature_seconds", "map_seconds", "score_seconds", "mask_seconds")
_FINEST = 64  # published coordinates are rounded to this part of a unit, on a map a hundred units wide: half the bytes
_PART = 4096  # rows of features that are looked at together
_BY_RADIUS = ("dbscan", "share")
_MAPPED = ("none", *ON_THE_MAP, *(name for name, by in BASELINES.items() if by == "map"))
# Filters that look at a network's features.
_FROM_FEATURES = (*_MAPPED, *(name for name, by in BASELINES.items() if by == "features"))
# What numpy and zipfile raise where a byte of a file is not what was written.
_DAMAGED = (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Place:
    """What the stages work on: a data set, or what the mask of the key ``within`` keeps of it, and a store."""

    runs: results.RunStore
    networks: Mapping[str, RunConfig]
    data: datasets.ImageData
    device: torch.device
    stop: Callable[[], bool]
    progress: bool
    within: str = ""
    by_radius: Sequence[FilterConfig] = ()  # masks that are made together

    @property
    def folder(self) -> Path:
        """Where files that are no results lie, by fingerprint too: a folder of images may change under its name."""
        folder = self.runs.folder / "networks" / self.data.fingerprint.removeprefix("sha256:")[:12]
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @property
    def watch(self) -> dict[str, Any]:
        """What runs that are watched are told besides their data."""
        return {"device": str(self.device), "stop": self.stop, "progress": self.progress}


def make(
    configs: Sequence[FilterConfig],
    networks: Mapping[str, RunConfig],
    *,
    scored: Sequence[FilterConfig] = (),
    store: str | Path | None = None,
    device: str = "auto",
    data_dir: str | Path | None = None,
    time_limit: float | None = None,
    progress: bool = True,
) -> xr.Dataset:
    """Return maps and masks, all of one data set, as one Dataset, making those that the store lacks.

    A mask of another's size, or of the round after another, comes after that one, or is in the store with it.
    ``networks`` are the runs that train the networks, by key, and ``scored`` masks that are not asked for but from
    which, if the store has them, others on the same map follow. The rest is as in ``results.fill.fill``; masks that
    need weights which cannot be had are passed over.
    """
    if len(names := {config.data for config in configs}) != 1:
        raise ValueError(f"the maps and masks are of {sorted(names)}; accepted: one data set, and at least one config")
    data = datasets.load(names.pop(), data_dir)

    def work(todo: Todo[FilterConfig]) -> Iterator[xr.Dataset]:
        by_radius = [one for one in (*scored, *configs) if one.filter in _BY_RADIUS and not one.within]
        at = Place(todo.store, networks, data, resolve_device(device), todo.ends, progress, by_radius=by_radius)
        _train(at, [config for config in todo.waiting if _scored(at, config) is None])
        for config in todo.claim(in_order=True):
            try:
                yield _made(at, config)
            except extraction.CheckpointError as error:
                if config.weights != "imagenet":
                    raise
                todo.pass_over(config, str(error))
            except RunAbandoned:
                return

    return fill(
        configs, work, store=store, fingerprint=lambda config: data.fingerprint, time_limit=time_limit, foresee=True,
        what="maps and masks", unit="mask", progress=progress,
    )  # fmt: skip


def subsets(ds: xr.Dataset) -> dict[str, np.ndarray]:
    """Return the masks of a Dataset by the name that runs call them, as a sweep takes them."""
    kept = ds["keep"].transpose("run", "example").to_numpy().astype(bool)
    return dict(zip(map(str, ds["subset"].to_numpy()), kept, strict=True))


def kept(ds: xr.Dataset) -> tuple[int, int]:
    """Return how many examples the first mask keeps, and of how many."""
    first = ds["keep"].transpose("run", "example").to_numpy()[0]
    return int(first.sum()), len(first)


# One map or mask


@dataclass(frozen=True, eq=False)
class Chosen:
    """What a filter keeps, a score that is higher for what goes first, and the radius that it is by, NaN without one.

    ``map`` is what it was chosen on, if that is a map; ``accuracy`` the network's, and ``spent`` has seconds by part.
    """

    keep: np.ndarray
    scores: np.ndarray
    eps: float
    map: Arrays
    accuracy: float
    spent: dict[str, float]

    @property
    def seconds(self) -> float:
        """All that it took, training too."""
        return sum(self.spent.values())


def _made(at: Place, config: FilterConfig) -> xr.Dataset:
    """Make a map or a mask; its ``seconds`` are those of its parts, training left out."""
    there, asked, keep = at, config, np.ones(len(at.data.train_labels), dtype=bool)
    size = _before(at, config)["keep"].to_numpy().reshape(-1) if config.size_of else 1.0
    if config.within:  # one more round: of what the one before keeps, and by its radius
        before = _before(at, config)
        keep = before["keep"].to_numpy().reshape(-1).copy()
        there = replace(at, data=at.data.subset(keep, at.networks[config.trained_by].subset), within=config.within)
        if config.filter == "share":
            radius = noise.share_radius(before["noise_until"].to_numpy().reshape(-1), config.share)
            asked = replace(config, filter="dbscan", eps=radius)
    known = _scored(at, config)
    made = choose(there, asked, size) if known is None else _by_radius(config, known)
    spent, seconds = made.spent, made.seconds - made.spent["network_seconds"]
    if config.within:
        spent = {name: value + before[name].item() for name, value in spent.items()}
    about: dict[str, Any] = {
        **config.as_dict(), "key": config.key, "device": device_name(at.device), "eps": made.eps, "seconds": seconds,
        "feature_width": models.require(config.arch).feature_width, "network_accuracy": made.accuracy,
        "peak_memory_bytes": host_peak(), **spent,
    }  # fmt: skip
    if config.filter == "none":
        return masks.map_dataset(_rounded(made.map["train"]), _rounded(made.map["test"]), at.data, about)
    followed_from = {}  # for the first map of a network
    if config.filter in ON_THE_MAP and config.usual("seed", "within", "min_samples", *PLACED):
        until = made.scores.astype(np.float32)
        followed_from = {"coordinates": _rounded(made.map["train"]), "noise_until": until}
    keep[keep] = made.keep
    return masks.keep_dataset(keep, at.data, config.subset, about=about, **followed_from)


def _before(at: Place, config: FilterConfig) -> xr.Dataset:
    """Return the mask that a mask follows from, by its size or as the round before, or say that it is not made."""
    key = config.within or config.size_of
    if (ds := at.runs.get(key, at.data.fingerprint)) is None:
        role = f"within which {config.subset} filters" if config.within else f"whose size {config.subset} has"
        raise ValueError(f"the mask {key}, {role}, is not made yet; make it first")
    return ds


def _scored(at: Place, config: FilterConfig) -> xr.Dataset | None:
    """Return a finished mask on the same map that has the map's scores, from which one by a radius follows."""
    if config not in at.by_radius:
        return None
    alike = (one for one in at.by_radius if (one.map, one.min_samples) == (config.map, config.min_samples))
    masks = (at.runs.get(one.key, at.data.fingerprint) for one in alike)
    return next(
        (ds for ds in masks if ds is not None and "noise_until" in ds and ds["noise_until"].notnull().any()), None
    )


def _by_radius(config: FilterConfig, scored: xr.Dataset) -> Chosen:
    """Return a mask by the scores that another on the same map has, with what that one cost."""
    until = scored["noise_until"].to_numpy().reshape(-1)
    keep, eps = _clustered(config, np.empty(0), scored["label"].to_numpy().reshape(-1), until)
    spent = {name: scored[name].item() for name in PARTS}
    on_map = {"train": np.stack([scored[name].to_numpy().reshape(-1) for name in ("x", "y")], axis=1)}
    return Chosen(keep, until, eps, on_map, scored["network_accuracy"].item(), spent)


def choose(at: Place, config: FilterConfig, size: float | np.ndarray = 1.0) -> Chosen:
    """Return what a filter keeps of the training set: a baseline the share ``size``, or as much as that mask."""
    accuracy, trained_in = trained(at, config)
    spent = dict.fromkeys(PARTS, 0.0) | {"network_seconds": trained_in}
    known: Any = None
    on_map, labels = Arrays(), at.data.train_labels
    if config.filter in _MAPPED:
        on_map = mapped(at, config)
        spent |= {"feature_seconds": float(on_map["feature_seconds"]), "map_seconds": float(on_map["seconds"])}
    elif BASELINES.get(config.filter) != "nothing":
        known, more = said(at, config)
        spent |= more
    begun, eps = time.perf_counter(), np.nan
    if config.filter == "none":
        keep, scores = np.ones(len(labels), dtype=bool), np.zeros(len(labels))
    elif config.filter == "grid":
        keep = noise.grid_sample(on_map["train"], labels, float(np.mean(size)), random_state=config.seed)
        scores = np.full(len(labels), np.nan)
    elif config.filter in ON_THE_MAP:
        scores = noise.noise_until(on_map["train"], labels, config.min_samples)
        keep, eps = _clustered(config, on_map["train"], labels, scores)
    elif config.filter == FLAGGED:
        keep = ~baselines.label_issues(known, labels)
        scores = 1.0 - keep
    else:
        fitted = baselines.ByScore(config.filter, size, config.seed).fit(known, labels)
        keep, scores = fitted.keep_, fitted.scores_
    spent["mask_seconds" if known is None else "score_seconds"] += time.perf_counter() - begun
    return Chosen(keep, scores, eps, on_map, accuracy, spent)


def _clustered(
    config: FilterConfig, coordinates: np.ndarray, labels: np.ndarray, until: np.ndarray
) -> tuple[np.ndarray, float]:
    """Return what a clustering of the map keeps, and its radius; where each class has its own, their mean."""
    if config.filter in _BY_RADIUS:
        eps = config.eps if config.filter == "dbscan" else noise.share_radius(until, config.share)
        return noise.keep_within(until, labels, eps), eps
    by_knee, by_tree = noise.ClassDBSCAN("knee", config.min_samples), noise.ClassHDBSCAN(config.min_samples)
    fitted = (by_knee if config.filter == "knee" else by_tree).fit(coordinates, labels)
    radii = fitted.eps_[np.isfinite(fitted.eps_)]
    return fitted.keep_, float(radii.mean()) if len(radii) else np.nan


def _rounded(coordinates: np.ndarray) -> np.ndarray:
    return (np.round(coordinates * _FINEST) / _FINEST).astype(np.float32)


# What a network says of the examples: their features, and from these the map; or what it predicts


def mapped(at: Place, config: FilterConfig) -> Arrays:
    """Return the map of the training set, with the test set on it where the map alone is asked for.

    That of the first seed has it anyway: it is asked for both ways, and is not to be made twice.
    """
    needed = ("train", "test") if config.filter == "none" else ("train",)

    def fit() -> Arrays:
        components = components_of(at, config)
        begun = time.perf_counter()
        mapping = TSNEMap(
            perplexity=config.perplexity, early_exaggeration_iter=min(250, config.iterations), n_iter=config.iterations,
            learning_rate=config.map_rate, start=config.map_start, random_state=config.map_seed, progress=at.progress,
            device=str(at.device),
        )  # fmt: skip
        made = {"train": mapping.fit_transform(components["train"]), "feature_seconds": components["feature_seconds"]}
        made["seconds"] = time.perf_counter() - begun + components["seconds"]
        if "test" in needed or (config.usual(*PLACED) and not at.within and "test" in components):
            made["test"] = mapping.transform(components["test"])
        return made

    return _stored(at, f"map-{config.map.key}.npz", fit, needed)


def components_of(at: Place, config: FilterConfig) -> Arrays:
    """Return the principal components of the features of both splits, all that a map needs of a network."""

    def reduce() -> Arrays:
        network, begun = _network(at, config), time.perf_counter()
        features = _extract(at, config, network, at.data.train_images)
        pca, made = _reduced(features, time.perf_counter() - begun)
        del features  # before there are others: these may be large
        return {**made, "test": pca.transform(_extract(at, config, network, at.data.test_images)).astype(np.float32)}

    return _stored(at, f"components-{config.trained_by or f'{config.weights}-{config.arch}'}.npz", reduce)


def given(at: Place, features: np.ndarray) -> str:
    """Put the principal components of features that were made elsewhere into the store, as if by a run of this name."""
    digest = hashlib.sha256()
    for start in range(0, len(features), _PART):  # they may be in a file, of which no copy is to be in memory
        digest.update(np.ascontiguousarray(features[start : start + _PART]).data)
    name = f"given-{digest.hexdigest()[:12]}"
    _stored(at, f"components-{name}.npz", lambda: _reduced(features)[1])
    return name


def _reduced(features: np.ndarray, feature_seconds: float = 0.0) -> tuple[PCA, Arrays]:
    begun = time.perf_counter()
    pca = principal_components(features, TSNEMap().n_components)
    train = pca.transform(features).astype(np.float32)
    seconds = {"feature_seconds": np.array(feature_seconds), "seconds": np.array(time.perf_counter() - begun)}
    return pca, {"train": train, **seconds}


def _extract(at: Place, config: FilterConfig, network: nn.Module, images: np.ndarray) -> np.ndarray:
    mean, std = at.data.mean, at.data.std
    if config.weights == "imagenet":
        mean, std = extraction.pretrained_scale(config.arch)
    return extraction.extract(network, config.arch, images, mean, std, device=at.device, progress=at.progress)


def said(at: Place, config: FilterConfig) -> tuple[np.ndarray, dict[str, float]]:
    """Return what a baseline's score is computed from, and the seconds that it took."""
    by = BASELINES["confident" if config.filter == FLAGGED else config.filter]
    if by == "features":
        found = components_of(at, config)  # distances among them are those that the score takes of features
        spent = {"feature_seconds": float(found["feature_seconds"]), "score_seconds": float(found["seconds"])}
        return found["train"], spent
    run = at.networks[config.trained_by]
    if by == "young networks":
        runs = [replace(run, seed=run.seed + k) for k in range(config.networks)]
        watched = _watched(at, runs, "probabilities", checkpoints=(run.epochs,))
        said = np.stack([one["probabilities"][-1] for one in watched])
    elif by == "training":
        watched = _watched(at, [run], "correct", follow=True)
        said = watched[0]["correct"]
    else:  # held-out predictions

        def out_of_fold() -> Arrays:
            got = observe.out_of_fold(run, at.data, config.networks, **at.watch)
            return {"probabilities": got.probabilities, "seconds": np.array(got.seconds)}

        watched = [_stored(at, f"{run.key}-out-of-{config.networks}.npz", out_of_fold)]
        said = watched[0]["probabilities"]
    return said, {"network_seconds": sum(float(one["seconds"]) for one in watched)}


def _watched(at: Place, runs: Sequence[RunConfig], name: str, **asked: Any) -> list[Arrays]:
    """Return what each run's network said of the training examples, after training those where that is lacking."""
    files = {run.key: f"{run.key}-{name}.npz" for run in runs}
    lacking = [run for run in runs if _found(at, files[run.key]) is None]
    seen = observe.observe_all(lacking, at.data, **asked, **at.watch) if lacking else []
    by_key = {got.config.key: {name: getattr(got, name), "seconds": np.array(got.device_seconds)} for got in seen}
    return [_stored(at, files[run.key], lambda key=run.key: by_key[key]) for run in runs]  # type: ignore[misc]


# Networks


def _train(at: Place, configs: Iterable[FilterConfig]) -> None:
    """Train, several at a time, the networks that maps and masks need and the store lacks, while time is."""
    here = (config for config in configs if _has_network(config) and config.within == at.within)
    if not (needed := dict.fromkeys(one.trained_by for one in here if not _run_file(at, one).is_file())):
        return
    paused = PausedRuns(at.folder / "paused")
    for got in observe.networks([at.networks[key] for key in needed], at.data, paused=paused, **at.watch):
        if not got.weights:
            raise ValueError(f"the run {got.config} diverged; its network cannot make a map")
        folder = at.folder / got.config.key
        extraction.save_network(got.network(at.data), folder / "weights.pt")
        results.save(got.result, folder / "run.nc")  # the last: with it the network is whole
        paused.drop(got.config.key)


def _has_network(config: FilterConfig) -> bool:
    """Return whether a map or mask looks at the features of a network that is trained here."""
    return config.weights == "trained" and config.filter in _FROM_FEATURES


def _run_file(at: Place, config: FilterConfig) -> Path:
    return at.folder / config.trained_by / "run.nc"


def trained(at: Place, config: FilterConfig) -> tuple[float, float]:
    """Return test accuracy and seconds of the network whose features are used, after training it; NaN and 0 without."""
    if not _has_network(config):
        return float("nan"), 0.0
    _train(at, [config])
    if not (path := _run_file(at, config)).is_file():
        raise RunAbandoned
    ds = results.load(path)
    return float(ds["test_accuracy"].to_numpy()[0, -1]), results.device_seconds(ds).item()


def _network(at: Place, config: FilterConfig) -> nn.Module:
    if config.weights == "imagenet":
        return extraction.pretrained(config.arch)
    weights = _run_file(at, config).with_name("weights.pt")
    return extraction.load_network(config.arch, at.data.num_classes, weights, at.data.channels)


# Files of the store that are no results


def _stored(at: Place, name: str, work: Callable[[], Arrays], needed: Sequence[str] = ()) -> Arrays:
    """Return the arrays of a file in the store, after making it if it lacks what is needed or does not read."""
    if (found := _found(at, name, needed)) is not None:
        return found
    made = work()
    write_whole(at.folder / name, lambda handle: np.savez_compressed(handle, **made), seal=False)  # type: ignore[arg-type]
    return made


def _found(at: Place, name: str, needed: Sequence[str] = ()) -> Arrays | None:
    """Return the arrays of a file if it has those needed; one that does not read back is set aside."""
    path = at.folder / name
    if not path.is_file():
        return None
    try:
        with np.load(path) as file:
            return {one: file[one] for one in file} if all(one in file for one in needed) else None
    except _DAMAGED as error:
        at.runs.set_aside(path, f"cannot be read back ({error})", "this stage")
        return None
