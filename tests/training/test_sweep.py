"""A sweep computes what its store lacks, and only that: after a kill, beside other processes, within a time limit."""

from __future__ import annotations

import multiprocessing
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from waiting import wait_until

from dolb import data, results
from dolb.training import engine
from dolb.training import sweep as sweeping
from dolb.training.config import RunConfig
from dolb.training.device import DeviceError
from dolb.training.sweep import sweep

SERIES = ("train_loss", "test_loss", "test_accuracy", "learning_rate")
FIRST = {"first-256": np.arange(1437) < 256}  # of the 1437 training digits

# Processes forked from one that has imported what a sweep needs: they start at once, so that kills hit the training.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["dolb.training.sweep", "pytest", "sklearn.datasets"])


def config(**changes) -> RunConfig:
    return RunConfig(**{"subset": "first-256", "epochs": 2, "batch_size": 64, "lr": 0.05} | changes)


def grid(n: int, **changes) -> list[RunConfig]:
    return [config(seed=seed, **changes) for seed in range(n)]


def run(configs: list[RunConfig], store: Path | None, **options) -> xr.Dataset:
    """Sweep in this process alone, unless told otherwise."""
    plain = {"device": "cpu", "subsets": FIRST, "progress": False, "at_once": 1}
    return sweep(configs, store=store, **plain | options)


def assert_same_bits(one: xr.Dataset, other: xr.Dataset) -> None:
    assert one["key"].values.tolist() == other["key"].values.tolist()
    for name in SERIES:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def states(store: Path) -> dict[str, tuple[int, int]]:
    """What changes when a file is written again, for each finished run."""
    return {path.stem: (path.stat().st_ino, path.stat().st_mtime_ns) for path in store.glob("*.nc")}


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


# In one process


def test_a_sweep_returns_every_run_in_the_order_asked_for(tmp_path):
    configs = [config(batch_size=size) for size in (128, 32, 64)]
    ds = results.validate(run(configs, tmp_path))
    assert ds["batch_size"].values.tolist() == [128, 32, 64]
    assert ds.attrs["unfinished"] == 0
    images = data.load("digits").subset(FIRST["first-256"], "first-256")
    for position, each in enumerate(configs):
        assert_same_bits(ds.isel(run=[position]), engine.train(each, images))


def test_a_second_sweep_computes_nothing(tmp_path, trainings):
    first = run(grid(3), tmp_path)
    before = states(tmp_path)
    assert len(trainings) == len(before) == 3
    again = run(grid(3), tmp_path)
    xr.testing.assert_identical(again, first)
    assert states(tmp_path) == before
    assert len(trainings) == 3


def test_a_larger_sweep_computes_only_what_is_new(tmp_path, trainings):
    run(grid(2), tmp_path)
    before = states(tmp_path)
    run(grid(4), tmp_path)
    assert trainings == [each.key for each in grid(4)]
    assert {key: state for key, state in states(tmp_path).items() if key in before} == before


def test_runs_of_like_cost_are_started_together_the_longest_first(tmp_path, trainings):
    mixed = [config(batch_size=size, seed=seed) for seed in range(2) for size in (128, 32)]
    ds = run(mixed, tmp_path)
    assert trainings == [config(batch_size=size, seed=seed).key for size in (32, 128) for seed in range(2)]
    assert ds["key"].values.tolist() == [each.key for each in mixed]


def test_configs_with_one_key_are_one_run(tmp_path, trainings):
    ds = run([config(lr=1), config(lr=1.0), config(lr=1.0)], tmp_path)
    assert ds.sizes["run"] == len(trainings) == 1


def test_without_a_store_results_live_in_the_dataset_alone():
    assert run(grid(2), None).sizes["run"] == 2


def test_a_truncated_file_is_set_aside_and_its_run_done_again(tmp_path, trainings):
    first = run(grid(3), tmp_path)
    broken = tmp_path / f"{grid(3)[1].key}.nc"
    half = broken.read_bytes()[: broken.stat().st_size // 2]
    broken.write_bytes(half)
    before = states(tmp_path)
    assert_same_bits(run(grid(3), tmp_path), first)
    assert trainings[3:] == [broken.stem]
    assert broken.with_name(f"{broken.name}.aside-1").read_bytes() == half
    assert {key for key, state in states(tmp_path).items() if before[key] != state} == {broken.stem}


def test_a_change_of_the_data_reruns_what_was_made_from_the_old(tmp_path, trainings):
    old = run(grid(2), tmp_path)
    new = run(grid(2), tmp_path, subsets={"first-256": np.arange(1437) >= 1437 - 256})
    assert len(trainings) == 4
    assert set(new["data_fingerprint"].values).isdisjoint(old["data_fingerprint"].values)
    assert len(list(tmp_path.glob("*.aside-1"))) == 2


def test_a_diverged_run_is_kept_and_not_done_again(tmp_path, trainings):
    wild = [config(lr=1e30, epochs=3), config(epochs=3)]
    assert run(wild, tmp_path)["diverged"].values.tolist() == [True, False]
    assert run(wild, tmp_path)["diverged"].values.tolist() == [True, False]
    assert len(trainings) == 2


# What is refused, before anything is trained


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        ({"batch_size": 257}, ValueError, r"batch_size 257 is larger than the 256 training examples of digits \(first"),
        ({"batch_size": 1438, "subset": "full"}, ValueError, r"batch_size 1438 is larger than the 1437 .*\(full\)"),
        ({"subset": "filtered"}, ValueError, "subset 'filtered' is not known; accepted: full, first-256"),
        ({"data": "digit"}, data.DataError, "unknown data set 'digit'; accepted: .*did you mean 'digits'"),
    ],
)
def test_a_run_that_cannot_be_done_is_refused_before_the_others_are_trained(tmp_path, trainings, wrong, error, says):
    with pytest.raises(error, match=says):
        run([config(), config(**wrong)], tmp_path)
    assert trainings == []


def test_an_empty_sweep_and_no_place_to_run_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no runs to sweep"):
        run([], tmp_path)
    with pytest.raises(ValueError, match="at_once must be at least 1, got 0"):
        run(grid(1), tmp_path, at_once=0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_gpu_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DeviceError, match="torch sees 0 CUDA"):
        run(grid(1), tmp_path, device="cuda")


def test_a_store_that_cannot_be_written_is_refused_before_any_training(tmp_path, trainings, read_only):
    store = tmp_path / "store"
    first = run(grid(2), store)
    before = states(store)
    with read_only(store):
        with pytest.raises(results.StoreError, match=f"the store {store} cannot be written"):
            run(grid(3), store)
        assert len(trainings) == 2
        assert_same_bits(run(grid(2), store), first)  # what is finished can be had all the same
    assert states(store) == before
    run(grid(3), store)
    assert len(trainings) == 3


def test_a_store_inside_a_file_is_refused_before_any_training(tmp_path, trainings):
    (tmp_path / "file").touch()
    with pytest.raises(results.StoreError, match="Not a directory"):
        run(grid(1), tmp_path / "file" / "store")
    assert trainings == []


# A time limit


def test_a_time_limit_stops_the_sweep_and_a_later_call_goes_on(tmp_path, trainings):
    run(grid(1), tmp_path)  # the first call of a process is slower
    started = time.monotonic()
    run(grid(2), tmp_path)
    one = time.monotonic() - started
    limited = run(grid(40), tmp_path, time_limit=4 * one)
    done = limited.sizes["run"]
    assert 2 <= done < 40
    assert limited.attrs["unfinished"] == 40 - done
    before = states(tmp_path)
    assert len(before) == done
    trainings.clear()
    rest = run(grid(done + 2), tmp_path)
    assert rest.attrs["unfinished"] == 0
    assert len(trainings) == 2
    assert {key: state for key, state in states(tmp_path).items() if key in before} == before


def test_a_time_limit_too_short_for_any_run_says_so(tmp_path):
    with pytest.raises(TimeoutError, match="the time limit of 0 s ended before any of 2 runs did"):
        run(grid(2), tmp_path, time_limit=0)


# Several processes, some of them killed


def work(options: dict, ready, out: str) -> None:
    """Sweep in a process of its own, note each run that it computed, and save what the sweep returned."""

    class Noting(results.RunStore):
        def put(self, ds: xr.Dataset) -> Path:
            path = super().put(ds)
            with open(f"{out}.computed", "a") as log:
                log.write(f"{path.stem}\n")
            return path

    sweeping.RunStore = Noting
    data.load("digits")
    ready.set()
    results.save(run(**options), out)


Start = Callable[..., multiprocessing.Process]


@pytest.fixture
def start():
    """Start a sweep in another process and return that process once it trains; all are ended with the test."""
    processes = []

    def start(configs: list[RunConfig], store: Path, out: Path, **options) -> multiprocessing.Process:
        ready = PROCESSES.Event()
        options |= {"configs": configs, "store": store}
        process = PROCESSES.Process(target=work, args=(options, ready, str(out)))
        process.start()
        processes.append(process)
        assert ready.wait(120)
        return process

    yield start
    for process in processes:
        process.kill()
        process.join()


def computed(out: Path) -> list[str]:
    return Path(f"{out}.computed").read_text().split()


def held(store: Path) -> list[str]:
    """Keys of the runs that some process is at."""
    held = []
    for path in (store / "locks").glob("*.lock"):
        with results.RunStore(store).claim(path.stem) as mine:
            held += [] if mine else [path.stem]
    return held


def test_a_sweep_killed_again_and_again_ends_like_one_never_killed(tmp_path, start: Start):
    configs, store = grid(6), tmp_path / "store"
    undisturbed = start(configs, tmp_path / "reference", tmp_path / "reference.nc")
    started = time.monotonic()
    undisturbed.join()
    whole = time.monotonic() - started
    rng, kills = np.random.default_rng(11), 0
    while True:
        process = start(configs, store, tmp_path / "killed.nc")
        process.join(whole * (rng.uniform(0.1, 0.4) + 0.1 * kills))  # longer each time, or it might never end
        if process.exitcode is not None:
            break
        process.kill()
        process.join()
        kills += 1
    assert process.exitcode == 0
    assert kills >= 1
    assert_same_bits(results.load(tmp_path / "killed.nc"), results.load(tmp_path / "reference.nc"))
    assert not list(store.glob("*.aside-*"))  # a file was whole or not there, whenever the kill came


def test_a_sweep_killed_and_moved_with_its_store_goes_on_there_and_repeats_nothing(tmp_path, start: Start):
    configs, here, there = grid(6, epochs=4), tmp_path / "here", tmp_path / "another" / "machine"
    process = start(configs, here, tmp_path / "first.nc")
    wait_until(lambda: len(states(here)) >= 2)
    process.kill()
    process.join()
    finished = {path.name: path.read_bytes() for path in here.glob("*.nc")}
    assert 2 <= len(finished) < 6
    assert list((here / "locks").iterdir())  # copied along, and held by nobody there
    shutil.copytree(here, there)
    shutil.rmtree(here)
    moved = start(configs, there, tmp_path / "second.nc")
    moved.join()
    assert moved.exitcode == 0
    lacking = {f"{each.key}.nc" for each in configs} - finished.keys()
    assert sorted(f"{key}.nc" for key in computed(tmp_path / "second.nc")) == sorted(lacking)
    assert {name: (there / name).read_bytes() for name in finished} == finished
    assert_same_bits(results.load(tmp_path / "second.nc"), run(configs, None))
    assert not here.exists()


def test_a_store_copied_while_a_run_was_written_does_that_run_again(tmp_path, trainings):
    """A copy may catch a file half there; a sweep's own kill cannot leave one."""
    here, there = tmp_path / "here", tmp_path / "there"
    first = run(grid(3), here)
    shutil.copytree(here, there)
    half = there / f"{grid(3)[2].key}.nc"
    half.write_bytes(half.read_bytes()[:1000])
    (there / f".{half.name}.temporary").write_bytes(b"what a write had begun")
    trainings.clear()
    assert_same_bits(run(grid(3), there), first)
    assert trainings == [half.stem]


def test_two_processes_share_a_store_and_do_every_run_once(tmp_path, start: Start):
    configs = grid(6)
    outs = [tmp_path / "one.nc", tmp_path / "two.nc"]
    processes = [start(configs, tmp_path / "store", out) for out in outs]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    shares = [computed(out) for out in outs]
    assert sorted(shares[0] + shares[1]) == sorted(each.key for each in configs)
    assert all(shares)
    one, two = (results.load(out) for out in outs)
    assert one["key"].values.tolist() == [each.key for each in configs]
    xr.testing.assert_identical(one, two)
    assert_same_bits(one, run(configs, None))


def test_what_a_killed_process_held_is_taken_over_by_another(tmp_path, start: Start):
    configs, store = grid(2, epochs=30), tmp_path / "store"
    first = start(configs[:1], store, tmp_path / "first.nc")
    wait_until(lambda: held(store) == [configs[0].key])
    second = start([*configs, *grid(1)], store, tmp_path / "second.nc")
    wait_until(lambda: configs[1].key in held(store))
    first.kill()
    second.join()
    assert second.exitcode == 0
    assert sorted(computed(tmp_path / "second.nc")) == sorted(each.key for each in [*configs, *grid(1)])
    assert results.load(tmp_path / "second.nc").sizes["run"] == 3


def test_a_killed_sweep_leaves_no_process_behind(tmp_path, start: Start):
    store = tmp_path / "store"
    process = start(grid(2, epochs=10**6), store, tmp_path / "out.nc", at_once=2)
    wait_until(lambda: len(held(store)) == 2)
    process.kill()
    wait_until(lambda: held(store) == [])
