"""A sweep of an experiment: its configs, each kind made by what trains or measures it, masks first; publishing it."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import xarray as xr

from dolb import data as datasets
from dolb import recipes, results
from dolb.filtering.config import FilterConfig, PlantedConfig
from dolb.profiling.config import LayerConfig, ScalingConfig, StorageConfig
from dolb.training.config import LandscapeConfig, NoiseScaleConfig, RunConfig, StartConfig

# What measures is imported where it is used: a dry run needs none of it, and a sweep one.


def plan(
    slug: str, scale: str, changes: dict[str, Any], *, store: Path, device: str, keep: Sequence[str],
    data_dir: Path | None,
) -> tuple[list[Any], dict[str, Any]]:  # fmt: skip
    """Return the configs of an experiment, and the changes of its grid, with those that the machine and store make.

    ``keep`` are masks of a person's own, each as NAME=FILE.
    """
    changes = dict(changes)
    if scale == "demo" and changes.get("data") in recipes.data_sets(slug):
        raise ValueError(f"data {changes['data']!r} are the study's own; accepted at demo scale: any other")
    if recipes.takes(slug, "device") and device != "auto":
        changes["device"] = device
    if recipes.takes(slug, "device_kind"):
        from dolb.training.device import resolve_device

        changes["device_kind"] = resolve_device(device).type
    if recipes.takes(slug, "tried"):
        from dolb.findings.runs import reached

        # The store has the last word.
        known = [results.published_or_none(slug), *finished(results.RunStore(store), slug, changes.get("data"))]
        changes["tried"] = {key: value for ds in known if ds is not None for key, value in reached(ds).items()}
    configs = recipes.configs(slug, scale, **changes)
    if device.startswith("cuda") and isinstance(configs[0], ScalingConfig) and configs[0].device_kind == "cpu":
        raise ValueError(f"{slug} measures on the CPU; accepted: --device cpu, or --part cuda where there is one")
    if str(changes.get("data")).startswith(datasets.IMAGEFOLDER):
        images, largest = len(datasets.train_files(changes["data"], data_dir)), max(one.batch_size for one in configs)
        if largest > images:
            raise ValueError(
                f"{slug} has batches of up to {largest:,}, and {changes['data']} has {images:,} training images; "
                "name smaller ones by --batch-sizes"
            )
    if keep:
        recipes.require_own(slug)
        changes["own"] = _own_sets(keep, configs[0].data, data_dir)
        configs = recipes.configs(slug, scale, **changes)
    return configs, changes


def needs_machines(configs: Sequence[Any]) -> bool:
    """Return whether each of these is a measurement that needs its machines for itself."""
    return isinstance(configs[0], ScalingConfig | LayerConfig | StorageConfig)


def make(
    slug: str, scale: str, configs: list[Any], changes: dict[str, Any], *, store: Path, device: str,
    data_dir: Path | None, time_limit: float | None, at_once: int | None, step: str | None,
) -> xr.Dataset:  # fmt: skip
    """Return what was planned, training or measuring what the store lacks."""
    if time_limit is not None and not time_limit >= 0:
        raise ValueError(f"time_limit is {time_limit}; accepted: seconds, 0 or more")
    if isinstance(configs[0], ScalingConfig):
        from dolb.profiling.ranks.sweep import measure_all

        return measure_all(configs, store=store, time_limit=time_limit)
    if isinstance(configs[0], StorageConfig):
        from dolb.profiling.storage.sweep import measure_all as measure_storage

        return measure_storage(configs, store=store, time_limit=time_limit, folder=data_dir)
    if isinstance(configs[0], LayerConfig):
        from dolb.profiling import limits

        return limits.measure_all(configs, store=store, time_limit=time_limit)
    work: dict[str, Any] = {"store": store, "device": device, "data_dir": data_dir}
    if isinstance(configs[0], PlantedConfig):
        from dolb import planted

        return planted.measure_all(configs, time_limit=time_limit, **work)
    networks, subsets, begun = recipes.networks(scale), changes.get("own", {}), time.monotonic()
    if isinstance(configs[0], FilterConfig):
        from dolb import maps

        scored = [recipes.masks(scale)["network"]]
        return maps.make(configs, networks, scored=scored, time_limit=time_limit, **work)
    from dolb.training import first_updates, landscape, noise_scale
    from dolb.training.sweep import sweep as train_all

    measured: dict[type, Callable[..., xr.Dataset]] = {
        LandscapeConfig: landscape.measure_all,
        NoiseScaleConfig: noise_scale.measure_all,
        StartConfig: first_updates.record_all,
    }
    make_runs = measured.get(type(configs[0]), train_all)
    if any(set(config.subsets) - {"full", *subsets} for config in configs):  # masks that have to be made
        from dolb import maps

        masks = maps.make(recipes.masks_of(configs, scale), networks, time_limit=time_limit, **work)
        if masks.attrs["unfinished"]:
            return masks
        subsets = subsets | maps.subsets(masks)
        if recipes.takes(slug, "kept"):
            configs = recipes.configs(slug, scale, kept=maps.kept(masks), **changes)
    if time_limit is not None:
        time_limit = max(0.0, begun + time_limit - time.monotonic())
    return make_runs(configs, subsets=subsets, time_limit=time_limit, at_once=at_once, step=step, **work)


def accuracies(ds: xr.Dataset) -> pd.DataFrame:
    """Return the final test accuracy in percent, the mean over seeds, by batch size, rate and whatever else varies."""
    from dolb.findings.runs import final_accuracy

    runs = final_accuracy(ds)
    values = runs.drop(columns="seed").nunique()
    named = [name for name in RunConfig().as_dict() if name in ("batch_size", "lr") or values.get(name, 1) > 1]
    cells = runs.assign(accuracy=100 * runs["accuracy"]).groupby(named)
    return cells.agg(accuracy=("accuracy", "mean"), seeds=("seed", "nunique")).round({"accuracy": 2}).reset_index()


def finished(runs: results.RunStore, slug: str, data: str | None = None) -> list[xr.Dataset]:
    """Return the finished runs of an experiment that are the study's own, or those on another data set."""
    found = [ds for key in runs.keys() if (ds := runs.get(key)) is not None]  # noqa: SIM118
    own = [ds for ds in found if str(ds["experiment"].item()) == slug]
    if recipes.takes(slug, "data"):
        known = {data} if data else {*recipes.data_sets(slug), *recipes.DEMO_DATA}
        own = [ds for ds in own if str(ds["data"].item()) in known]
    return [ds for ds in own if "subset" not in ds or recipes.of_the_study(str(ds["subset"].item()))]


def publish(slug: str, store: Path, target: Path, *, allow_changes: bool = False) -> tuple[xr.Dataset, int, str]:
    """Merge an experiment's finished runs into its published results; return these, how many are new, and what lacks.

    What is simulated stands beside the measurements, and what follows from them is made again: both take seconds, so
    it is done here. Runs of a demo, and new ones of a tree with changes unless allowed, raise a ``ValueError``.
    """
    from dolb.profiling import limits
    from dolb.profiling.ranks.sweep import complete
    from dolb.profiling.simulator import curves, fit, shares
    from dolb.profiling.traces import timeline

    simulated: dict[str, Callable[[], xr.Dataset]] = {
        "ddp-vs-horovod": curves.simulated,
        "step-timeline": timeline.simulated_steps,
    }
    follows: dict[str, Callable[[xr.Dataset], xr.Dataset]] = {
        "ddp-vs-horovod": fit.with_judged,
        "limits": limits.with_simulated,
        "strong-weak-steps": shares.with_simulated,
    }
    fresh = finished(results.RunStore(store), slug)
    if not fresh and not (slug in simulated and target.exists()):  # what is simulated can be renewed alone
        raise ValueError(f"{store} holds no finished run of {slug} on the study's data; `dolb sweep {slug}` makes some")
    if demo := {str(ds["data"].item()) for ds in fresh}.intersection(recipes.DEMO_DATA):
        raise ValueError(
            f"{store} holds demo runs (on {demo.pop()}) of {slug}; only the study's own runs are published"
        )
    before = [results.load(target)] if target.exists() else []
    published = {str(key) for ds in before for key in ds["key"].to_numpy()}
    dirty = [str(ds["key"].item()) for ds in fresh if str(ds["commit"].item()).endswith("+changes")]
    if (changed := [key for key in dirty if key not in published]) and not allow_changes:
        raise ValueError(
            f"{len(changed)} runs were made from a tree with changes, which no commit can give again, such as "
            f"{changed[0]}; commit and make them again, or say --allow-changes"
        )
    merged = complete([*before, *fresh], simulated[slug]()) if slug in simulated else results.merge([*before, *fresh])
    if slug in follows:
        merged = follows[slug](merged)
    results.save(merged, target)
    keys = set(map(str, merged["key"].values))
    return merged, len(keys - published), lacking(slug, merged)


def lacking(slug: str, ds: xr.Dataset) -> str:
    """Say how many runs of an experiment's paper grid are not in a Dataset."""
    from dolb.findings.runs import reached

    sizes = zip(ds["subset"].values, ds["training_examples"].values, strict=True) if "epoch" in ds else ()
    known = {str(subset): int(size) for subset, size in sizes}
    tried = reached(ds) if recipes.takes(slug, "tried") else {}
    return recipes.lacking(slug, set(map(str, ds["key"].values)), known, tried)


def overview() -> list[tuple[str, int, str, str]]:
    """Return of each experiment its slug, how many runs are published, how many its grid lacks, and what it is."""
    found = []
    for slug, recipe in recipes.RECIPES.items():
        ds = results.published_or_none(slug)
        count, lacks = (
            (ds.sizes["run"], lacking(slug, ds)) if ds is not None else (0, recipes.lacking(slug, (), {}, {}))
        )
        what = (recipe.__doc__ or slug).splitlines()[0].rstrip(".")
        found.append((slug, count, lacks.partition(",")[0], what))
    return found


def _own_sets(texts: Sequence[str], data: str, data_dir: Path | None) -> dict[str, Any]:
    """Return the masks that NAME=FILE name, by what runs call them."""
    from dolb.filtering import masks

    files = {name: path for name, _, path in (text.partition("=") for text in texts)}
    if not all(files.values()):
        raise ValueError(f"keep {', '.join(texts)} is not understood; accepted: NAME=FILE")
    return masks.own_sets(files, datasets.load(data, data_dir))
