"""Maps and masks, made whole: train the network, extract features, place them on the map, filter.

Training and filtering are rooms that do not know each other; here one is handed what the other made. Everything that
takes long is kept in the store and found there again: networks and what they say of the examples by the key of their
run, maps by what they are of, masks by their own key. So the work can be stopped at any time and taken up again.
"""

from __future__ import annotations

import contextlib
import os
import resource
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from torch import nn
from tqdm.auto import tqdm

from dolb import data as datasets
from dolb import models, results
from dolb.filtering import baselines, masks, noise
from dolb.filtering import features as extraction
from dolb.filtering.config import FLAGGED, ON_THE_MAP, FilterConfig
from dolb.filtering.embedding import TSNEMap
from dolb.training import observe
from dolb.training.config import RunConfig
from dolb.training.device import device_name, resolve_device
from dolb.training.engine import RunAbandoned
from dolb.training.paused import PausedRuns

FROM_FEATURES = ("none", "grid", "neighbours", *ON_THE_MAP)  # filters that look at a network's features
# What a mask costs, by part, in the schema's names. For a further round the rounds before count too; the size that a
# baseline takes from another mask does not, as it is only for the comparison.
PARTS = ("network_seconds", "feature_seconds", "map_seconds", "score_seconds", "mask_seconds")
FINEST = 64  # published coordinates are rounded to this part of a unit, on a map a hundred units wide: half the bytes


def make(
    configs: Sequence[FilterConfig],
    networks: Mapping[str, RunConfig],
    *,
    store: str | Path | None = None,
    device: str = "auto",
    data_dir: str | Path | None = None,
    time_limit: float | None = None,
    progress: bool = True,
) -> xr.Dataset:
    """Return maps and masks as one Dataset, making those that the store lacks.

    Parameters
    ----------
    configs
        The maps and masks, all of one data set. A mask of another's size, or of the round after another, comes after
        that one, or is in the store with it.
    networks
        The runs that train the networks, by key.
    store
        Folder of what is finished. Without one, results live only in the returned Dataset.
    time_limit
        Seconds after which nothing new is begun and a training run is given up. What is unfinished is counted in the
        Dataset's attribute ``unfinished``; a later call goes on from there.

    Masks that need weights which cannot be had are passed over; the attribute ``unavailable`` says why.
    """
    if len(names := {config.data for config in configs}) != 1:
        raise ValueError(f"the maps and masks are of {sorted(names)}; accepted: one data set, and at least one config")
    deadline = time.monotonic() + time_limit if time_limit is not None else float("inf")
    found: list[xr.Dataset] = []
    unavailable = ""
    with contextlib.ExitStack() as stack:
        folder = Path(store or stack.enter_context(tempfile.TemporaryDirectory(prefix="dolb-")))
        data = datasets.load(names.pop(), data_dir)
        workshop = _Workshop(folder, networks, data, device, lambda: time.monotonic() >= deadline, progress)
        workshop.train(configs)
        longest = 0.0
        for config in tqdm(configs, desc="maps and masks", disable=not progress):
            begun = time.monotonic()
            known = workshop.finished(config)
            if known is None and begun + longest >= deadline:
                break
            try:
                found.append(workshop.made(config) if known is None else known)
            except extraction.CheckpointError as error:
                if config.weights != "imagenet":
                    raise
                unavailable = str(error)
            except RunAbandoned:
                break
            if known is None:
                longest = max(longest, time.monotonic() - begun)
    if not found:
        raise TimeoutError(
            unavailable or f"the time limit of {time_limit} s ended before any of {len(configs)} was made"
        )
    merged = results.merge(found)
    merged.attrs |= {"unfinished": len(configs) - len(found), "unavailable": unavailable}
    return merged


def subsets(ds: xr.Dataset) -> dict[str, np.ndarray]:
    """Return the masks of a Dataset by the name that runs call them, as a sweep takes them."""
    kept = ds["keep"].transpose("run", "example").to_numpy().astype(bool)
    return dict(zip(map(str, ds["subset"].to_numpy()), kept, strict=True))


def kept(ds: xr.Dataset) -> tuple[int, int]:
    """Return how many examples the first mask keeps, and of how many."""
    first = ds["keep"].transpose("run", "example").to_numpy()[0]
    return int(first.sum()), len(first)


class _Workshop:
    """The stages over one data set and one store; each looks into the store before it works.

    The data set is whole, or what the mask of the key ``within`` keeps of it.
    """

    def __init__(
        self,
        store: Path,
        networks: Mapping[str, RunConfig],
        data: datasets.ImageData,
        device: str,
        stop: Callable[[], bool],
        progress: bool,
        within: str = "",
    ):
        self.runs, self.networks, self.data, self.within = results.RunStore(store), networks, data, within
        self.watch: dict[str, Any] = {"device": device, "stop": stop, "progress": progress}
        self.device, self.progress = resolve_device(device), progress
        # By fingerprint too: a folder of images may change under its name.
        self.folder = store / "networks" / data.fingerprint.removeprefix("sha256:")[:12]
        self.folder.mkdir(parents=True, exist_ok=True)
        self._features: tuple[tuple[str, str, str], np.ndarray, float] | None = None

    def train(self, configs: Iterable[FilterConfig]) -> None:
        """Train, several at a time, the networks that maps and masks need and the store lacks, while time is."""
        needed = dict.fromkeys(
            config.trained_by
            for config in configs
            if config.weights != "imagenet"
            and config.within == self.within
            and config.filter in FROM_FEATURES
            and not self.runs.path(config.key).exists()
        )
        lacking = [self.networks[key] for key in needed if not (self.folder / key / "run.nc").is_file()]
        if not lacking:
            return
        paused = PausedRuns(self.folder / "paused")
        for got in observe.networks(lacking, self.data, paused=paused, **self.watch):
            if not got.weights:
                raise ValueError(f"the run {got.config} diverged; its network cannot make a map")
            folder = self.folder / got.config.key
            extraction.save_network(got.network(self.data), folder / "weights.pt")
            results.save(got.result, folder / "run.nc")  # the last: with it the network is whole
            paused.drop(got.config.key)

    def finished(self, config: FilterConfig) -> xr.Dataset | None:
        """Return a map or a mask from the store, or None; what one of an earlier version did not record is NaN."""
        ds = self.runs.get(config.key, self.data.fingerprint)
        lacking = {name: ("run", [np.nan]) for name in PARTS if ds is not None and name not in ds}
        return ds if ds is None else ds.assign_coords(lacking)

    def made(self, config: FilterConfig) -> xr.Dataset:
        """Make a map or a mask, save it, and return it.

        Its ``seconds`` are those of its parts, training left out.
        """
        there, inside = self._inside(config)
        accuracy, trained_in = there._training(config)
        about: dict[str, Any] = {
            **config.as_dict(),
            "key": config.key,
            "device": device_name(self.device),
            "feature_width": models.require(config.arch).feature_width,
            "network_accuracy": accuracy,
        }
        mapped = there._map(config) if config.filter in ("none", "grid", *ON_THE_MAP) else None
        spent = dict.fromkeys(PARTS, 0.0) | {"network_seconds": trained_in}
        if mapped:
            spent["feature_seconds"] = float(mapped.get("feature_seconds", np.nan))
            spent["map_seconds"] = float(mapped["seconds"])
        score, more = self._score(config)
        spent |= more
        begun = time.perf_counter()
        keep = self._keep(config, mapped, score, inside)
        spent["mask_seconds"] = time.perf_counter() - begun
        about["seconds"] = float(np.nansum([spent[name] for name in PARTS if name != "network_seconds"]))
        if config.within and (before := self.runs.get(config.within, self.data.fingerprint)) is not None:
            spent = {name: value + (before[name].item() if name in before else np.nan) for name, value in spent.items()}
        about |= spent
        about["peak_memory_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        if keep is None:
            assert mapped is not None
            ds = masks.map_dataset(_rounded(mapped["train"]), _rounded(mapped["test"]), self.data, about=about)
        else:
            ds = masks.keep_dataset(keep, self.data, config.subset, about=about, **self._followed_from(config, mapped))
        self.runs.put(ds)
        return ds

    def _inside(self, config: FilterConfig) -> tuple[_Workshop, np.ndarray]:
        """Return where the network and the map are made, and which examples are on it: all, or what a mask keeps."""
        if not config.within:
            return self, np.ones(len(self.data.train_labels), dtype=bool)
        inside = self._mask(config.within, f"within which {config.subset} filters")
        data = self.data.subset(inside, self.networks[config.trained_by].subset)
        return _Workshop(self.runs.folder, self.networks, data, **self.watch, within=config.within), inside

    def _keep(
        self,
        config: FilterConfig,
        mapped: Mapping[str, np.ndarray] | None,
        score: np.ndarray | None,
        inside: np.ndarray,
    ) -> np.ndarray | None:
        """Return the mask, if there is to be one."""
        labels = self.data.train_labels
        if config.filter in ON_THE_MAP:
            assert mapped is not None
            keep = inside.copy()
            keep[inside] = _clusterer(config).fit(mapped["train"], labels[inside]).keep_
            return keep
        if config.filter == "none":
            return None
        if config.filter == FLAGGED:
            assert score is not None
            return ~score
        like = self._mask(config.size_of, f"whose size {config.subset} has")
        if config.filter == "grid":
            assert mapped is not None
            return noise.grid_sample(mapped["train"], labels, float(like.mean()), random_state=config.seed)
        if score is None:
            return baselines.random_keep(labels, like, random_state=config.seed)
        return baselines.keep_lowest(score, like, labels)

    def _followed_from(self, config: FilterConfig, mapped: Mapping[str, np.ndarray] | None) -> dict[str, np.ndarray]:
        """Return what the mask of a network's first map follows from: its places, and until when each is noise."""
        plain = replace(config, seed=0, map_seed=0, perplexity=FilterConfig.perplexity, min_samples=5, within="")
        if config.filter not in ON_THE_MAP or config != plain or mapped is None:
            return {}
        until = noise.noise_until(mapped["train"], self.data.train_labels, config.min_samples).astype(np.float32)
        return {"coordinates": _rounded(mapped["train"]), "noise_until": until}

    def _mask(self, key: str, role: str) -> np.ndarray:
        """Return a mask that is made already, or say what it is needed for."""
        ds = self.runs.get(key, self.data.fingerprint)
        if ds is None:
            raise ValueError(f"the mask {key}, {role}, is not made yet; make it first")
        return ds["keep"].to_numpy().reshape(-1)

    def _score(self, config: FilterConfig) -> tuple[np.ndarray | None, dict[str, float]]:
        """Return a baseline's score of each example, higher for what goes first, and the seconds of its parts.

        It is None where there is none; of what confident learning flags it is a mask.
        """
        if config.filter not in baselines.SCORES:
            return None, {}
        evidence, spent = self._evidence(config)
        begun = time.perf_counter()
        score = baselines.SCORES[config.filter](evidence, self.data.train_labels)
        return score, {**spent, "score_seconds": time.perf_counter() - begun}

    def _evidence(self, config: FilterConfig) -> tuple[np.ndarray, dict[str, float]]:
        """Return what a score is computed from, and the seconds that it took."""
        if config.filter == "neighbours":
            features, seconds = self._extract(config, "train")
            return features, {"feature_seconds": seconds}
        run = self.networks[config.trained_by]
        if config.filter == "el2n":
            runs = [replace(run, seed=run.seed + k) for k in range(config.networks)]
            said = [self._said(one, "probabilities", checkpoints=(one.epochs,)) for one in runs]
            evidence = np.stack([one["probabilities"][-1] for one in said])
        elif config.filter == "forgetting":
            said = [self._said(run, "correct", follow=True)]
            evidence = said[0]["correct"]
        else:  # confident learning and what it flags: by the same probabilities, out of sample
            name = f"{run.key}-out-of-{config.networks}.npz"
            said = [self._stored(name, lambda: self._out_of_fold(run, config.networks))]
            evidence = said[0]["probabilities"]
        return evidence, {"network_seconds": sum(float(one.get("seconds", np.nan)) for one in said)}

    # -- stages that take long, each kept in the store ---------------------------------------------------------------

    def _map(self, config: FilterConfig) -> dict[str, np.ndarray]:
        """Return the map of the training set, with the test set on it where the map alone is asked for."""
        plain = FilterConfig(
            data=config.data, arch=config.arch, weights=config.weights, trained_by=config.trained_by, seed=config.seed,
            perplexity=config.perplexity, iterations=config.iterations, map_seed=config.map_seed, filter="none",
        )  # fmt: skip

        def fit() -> dict[str, np.ndarray]:
            features, seconds = self._extract(config, "train")
            begun = time.perf_counter()
            mapping = TSNEMap(
                perplexity=config.perplexity,
                n_iter=config.iterations,
                random_state=config.map_seed,
                progress=self.progress,
            )
            made = {"train": mapping.fit_transform(features), "feature_seconds": np.array(seconds)}
            made["seconds"] = np.array(time.perf_counter() - begun)
            if config.filter == "none":
                made["test"] = mapping.transform(self._extract(config, "test")[0])
            return made

        needed = ("train", "test") if config.filter == "none" else ("train",)
        return self._stored(f"map-{plain.key}.npz", fit, needed)

    def _extract(self, config: FilterConfig, split: str) -> tuple[np.ndarray, float]:
        """Return the features of a split, and their seconds; the last stay in memory, for maps by several seeds."""
        which = (config.weights, config.trained_by or config.arch, split)
        if self._features is None or self._features[0] != which:
            self._features = None  # before there are others: these may be large
            network, begun = self._network(config), time.perf_counter()
            mean, std = self.data.mean, self.data.std
            if config.weights == "imagenet":
                mean, std = extraction.IMAGENET_MEAN, extraction.IMAGENET_STD
            images = self.data.train_images if split == "train" else self.data.test_images
            got = extraction.extract(
                network, config.arch, images, mean, std, device=self.device, progress=self.progress
            )
            self._features = which, got, time.perf_counter() - begun
        return self._features[1:]

    def _network(self, config: FilterConfig) -> nn.Module:
        if config.weights == "imagenet":
            return extraction.pretrained(config.arch)
        weights = self._trained(config, "weights.pt")
        return extraction.load_network(config.arch, self.data.num_classes, weights, self.data.channels)

    def _training(self, config: FilterConfig) -> tuple[float, float]:
        """Return test accuracy and seconds of training of the network whose features are used; NaN and 0 without."""
        if config.weights == "imagenet" or config.filter not in FROM_FEATURES:
            return float("nan"), 0.0
        ds = results.load(self._trained(config, "run.nc"))
        return float(ds["test_accuracy"].to_numpy()[0, -1]), observe.device_seconds(ds)

    def _trained(self, config: FilterConfig, file: str) -> Path:
        """Return a file of a trained network, ``weights.pt`` or ``run.nc``, after training it if that is not there."""
        path = self.folder / config.trained_by / file
        if not path.is_file():
            self.train([config])
        if not path.is_file():
            raise RunAbandoned
        return path

    def _said(self, run: RunConfig, name: str, **asked: Any) -> dict[str, np.ndarray]:
        """Return what a run's network said of the training examples, after training it if that is not there."""

        def watched() -> dict[str, np.ndarray]:
            got = observe.observe(run, self.data, **asked, **self.watch)
            return {name: getattr(got, name), "seconds": np.array(got.device_seconds)}

        return self._stored(f"{run.key}-{name}.npz", watched)

    def _out_of_fold(self, run: RunConfig, folds: int) -> dict[str, np.ndarray]:
        got = observe.out_of_fold(run, self.data, folds, **self.watch)
        return {"probabilities": got.probabilities, "seconds": np.array(got.seconds)}

    def _stored(
        self, name: str, work: Callable[[], dict[str, np.ndarray]], needed: Sequence[str] = ()
    ) -> dict[str, np.ndarray]:
        """Return the arrays of a file in the store, after making it if it lacks what is needed or does not read."""
        path = self.folder / name
        if path.is_file():
            with contextlib.suppress(OSError, ValueError, EOFError, zipfile.BadZipFile), np.load(path) as file:
                if all(one in file for one in needed):
                    return {one: file[one] for one in file}
        made = work()
        with tempfile.NamedTemporaryFile(dir=self.folder, prefix=f".{name}.", delete=False) as handle:
            np.savez_compressed(handle, **made)  # type: ignore[arg-type]
        os.replace(handle.name, path)
        return made


def _clusterer(config: FilterConfig) -> noise.ClassDBSCAN | noise.ClassHDBSCAN:
    # A class that is all noise is kept whole, with a warning: other parameters may well do that to one.
    if config.filter == "hdbscan":
        return noise.ClassHDBSCAN(min_samples=config.min_samples, on_empty_class="keep")
    return noise.ClassDBSCAN(
        "knee" if config.filter == "knee" else config.eps, config.min_samples, on_empty_class="keep"
    )


def _rounded(coordinates: np.ndarray) -> np.ndarray:
    return (np.round(coordinates * FINEST) / FINEST).astype(np.float32)
