"""Sweeps: many runs, computing only what the store lacks.

A sweep may be killed and started again, stopped by a time limit, or run by several processes on one store: what is
finished is found by its key and never done twice. The store is all there is to it: on another machine, with the store
copied there in any state, the same call goes on. A time limit, Ctrl-C and SIGTERM, which Slurm sends before it kills,
also leave the unfinished runs in the store, and they go on from their last step.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from dolb import data as datasets
from dolb.results.fill import Todo, fill
from dolb.training import engine, packing, processes
from dolb.training.config import RunConfig
from dolb.training.run import PausedRuns


def sweep(
    configs: Iterable[RunConfig],
    *,
    store: str | Path | None = None,
    device: str = "auto",
    data_dir: str | Path | None = None,
    subsets: Mapping[str, np.ndarray] | None = None,
    at_once: int | None = None,
    time_limit: float | None = None,
    step: str | None = None,
    make_run: Callable[..., engine.Run] | None = None,
    progress: bool = True,
) -> xr.Dataset:
    """Return the runs of ``configs`` as one Dataset, training those that the store lacks.

    Parameters
    ----------
    configs
        The runs; configs with equal keys are one run.
    store
        Folder of finished runs, by default ``DOLB_STORE``. Without one, results live only in the returned Dataset.
    device
        ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
    subsets
        Name to boolean mask, for configs whose ``subset`` is not ``full``.
    at_once
        Runs at a time. Unless given, as many share a GPU as are best for their network and batch size, fewer where its
        memory does not suffice; on a CPU one to a core, in as many processes.
    step
        One of ``engine.STEPS``, by default the device's fastest.
    make_run
        What makes a run in place of ``engine.Run``, such as one of which more is measured; known by its module's name.
    time_limit
        Seconds after which the sweep stops by itself. What is unfinished is counted in the Dataset's attribute
        ``unfinished``; a later call goes on from there, in the middle of a run too.
    """
    configs = list(configs)
    if at_once is not None and at_once < 1:
        raise ValueError(f"at_once must be at least 1, got {at_once}")
    where = engine.resolve_device(device)
    data_of = data_by_run(configs, data_dir, subsets or {})

    def make(todo: Todo[RunConfig]) -> Iterator[xr.Dataset]:
        paused = PausedRuns(todo.store.folder / "paused")

        def watch(run: engine.Run, epoch: int) -> None:
            config = run.config
            todo.done(config, epoch, f"{config.arch} batch {config.batch_size} rate {config.lr:g}")

        ended = engine.train_many(
            todo.claim(packing.in_packs(todo.waiting)), lambda config: data_of[config.key], where,
            at_once=at_once if where.type == "cuda" else 1, step=step, paused=paused, watch=watch,
            stop=todo.ends, make=make_run,
        )  # fmt: skip
        for config, ds in ended:
            if ds is None:
                todo.let_go(config.key)
            else:
                yield ds
                paused.drop(config.key)  # not before it is saved

    orders = {"data_dir": data_dir, "subsets": subsets, "time_limit": time_limit, "make_run": make_run}
    return fill(
        configs, make, store=store, fingerprint=lambda config: data_of[config.key].fingerprint,
        beside=processes.beside(where, at_once, sweep, **orders), time_limit=time_limit, gentle=True,
        size=lambda config: config.epochs, what="runs", unit="epoch", progress=progress,
    )  # fmt: skip


def data_by_run(
    configs: Sequence[RunConfig], data_dir: str | Path | None, subsets: Mapping[str, np.ndarray]
) -> dict[str, datasets.ImageData]:
    """Return the data of each run by its key; whatever can be refused is refused here, before any training."""
    sets: dict[tuple[str, str], datasets.ImageData] = {}
    for config in configs:
        which = config.data, config.subset
        if which not in sets:
            sets[which] = engine.subset_of(datasets.load(config.data, data_dir), config.subset, subsets)
        if config.batch_size > len(sets[which].train_labels):
            raise ValueError(
                f"batch_size {config.batch_size} is larger than the {len(sets[which].train_labels)} training examples "
                f"of {config.data} ({config.subset})"
            )
    return {config.key: sets[config.data, config.subset] for config in configs}
