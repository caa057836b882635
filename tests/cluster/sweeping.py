"""Sweeps of a few small runs, for tests that send them elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from typer.testing import CliRunner
from waiting import wait_until

from dolb import results
from dolb.cli import app

GRID = ["batch-size", "--archs", "smallnet-4", "--batch-sizes", "256", "--lrs", "0.1", "--device", "cpu"]
SHORT = [*GRID, "--epochs", "2"]  # four runs, of different numbers of batch-norm workers
LONG = [*GRID, "--part", "curve", "--seeds", "0,1", "--epochs", "30"]


def dolb(*arguments: object, code: int | None = 0) -> str:
    outcome = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert code is None or outcome.exit_code == code, outcome.output
    return " ".join(outcome.output.split())


def plain_sweep(arguments: list[str], store: Path) -> Path:
    dolb("sweep", *arguments, "--store", store)
    return store


def wait_for_runs(store: Path, count: int) -> None:
    """Return once so many runs are made and the tasks have ended, as `dolb status` says too."""
    wait_until(lambda: len(list(store.glob("*.nc"))) == count, 200, f"{count} runs")
    wait_for_end(store)
    dolb("status", "--store", store)


def wait_for_training(store: Path, tasks: int) -> None:
    """Return once so many tasks have ended an epoch, by the progress bars in their logs."""
    logs = "jobs/*/*_log.out"
    wait_until(lambda: sum("rate 0.1" in path.read_text() for path in store.glob(logs)) >= tasks, 120, "an epoch")


def wait_for_end(store: Path) -> None:
    """Return once no task waits or runs, though runs may be left."""
    wait_until(
        lambda: " 0 waiting, 0 running" in dolb("status", "--store", store, code=None), 90, "the end of the tasks"
    )


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
        for name in ("train_loss", "test_loss", "test_accuracy", "learning_rate"):
            np.testing.assert_array_equal(one[name], two[name], err_msg=name)
