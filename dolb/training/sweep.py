"""Sweeps: many runs, computing only what the store lacks.

A sweep may be killed and started again, stopped by a time limit, or run by several processes on one store: what is
finished is found by its key and never done twice. The store is all there is to it: on another machine, with the store
copied there in any state, the same call goes on. A time limit, Ctrl-C and SIGTERM, which Slurm sends before it kills,
also leave the unfinished runs in the store, and they go on from their last step.
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from tqdm.auto import tqdm

from dolb import data as datasets
from dolb import results
from dolb.results import RunStore
from dolb.training import engine, packing, workers
from dolb.training.config import RunConfig
from dolb.training.paused import PausedRuns

POLL_SECONDS = 0.5


def sweep(
    configs: Sequence[RunConfig],
    *,
    store: str | Path | None = None,
    device: str = "auto",
    data_dir: str | Path | None = None,
    subsets: Mapping[str, np.ndarray] | None = None,
    at_once: int | None = None,
    memory_limit: float | None = None,
    time_limit: float | None = None,
    step: str | None = None,
    progress: bool = True,
) -> xr.Dataset:
    """Return the runs of ``configs`` as one Dataset, training those that the store lacks.

    Parameters
    ----------
    configs
        The runs; configs with equal keys are one run.
    store
        Folder of finished runs. Without one, results live only in the returned Dataset.
    device
        ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
    subsets
        Name to boolean mask, for configs whose ``subset`` is not ``full``.
    at_once
        Runs at a time. Unless given, as many share a GPU as are best for their network and batch size, fewer where its
        memory does not suffice; on a CPU one to a core, in as many processes.
    memory_limit
        Bytes of a GPU that may be in use, by any process; at most, and unless given, 90% of what it has.
    step
        One of ``engine.STEPS``, by default the device's fastest.
    time_limit
        Seconds after which the sweep stops by itself. What is unfinished is counted in the Dataset's attribute
        ``unfinished``; a later call goes on from there, in the middle of a run too.
    """
    for name, value in (("at_once", at_once), ("memory_limit", memory_limit)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    deadline = time.monotonic() + time_limit if time_limit is not None else None
    where = engine.resolve_device(device)
    wanted = {config.key: config for config in configs}
    if not wanted:
        raise ValueError("there are no runs to sweep: the list of configs is empty")
    groups = _by_data(wanted.values())
    with contextlib.ExitStack() as stack:
        if store is None:
            store = stack.enter_context(tempfile.TemporaryDirectory(prefix="dolb-"))
        runs = RunStore(store)
        bar = stack.enter_context(_ProgressBar(wanted.values(), progress))
        found: dict[str, xr.Dataset] = {}
        data_of: dict[str, datasets.ImageData] = {}  # of the runs that are lacking, by key
        lacking: list[RunConfig] = []
        for (name, subset), members in groups.items():  # whatever can be refused is refused before any training
            data = engine.subset_of(datasets.load(name, data_dir), subset, subsets or {})
            for config in members:
                if config.batch_size > len(data.train_labels):
                    raise ValueError(
                        f"batch_size {config.batch_size} is larger than the {len(data.train_labels)} training examples "
                        f"of {name} ({subset})"
                    )
            found |= {c.key: old for c in members if (old := runs.get(c.key, data.fingerprint)) is not None}
            bar.skip(config for config in members if config.key in found)
            if lacked := [config for config in members if config.key not in found]:
                data_of |= dict.fromkeys((config.key for config in lacked), data)
                lacking += lacked
        if lacking:
            runs.check_writable()
            if where.type == "cpu":
                stack.enter_context(workers.one_thread())
                helpers = min(at_once or workers.CORES, len(lacking)) - 1
                orders = {"store": store, "device": "cpu", "data_dir": data_dir, "subsets": subsets}
                lacks = {"configs": lacking, "time_limit": time_limit}
                stack.enter_context(workers.helping(helpers, sweep, {**lacks, **orders}))
        interrupted = stack.enter_context(_interrupts())

        def ends() -> bool:
            return interrupted() or (deadline is not None and time.monotonic() >= deadline)

        if lacking:
            pack = at_once if where.type == "cuda" else 1
            done = _fill(runs, lacking, data_of, where, pack, step, memory_limit, ends, bar)
            found |= {ds["key"].item(): ds for ds in done}
        for key in wanted.keys() - found.keys():  # what others ended as time ran out
            if (ds := runs.get(key)) is not None:
                found[key] = ds
    if not found:
        raise TimeoutError(
            f"the time limit of {time_limit:g} s ended before any of {len(wanted)} runs did; a later call goes on"
        )
    merged = results.merge(found[key] for key in wanted if key in found)
    merged.attrs["unfinished"] = len(wanted) - len(found)
    return merged


def _by_data(configs: Iterable[RunConfig]) -> dict[tuple[str, str], list[RunConfig]]:
    groups: dict[tuple[str, str], list[RunConfig]] = {}
    for config in configs:
        groups.setdefault((config.data, config.subset), []).append(config)
    return groups


def _fill(
    runs: RunStore,
    lacking: Sequence[RunConfig],
    data_of: Mapping[str, datasets.ImageData],
    device: engine.torch.device,
    at_once: int | None,
    step: str | None,
    memory_limit: float | None,
    ends: Callable[[], bool],
    bar: _ProgressBar,
) -> list[xr.Dataset]:
    """Train what is lacking, leave to other processes what they hold, and take over what they leave."""
    done: list[xr.Dataset] = []
    paused = PausedRuns(runs.folder / "paused")

    began: set[str] = set()

    def watch(run: engine.Run, epoch: int) -> None:
        if run.config.key not in began:
            began.add(run.config.key)
            bar.went_on(epoch - 1)
        bar.epoch_done(run.config)

    waiting = packing.in_packs(lacking)
    claims: dict[str, contextlib.ExitStack] = {}

    def claimed() -> Iterator[RunConfig]:
        """Hand out configs as places fall free, each only if nobody else has it or has done it by now."""
        for config in list(waiting):
            if ends():
                return
            stack = contextlib.ExitStack()
            if not stack.enter_context(runs.claim(config.key)):
                stack.close()
                continue
            waiting.remove(config)
            if (by_others := runs.get(config.key, data_of[config.key].fingerprint)) is not None:
                stack.close()
                paused.drop(config.key)
                done.append(by_others)
                bar.skip([config])
                continue
            claims[config.key] = stack
            yield config

    try:
        while waiting and not ends():
            before = len(waiting)
            ended = engine.train_many(
                claimed(), lambda config: data_of[config.key], device, at_once=at_once, step=step,
                memory_limit=memory_limit, paused=paused, watch=watch, stop=ends,
            )  # fmt: skip
            for config, ds in ended:
                if ds is not None:
                    runs.put(ds)
                    paused.drop(config.key)
                    done.append(ds)
                claims.pop(config.key).close()
            if waiting and len(waiting) == before:
                time.sleep(POLL_SECONDS)  # others hold the rest
    finally:
        for stack in claims.values():
            stack.close()
    return done


@contextlib.contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Yield what says whether Ctrl-C or SIGTERM came, which take effect only after the block; a second one at once.

    One that this process was told to ignore, as shells tell what scripts start in the background, stays ignored.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # only there can signals be handled
        yield lambda: False
        return

    def note(number: int, frame: object) -> None:
        came.append(number)
        signal.signal(number, before[number])

    heard = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) != signal.SIG_IGN]
    before: dict[int, Any] = {number: signal.signal(number, note) for number in heard}
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


class _ProgressBar:
    """One bar for a whole sweep, in epochs, with the time left."""

    def __init__(self, configs: Iterable[RunConfig], enabled: bool):
        self._total = sum(config.epochs for config in configs)
        self._bar = tqdm(total=self._total, unit="epoch", disable=not enabled, desc="sweep", mininterval=1.0)

    def __enter__(self) -> _ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def skip(self, configs: Iterable[RunConfig]) -> None:
        """Take finished runs out of the total, so that the time left is that of the work left."""
        self._shorten(sum(config.epochs for config in configs))

    def went_on(self, epochs: int) -> None:
        """Take out the epochs that a run had done before it was paused."""
        self._shorten(epochs)

    def epoch_done(self, config: RunConfig) -> None:
        self._bar.set_postfix_str(f"{config.arch} batch {config.batch_size} rate {config.lr:g}", refresh=False)
        self._bar.update()

    def _shorten(self, epochs: int) -> None:
        if not epochs:
            return
        self._total -= epochs
        self._bar.total = self._total
        self._bar.refresh()
