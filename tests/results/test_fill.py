"""The loop that fills a store: made once, by whichever process, after kills too, and within the time that there is."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import xarray as xr
from made_runs import made_run
from waiting import wait_until

from dolb import results
from dolb.results import fill as filling
from dolb.results.fill import Todo, fill
from dolb.training.config import RunConfig

PROCESSES = multiprocessing.get_context("fork")


def grid(n: int) -> list[RunConfig]:
    return [RunConfig(experiment="batch-size", epochs=1, seed=seed) for seed in range(n)]


class Maker:
    """Makes runs at once, notes which, and can take its time, or do something after each."""

    def __init__(self, seconds: float = 0.0, after=lambda todo: None, log: Path | None = None):
        self.made: list[int] = []
        self.seconds, self.after, self.log = seconds, after, log

    def __call__(self, todo: Todo[RunConfig]) -> Iterator[xr.Dataset]:
        for config in todo.claim():
            time.sleep(self.seconds)
            self.made.append(config.seed)
            if self.log:
                with self.log.open("a") as file:
                    file.write(f"{os.getpid()} {config.seed}\n")
            yield made_run(**config.as_dict())
            self.after(todo)


def filled(n: int, maker, store: Path | None, **options) -> xr.Dataset:
    return fill(grid(n), maker, store=store, progress=False, **options)


def test_what_is_in_the_store_of_the_environment_is_counted_and_progress_in_a_log_is_plain_lines(
    tmp_path, monkeypatch, capsys
):
    assert filled(2, Maker(), None).sizes["run"] == 2  # without a store results live in the Dataset alone
    monkeypatch.setenv("DOLB_STORE", str(tmp_path))
    fill(grid(3), Maker())
    said = capsys.readouterr().err
    assert "\r" not in said
    assert [line.split(",")[0] for line in said.splitlines()] == ["runs: 1 of 3 (run)", "runs: 3 of 3 (run)"]
    fill(grid(4), maker := Maker())
    assert maker.made == [3]
    assert f"3 of 4 runs are in {tmp_path}" in capsys.readouterr().err


def test_results_come_in_the_order_asked_for_and_are_not_made_again(tmp_path):
    maker = Maker()
    asked = grid(3)[::-1]
    first = fill([*asked, asked[0]], maker, store=tmp_path, progress=False)
    assert first["seed"].values.tolist() == [2, 1, 0]
    assert first.attrs["unfinished"] == 0
    again = fill(asked, maker, store=tmp_path, progress=False)
    xr.testing.assert_identical(again, first)
    assert len(maker.made) == 3
    filled(4, maker, tmp_path)
    assert maker.made[3:] == [3]


@pytest.mark.faults
def test_a_file_that_is_broken_or_of_other_data_is_set_aside_and_made_again(tmp_path):
    filled(3, Maker(), tmp_path)
    broken = results.RunStore(tmp_path).path(grid(3)[1].key)
    half = broken.read_bytes()[:1000]
    broken.write_bytes(half)
    maker = Maker()
    filled(3, maker, tmp_path)
    assert maker.made == [1]
    assert broken.with_name(f"{broken.name}.aside-1").read_bytes() == half
    filled(3, again := Maker(), tmp_path, fingerprint=lambda config: "sha256:made" if config.seed else "sha256:new")
    assert again.made == [0]


@pytest.mark.faults
def test_a_store_that_cannot_be_written_is_refused_before_anything_is_made(tmp_path, read_only):
    first = filled(2, Maker(), tmp_path)
    maker = Maker()
    with read_only(tmp_path):
        with pytest.raises(results.StoreError, match=f"the store {tmp_path} cannot be written"):
            filled(3, maker, tmp_path)
        xr.testing.assert_identical(filled(2, maker, tmp_path), first)  # what is finished can be had all the same
    assert maker.made == []


# Time, and what cannot be had


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """A clock that a test moves on: on a busy machine no test can say how long things take."""
    now = [100.0]
    monkeypatch.setattr(filling, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=time.sleep))
    return now


def test_what_time_leaves_undone_is_counted_and_made_by_a_later_call(tmp_path, clock):
    def after(todo: Todo[RunConfig]) -> None:
        clock[0] += 10

    short = filled(4, Maker(after=after), tmp_path, time_limit=15)  # the third would begin after 20
    assert (short.sizes["run"], short.attrs["unfinished"]) == (2, 2)
    rest = Maker()
    assert filled(4, rest, tmp_path).attrs["unfinished"] == 0
    assert rest.made == [2, 3]


def test_where_it_is_foreseen_nothing_begins_that_would_end_late(tmp_path, clock):
    def make(todo: Todo[RunConfig]) -> Iterator[xr.Dataset]:
        for config in todo.claim():
            clock[0] += 10
            yield made_run(**config.as_dict())

    assert filled(3, make, tmp_path, time_limit=15, foresee=True).sizes["run"] == 1


def test_nothing_to_make_and_no_time_to_make_it_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no masks to make: the list of configs is empty"):
        fill([], Maker(), what="masks")
    with pytest.raises(TimeoutError, match="the time limit ended before any of 2 runs did"):
        filled(2, Maker(), tmp_path, time_limit=0)


def test_what_cannot_be_had_is_passed_over_and_the_result_says_why(tmp_path):
    def make(todo: Todo[RunConfig]) -> Iterator[xr.Dataset]:
        for config in todo.claim():
            if config.seed == 1:
                todo.pass_over(config, "its weights cannot be fetched")
            else:
                yield made_run(**config.as_dict())

    ds = filled(3, make, tmp_path)
    assert ds["seed"].values.tolist() == [0, 2]
    assert (ds.attrs["unfinished"], ds.attrs["unavailable"]) == (1, "its weights cannot be fetched")


def test_an_error_leaves_what_was_made_in_the_store_and_no_claim(tmp_path):
    def after(todo: Todo[RunConfig]) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        filled(3, Maker(after=after), tmp_path)
    rest = Maker()
    filled(3, rest, tmp_path)
    assert rest.made == [1, 2]


# Signals


@pytest.mark.parametrize("gentle", [True, False])
def test_ctrl_c_takes_effect_once_what_is_in_hand_is_saved_and_says_how_to_go_on(tmp_path, capsys, gentle):
    maker = Maker(after=lambda todo: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        fill(grid(3), maker, store=tmp_path, gentle=gentle)
    assert maker.made == [0]
    assert results.RunStore(tmp_path).keys() == [grid(1)[0].key]
    said = f"interrupted: what is done is kept in {tmp_path}; the same command goes on from there"
    assert capsys.readouterr().err.splitlines()[-1] == said


def test_a_second_sigterm_as_schedulers_send_it_breaks_nothing_off(tmp_path):
    came = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))

    def twice(todo):
        for _ in range(2):
            signal.raise_signal(signal.SIGTERM)
        assert not came

    try:
        filled(3, Maker(after=twice), tmp_path, gentle=True)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert came == [signal.SIGTERM]  # once, and after what was in hand was saved
    assert results.RunStore(tmp_path).keys() == [grid(1)[0].key]


def test_a_signal_that_is_ignored_stays_ignored(tmp_path):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        ds = filled(3, Maker(after=lambda todo: signal.raise_signal(signal.SIGINT)), tmp_path, gentle=True)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert ds.attrs["unfinished"] == 0


def test_in_a_thread_signals_are_left_alone(tmp_path):
    before, done = signal.getsignal(signal.SIGTERM), []
    thread = threading.Thread(target=lambda: done.append(filled(1, Maker(), tmp_path, gentle=True)))
    thread.start()
    thread.join()
    assert done[0].sizes["run"] == 1
    assert signal.getsignal(signal.SIGTERM) is before


# Several processes


@pytest.fixture
def start():
    """Fill a store in another process; all are ended with the test."""
    processes = []

    def start(n: int, store: Path, maker: Maker):
        processes.append(PROCESSES.Process(target=filled, args=(n, maker, store)))
        processes[-1].start()
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.join()


@pytest.mark.faults
def test_processes_share_a_store_and_make_everything_once(tmp_path, start):
    log = tmp_path / "log"
    for process in [start(6, tmp_path / "store", Maker(seconds=0.1, log=log)) for _ in range(2)]:
        process.join()
        assert process.exitcode == 0
    made = [line.split() for line in log.read_text().splitlines()]
    assert sorted(int(seed) for _, seed in made) == list(range(6))
    assert len({pid for pid, _ in made}) == 2
    nothing = Maker()
    assert filled(6, nothing, tmp_path / "store").sizes["run"] == 6
    assert nothing.made == []


def test_what_another_process_has_made_counts_once_a_run_ends_here(tmp_path):
    counts = []

    def beside(todo: Todo[RunConfig]) -> None:
        counts.append(todo.bar.done)
        for config in todo.waiting[1:]:
            todo.store.put(made_run(**config.as_dict()))

    fill(grid(4), maker := Maker(after=beside), store=tmp_path)
    assert maker.made == [0, 1]
    assert counts == [1, 4]


@pytest.mark.faults
def test_what_a_killed_process_held_is_taken_over(tmp_path, start):
    holder = start(1, tmp_path, Maker(seconds=600))
    wait_until(lambda: results.RunStore(tmp_path).held(grid(1)[0].key))
    maker = Maker()
    threading.Timer(1.0, holder.kill).start()
    assert filled(3, maker, tmp_path).sizes["run"] == 3
    assert sorted(maker.made) == [0, 1, 2]


def test_in_order_nothing_is_made_before_what_another_process_holds(tmp_path, start):
    start(1, tmp_path, Maker(seconds=1.0))
    wait_until(lambda: results.RunStore(tmp_path).held(grid(1)[0].key))
    seen: list[bool] = []

    def make(todo: Todo[RunConfig]) -> Iterator[xr.Dataset]:
        for config in todo.claim(in_order=True):
            seen.append(todo.store.path(grid(1)[0].key).exists())
            yield made_run(**config.as_dict())

    assert filled(3, make, tmp_path).sizes["run"] == 3
    assert seen == [True, True]
