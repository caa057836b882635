"""Loss landscapes of networks that are trained here: train, measure around the trained weights, keep in the store.

What is compared must be alike. Every network is judged over the same sets: all of the data, and what each mask keeps.
Over its own set it shows the loss that training saw; over a common set only the weights differ, not the examples. The
examples of a set are the first of one random order that are in it, so those of two sets are nearly the same, and for
networks of one seed they are the same. Images are as they are, without augmentation, and the loss is the cross-entropy
alone, without weight decay.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import nn

from dolb import data as datasets
from dolb import models, results
from dolb.augment import DeviceImages
from dolb.results.fill import Todo, fill
from dolb.training import engine, observe, processes
from dolb.training.config import LandscapeConfig
from dolb.training.curvature import (
    MeanLoss,
    filter_directions,
    filter_norms,
    hessian_vector_product,
    hutchinson_trace,
    lanczos,
    loss_surface,
    sharpness,
)
from dolb.training.device import resolve_device
from dolb.training.run import PausedRuns

_BY_SET = [name for name, variable in results.SCHEMA.items() if variable.dims == ("run", "loss_over")]
_SURFACES = ("surface_loss", "surface_accuracy")
Weights = Mapping[str, torch.Tensor]


def measure_all(
    configs: Sequence[LandscapeConfig],
    *,
    store: str | Path | None = None,
    device: str = "auto",
    data_dir: str | Path | None = None,
    subsets: Mapping[str, np.ndarray] | None = None,
    at_once: int | None = None,
    step: str | None = None,
    time_limit: float | None = None,
    progress: bool = True,
) -> xr.Dataset:
    """Return runs with their loss landscapes as one Dataset, training and measuring those that the store lacks.

    Parameters
    ----------
    configs
        The runs, all of one data set.
    store
        Folder of finished runs. Without one, results live only in the returned Dataset.
    subsets
        Name to boolean mask, for the sets that runs are trained on and judged over.
    at_once, step
        Of training, as in ``sweep``. On a CPU, processes; a GPU measures one network at a time.
    time_limit
        Seconds after which nothing new is begun and training leaves off. What is unfinished is counted in the Dataset's
        attribute ``unfinished``; a later call goes on from there.
    """
    if len(names := {config.data for config in configs}) != 1:
        raise ValueError(f"the runs are of {sorted(names)}; accepted: one data set, and at least one config")
    survey = _Survey(configs, datasets.load(names.pop(), data_dir), subsets or {}, resolve_device(device))

    def make(todo: Todo[LandscapeConfig]) -> Iterator[xr.Dataset]:
        for pack in survey.packs(todo.waiting):
            yield from survey.made(todo, pack, at_once if survey.device.type == "cuda" else 1, step)

    orders = {"data_dir": data_dir, "subsets": subsets, "time_limit": time_limit}
    return fill(
        configs, make, store=store, fingerprint=lambda config: survey.sets[config.subset].fingerprint,
        beside=processes.beside(survey.device, at_once, measure_all, **orders), time_limit=time_limit, foresee=True,
        gentle=True, what="loss landscapes", unit="landscape", progress=progress,
    )  # fmt: skip


class _Survey:
    """The data of some runs, the sets that they are trained on and judged over, and the device."""

    def __init__(
        self,
        configs: Iterable[LandscapeConfig],
        data: datasets.ImageData,
        subsets: Mapping[str, np.ndarray],
        device: torch.device,
    ):
        self.data, self.device = data, device
        self.masks = {"full": np.ones(len(data.train_labels), dtype=bool), **subsets}
        self.sets: dict[str, datasets.ImageData] = {}
        for config in configs:  # whatever can be refused is refused before any training
            for name in set(config.subsets) - set(self.sets):
                self.sets[name] = engine.subset_of(data, name, subsets)
            sizes = {name: len(self.sets[name].train_labels) for name in config.subsets}
            for what, names in (("batch_size", [config.subset]), ("judged_examples", config.judged)):
                name = min(names, key=sizes.__getitem__)
                if getattr(config, what) > sizes[name]:
                    raise ValueError(
                        f"{what} {getattr(config, what)} is larger than the {sizes[name]} training examples of "
                        f"{data.name} ({name})"
                    )

    def packs(self, configs: Iterable[LandscapeConfig]) -> list[list[LandscapeConfig]]:
        """Group runs so that those of a group are trained together: on a GPU those of one batch size."""
        if self.device.type == "cpu":
            return [[config] for config in configs]
        groups: dict[int, list[LandscapeConfig]] = {}
        for config in configs:
            groups.setdefault(config.batch_size, []).append(config)
        return list(groups.values())

    def made(
        self, todo: Todo[LandscapeConfig], pack: Sequence[LandscapeConfig], at_once: int | None, step: str | None
    ) -> Iterator[xr.Dataset]:
        """Train those of a pack that no other process holds, then measure each, while time is.

        All are trained first, so that no time of training has a neighbour's measuring in it. Those that time leaves
        unmeasured stay at their end among the paused runs.
        """
        if not (mine := list(todo.claim(pack))):
            return
        paused = PausedRuns(todo.store.folder / "paused")
        how: dict[str, Any] = {"at_once": at_once, "step": step, "stop": todo.ends, "progress": False}
        how |= {"device": str(self.device), "paused": paused, "keep_ended": True}
        for got in list(observe.networks(mine, lambda run: self.sets[run.subset], **how)):
            if todo.ends():
                break
            assert isinstance(got.config, LandscapeConfig)
            yield self.with_landscape(got.result, got.config, got.weights)
            paused.drop(got.config.key)
        todo.let_go(*(config.key for config in mine))

    def with_landscape(self, ds: xr.Dataset, config: LandscapeConfig, weights: Weights) -> xr.Dataset:
        """Return a trained run with its landscape; one that diverged has no weights, and a landscape of NaN."""
        keep = {name.split("-")[0]: self.masks[name] for name in config.judged}
        begun = time.perf_counter()
        if not weights:
            found = blank(list(keep), config)
        else:
            network = models.build(config.arch, self.data.num_classes, self.data.channels)
            network.load_state_dict(weights)
            found = measure(network.to(self.device), self.data, keep, config)
        found["landscape_seconds"] = ("run", [time.perf_counter() - begun])
        settings = [name for name in config.as_dict() if name in ds.data_vars]  # coordinates, as those of every run are
        return results.validate(results.describe(ds.assign(found).set_coords(settings)))


def sample(keep: Mapping[str, np.ndarray], count: int, seed: int) -> dict[str, np.ndarray]:
    """Return, for each mask, the first ``count`` examples of one random order that it keeps, as sorted positions."""
    order = np.random.default_rng(seed).permutation(len(next(iter(keep.values()))))
    return {name: np.sort(order[mask[order]][:count]) for name, mask in keep.items()}


def measure(
    network: nn.Module, data: datasets.ImageData, keep: Mapping[str, np.ndarray], config: LandscapeConfig
) -> xr.Dataset:
    """Return the landscape around a network's weights, over the sets that some masks of the training set keep.

    Curvature is measured set by set; the surface in one pass over the examples of all.
    """
    where = next(network.parameters()).device
    chosen = sample(keep, config.judged_examples, config.seed)
    anyone = np.unique(np.concatenate(list(chosen.values())))
    images = DeviceImages(data.train_images[anyone], data.train_labels[anyone], data.mean, data.std, where, 0)
    pixels = images.centre(0, len(images)).contiguous()
    members = torch.from_numpy(np.stack([np.isin(anyone, own) for own in chosen.values()])).to(where)
    rows = [_curvature(MeanLoss(network, pixels[own], images.labels[own]), config) for own in members]
    whole = MeanLoss(network, pixels, images.labels)
    found = blank(list(keep), config)
    for name in _BY_SET:
        found[name][:] = [[row[name] for row in rows]]
    grid = found["alpha"].to_numpy()
    surface = loss_surface(whole, filter_directions(whole, config.seed), grid, grid, members)
    for name, values in zip(_SURFACES, surface, strict=True):
        found[name][:] = values[np.newaxis]
    found["weight_norm"][:] = float(whole.point[filter_norms(whole) > 0].norm())
    return found


def blank(sets: Sequence[str], config: LandscapeConfig) -> xr.Dataset:
    """Return a landscape in which nothing is known yet."""
    half = config.surface_points // 2
    grid = config.surface_reach * np.arange(-half, half + 1) / half
    shape = (1, len(sets), len(grid), len(grid))
    variables: dict[str, Any] = {name: (("run", "loss_over"), np.full(shape[:2], np.nan)) for name in _BY_SET}
    for name in _SURFACES:
        variables[name] = (("run", "loss_over", "alpha", "beta"), np.full(shape, np.nan, dtype=np.float32))
    variables["weight_norm"] = ("run", [np.nan])
    return xr.Dataset(variables, {"loss_over": list(sets), "alpha": grid, "beta": grid})


def _curvature(loss: MeanLoss, config: LandscapeConfig) -> dict[str, float]:
    """Return what is measured at the trained weights over one set, as they are and with filters of length one."""
    found = {"judged_loss": loss.value(loss.point), "gradient_norm": float(loss.gradient(loss.point).norm())}
    as_is = ("top_eigenvalue", "hessian_trace", "sharpness")
    normalized = ("normalized_eigenvalue", "normalized_trace", "normalized_sharpness")
    for names, radius, scale in (
        (as_is, config.sharpness_radius, None),
        (normalized, config.normalized_radius, filter_norms(loss)),
    ):
        product = partial(hessian_vector_product, loss, scale=scale)
        top = lanczos(
            product, loss.point, tolerance=config.eigenvalue_tolerance, most=config.most_products, seed=config.seed
        )
        trace = hutchinson_trace(product, loss.point, probes=config.trace_probes, seed=config.seed, known=top)
        rise = sharpness(loss, radius, steps=config.ascent_steps, scale=scale)
        found |= {names[0]: float(top.values[0]), f"{names[0]}_error": float(top.errors[0])}
        found |= {names[1]: trace.value, f"{names[1]}_error": trace.error}
        found |= {names[2]: rise.rise, f"{names[2]}_slope": rise.slope}
    return found
