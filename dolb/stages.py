"""The stages of maps and masks that take long, each kept in a store and looked for there before it is worked on.

Networks, the principal components of their features, and what they say of the examples are found by the key of their
run, maps by what they are of.
"""

from __future__ import annotations

import os
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from dolb import data as datasets
from dolb import results
from dolb.filtering import features as extraction
from dolb.filtering.config import ON_THE_MAP, FilterConfig
from dolb.filtering.embedding import TSNEMap, principal_components
from dolb.training import observe
from dolb.training.config import RunConfig
from dolb.training.device import host_peak, resolve_device
from dolb.training.engine import RunAbandoned
from dolb.training.paused import PausedRuns

PLACED = ("map_seed", "perplexity", "map_rate", "map_start")  # by which a network's maps differ
# What numpy and zipfile raise where a byte of a file is not what was written.
_DAMAGED = (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
FROM_FEATURES = ("none", "grid", "neighbours", *ON_THE_MAP)  # filters that look at a network's features


class Stages:
    """The stages over one data set and one store.

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
        self.peak: Callable[[], int] = host_peak  # of the host's memory, for what is made and stored
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
            and not self._ready(config)
        )
        lacking = [self.networks[key] for key in needed]
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

    def _ready(self, config: FilterConfig) -> bool:
        """Return whether the store has what the map or mask needs of its network."""
        folder = self.folder / config.trained_by
        known = self._components_path(config).is_file() or (folder / "weights.pt").is_file()
        return (folder / "run.nc").is_file() and known

    def _map(self, config: FilterConfig) -> dict[str, np.ndarray]:
        """Return the map of the training set, with the test set on it where the map alone is asked for.

        That of the first seed has it anyway: it is asked for both ways, and is not to be made twice.
        """
        plain = FilterConfig(
            data=config.data, arch=config.arch, weights=config.weights, trained_by=config.trained_by, seed=config.seed,
            perplexity=config.perplexity, iterations=config.iterations, map_seed=config.map_seed,
            map_rate=config.map_rate, map_start=config.map_start, filter="none",
        )  # fmt: skip
        usual = FilterConfig()
        first = all(getattr(plain, name) == getattr(usual, name) for name in PLACED)

        needed = ("train", "test") if config.filter == "none" else ("train",)

        def fit() -> dict[str, np.ndarray]:
            components = self._components(config)
            begun = time.perf_counter()
            mapping = TSNEMap(
                perplexity=config.perplexity,
                n_iter=config.iterations,
                learning_rate=config.map_rate,
                start=config.map_start,
                random_state=config.map_seed,
                progress=self.progress,
            )
            made = {"train": mapping.fit_transform(components["train"])}
            made["feature_seconds"] = components["feature_seconds"]
            made["peak_bytes"] = components.get("peak_bytes", np.array(0.0))
            made["seconds"] = time.perf_counter() - begun + components["seconds"]
            if "test" in needed or (first and not self.within):
                made["test"] = mapping.transform(components["test"])
            return made

        return self._stored(f"map-{plain.key}.npz", fit, needed)

    def _components(self, config: FilterConfig) -> dict[str, np.ndarray]:
        """Return the principal components of the features of both splits, all that a map needs of a network."""

        def reduce() -> dict[str, np.ndarray]:
            features, seconds = self._extract(config, "train")
            begun = time.perf_counter()
            pca = principal_components(features, TSNEMap().n_components)
            made = {"train": pca.transform(features).astype(np.float32), "feature_seconds": np.array(seconds)}
            made["seconds"] = np.array(time.perf_counter() - begun)
            del features  # before there are others: these may be large
            return {**made, "test": pca.transform(self._extract(config, "test")[0]).astype(np.float32)}

        needed = ("train", "test", "seconds", "feature_seconds")
        return self._stored(self._components_path(config).name, reduce, needed)

    def _components_path(self, config: FilterConfig) -> Path:
        return self.folder / f"components-{config.trained_by or f'{config.weights}-{config.arch}'}.npz"

    def _extract(self, config: FilterConfig, split: str) -> tuple[np.ndarray, float]:
        """Return the features of a split, and their seconds; the last stay in memory for whoever needs them next."""
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
        return float(ds["test_accuracy"].to_numpy()[0, -1]), results.device_seconds(ds).item()

    def _trained(self, config: FilterConfig, file: str) -> Path:
        """Return a file of a trained network, ``weights.pt`` or ``run.nc``, after training it if that is not there."""
        path = self.folder / config.trained_by / file
        if not path.is_file():
            self.train([config])
        if not path.is_file():
            raise RunAbandoned
        return path

    def _said(self, runs: Sequence[RunConfig], name: str, **asked: Any) -> list[dict[str, np.ndarray]]:
        """Return what each run's network said of the training examples, after training those where that is lacking."""
        files = {run.key: f"{run.key}-{name}.npz" for run in runs}
        lacking = [run for run in runs if self._found(files[run.key]) is None]
        seen = observe.observe_all(lacking, self.data, **asked, **self.watch) if lacking else []
        by_key = {got.config.key: {name: getattr(got, name), "seconds": np.array(got.device_seconds)} for got in seen}
        return [self._stored(files[run.key], lambda key=run.key: by_key[key]) for run in runs]  # type: ignore[misc]

    def _out_of_fold(self, run: RunConfig, folds: int) -> dict[str, np.ndarray]:
        got = observe.out_of_fold(run, self.data, folds, **self.watch)
        return {"probabilities": got.probabilities, "seconds": np.array(got.seconds)}

    def _stored(
        self, name: str, work: Callable[[], dict[str, np.ndarray]], needed: Sequence[str] = ()
    ) -> dict[str, np.ndarray]:
        """Return the arrays of a file in the store, after making it if it lacks what is needed or does not read.

        One that is made has ``peak_bytes``, the most of the host's memory that it took, or a stage before it.
        """
        if (found := self._found(name, needed)) is not None:
            return found
        made = work()
        made["peak_bytes"] = np.maximum(self.peak(), made.get("peak_bytes", 0.0))
        with tempfile.NamedTemporaryFile(dir=self.folder, prefix=f".{name}.", delete=False) as handle:
            try:
                np.savez_compressed(handle, **made)  # type: ignore[arg-type]
                handle.flush()
                os.fsync(handle.fileno())
                os.replace(handle.name, self.folder / name)
            except BaseException:
                Path(handle.name).unlink(missing_ok=True)
                raise
        return made

    def _found(self, name: str, needed: Sequence[str] = ()) -> dict[str, np.ndarray] | None:
        """Return the arrays of a file if it has those needed; one that does not read back is set aside."""
        path = self.folder / name
        if not path.is_file():
            return None
        try:
            with np.load(path) as file:
                return {one: file[one] for one in file} if all(one in file for one in needed) else None
        except _DAMAGED as error:
            self.runs.set_aside(path, f"cannot be read back ({error})", "this stage")
            return None
