"""The 3-D generator trained by the engine, to a target loss, as the shares of several workers."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from dolb import data, models, results
from dolb.training.config import RunConfig
from dolb.training.engine import train
from dolb.training.sweep import sweep

RUN = RunConfig(data="nodules-8", arch="volumenet", subset="share-0.2", batch_size=32, lr=2.0, epochs=3)


@pytest.fixture(scope="module")
def few():
    made = data.load("nodules-8")
    return made.subset(np.arange(888) % 5 == 0, "share-0.2")


def test_the_generator_learns_to_its_target_and_leaves_a_picture_but_no_accuracy(few):
    ds = results.validate(train(RUN, few))
    losses = ds["test_loss"].to_numpy()[0]
    assert losses[-1] < losses[0]
    assert np.isnan(ds["test_accuracy"]).all()
    assert len(ds["picture"].item()) > 100
    ended = train(replace(RUN, target_loss=float(losses[1])), few)
    assert np.isfinite(ended["test_loss"].to_numpy()[0]).tolist() == [True, True, False]
    assert not ended["diverged"].item()


def test_its_loss_is_that_of_keras():
    made, true = torch.tensor([0.0, 0.5, 1.0]), torch.tensor([0.0, 1.0, 0.5])
    expected = np.mean([(math.log(1 + a) - math.log(1 + b)) ** 2 for a, b in zip(made, true, strict=True)])
    assert models.msle(made, true).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("workers", [4, 32])
def test_a_step_of_several_workers_averages_the_gradients_of_their_own_batch_norm(workers):
    torch.manual_seed(0)
    volumes = torch.rand(32, 8, 8, 8)
    whole = models.initialize("volumenet", 2, 8, workers, seed=3)
    models.msle(whole(volumes), volumes).backward()
    worker = models.initialize("volumenet", 2, 8, 1, seed=3)
    for share in volumes.chunk(workers):
        (models.msle(worker(share), share) / workers).backward()
    for one, other in zip(whole.parameters(), worker.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, atol=1e-5)


def test_runs_of_volumes_and_of_images_are_swept_and_merged_together(tmp_path):
    images = RunConfig(data="digits", subset="share-0.1", epochs=1)
    ds = sweep([replace(RUN, epochs=1), images], store=tmp_path, device="cpu", at_once=1, progress=False)
    assert [bool(picture) for picture in ds["picture"].to_numpy()] == [True, False]
    results.save(ds, tmp_path / "both.nc")
    assert results.load(tmp_path / "both.nc")["target_loss"].to_numpy().tolist() == [0.0, 0.0]


def test_volumes_of_other_sides_are_refused():
    with pytest.raises(ValueError, match="side 12"):
        models.build("volumenet", 2, 12)
