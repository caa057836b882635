"""What filtering gets of a run: its network, what was right after each epoch, and probabilities, held out or not."""

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch

from dolb.augment import DeviceImages
from dolb.data import ImageData
from dolb.training import engine, processes
from dolb.training.config import RunConfig
from dolb.training.observe import Observed, fold_of, networks, observe_all, out_of_fold
from dolb.training.run import PausedRuns

CONFIG = RunConfig(epochs=3, batch_size=64, lr=0.1, subset="first-200")


def observe(config: RunConfig, images: ImageData, device: str = "cpu", **asked) -> Observed:
    (got,) = observe_all([config], images, device=device, progress=False, **asked)
    return got


@pytest.fixture(scope="module")
def observed(digits):
    return observe(CONFIG, digits, checkpoints=(1, 3), follow=True)


def test_watching_a_run_does_not_change_it(observed, digits):
    with processes.one_thread():  # as observing does: sums by several threads round otherwise
        plain = engine.train(CONFIG, digits)
    assert np.array_equal(observed.result["test_accuracy"], plain["test_accuracy"])
    assert np.array_equal(observed.result["train_loss"], plain["train_loss"])
    assert observed.result["key"].item() == CONFIG.key


def test_runs_that_are_watched_together_say_what_they_say_alone(observed, digits):
    other = replace(CONFIG, seed=1)
    both = observe_all([other, CONFIG], digits, device="cpu", checkpoints=(1, 3), follow=True, progress=False)
    assert [got.config for got in both] == [other, CONFIG]
    assert np.array_equal(both[1].correct, observed.correct)
    assert np.array_equal(both[1].probabilities, observed.probabilities)
    assert not np.array_equal(both[0].probabilities, observed.probabilities)


def test_probabilities_are_of_every_example_after_the_epochs_asked_for(observed, digits):
    assert observed.probabilities.shape == (2, 200, 10)
    np.testing.assert_allclose(observed.probabilities.sum(axis=2), 1, atol=1e-5)
    images = DeviceImages(digits.train_images, digits.train_labels, digits.mean, digits.std, "cpu", 0)
    with torch.inference_mode():
        last = observed.network(digits)(images.centre(0, len(images))).softmax(1).numpy()
    np.testing.assert_allclose(observed.probabilities[-1], last, atol=1e-5)
    assert np.abs(observed.probabilities[0] - observed.probabilities[1]).max() > 0.01
    assert observed.correct.shape == (3, 200)
    for place, epoch in enumerate((1, 3)):
        right = observed.probabilities[place].argmax(axis=1) == digits.train_labels
        assert np.array_equal(observed.correct[epoch - 1], right)


def test_a_run_that_diverges_says_nothing_of_the_examples(digits):
    wild = RunConfig(**CONFIG.as_dict() | {"lr": 1e30})
    with pytest.raises(ValueError, match="diverged; it says nothing of the examples"):
        observe(wild, digits)


def test_a_run_is_given_up_when_asked(digits):
    with pytest.raises(engine.RunAbandoned):
        observe(CONFIG, digits, stop=lambda: True)


def test_folds_part_every_class_evenly_and_follow_from_the_seed(digits):
    parts = fold_of(digits.train_labels, 3, seed=0)
    for value in range(10):
        assert np.ptp(np.bincount(parts[digits.train_labels == value], minlength=3)) <= 1
    assert not np.array_equal(parts, fold_of(digits.train_labels, 3, seed=1))


def test_each_example_is_judged_by_a_network_that_has_not_seen_it(digits):
    found, seconds = out_of_fold(CONFIG, digits, 3, device="cpu", progress=False)
    parts = fold_of(digits.train_labels, 3, CONFIG.seed)
    rest = digits.subset(parts != 1, "rest")
    one = observe(RunConfig(**CONFIG.as_dict() | {"subset": "rest"}), rest)
    held = digits.train_images[parts == 1]
    images = DeviceImages(held, np.zeros(len(held), dtype=np.int64), digits.mean, digits.std, "cpu", 0)
    with torch.inference_mode():
        expected = one.network(rest)(images.centre(0, len(held))).softmax(1).numpy()
    np.testing.assert_allclose(found[parts == 1], expected, atol=1e-5)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)
    assert seconds > one.device_seconds  # three networks, each trained on as much as this one


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_what_is_seen_is_of_the_end_of_each_epoch():
    """On CUDA the next epoch is enqueued before this one is read; what is watched must not be of the next."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 6000)
    images = (rng.integers(0, 200, (6000, 32, 32, 3)) + 5 * labels[:, None, None, None]).astype(np.uint8)
    made = ImageData(
        "made", images, labels, images[:500], labels[:500], tuple("0123456789"), "made", (0.5,) * 3, (0.3,) * 3
    )
    long = RunConfig(arch="resnet18", data="made", batch_size=256, lr=0.02, epochs=3, precision="bf16")
    short = RunConfig(**long.as_dict() | {"epochs": 1})
    first = observe(long, made, "cuda", checkpoints=(1, 3), follow=True)
    alone = observe(short, made, "cuda", checkpoints=(1,), follow=True)
    np.testing.assert_allclose(first.probabilities[0], alone.probabilities[0], atol=2e-2)
    assert np.abs(first.probabilities[0] - first.probabilities[1]).max() > 0.1
    network = first.network(made).cuda()
    where = DeviceImages(made.train_images, made.train_labels, made.mean, made.std, "cuda", 0)
    with torch.inference_mode():
        last = torch.cat([network(where.centre(k, k + 1000)).softmax(1) for k in range(0, 6000, 1000)]).cpu().numpy()
    assert (last.argmax(1) == first.probabilities[1].argmax(1)).mean() > 0.97  # float32 here, bf16 there
    assert first.result["engine"].item() in ("fused", "graph")


def test_networks_that_are_stopped_go_on(observed, digits, tmp_path):
    asked = count()
    how = {"device": "cpu", "paused": PausedRuns(tmp_path), "progress": False}
    assert not list(networks([CONFIG], digits, stop=lambda: next(asked) > 7, **how))
    (got,) = networks([CONFIG], digits, **how)
    for name, value in observed.weights.items():
        assert torch.equal(got.weights[name], value), name
