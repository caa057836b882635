"""Maps and masks, made whole: train the network, extract features, place them on the map, filter.

Training and filtering are rooms that do not know each other; here one is handed what the other made. Everything that
takes long is kept in the store (`stages`), and so are masks, by their own key. So the work can be stopped at any time
and taken up again, on another machine too: for more maps the components of features suffice, without weights.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from tqdm.auto import tqdm

from dolb import data as datasets
from dolb import models, results
from dolb.filtering import baselines, masks, noise
from dolb.filtering import features as extraction
from dolb.filtering.config import FLAGGED, ON_THE_MAP, FilterConfig
from dolb.stages import PLACED, Stages
from dolb.training.config import RunConfig
from dolb.training.device import device_name, fresh_host_peak, host_peak
from dolb.training.engine import RunAbandoned

# What a mask costs, by part, in the schema's names. For a further round the rounds before count too; the size that a
# baseline takes from another mask does not, as it is only for the comparison.
PARTS = ("network_seconds", "feature_seconds", "map_seconds", "score_seconds", "mask_seconds")
WHILE_MADE, SO_FAR = "of the process while this was made", "of the process so far, other masks included"  # a peak
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


class _Workshop(Stages):
    """Maps and masks over one data set and one store, from what its stages make."""

    def finished(self, config: FilterConfig) -> xr.Dataset | None:
        """Return a map or a mask from the store, or None; what one of an earlier version did not record is NaN."""
        ds = self.runs.get(config.key, self.data.fingerprint)
        lacking = {name: ("run", [np.nan]) for name in PARTS if ds is not None and name not in ds}
        return ds if ds is None else ds.assign_coords(lacking)

    def made(self, config: FilterConfig) -> xr.Dataset:
        """Make a map or a mask, save it, and return it.

        Its ``seconds`` are those of its parts, training left out. Its peak of memory is that of this process while it
        was made, or, where the system does not tell, of all that the process did so far, as the attribute
        ``peak_memory`` says; where the map was in the store, that of its making, if that is more.
        """
        own_peak = fresh_host_peak()
        there, inside = self._inside(config)
        there.peak = own_peak or host_peak
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
        keep, about["eps"] = self._keep(config, mapped, score, inside)
        spent["mask_seconds"] = time.perf_counter() - begun
        about["seconds"] = float(np.nansum([spent[name] for name in PARTS if name != "network_seconds"]))
        if config.within and (before := self.runs.get(config.within, self.data.fingerprint)) is not None:
            spent = {name: value + (before[name].item() if name in before else np.nan) for name, value in spent.items()}
        about |= spent
        stored = int(mapped["peak_bytes"]) if mapped and "peak_bytes" in mapped else 0  # of a map made before
        about["peak_memory_bytes"] = max(there.peak(), stored)
        if keep is None:
            assert mapped is not None
            ds = masks.map_dataset(_rounded(mapped["train"]), _rounded(mapped["test"]), self.data, about=about)
        else:
            ds = masks.keep_dataset(keep, self.data, config.subset, about=about, **self._followed_from(config, mapped))
        ds.attrs["peak_memory"] = WHILE_MADE if own_peak else SO_FAR
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
    ) -> tuple[np.ndarray | None, float]:
        """Return the mask, if there is to be one, and the radius that it is by, NaN where there is none.

        Where each class has a radius of its own it is their mean.
        """
        labels = self.data.train_labels
        if config.filter in ON_THE_MAP:
            assert mapped is not None
            radius = self._radius(config, mapped["train"]) if config.filter == "share" else config.eps
            fitted, keep = _clusterer(config, radius).fit(mapped["train"], labels[inside]), inside.copy()
            keep[inside] = fitted.keep_
            if config.filter in ("dbscan", "share"):
                return keep, radius
            return keep, float(np.nanmean(fitted.eps_)) if isinstance(fitted, noise.ClassDBSCAN) else np.nan
        if config.filter == "none":
            return None, np.nan
        if config.filter == FLAGGED:
            assert score is not None
            return ~score, np.nan
        like = self._mask(config.size_of, f"whose size {config.subset} has")
        if config.filter == "grid":
            assert mapped is not None
            return noise.grid_sample(mapped["train"], labels, float(like.mean()), random_state=config.seed), np.nan
        if score is None:
            return baselines.random_keep(labels, like, random_state=config.seed), np.nan
        return baselines.keep_lowest(score, like, labels), np.nan

    def _followed_from(self, config: FilterConfig, mapped: Mapping[str, np.ndarray] | None) -> dict[str, np.ndarray]:
        """Return what the mask of a network's first map follows from: its places, and until when each is noise."""
        usual = FilterConfig()
        plain = replace(config, seed=0, within="", **{name: getattr(usual, name) for name in ("min_samples", *PLACED)})
        if config.filter not in ON_THE_MAP or config != plain or mapped is None:
            return {}
        until = noise.noise_until(mapped["train"], self.data.train_labels, config.min_samples).astype(np.float32)
        return {"coordinates": _rounded(mapped["train"]), "noise_until": until}

    def _radius(self, config: FilterConfig, coordinates: np.ndarray) -> float:
        """Return the radius at which the share asked for is noise, or for a further round that of the first."""
        if not config.within:
            until = noise.noise_until(coordinates, self.data.train_labels, config.min_samples)
            return noise.share_radius(until, config.share)
        before = self.runs.get(config.within, self.data.fingerprint)
        if before is None or "noise_until" not in before:
            raise ValueError(f"the mask {config.within} tells no radius, by which {config.subset} filters once more")
        until = before["noise_until"].to_numpy().reshape(-1)
        return noise.share_radius(until, config.share)

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
        return score, {**spent, "score_seconds": spent.get("score_seconds", 0.0) + time.perf_counter() - begun}

    def _evidence(self, config: FilterConfig) -> tuple[np.ndarray, dict[str, float]]:
        """Return what a score is computed from, and the seconds that it took."""
        if config.filter == "neighbours":
            found = self._components(config)  # distances among them are those that the score takes of features
            return found["train"], {
                "feature_seconds": float(found["feature_seconds"]),
                "score_seconds": float(found["seconds"]),
            }
        run = self.networks[config.trained_by]
        if config.filter == "el2n":
            runs = [replace(run, seed=run.seed + k) for k in range(config.networks)]
            said = self._said(runs, "probabilities", checkpoints=(run.epochs,))
            evidence = np.stack([one["probabilities"][-1] for one in said])
        elif config.filter == "forgetting":
            said = self._said([run], "correct", follow=True)
            evidence = said[0]["correct"]
        else:  # confident learning and what it flags: by the same probabilities, out of sample
            name = f"{run.key}-out-of-{config.networks}.npz"
            said = [self._stored(name, lambda: self._out_of_fold(run, config.networks))]
            evidence = said[0]["probabilities"]
        return evidence, {"network_seconds": sum(float(one.get("seconds", np.nan)) for one in said)}


def _clusterer(config: FilterConfig, radius: float) -> noise.ClassDBSCAN | noise.ClassHDBSCAN:
    # A class that is all noise is kept whole, with a warning: other parameters may well do that to one.
    if config.filter == "hdbscan":
        return noise.ClassHDBSCAN(min_samples=config.min_samples, on_empty_class="keep")
    return noise.ClassDBSCAN("knee" if config.filter == "knee" else radius, config.min_samples, on_empty_class="keep")


def _rounded(coordinates: np.ndarray) -> np.ndarray:
    return (np.round(coordinates * FINEST) / FINEST).astype(np.float32)
