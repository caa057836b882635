"""Loss landscapes of networks that are trained here: train, measure around the trained weights, keep in the store.

What is compared must be alike. Every network is judged over the same sets: all of the data, and what each mask keeps.
Over its own set it shows the loss that training saw; over a common set only the weights differ, not the examples. The
examples of a set are the first of one random order that are in it, so those of two sets are nearly the same, and for
networks of one seed they are the same. Images are as they are, without augmentation, and the loss is the cross-entropy
alone, without weight decay.
"""

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
from dolb import results
from dolb.augment import DeviceImages
from dolb.results.fill import Todo, fill
from dolb.training import engine, observe, processes
from dolb.training.config import LandscapeConfig
from dolb.training.convolution import convert, with_fast_gradients
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
from dolb.training.sweep import data_by_run

_BY_SET = [name for name, variable in results.SCHEMA.items() if variable.dims == ("run", "loss_over")]
_SURFACES = ("surface_loss", "surface_accuracy")


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
    """Return runs with their loss landscapes, training and measuring those that the store lacks.

    ``subsets`` are masks by name, of the sets that runs are trained on and judged over. The others are as in ``sweep``;
    on a CPU runs are measured in ``at_once`` processes, and a GPU measures one network at a time.
    """
    where, subsets = resolve_device(device), subsets or {}
    data_of = data_by_run(configs, data_dir, subsets)
    for config in configs:
        for name in config.judged:
            judged = engine.subset_of(datasets.load(config.data, data_dir), name, subsets)
            if config.judged_examples > (count := len(judged.train_labels)):
                raise ValueError(
                    f"judged_examples {config.judged_examples} is larger than the {count} training examples of "
                    f"{config.data} ({name})"
                )
    how: dict[str, Any] = {"at_once": at_once if where.type == "cuda" else 1, "step": step, "device": str(where)}

    def make(todo: Todo[LandscapeConfig]) -> Iterator[xr.Dataset]:
        paused = PausedRuns(todo.store.folder / "paused")
        how.update(paused=paused, keep_ended=True, stop=todo.ends, progress=False)
        for pack in packs(todo.waiting, where):
            if not (mine := list(todo.claim(pack))):
                continue
            # All are trained first, so that no time of training has a neighbour's measuring in it. Those that time
            # leaves unmeasured stay at their end among the paused runs.
            for got in list(observe.networks(mine, lambda run: data_of[run.key], **how)):
                if todo.ends():
                    break
                yield with_landscape(got, datasets.load(got.config.data, data_dir), subsets, where)
                paused.drop(got.config.key)
            todo.let_go(*(config.key for config in mine))

    orders = {"data_dir": data_dir, "subsets": subsets, "time_limit": time_limit}
    return fill(
        configs, make, store=store, fingerprint=lambda config: data_of[config.key].fingerprint,
        beside=processes.beside(where, at_once, measure_all, **orders), time_limit=time_limit, foresee=True,
        gentle=True, what="loss landscapes", unit="landscape", progress=progress,
    )  # fmt: skip


def packs(configs: Iterable[LandscapeConfig], device: torch.device) -> list[list[LandscapeConfig]]:
    """Group runs so that those of a group are trained together: on a GPU those of one batch size."""
    groups: dict[Any, list[LandscapeConfig]] = {}
    for config in configs:
        groups.setdefault(config.key if device.type == "cpu" else config.batch_size, []).append(config)
    return list(groups.values())


def with_landscape(
    got: observe.Observed, data: datasets.ImageData, subsets: Mapping[str, np.ndarray], device: torch.device
) -> xr.Dataset:
    """Return a trained run with its landscape; one that diverged has no weights, and a landscape of NaN."""
    config, begun = got.config, time.perf_counter()
    assert isinstance(config, LandscapeConfig)
    masks = {"full": np.ones(len(data.train_labels), dtype=bool), **subsets}
    keep = {name.split("-")[0]: masks[name] for name in config.judged}
    if got.weights:
        network = got.network(data)
        network = convert(network, products=True) if device.type == "cuda" else with_fast_gradients(network)
        found = measure(network.to(device), data, keep, config)
    else:
        found = blank(list(keep), config)
    found["landscape_seconds"] = ("run", [time.perf_counter() - begun])
    settings = [name for name in config.as_dict() if name in got.result.data_vars]  # coordinates, as of every run
    return results.validate(results.describe(got.result.assign(found).set_coords(settings)))


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
    surface = loss_surface(whole, filter_directions(whole, config.seed), grid, members)
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
        (as_is, config.sharpness_radius, 1.0),
        (normalized, config.normalized_radius, filter_norms(loss)),
    ):
        product = partial(hessian_vector_product, loss, scale=scale)
        top = lanczos(
            product, loss.point, tolerance=config.eigenvalue_tolerance, most=config.most_products, seed=config.seed
        )
        trace, error = hutchinson_trace(product, loss.point, top, probes=config.trace_probes, seed=config.seed)
        rise, slope = sharpness(loss, radius, steps=config.ascent_steps, scale=scale)
        found |= {names[0]: top.value, f"{names[0]}_error": top.error}
        found |= {names[1]: trace, f"{names[1]}_error": error}
        found |= {names[2]: rise, f"{names[2]}_slope": slope}
    return found
