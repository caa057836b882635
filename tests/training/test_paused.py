"""A run that is stopped goes on from its last step, another time, to the same bits as one that never was."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch

from dolb import data, results
from dolb.data import ImageData
from dolb.training import engine
from dolb.training.config import RunConfig
from dolb.training.run import PausedRuns
from dolb.training.sweep import sweep

CPU = torch.device("cpu")
SERIES = ("train_loss", "test_loss", "test_accuracy", "learning_rate")


@pytest.fixture(scope="module")
def digits() -> ImageData:
    return data.load("digits").subset(np.arange(1437) < 200, "first-200")


def config(**changes) -> RunConfig:
    return RunConfig(**{"subset": "first-200", "epochs": 3, "batch_size": 64, "lr": 0.05, "momentum": 0.9} | changes)


def train(configs: list[RunConfig], digits: ImageData, folder: Path, turns: float, **options) -> dict:
    """Train for so many turns; a turn on a CPU is one step."""
    asked = count()
    paused = PausedRuns(folder)
    ended = engine.train_many(configs, digits, CPU, paused=paused, stop=lambda: next(asked) > turns, **options)
    return {run.key: ds for run, ds in ended if ds is not None}


def assert_same_bits(one, other) -> None:
    for name in SERIES:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.parametrize("turns", [1, 2, 4, 5, 6, 9, 14])  # within an epoch, at its end, and at the run's
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_stopped_run_goes_on_to_the_same_bits(digits, tmp_path, turns, momentum):
    run = config(momentum=momentum, bn_workers=2)
    assert not train([run], digits, tmp_path, turns)
    assert [path.stem for path in tmp_path.iterdir()] == [run.key]
    ended = train([run], digits, tmp_path, np.inf)
    assert_same_bits(ended[run.key], engine.train(run, digits))


def test_runs_stopped_together_and_again_all_go_on(digits, tmp_path):
    runs = [config(), config(batch_size=32, lr=0.1), config(arch="smallnet-8", weight_decay=0.1)]
    ended: dict = {}
    for _ in range(60):
        ended |= train([run for run in runs if run.key not in ended], digits, tmp_path, turns=11, at_once=3)
        if len(ended) == 3:
            break
    for run in runs:
        assert_same_bits(ended[run.key], engine.train(run, digits))


def test_a_run_that_goes_on_reports_all_its_seconds_and_company(digits, tmp_path):
    train([config()], digits, tmp_path, turns=9)
    paused = torch.load(next(tmp_path.iterdir()), weights_only=True)
    ended = train([config()], digits, tmp_path, np.inf)[config().key]
    assert ended["seconds"].item() > paused["train_seconds"] + paused["eval_seconds"] > 0
    assert ended["concurrent_runs"].item() == 1


def test_a_run_that_goes_on_keeps_the_parts_of_the_device_that_it_had(digits, tmp_path):
    pair = [config(), config(seed=1)]
    train(pair, digits, tmp_path, turns=2 * 9, at_once=2)
    before = torch.load(PausedRuns(tmp_path).path(config().key), weights_only=True)["parts"]
    assert before == [0.5] * len(before) != []
    alone = train(pair[:1], digits, tmp_path, np.inf)[config().key]
    assert alone["device_share"].item() == pytest.approx((sum(before) + 3 - len(before)) / 3)


def test_a_run_paused_before_something_was_recorded_begins_anew(digits, tmp_path, capsys):
    train([config()], digits, tmp_path, turns=9)
    path = PausedRuns(tmp_path).path(config().key)
    paused = torch.load(path, weights_only=True)
    del paused["parts"]
    torch.save(paused, path)
    ended = train([config()], digits, tmp_path, np.inf)
    assert_same_bits(ended[config().key], engine.train(config(), digits))
    assert "cannot be read back ('parts'); the run begins anew" in capsys.readouterr().out


def test_a_run_that_diverged_as_it_was_stopped_ends_like_one_that_was_not(digits, tmp_path):
    wild = config(lr=1e30)
    for _ in range(20):
        if ended := train([wild], digits, tmp_path, turns=3):
            break
    assert_same_bits(ended[wild.key], engine.train(wild, digits))
    assert ended[wild.key]["diverged"].item()


@pytest.mark.parametrize("change", ["torch_version", "device", "engine", "data_fingerprint", "commit"])
def test_a_run_paused_under_anything_else_begins_anew_with_a_notice(digits, tmp_path, capsys, change):
    train([config()], digits, tmp_path, turns=9)
    path = PausedRuns(tmp_path).path(config().key)
    paused = torch.load(path, weights_only=True)
    paused["provenance"][change] = "another"
    paused["tensors"] = [torch.full_like(tensor, 7) for tensor in paused["tensors"]]
    torch.save(paused, path)
    ended = train([config()], digits, tmp_path, np.inf)
    assert_same_bits(ended[config().key], engine.train(config(), digits))
    assert "paused under other code, torch, device or data; the run begins anew" in capsys.readouterr().out


@pytest.mark.parametrize("rest", [0, 10, 5000])
def test_a_damaged_file_costs_the_run_its_epochs_and_nothing_more(digits, tmp_path, capsys, rest):
    train([config()], digits, tmp_path, turns=9)
    path = PausedRuns(tmp_path).path(config().key)
    path.write_bytes(path.read_bytes()[:rest])
    ended = train([config()], digits, tmp_path, np.inf)
    assert_same_bits(ended[config().key], engine.train(config(), digits))
    assert "cannot be read back" in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_costs_a_notice(digits, tmp_path, capsys):
    (tmp_path / "file").touch()
    train([config()], digits, tmp_path / "file" / "paused", turns=9)
    assert "cannot be kept" in capsys.readouterr().out


def test_a_file_of_the_wrong_content_is_no_run(digits, tmp_path, capsys):
    torch.save({"epoch": 3}, PausedRuns(tmp_path).path(config().key))
    ended = train([config()], digits, tmp_path, np.inf)
    assert_same_bits(ended[config().key], engine.train(config(), digits))
    assert "cannot be read back" in capsys.readouterr().out


# Of a sweep

LONG = config(epochs=10**4, subset="full")


def test_a_time_limit_keeps_what_is_unfinished_and_the_end_leaves_nothing_behind(tmp_path):
    runs, paused = [replace(LONG, epochs=6, seed=seed) for seed in range(3)], 0
    for _ in range(100):
        with contextlib.suppress(TimeoutError):
            ended = sweep(runs, store=tmp_path, device="cpu", at_once=1, time_limit=0.5, progress=False)
            if not ended.attrs["unfinished"]:
                break
        paused += len(list(tmp_path.glob("paused/*.pt")))
    assert ended.sizes["run"] == 3
    assert paused > 0
    assert not list(tmp_path.glob("paused/*"))


SWEEP = """
import sys
from dolb.training.config import RunConfig
from dolb.training.sweep import sweep
print("ready", flush=True)
sweep([RunConfig.from_dict(eval(sys.argv[2]))], store=sys.argv[1], device="cpu", at_once=1, progress=False)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_sweep_once_its_runs_are_kept(tmp_path, number):
    command = [sys.executable, "-c", SWEEP, str(tmp_path), repr(LONG.as_dict())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        process.stdout.readline()
        end = time.monotonic() + 60
        while not (tmp_path / "locks" / f"{LONG.key}.lock").exists() and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(1.0)
        os.kill(process.pid, number)
        _, said = process.communicate(timeout=60)
    assert (process.returncode == -number) or (number == signal.SIGINT and said.endswith("KeyboardInterrupt\n")), said
    paused = torch.load(tmp_path / "paused" / f"{LONG.key}.pt", weights_only=True)
    assert paused["launched"] + paused["epoch"] > 0
    assert not results.RunStore(tmp_path).keys()


def test_a_signal_that_is_ignored_stays_ignored(tmp_path):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
        timer.start()
        ended = sweep([replace(LONG, epochs=8)], store=tmp_path, device="cpu", at_once=1, progress=False)
        assert timer.finished.is_set()  # it came while the sweep ran
        timer.join()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.attrs["unfinished"] == 0


def test_a_sweep_in_a_thread_leaves_signals_alone(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    done: list = []
    short = replace(LONG, epochs=1)
    thread = threading.Thread(
        target=lambda: done.append(sweep([short], store=tmp_path, device="cpu", at_once=1, progress=False))
    )
    thread.start()
    thread.join()
    assert done[0].sizes["run"] == 1
    assert signal.getsignal(signal.SIGTERM) is before
