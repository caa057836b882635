"""A run that is stopped goes on from its last step, another time, to the same bits as one that never was."""

from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from agreement import same_bits

from dolb.data import ImageData
from dolb.training import engine
from dolb.training.config import RunConfig
from dolb.training.run import PausedRuns

CPU = torch.device("cpu")


def config(**changes) -> RunConfig:
    return RunConfig(**{"subset": "first-200", "epochs": 3, "batch_size": 64, "lr": 0.05, "momentum": 0.9} | changes)


def train(configs: list[RunConfig], digits: ImageData, folder: Path, turns: float, **options) -> dict:
    """Train for so many turns; a turn on a CPU is one step."""
    asked = count()
    paused = PausedRuns(folder)
    ended = engine.train_many(configs, digits, CPU, paused=paused, stop=lambda: next(asked) > turns, **options)
    return {run.key: ds for run, ds in ended if ds is not None}


# Within an epoch, at its end, and at the run's; with whatever state an optimizer keeps.
@pytest.mark.parametrize(
    ("turns", "changes"),
    [
        (1, {"optimizer": "nesterov"}),
        (4, {"momentum": 0.0}),
        (5, {"weight_decay": 0.1, "weight_decay_on": "filters"}),
        (7, {"optimizer": "lars", "lr": 5.0, "weight_decay": 1e-3}),
        (9, {"optimizer": "lamb", "lr": 0.02, "weight_decay": 1e-2}),
        (14, {"bn_workers": 2}),
    ],
    ids=str,
)
def test_a_stopped_run_goes_on_to_the_same_bits_and_learns(digits, tmp_path, turns, changes):
    run = config(**changes)
    assert not train([run], digits, tmp_path, turns)
    assert [path.stem for path in tmp_path.iterdir()] == [run.key]
    ended = train([run], digits, tmp_path, np.inf)[run.key]
    assert same_bits(ended, engine.train(run, digits))
    losses = ended["train_loss"].values[0]
    assert losses[-1] < losses[0]


def test_runs_stopped_together_and_again_all_go_on(digits, tmp_path):
    runs = [config(), config(batch_size=32, lr=0.1), config(arch="smallnet-8", weight_decay=0.1)]
    ended: dict = {}
    for _ in range(60):
        ended |= train([run for run in runs if run.key not in ended], digits, tmp_path, turns=11, at_once=3)
        if len(ended) == 3:
            break
    for run in runs:
        assert same_bits(ended[run.key], engine.train(run, digits))


def test_a_run_that_goes_on_reports_its_beginning_all_its_seconds_and_company(digits, tmp_path):
    train([config()], digits, tmp_path, turns=9)
    paused = torch.load(next(tmp_path.iterdir()), weights_only=True)
    ended = train([config()], digits, tmp_path, np.inf)[config().key]
    assert ended["seconds"].item() > paused["train_seconds"] + paused["eval_seconds"] > 0
    assert ended["concurrent_runs"].item() == 1
    assert ended["started_at"].item() == paused["started_at"] < ended["ended_at"].item()


def test_a_run_that_diverged_as_it_was_stopped_ends_like_one_that_was_not(digits, tmp_path):
    wild = config(lr=1e30)
    for _ in range(20):
        if ended := train([wild], digits, tmp_path, turns=3):
            break
    assert same_bits(ended[wild.key], engine.train(wild, digits))
    assert ended[wild.key]["diverged"].item()


def test_a_run_paused_under_anything_else_begins_anew_with_a_notice(digits, tmp_path, capsys):
    train([config()], digits, tmp_path, turns=9)
    path = PausedRuns(tmp_path).path(config().key)
    paused = torch.load(path, weights_only=True)
    paused["provenance"]["commit"] = "another"
    paused["tensors"] = [torch.full_like(tensor, 7) for tensor in paused["tensors"]]
    torch.save(paused, path)
    ended = train([config()], digits, tmp_path, np.inf)
    assert same_bits(ended[config().key], engine.train(config(), digits))
    assert "paused under other code, torch, device or data; the run begins anew" in capsys.readouterr().out


@pytest.mark.faults
def test_a_damaged_file_costs_the_run_its_epochs_and_nothing_more(digits, tmp_path, capsys):
    train([config()], digits, tmp_path, turns=9)
    path = PausedRuns(tmp_path).path(config().key)
    path.write_bytes(path.read_bytes()[:5000])
    ended = train([config()], digits, tmp_path, np.inf)
    assert same_bits(ended[config().key], engine.train(config(), digits))
    assert "cannot be read back" in capsys.readouterr().out


@pytest.mark.faults
def test_a_folder_that_cannot_be_written_costs_a_notice(digits, tmp_path, capsys):
    (tmp_path / "file").touch()
    train([config()], digits, tmp_path / "file" / "paused", turns=9)
    assert "cannot be kept" in capsys.readouterr().out
