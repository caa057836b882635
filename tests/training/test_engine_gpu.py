"""What the captured, packed engine promises on a GPU; `make test-gpu` runs these."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dolb.data import ImageData
from dolb.training import engine
from dolb.training.config import RunConfig

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

FP32_TOLERANCE = 2e-4  # relative, of the loss after 3 epochs: sums run in another order, and training amplifies it
FUSED_TOLERANCE = 1e-3  # relative, of the mean loss of the first two steps


@pytest.fixture(scope="module")
def images() -> ImageData:
    """Random 32x32 images whose class is a brightness, so that there is something to learn."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 1200)
    pixels = np.clip(rng.integers(0, 60, (1200, 32, 32, 3)) + 19 * labels[:, None, None, None], 0, 255).astype("uint8")
    return ImageData(
        name="bright", train_images=pixels[:1000], train_labels=labels[:1000], test_images=pixels[1000:],
        test_labels=labels[1000:], classes=tuple("0123456789"), fingerprint="sha256:" + "0" * 64,
        mean=(0.5,) * 3, std=(0.25,) * 3,
    )  # fmt: skip


def config(**changes) -> RunConfig:
    return RunConfig(**{"data": "bright", "arch": "resnet18", "batch_size": 128, "lr": 0.02, "epochs": 3} | changes)


@pytest.mark.parametrize("bn_workers", [1, 8])
def test_captured_steps_give_the_losses_of_eager_steps(images, bn_workers):
    captured = engine.train(config(bn_workers=bn_workers), images, "cuda", step="graph")
    eager = engine.train(config(bn_workers=bn_workers), images, "cuda", step="eager")
    assert captured["engine"].item() == "graph"
    assert eager["engine"].item() == "eager"
    np.testing.assert_allclose(captured["train_loss"], eager["train_loss"], rtol=FP32_TOLERANCE)
    np.testing.assert_allclose(captured["test_loss"], eager["test_loss"], rtol=20 * FP32_TOLERANCE)


@pytest.mark.parametrize("bn_workers", [1, 8])
def test_fused_steps_give_the_losses_of_eager_steps(images, bn_workers, monkeypatch):
    """Two steps: other kernels round otherwise, and on these images training amplifies 1e-7 to 1e-2 in eight steps."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    same = config(bn_workers=bn_workers, epochs=1, batch_size=500)
    fused, eager = (engine.train(same, images, "cuda", step=step) for step in ("fused", "eager"))
    assert fused["engine"].item() == "fused"
    np.testing.assert_allclose(fused["train_loss"], eager["train_loss"], rtol=FUSED_TOLERANCE)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_packed_runs_equal_the_same_runs_alone(images, precision):
    configs = [config(lr=lr, batch_size=size, precision=precision) for lr in (0.01, 0.02) for size in (96, 128)]
    alone = {c.key: engine.train(c, images, "cuda") for c in configs}
    packed = dict(engine.train_many(configs, images, torch.device("cuda"), at_once=3))
    assert len(packed) == 4
    for run, ds in packed.items():
        for name in ("train_loss", "test_loss", "test_accuracy", "learning_rate"):
            np.testing.assert_array_equal(ds[name], alone[run.key][name], err_msg=name)


def test_the_gpu_follows_the_cpu(images, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    cpu, gpu = (engine.train(config(epochs=1, batch_size=500), images, device) for device in ("cpu", "cuda"))
    np.testing.assert_allclose(gpu["train_loss"], cpu["train_loss"], rtol=FUSED_TOLERANCE)


def test_a_diverging_run_ends_as_a_result_beside_a_healthy_one(images):
    configs = [config(lr=1e12), config(lr=0.02)]
    packed = dict(engine.train_many(configs, images, torch.device("cuda"), at_once=2))
    wild, healthy = (packed[c] for c in configs)
    assert wild["diverged"].item()
    assert not healthy["diverged"].item()
    assert np.isfinite(healthy["train_loss"]).all()


def test_bf16_computes_the_loss_of_fp32_up_to_rounding(images):
    """With one batch an epoch, the first epoch's loss is that of the initial weights, before trajectories part."""
    fp32, graph, fused = (
        engine.train(config(epochs=1, batch_size=1000, precision=precision), images, "cuda", step=step)["train_loss"]
        for precision, step in (("fp32", "eager"), ("bf16", "graph"), ("bf16", "fused"))
    )
    assert fp32.item() != graph.item()
    assert graph.item() == pytest.approx(fp32.item(), rel=0.02)
    assert fused.item() == pytest.approx(fp32.item(), rel=0.02)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_run_learns_in_either_precision(images, precision):
    """Losses on so few images jump from epoch to epoch, so the best epoch counts, against knowing nothing."""
    ds = engine.train(config(epochs=8, lr=0.005, augment="none", precision=precision), images, "cuda")
    assert ds["train_loss"].min().item() < np.log(images.num_classes) / 2


def test_peak_memory_of_a_run_is_recorded(images):
    small, large = (engine.train(config(batch_size=b, epochs=1), images, "cuda") for b in (64, 512))
    assert 0 < small["peak_memory_bytes"].item() < large["peak_memory_bytes"].item()
