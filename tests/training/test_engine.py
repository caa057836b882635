"""What one run gives on a CPU: the numbers of a plain PyTorch loop, bit by bit the same every time, alone or packed."""

import os

import numpy as np
import pytest
import torch
from agreement import SERIES, same_bits
from torch import nn
from torch.nn import functional as F

from dolb import models, results
from dolb.augment import DeviceImages, default_augment, draw_epoch
from dolb.data import ImageData
from dolb.training import engine
from dolb.training.config import RunConfig
from dolb.training.run import dealt


def config(**changes) -> RunConfig:
    return RunConfig(**{"epochs": 2, "batch_size": 64, "lr": 0.05, "subset": "first-200"} | changes)


def test_a_run_does_not_depend_on_what_drew_random_numbers_before(digits):
    first = engine.train(config(), digits)
    torch.manual_seed(99)
    np.random.seed(99)  # noqa: NPY002 - the global state is what must not matter
    assert same_bits(first, engine.train(config(), digits))


def plain_loop(run: RunConfig, images: ImageData) -> dict[str, list[float]]:
    """Train as a tutorial would: a loop over slices of the order, torch's own optimizer and loss."""
    augment, pad = default_augment(images.name)
    augment = augment if run.augment == "default" else run.augment
    train = DeviceImages(images.train_images, images.train_labels, images.mean, images.std, "cpu", pad)
    test = DeviceImages(images.test_images, images.test_labels, images.mean, images.std, "cpu", 0)
    network = models.initialize(run.arch, images.num_classes, images.channels, run.bn_workers, run.seed)
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0, momentum=run.momentum, weight_decay=run.weight_decay)
    criterion = nn.CrossEntropyLoss(label_smoothing=run.label_smoothing)
    n = len(images.train_labels)
    used = n - n % run.batch_size if run.drop_last else n
    rates = iter(run.rates(steps_per_epoch=-(-used // run.batch_size)))
    seen: dict[str, list[float]] = {name: [] for name in SERIES}
    for epoch in range(run.epochs):
        draw = draw_epoch(n, run.seed, epoch, augment, pad)
        order, dy, dx, flip = (torch.from_numpy(values) for values in vars(draw).values())
        network.train()
        total = 0.0
        for start in range(0, used, run.batch_size):
            part = slice(start, start + run.batch_size)
            batch = train.batch(order[part], dy[part], dx[part], flip[part]).contiguous()
            loss = criterion(network(batch), train.labels[order[part]])
            optimizer.zero_grad()
            loss.backward()
            optimizer.param_groups[0]["lr"] = rate = float(next(rates))
            optimizer.step()
            total += loss.item() * len(batch)
        network.eval()
        with torch.no_grad():
            scores = network(test.centre(0, len(images.test_labels)).contiguous())
        seen["train_loss"].append(total / used)
        seen["test_loss"].append(F.cross_entropy(scores, test.labels).item())
        seen["test_accuracy"].append((scores.argmax(1) == test.labels).double().mean().item())
        seen["learning_rate"].append(rate)
    return seen


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"momentum": 0.0, "weight_decay": 0.5},
        {"label_smoothing": 0.2, "augment": "crop-flip"},
        {"bn_workers": 4, "augment": "none"},
        {"drop_last": True, "warmup_epochs": 1.0},
        {"arch": "smallnet-8", "batch_size": 200},
        {"lr_scaling": "linear", "warmup_epochs": 1.0, "decay": "cosine"},
    ],
    ids=str,
)
def test_a_run_equals_a_plain_loop_and_every_setting_takes_effect(digits, changes):
    run = config(**changes)
    ds, plain = engine.train(run, digits), plain_loop(run, digits)
    for name in ("train_loss", "test_loss", "learning_rate"):
        np.testing.assert_allclose(ds[name].values[0], plain[name], rtol=1e-4, err_msg=name)
    one_example = 1 / len(digits.test_labels)
    np.testing.assert_allclose(ds["test_accuracy"].values[0], plain["test_accuracy"], atol=one_example + 1e-6)
    if changes:
        unchanged = engine.train(config(), digits)["train_loss"].values
        assert np.abs(ds["train_loss"].values / unchanged - 1).max() > 1e-3


def test_a_result_follows_the_schema_and_says_what_was_run(digits):
    run = config(bn_workers=2, seed=5)
    ds = results.validate(engine.train(run, digits))
    assert RunConfig.from_dict({name: ds[name].item() for name in run.as_dict()}) == run
    assert ds["key"].item() == run.key
    assert ds["data_fingerprint"].item() == digits.fingerprint
    assert ds["training_examples"].item() == 200
    assert ds["test_examples"].item() == len(digits.test_labels)
    assert ds["parameters"].item() == sum(p.numel() for p in models.build("smallnet-4", 10, 1).parameters())
    assert (ds["engine"].item(), ds["concurrent_runs"].item()) == ("eager", 1.0)
    assert ds["device_share"].item() == 1.0
    assert ds["seconds"].item() > 0
    weights = 4 * ds["parameters"].item()  # bytes, in fp32
    assert ds["peak_host_memory_bytes"].item() == ds["peak_memory_bytes"].item() > weights + digits.train_images.nbytes
    assert 400 / ds["seconds"].item() <= ds["images_per_second"].item()


def test_a_run_that_diverges_is_a_result_with_nothing_after(digits, tmp_path):
    ds = engine.train(config(lr=1e30, epochs=4), digits)
    assert ds["diverged"].item()
    rows = np.stack([ds[name].values[0] for name in ("train_loss", "test_accuracy", "learning_rate")])
    ended = int(np.argmin(np.isfinite(rows[0])))  # the first epoch whose loss is not finite
    assert np.isnan(rows[:, ended + 1 :]).all()
    assert rows[:, ended + 1 :].size > 0
    assert np.isfinite(rows[1:, : ended + 1]).all()
    assert results.load(results.save(ds, tmp_path / "wild.nc"))["diverged"].item() is True


@pytest.mark.parametrize(
    ("examples", "size", "batches"),
    [
        (200, 50, [(50, 4)]),
        (200, 64, [(64, 3), (8, 1)]),
        (200, 199, [(200, 1)]),
        (193, 64, [(64, 2), (65, 1)]),
        (65, 64, [(65, 1)]),
    ],
)
def test_a_rest_of_one_example_joins_the_last_batch(examples, size, batches):
    assert dealt(examples, size) == batches


def test_runs_on_different_sets_share_a_device_and_equal_the_same_runs_alone(digits, monkeypatch):
    moved: list[str] = []

    def moving(data, device, real=engine.on_device):
        moved.append(data.subset_name)
        return real(data, device)

    monkeypatch.setattr(engine, "on_device", moving)
    sets = {name: digits.subset(np.arange(200) % 4 != k, name) for k, name in enumerate(("a", "b"))}
    runs = [config(subset=name, seed=seed) for name in sets for seed in range(2)]
    packed = dict(engine.train_many(runs, lambda run: sets[run.subset], torch.device("cpu"), at_once=4))
    assert sorted(moved) == ["a", "b"]  # once each: runs of one set share its images
    for run in runs:
        alone = engine.train(run, sets[run.subset])
        np.testing.assert_array_equal(packed[run]["train_loss"], alone["train_loss"])
        assert packed[run]["data_fingerprint"].item() == sets[run.subset].fingerprint


# Several runs at once

MIXED = [config(seed=1), config(batch_size=32, epochs=3), config(arch="smallnet-8"), config(bn_workers=4, epochs=1)]


def test_a_stop_gives_up_what_is_in_flight_keeps_what_is_done_and_starts_no_more(digits):
    heard: list[int] = []
    alike = [config(epochs=2, seed=seed) for seed in range(3)]
    how = {"watch": lambda run, epoch: heard.append(epoch), "stop": lambda: len(heard) >= 3}
    ended = list(engine.train_many(alike, digits, torch.device("cpu"), **how))
    assert [run for run, _ in ended] == alike[:2]
    assert ended[0][1] is not None  # both epochs done
    assert ended[1][1] is None  # stopped after its first


def test_configs_are_taken_only_as_places_fall_free(digits):
    taken: list[str] = []

    def configs():
        for run in MIXED:
            taken.append(run.key)
            yield run

    runs = engine.train_many(configs(), digits, torch.device("cpu"), at_once=2)
    next(runs)
    assert taken == [run.key for run in MIXED[:2]]
    assert len(list(runs)) == len(MIXED) - 1


def test_streams_of_a_gpu_have_queues_of_their_own_unless_the_user_says_otherwise(monkeypatch):
    monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS", raising=False)
    engine.resolve_device("cpu")
    assert os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] == "32"
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    engine.resolve_device("cpu")
    assert os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
