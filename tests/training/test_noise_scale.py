"""The noise of the gradient is that of the training loss, estimated without bias, and measuring leaves no trace."""

from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from agreement import SERIES
from torch.nn import functional as F

from dolb import results
from dolb.data import ImageData
from dolb.training import engine, noise_scale
from dolb.training.config import NoiseScaleConfig, RunConfig
from dolb.training.run import PausedRuns

CPU = torch.device("cpu")
MASK = np.arange(1437) < 200
GROUPS = 8
NOISE = ("gradient_square", "gradient_variance")


def config(**changes) -> NoiseScaleConfig:
    values = {"subset": "first-200", "epochs": 3, "lr": 0.05, "measured_after": "1,3", "small_batch": 16}
    return NoiseScaleConfig(**values | {"measured_batches": 16} | changes)


def run_of(asked: NoiseScaleConfig, digits: ImageData, device: torch.device = CPU) -> noise_scale.MeasuredRun:
    return noise_scale.MeasuredRun(asked, digits, *engine.on_device(digits, device), device, "eager")


def train(configs: list[RunConfig], digits: ImageData, folder: Path, turns: float = np.inf) -> dict:
    asked, paused = count(), PausedRuns(folder)
    ended = engine.train_many(
        configs, digits, CPU, make=noise_scale.MeasuredRun, paused=paused, stop=lambda: next(asked) > turns
    )
    return {run.key: ds for run, ds in ended if ds is not None}


def test_estimates_have_no_bias_and_each_but_the_first_leaves_one_group_out():
    batches = torch.randn(GROUPS, 3, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    groups = [[[one[:20], one[20:]] for one in group] for group in batches]
    found = noise_scale.estimates(noise_scale.lengths_of(groups).numpy(), 10, 3)
    for place, left_out in enumerate([None, *range(GROUPS)]):
        rest = torch.cat([group for k, group in enumerate(batches) if k != left_out]).numpy()
        pairs = rest @ rest.T
        square = (pairs.sum() - np.trace(pairs)) / (len(rest) * (len(rest) - 1))  # mean product of two different ones
        assert found[0][place] == pytest.approx(square)
        assert found[1][place] == pytest.approx(10 * rest.var(axis=0, ddof=1).sum())


def test_the_gradient_of_a_large_batch_is_the_mean_of_those_of_its_small_ones(digits):
    """A network whose batch norm has a share of the batch for each small batch has the gradient of all of them."""
    asked = config(bn_workers=16, batch_size=200)
    run = run_of(asked, digits)
    drawn: list[tuple[torch.Tensor, ...]] = []
    gradient = run.gradient
    run.gradient = lambda program, *batch: drawn.append(batch) or gradient(program, *batch)
    lengths = noise_scale.lengths_of(run.gradients(1)).numpy()
    index, *crops = (torch.cat(parts) for parts in zip(*drawn, strict=True))
    assert len(index) == 16 * 16
    loss = F.cross_entropy(run.network(run.train.batch(index, *crops).contiguous()), run.train.labels[index])
    whole = torch.autograd.grad(loss, list(run.network.parameters()))
    large = lengths[:, 1:].sum() / GROUPS**2
    assert large == pytest.approx(sum(part.double().square().sum().item() for part in whole), rel=1e-4)
    assert lengths[:, 0].mean() > 2 * large  # of sixteen gradients whose noise is more than their mean


@pytest.mark.parametrize("changes", [{}, {"bn_workers": 4, "weight_decay": 0.1}], ids=str)
def test_training_has_the_same_bits_as_without_measuring(digits, tmp_path, changes):
    asked = config(**changes)
    before = torch.random.get_rng_state()
    ds = results.validate(train([asked], digits, tmp_path)[asked.key])
    assert torch.equal(torch.random.get_rng_state(), before)
    plain = engine.train(RunConfig.from_dict(asked.as_dict()), digits)
    for name in SERIES:
        np.testing.assert_array_equal(ds[name], plain[name], err_msg=name)
    assert ds["phase_epoch"].values.tolist() == [[1, 3]]
    assert (ds["gradient_variance"] > 0).all()
    assert ds["small_batch"].item() == 16


def test_a_run_that_was_stopped_has_what_was_measured_before(digits, tmp_path):
    asked = config()
    assert not train([asked], digits, tmp_path / "stopped", turns=9)  # in the third epoch of four updates
    went_on = train([asked], digits, tmp_path / "stopped")[asked.key]
    whole = train([asked], digits, tmp_path / "whole")[asked.key]
    for name in (*SERIES, *NOISE):
        np.testing.assert_array_equal(went_on[name], whole[name], err_msg=name)


def test_a_run_that_diverges_has_no_noise_after_that(digits, tmp_path):
    asked = config(lr=1e30)
    ds = results.validate(train([asked], digits, tmp_path)[asked.key])
    assert ds["diverged"].item()
    assert np.isnan(ds["gradient_square"].values[0, -1]).all()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"measured_after": "1,4"}, "rising epochs from 1 to 3"),
        ({"measured_after": "early"}, "rising epochs"),
        ({"measured_batches": 20}, "multiple of 8"),
        ({"small_batch": 1}, "small_batch"),
    ],
    ids=str,
)
def test_what_cannot_be_measured_is_refused(changes, says):
    with pytest.raises(ValueError, match=says):
        config(**changes)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("step", ["eager", "graph", "fused"])
def test_on_a_gpu_runs_are_measured_beside_each_other_and_train_as_without(digits, step):
    gpu = torch.device("cuda")
    runs = [config(seed=seed, precision="bf16") for seed in range(2)]
    ended = dict(engine.train_many(runs, digits, gpu, make=noise_scale.MeasuredRun, at_once=2, step=step))
    for run in runs:
        plain = engine.train(RunConfig.from_dict(run.as_dict()), digits, "cuda", step=step)
        np.testing.assert_array_equal(ended[run]["train_loss"], plain["train_loss"])
        assert (ended[run]["gradient_variance"] > 0).all()
    both = run_of(config(), digits), run_of(config(), digits, gpu)
    here, other = (noise_scale.lengths_of(one.gradients(1)).cpu() for one in both)
    np.testing.assert_allclose(here, other, rtol=0.02, atol=0.02 * here.abs().max().item())
