"""The first updates of a run are those that the engine makes, recorded one by one and found again in a store."""

from itertools import count

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from typer.testing import CliRunner

from dolb import models, recipes, results
from dolb.augment import DeviceImages, default_augment, draw_epoch
from dolb.cli import app
from dolb.training import engine, first_updates
from dolb.training.config import RunConfig, StartConfig
from dolb.training.run import PausedRuns

CPU = torch.device("cpu")
MASK = np.arange(1437) < 200  # of the 1437 training digits: three batches of 64 and one of 8
SIZES = np.array([64, 64, 64, 8])


def config(**changes) -> StartConfig:
    values = {"subset": "first-200", "epochs": 4, "lr": 0.05, "warmup_epochs": 2.0, "recorded_epochs": 2}
    return StartConfig(**values | changes)


def recorded(asked: StartConfig, digits):
    run = first_updates.RecordedRun(asked, digits, *engine.on_device(digits, CPU), CPU, "eager")
    list(run.steps())
    return run.result()


@pytest.mark.parametrize("changes", [{}, {"optimizer": "lars", "lr": 5.0}, {"weight_decay": 0.1}], ids=str)
def test_losses_and_rates_are_those_of_the_run_as_the_engine_trains_it(digits, changes):
    asked = config(**changes)
    ds = results.validate(recorded(asked, digits))
    whole = engine.train(RunConfig.from_dict(asked.as_dict()), digits)
    by_epoch = (ds["update_loss"].values.reshape(2, 4) * SIZES).sum(1) / 200
    np.testing.assert_allclose(by_epoch, whole["train_loss"].values[0, :2], rtol=1e-5)
    np.testing.assert_allclose(ds["update_rate"].values[0], asked.lr * np.arange(1, 9) / 8, rtol=1e-6)  # warmup
    assert ds["update"].values.tolist() == list(range(1, 9))


def test_the_first_gradient_is_that_of_the_loss_of_the_first_batch(digits):
    asked = config(batch_size=200, weight_decay=0.5)
    ds = recorded(asked, digits)
    augment, pad = default_augment("digits")
    draw = draw_epoch(200, asked.seed, 0, augment, pad)
    images = DeviceImages(digits.train_images, digits.train_labels, digits.mean, digits.std, "cpu", pad)
    order, dy, dx, flip = (torch.from_numpy(values) for values in (draw.order, draw.dy, draw.dx, draw.flip))
    network = models.initialize(asked.arch, 10, 1, 1, asked.seed)
    loss = F.cross_entropy(network(images.batch(order, dy, dx, flip).contiguous()), images.labels[order])
    loss.backward()
    length = torch.cat([p.grad.flatten() for p in network.parameters()]).norm()
    assert ds["update_loss"].values[0, 0] == pytest.approx(loss.item(), rel=1e-5)
    assert ds["update_gradient_norm"].values[0, 0] == pytest.approx(length.item(), rel=1e-4)


def test_a_run_that_diverges_is_recorded_to_its_end(digits):
    ds = recorded(config(lr=1e30, warmup_epochs=0.0), digits)
    assert np.isfinite(ds["update_loss"].values[0, 0])
    assert not np.isfinite(ds["update_loss"].values[0, -1])


def test_a_store_is_filled_once_and_starts_of_different_lengths_stand_in_one_dataset(tmp_path, monkeypatch):
    asked = [config(), config(warmup_epochs=0.0, recorded_epochs=1)]
    how = {"store": tmp_path, "device": "cpu", "subsets": {"first-200": MASK}, "at_once": 1, "progress": False}
    ds = results.validate(first_updates.record_all(asked, **how))
    assert ds["key"].values.tolist() == [one.key for one in asked]
    assert np.isfinite(ds["update_loss"].values).sum(1).tolist() == [8, 4]
    monkeypatch.delattr(first_updates.RecordedRun, "_noted")  # nothing is recorded twice
    np.testing.assert_array_equal(first_updates.record_all(asked, **how)["update_loss"], ds["update_loss"])


def test_a_start_that_was_stopped_goes_on_with_what_was_noted(digits, tmp_path):
    how, asked = {"make": first_updates.RecordedRun, "paused": PausedRuns(tmp_path)}, count()
    assert [ds for _, ds in engine.train_many([config()], digits, CPU, stop=lambda: next(asked) > 7, **how)] == [None]
    ((_, ds),) = engine.train_many([config()], digits, CPU, **how)
    np.testing.assert_array_equal(ds["update_loss"], recorded(config(), digits)["update_loss"])


def test_the_command_records_what_a_recipe_asks_for(tmp_path, monkeypatch):
    asked = [StartConfig(experiment="start", epochs=2, batch_size=512)]
    monkeypatch.setitem(recipes.RECIPES, "start", lambda scale: asked)
    how = ["sweep", "start", "--scale", "demo", "--device", "cpu", "--store", str(tmp_path), "--at-once", "1"]
    assert "1 runs are in" in CliRunner().invoke(app, how, catch_exceptions=False).output
    assert results.RunStore(tmp_path).get(asked[0].key)["update_loss"].shape == (1, 3)


def test_more_epochs_than_a_run_has_are_refused():
    with pytest.raises(ValueError, match=r"recorded_epochs \(5\) must not exceed epochs \(4\)"):
        config(recorded_epochs=5)
