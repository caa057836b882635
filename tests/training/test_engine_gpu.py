"""What the captured, packed engine promises on a GPU; `make test-gpu` runs these."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import xarray as xr
from agreement import same_bits

from dolb.data import ImageData
from dolb.training import engine, packing
from dolb.training.config import RunConfig
from dolb.training.device import DeviceMemoryError, memory_in_use, release_memory
from dolb.training.run import PausedRuns

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

CUDA = torch.device("cuda")
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
def test_captured_and_fused_steps_give_the_losses_of_eager_steps(images, bn_workers, monkeypatch):
    """Fused over two steps: other kernels round otherwise, and training amplifies 1e-7 to 1e-2 in eight steps here."""
    captured, eager = (
        engine.train(config(bn_workers=bn_workers), images, "cuda", step=step) for step in ("graph", "eager")
    )
    assert (captured["engine"].item(), eager["engine"].item()) == ("graph", "eager")
    np.testing.assert_allclose(captured["train_loss"], eager["train_loss"], rtol=FP32_TOLERANCE)
    np.testing.assert_allclose(captured["test_loss"], eager["test_loss"], rtol=20 * FP32_TOLERANCE)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    same = config(bn_workers=bn_workers, epochs=1, batch_size=500)
    fused, eager = (engine.train(same, images, "cuda", step=step) for step in ("fused", "eager"))
    assert fused["engine"].item() == "fused"
    np.testing.assert_allclose(fused["train_loss"], eager["train_loss"], rtol=FUSED_TOLERANCE)


OPTIMIZERS = [
    {"optimizer": "nesterov", "weight_decay": 5e-4, "weight_decay_on": "filters"},
    {"optimizer": "lars", "lr": 2.0, "weight_decay": 5e-4},
    {"optimizer": "lamb", "lr": 2e-3, "weight_decay": 1e-2, "weight_decay_on": "filters"},
]


@pytest.mark.parametrize("changes", OPTIMIZERS, ids=lambda one: one["optimizer"])
def test_every_optimizer_has_the_losses_of_eager_steps_captured_and_fused(images, changes, monkeypatch):
    """Fused over two steps, as with SGD; captured steps are the same kernels, over three epochs."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    same = config(epochs=2, batch_size=1000, bn_workers=8, **changes)  # an update an epoch, so the second follows it
    fused, eager = (engine.train(same, images, "cuda", step=step) for step in ("fused", "eager"))
    np.testing.assert_allclose(fused["train_loss"], eager["train_loss"], rtol=FUSED_TOLERANCE)
    assert abs(eager["train_loss"].values[0, 1] / eager["train_loss"].values[0, 0] - 1) > 10 * FUSED_TOLERANCE
    captured, eager = (engine.train(config(**changes), images, "cuda", step=step) for step in ("graph", "eager"))
    np.testing.assert_allclose(captured["train_loss"], eager["train_loss"], rtol=FP32_TOLERANCE)


def test_runs_of_every_kind_share_the_device_and_equal_the_same_runs_alone(images):
    sets = {name: images.subset(np.arange(len(images.train_labels)) % 5 != k, name) for k, name in enumerate("ab")}
    runs = [config(subset="a"), config(subset="b", batch_size=96), config(subset="b", precision="bf16")]
    runs += [config(subset="a", precision="bf16", **changes) for changes in OPTIMIZERS]
    packed = dict(engine.train_many(runs, lambda run: sets[run.subset], CUDA, at_once=4))
    assert packed[runs[0]]["concurrent_runs"].item() > 1
    for run in runs:
        alone = engine.train(run, sets[run.subset], "cuda")
        assert same_bits(packed[run], alone), run
        assert alone["train_loss"].values[0, -1] < alone["train_loss"].values[0, 0]


def asked(times: int) -> Callable[[], bool]:
    """Return a function that is False so many times, then True."""
    turns = iter(range(times))
    return lambda: next(turns, None) is None


@pytest.mark.parametrize("step", ["fused", "graph", "eager"])
def test_stopped_runs_go_on_to_the_same_bits(images, tmp_path, step):
    configs = [config(batch_size=8), config(batch_size=96, bn_workers=4, precision="bf16", optimizer="lamb", lr=2e-3)]
    whole = dict(engine.train_many(configs, images, CUDA, step=step))
    ended: dict[str, xr.Dataset] = {}
    stopped = 0
    for last in (2**doubling for doubling in range(3, 30)):  # how often a run asks, the host's speed says
        rest, paused = [run for run in configs if run.key not in ended], PausedRuns(tmp_path)
        packed = engine.train_many(rest, images, CUDA, step=step, paused=paused, stop=asked(last))
        ended |= {run.key: ds for run, ds in packed if ds is not None}
        if len(ended) == 2:
            break
        stopped += any(tmp_path.rglob("*.pt"))
    assert stopped > 1
    assert all(same_bits(ended[run.key], ds) for run, ds in whole.items())


def test_the_gpu_follows_the_cpu(images, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    cpu, gpu = (engine.train(config(epochs=1, batch_size=500), images, device) for device in ("cpu", "cuda"))
    np.testing.assert_allclose(gpu["train_loss"], cpu["train_loss"], rtol=FUSED_TOLERANCE)


def test_a_diverging_run_ends_as_a_result_beside_a_healthy_one(images):
    configs = [config(lr=1e12), config(lr=0.02)]
    packed = dict(engine.train_many(configs, images, CUDA, at_once=2))
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


def test_peak_memory_of_a_run_is_recorded(images):
    small, large = (engine.train(config(batch_size=b, epochs=1), images, "cuda") for b in (64, 512))
    assert 0 < small["peak_memory_bytes"].item() < large["peak_memory_bytes"].item()
    assert small["peak_host_memory_bytes"].item() > images.train_images.nbytes


# Memory. A run may hold less than it took at its peak, so that a limit for two and a half runs may hold three or four.


SIX = [config(seed=seed, epochs=8) for seed in range(6)]


@pytest.fixture
def room_for(images, monkeypatch):
    """Let so many runs like those start, by what one of them takes here."""

    def room_for(count: float) -> None:
        train, test = engine.on_device(images, CUDA)
        for _ in range(2):  # the second takes what a run takes; with the first, libraries have been loaded
            need = engine.Run(SIX[0], images, train, test, CUDA, engine.fastest_step(CUDA)).reserved
            release_memory(CUDA)
        used, total = memory_in_use(CUDA)
        monkeypatch.setattr(packing, "DEVICE_SHARE", (used + count * need) / total)

    return room_for


def watched(images: ImageData) -> tuple[dict, int]:
    """Train the six, and return them and the most that were in flight after an epoch."""
    together: list[int] = []
    runs = engine.train_many(SIX, images, CUDA, at_once=6, watch=lambda run, _: together.append(run.neighbours[-1]))
    return dict(runs), max(together)


def test_where_memory_is_short_fewer_runs_share_the_device_and_a_notice_says_so(images, room_for, capsys):
    room_for(2.5)
    packed, together = watched(images)
    assert set(packed) == set(SIX)
    assert 2 <= together < 6
    told = capsys.readouterr().out
    assert told.count("notice: resnet18 at batch size 128 needs") == 1
    assert "such runs wait until" in told
    for run in (SIX[0], SIX[5]):
        np.testing.assert_array_equal(packed[run]["train_loss"], engine.train(run, images, "cuda")["train_loss"])


def test_a_run_refused_memory_by_the_device_is_done_in_a_smaller_pack(images, room_for, capsys, monkeypatch):
    """With a plan that takes every run for small, the cap on torch's memory is what refuses, in a run's first steps."""
    room_for(2.5)
    monkeypatch.setattr(packing, "predicted_need", lambda config, measured: 1.0)
    packed, together = watched(images)
    assert set(packed) == set(SIX)
    assert 1 <= together < 6
    assert "such runs wait until" in capsys.readouterr().out
    assert all(np.isfinite(ds["train_loss"]).all() for ds in packed.values())


def test_a_run_too_large_for_the_device_is_an_error_and_leaves_the_device_usable(images, room_for, monkeypatch):
    room_for(0.4)
    with pytest.raises(DeviceMemoryError, match=r"resnet18 at batch size 128 needs .* GiB of device memory"):
        dict(engine.train_many(SIX[:2], images, CUDA))
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert torch.cuda.get_per_process_memory_fraction() == pytest.approx(1.0)
    monkeypatch.undo()
    assert np.isfinite(engine.train(SIX[0], images, "cuda")["train_loss"]).all()


def test_ended_runs_give_their_memory_back(images):
    """Streams keep their workspaces for the next run on them; these are small beside what a run takes."""
    large = config(epochs=1, batch_size=1000)
    one = engine.train(large, images, "cuda")["peak_memory_bytes"].item()
    release_memory(CUDA)
    before = torch.cuda.memory_reserved(CUDA)
    for _ in range(3):
        engine.train(large, images, "cuda")
    release_memory(CUDA)
    assert torch.cuda.memory_reserved(CUDA) - before < one
