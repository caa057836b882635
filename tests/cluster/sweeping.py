"""Sweeps of a few small runs, for tests that send them elsewhere, and tests that run at once."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from agreement import same_bits
from typer.testing import CliRunner
from waiting import send_signal

from dolb import results
from dolb.cli import app

GRID = ["batch-size", "--archs", "smallnet-4", "--batch-sizes", "256", "--lrs", "0.1", "--device", "cpu"]
SHORT = [*GRID, "--epochs", "2"]  # four runs, of different numbers of batch-norm workers
LONG = [*GRID, "--part", "curve", "--seeds", "0", "--epochs", "30"]
POLL_SECONDS, PATIENCE_SECONDS = 1.0, 300

Steps = Iterator[Callable[[], object]]
SCENARIOS: dict[str, Callable[..., Steps]] = {}


def scenario(steps: Callable[..., Steps]) -> Callable:
    """Make a test of steps that yield what they wait for; all such run at once, as most of their time is waiting."""
    SCENARIOS[steps.__name__] = steps

    def test(outcomes: Mapping[str, BaseException | None]) -> None:
        if error := outcomes[steps.__name__]:
            raise error

    test.__name__, test.__doc__ = steps.__name__, steps.__doc__
    return pytest.mark.timeout(900)(pytest.mark.slow(test))


def play(started: Mapping[str, Steps]) -> dict[str, BaseException | None]:
    """Take all scenarios to their ends, each on as soon as what it waits for is so, and return what was wrong."""
    waits: dict[str, tuple[Callable[[], object], float]] = dict.fromkeys(started, (lambda: True, time.monotonic() + 1))
    found: dict[str, Any] = {}
    while waits:
        for name, (condition, deadline) in list(waits.items()):
            try:
                if condition():
                    waits[name] = next(started[name]), time.monotonic() + PATIENCE_SECONDS
                elif time.monotonic() > deadline:
                    line = started[name].gi_frame.f_lineno
                    raise AssertionError(f"{name} waited for more than {PATIENCE_SECONDS} s in line {line}")
            except StopIteration:
                found[name] = None
            except BaseException as error:
                found[name] = error
            if name in found:
                del waits[name]
        time.sleep(POLL_SECONDS)
    return found


def dolb(*arguments: object, code: int | None = 0) -> str:
    outcome = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert code is None or outcome.exit_code == code, outcome.output
    return " ".join(outcome.output.split())


def plain_sweep(arguments: list[str], store: Path) -> Path:
    dolb("sweep", *arguments, "--store", store)
    return store


def log(store: Path) -> str:
    return "\n".join(path.read_text() for path in store.glob("jobs/*/*_log.out"))


def sweeps(store: Path) -> list[int]:
    """Return the processes that fill a store."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().decode().split("\0")
            if "dolb.cli" in words and str(store) in words and "--on" not in words:
                found.append(int(path.parent.name))
    return found


def in_mid_run(store: Path) -> Callable[[], bool]:
    """Tell whether a task has ended an epoch, by the progress bar in its log; it is then held there, by SIGSTOP."""
    return at_once(lambda: "rate 0.1" in log(store), lambda: send_signal(signal.SIGSTOP, *sweeps(store)))


def at_once(condition: Callable[[], object], act: Callable[[], object]) -> Callable[[], bool]:
    """Act as soon as something is so, though other scenarios are at work, and tell whether that is done."""
    done = threading.Event()

    def watch() -> None:
        while not condition():
            time.sleep(0.05)
        act()
        done.set()

    threading.Thread(target=watch, daemon=True).start()
    return done.is_set


def let_go(store: Path) -> None:
    send_signal(signal.SIGCONT, *sweeps(store))


def made(store: Path, count: int) -> Callable[[], bool]:
    """Tell whether so many runs are made and the tasks have ended, as `dolb status` says too."""
    return lambda: len(list(store.glob("*.nc"))) == count and ended(store)()


def ended(store: Path) -> Callable[[], bool]:
    """Tell whether no task waits or runs, though runs may be left."""
    return lambda: " 0 waiting, 0 running" in dolb("status", "--store", store, code=None)


def files(store: Path) -> set[tuple[str, int, int]]:
    """Return the finished runs with what tells a file from another of that name."""
    return {(path.name, path.stat().st_ino, path.stat().st_mtime_ns) for path in store.glob("*.nc")}


def assert_same_bits(store: Path, other: Path) -> None:
    """Fail unless each finished run of a store is as in another, and nothing unfinished or broken is left."""
    keys = results.RunStore(store).keys()
    assert keys
    assert not list(store.glob("*.aside-*"))
    assert not list(store.glob("paused/*"))
    for key in keys:
        one, two = (results.RunStore(folder).get(key) for folder in (store, other))
        assert same_bits(one, two), key
