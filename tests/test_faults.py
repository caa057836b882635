"""Kills at any moment lose no finished run and repeat none, nor does a clock; a damaged file is an error that names it.

`make test` has a few of each, `make test-faults` as many as DOLB_FAULTS says, and fifty times as many files. Full
disks, signals, two writers and read-only stores are tested where they belong, and are marked `faults` there.
"""

import fcntl
import itertools
import json
import multiprocessing
import os
import resource
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from dolb import cluster, data, results
from dolb.filtering import decisions, masks
from dolb.profiling.traces import read
from dolb.training.config import RunConfig
from dolb.training.sweep import sweep

pytestmark = pytest.mark.faults

MANY = "DOLB_FAULTS" in os.environ
KILLS = int(os.environ.get("DOLB_FAULTS", "3"))
FILES = 50 * KILLS if MANY else 60
MOST_BYTES = 2**30  # that reading a file may take
YEAR = 365 * 86400.0
SECONDS = 1.5  # from the start of a sweep to its kill, at most
FIRST = {"first-128": np.arange(1437) < 128}
SERIES = ("train_loss", "test_loss", "test_accuracy", "learning_rate")
# Processes forked from one that has imported what a sweep needs: they start at once.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["dolb.training.sweep", "pytest", "sklearn.datasets"])


def swept(count: int, store: Path | None, **how: object) -> xr.Dataset:
    runs = [RunConfig(subset="first-128", epochs=2, batch_size=32, lr=0.05, seed=seed) for seed in range(count)]
    return sweep(runs, store=store, device="cpu", subsets=FIRST, progress=False, at_once=1, **how)


@pytest.mark.timeout(3600)
def test_a_sweep_that_is_killed_again_and_again_loses_and_repeats_no_run(tmp_path):
    random, before, killed, count = np.random.default_rng(0), dict[str, bytes](), 0, 2
    while killed < KILLS:
        process = PROCESSES.Process(target=swept, args=(count, tmp_path))
        process.start()
        time.sleep(random.uniform(0, SECONDS))
        process.kill()
        process.join()
        killed += process.exitcode != 0
        now = {path.name: path.read_bytes() for path in tmp_path.glob("*.nc")}
        assert {name: now.get(name) for name in before} == before  # a run made again has other times
        before, count = now, max(count, len(now) + 2)
    ended = swept(count, tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    assert not [*tmp_path.glob("*.aside-*"), *tmp_path.rglob(".*.tmp")]
    unharmed = swept(count, None)
    for name in SERIES:
        np.testing.assert_array_equal(ended[name], unharmed[name], err_msg=name)


@pytest.mark.parametrize("years", [1, -1])
def test_a_clock_that_jumps_by_a_year_at_every_look_costs_no_run_and_no_file_in_use(tmp_path, monkeypatch, years):
    now, looks = time.time, itertools.count()
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: now() + years * YEAR * next(looks))
        ended = swept(3, tmp_path, time_limit=600)
    assert next(looks) >= 6  # the begin and the end of each run
    assert ended.attrs["unfinished"] == 0
    assert (ended["ended_at"] >= ended["started_at"]).all()
    assert (ended["seconds"] < 600).all()
    held, left = tmp_path / ".held.tmp", tmp_path / ".left.tmp"
    left.touch()
    with held.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for path in tmp_path.rglob("*"):
            os.utime(path, (now() + years * YEAR,) * 2)
        before = {path: path.read_bytes() for path in tmp_path.glob("*.nc")}
        swept(4, tmp_path, time_limit=600)
        assert {path: path.read_bytes() for path in before} == before
        assert (held.exists(), left.exists()) == (True, False)  # by who holds them, not by their age


def test_what_was_sent_last_is_known_after_the_clock_was_set_back(tmp_path):
    for number, task in enumerate(("failed", "ended"), 1):
        folder = tmp_path / "jobs" / task
        folder.mkdir(parents=True)
        record = {"slug": "warmup", "scale": "demo", "what": "runs", "on": "local", "host": socket.gethostname()}
        (folder / "sent.json").write_text(json.dumps(record | {"keys": ["0" * 16], "number": number}))
        for name in ("0_submitted.pkl", "0_0_log.out", *(["0_0_result.pkl"] if task == "ended" else [])):
            (folder / name).touch()
        os.utime(folder / "sent.json", (-number * YEAR,) * 2)
    (found,) = cluster.progress(tmp_path)
    assert found.failed == []


def damaged(content: bytes, random: np.random.Generator) -> bytes:
    """Flip, cut out, repeat or cut off some bytes."""
    for _ in range(random.integers(1, 4)):
        place = int(random.integers(0, max(1, len(content))))
        length = int(2 ** random.uniform(0, 12))
        part = content[place : place + length]
        how = random.integers(0, 4)
        new = [random.bytes(len(part)), b"", part + part, None][how]
        content = content[:place] if new is None else content[:place] + new + content[place + length :]
    return content


def note_faults(read_it: Callable[[Path], object], whole: Path, at: Path, count: int, log: Path) -> None:
    """Write a line for each file whose reading ends in anything but a result or an error that names it."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, used + MOST_BYTES))
    content, random = whole.read_bytes(), np.random.default_rng(0)
    at.mkdir()
    for number in range(count):
        path = at / f"{number}{whole.name[whole.name.index('-') :]}"
        path.write_bytes(damaged(content, random))
        try:
            read_it(path)
        except Exception as error:
            if not isinstance(error, ValueError | results.StoreError) or path.name not in str(error):
                with log.open("a") as file:
                    file.write(f"{path}: {type(error).__name__}: {error}\n")
        path.unlink()


def load_mask(path: Path) -> object:
    return masks.load_keep(path, data.load("digits"))


def load_trace(path: Path) -> object:
    return read.read([path])


@pytest.fixture(scope="module")
def wholes(tmp_path_factory, repo_root) -> dict[str, tuple[Callable, Path]]:
    """A reader, and a file as it should be, of each kind."""
    folder, digits = tmp_path_factory.mktemp("wholes"), data.load("digits")
    decided = folder / "a-decisions.json"
    decided.write_text(json.dumps(decisions.header(digits) | {"dropped": list(range(20))}))
    trace = min((repo_root / "tests/profiling/traces").glob("*/*.json*"))
    swept(1, folder / "store")
    run = next((folder / "store").glob("*.nc")).rename(folder / "a-run.nc")
    unsealed = folder / "a-foreign.nc"
    unsealed.write_bytes(run.read_bytes()[:-77])
    return {
        "run": (results.load, run),
        "unsealed run": (results.load, unsealed),
        "mask": (load_mask, masks.save_keep(folder / "a-mask.nc", np.arange(1437) > 9, digits, "mine")),
        "decisions": (load_mask, decided),
        "trace": (load_trace, shutil.copy(trace, folder / f"a-{trace.name}")),
    }


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["run", "unsealed run", "mask", "decisions", "trace"])
def test_a_damaged_file_is_an_error_that_names_it(wholes, tmp_path, kind):
    read_it, whole = wholes[kind]
    read_it(whole)
    log = tmp_path / "log"
    log.touch()
    process = PROCESSES.Process(target=note_faults, args=(read_it, whole, tmp_path / "damaged", FILES // 5, log))
    process.start()
    process.join(3000)
    assert (process.exitcode, log.read_text()) == (0, "")
