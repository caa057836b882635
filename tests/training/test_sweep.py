"""A sweep trains what its store lacks, in packs, and goes on after a kill or a signal to the same bits.

What every store has in common, such as several processes and time limits, is tested in tests/results/test_fill.py.
"""

import contextlib
import multiprocessing
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from agreement import same_bits
from waiting import wait_until

from dolb import data, results
from dolb.training import engine
from dolb.training.config import RunConfig
from dolb.training.sweep import sweep

FIRST = {"first-256": np.arange(1437) < 256}  # of the 1437 training digits


def config(**changes) -> RunConfig:
    return RunConfig(**{"subset": "first-256", "epochs": 2, "batch_size": 64, "lr": 0.05} | changes)


def run(configs: list[RunConfig], store: Path | None, **options) -> xr.Dataset:
    """Sweep in this process alone, unless told otherwise."""
    plain = {"device": "cpu", "subsets": FIRST, "progress": False, "at_once": 1}
    return sweep(configs, store=store, **plain | options)


@pytest.fixture
def trainings(monkeypatch) -> list[str]:
    """Keys of the runs that were started, as they start."""
    started: list[str] = []

    class Noting(engine.Run):
        def __init__(self, config, *args):
            started.append(config.key)
            super().__init__(config, *args)

    monkeypatch.setattr(engine, "Run", Noting)
    return started


def test_a_sweep_gives_every_run_as_it_is_alone_and_a_second_one_trains_nothing(tmp_path, trainings):
    configs = [config(batch_size=size) for size in (128, 32, 64)]
    ds = results.validate(run(configs, tmp_path))
    assert ds["batch_size"].values.tolist() == [128, 32, 64]  # as asked for
    assert trainings == [configs[place].key for place in (1, 2, 0)]  # the longest first
    xr.testing.assert_identical(run(configs, tmp_path), ds)
    assert len(trainings) == 3
    images = data.load("digits").subset(FIRST["first-256"], "first-256")
    for position, each in enumerate(configs):
        assert same_bits(ds.isel(run=[position]), engine.train(each, images))


def test_a_change_of_the_data_reruns_what_was_made_from_the_old(tmp_path, trainings):
    old = run([config()], tmp_path)
    new = run([config()], tmp_path, subsets={"first-256": np.arange(1437) >= 1437 - 256})
    assert len(trainings) == 2
    assert set(new["data_fingerprint"].values).isdisjoint(old["data_fingerprint"].values)


def test_a_diverged_run_is_a_result_and_not_done_again(tmp_path, trainings):
    wild = [config(lr=1e30, epochs=3), config(epochs=3)]
    for _ in range(2):
        assert run(wild, tmp_path)["diverged"].values.tolist() == [True, False]
    assert len(trainings) == 2


def test_a_run_that_cannot_be_done_is_refused_before_the_others_are_trained(tmp_path, trainings):
    with pytest.raises(ValueError, match=r"subset 'filtered' is not known; accepted: full, share-0\.1, first-256"):
        run([config(), config(subset="filtered")], tmp_path)
    assert trainings == []


# Killed, stopped, helped

LONG = replace(config(), subset="full", epochs=10**4)
# Processes forked from one that has imported what a sweep needs: they start at once.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["dolb.training.sweep", "pytest", "sklearn.datasets"])


def work(configs: list[RunConfig], store: Path, at_once: int, trains) -> None:
    class Telling(engine.Run):
        def _launch(self, *args):
            trains.set()
            return super()._launch(*args)

    engine.Run = Telling
    run(configs, store, at_once=at_once)


@contextlib.contextmanager
def sweeping(configs: list[RunConfig], store: Path, at_once: int = 1):
    """Sweep in a process of its own, which trains by now, and is killed at the end."""
    trains = PROCESSES.Event()
    process = PROCESSES.Process(target=work, args=(configs, store, at_once, trains))
    process.start()
    try:
        assert trains.wait(120)
        yield process
    finally:
        process.kill()
        process.join()


@pytest.mark.faults
def test_a_sweep_that_is_killed_and_moved_goes_on_there_to_the_same_bits(tmp_path):
    configs = [config(epochs=4, seed=seed) for seed in range(4)]
    here, there = tmp_path / "here", tmp_path / "another" / "machine"
    with sweeping(configs, here):
        wait_until(lambda: results.RunStore(here).keys())
    finished = {path.name: path.read_bytes() for path in here.glob("*.nc")}
    shutil.copytree(here, there)
    moved = run(configs, there)
    assert {name: (there / name).read_bytes() for name in finished} == finished
    assert not list(there.glob("*.aside-*"))  # a file was whole or not there, whenever the kill came
    assert same_bits(moved, run(configs, None))


def test_a_time_limit_keeps_what_is_unfinished_and_the_end_leaves_nothing_behind(tmp_path):
    runs, paused = [config(epochs=6, seed=seed) for seed in range(2)], 0
    for limit in np.geomspace(0.1, 60, 30):  # how much is done in a second, the machine says
        with contextlib.suppress(TimeoutError):
            ended = run(runs, tmp_path, time_limit=limit)
            if not ended.attrs["unfinished"]:
                break
        paused += len(list(tmp_path.glob("paused/*.pt")))
    assert paused > 0
    assert not list(tmp_path.glob("paused/*"))
    assert same_bits(ended, run(runs, None))


def held(store: Path) -> list[str]:
    """Keys of the runs that some process is at."""
    held = []
    for path in (store / "locks").glob("*.lock"):
        with results.RunStore(store).claim(path.stem) as mine:
            held += [] if mine else [path.stem]
    return held


@pytest.mark.faults
def test_a_signal_ends_a_sweep_of_several_processes_once_the_runs_of_all_are_kept(tmp_path):
    both = [LONG, replace(LONG, seed=1)]
    with sweeping(both, tmp_path, at_once=2) as process:
        wait_until(lambda: len(held(tmp_path)) == 2, seconds=240)
        process.terminate()
        process.join()
        assert process.exitcode == -signal.SIGTERM
    assert {path.stem for path in tmp_path.glob("paused/*.pt")} == {config.key for config in both}
    assert not results.RunStore(tmp_path).keys()


@pytest.mark.faults
def test_further_processes_help_on_a_cpu_and_a_killed_sweep_leaves_none_behind(tmp_path):
    with sweeping([LONG, replace(LONG, seed=1)], tmp_path, at_once=2):
        wait_until(lambda: len(held(tmp_path)) == 2, seconds=240)
    wait_until(lambda: held(tmp_path) == [])
