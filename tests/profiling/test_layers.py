"""Layer times, measured without stopping a pass: they add up to it, live in a file, and the simulator takes them."""

import sys
import time

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import layer_times
from dolb import models, results
from dolb.profiling.simulator import tensors
from dolb.profiling.simulator.whatif import ARCHS

SMALL = {"batch_per_rank": 4, "image_size": 32, "device": "cpu", "passes": 3, "warmup": 1}
FORWARD_SLEEP, BACKWARD_SLEEP = 0.03, 0.06


@pytest.fixture(scope="module")
def measured():
    return layer_times.measure("smallnet-8", **SMALL)


def timed(net, width=4, **changes):
    images, labels = torch.randn(8, width), torch.randint(2, (8,))
    return layer_times.time_tensors(net, images, labels, **{"half": False, "passes": 3, "warmup": 1} | changes)


def test_the_sum_is_exactly_that_of_the_passes_without_marks(measured):
    step = tensors.from_dataset(measured)
    assert step.compute_seconds == pytest.approx(measured["pass_seconds"].item(), rel=1e-12)
    assert measured["images_per_second"].item() == pytest.approx(SMALL["batch_per_rank"] / step.compute_seconds)


@pytest.mark.parametrize("arch", ["smallnet-4", "resnet18"])  # without and with branches that have modules
def test_gradients_are_those_of_the_network_and_ready_from_the_last_to_the_first(arch):
    step = tensors.from_dataset(layer_times.measure(arch, **SMALL | {"passes": 1}))
    table = tensors.work(arch, 32, num_classes=10)
    assert list(step.names) == table["name"].tolist()
    assert step.bytes.tolist() == table["bytes"].tolist()
    assert (np.diff(step.ready_seconds()) >= 0).all()
    assert step.ready_seconds()[-1] == pytest.approx(step.compute_seconds)


class Sleep(torch.autograd.Function):
    """Nothing, slowly: it takes a known time each way."""

    @staticmethod
    def forward(ctx, x):
        time.sleep(FORWARD_SLEEP)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(BACKWARD_SLEEP)
        return gradient


class Slow(nn.Linear):
    def forward(self, x):
        return Sleep.apply(super().forward(x))


def test_a_slow_layer_has_its_time_where_the_backward_pass_meets_it_first():
    step = timed(nn.Sequential(nn.Linear(4, 4), Slow(4, 4), nn.ReLU(), nn.Linear(4, 2))).tensors
    forward = dict(zip(step.names, step.forward_seconds, strict=True))
    backward = dict(zip(step.names, step.backward_seconds, strict=True))
    assert max(forward, key=forward.get) == "1.bias"
    assert max(backward, key=backward.get) == "1.bias"
    assert forward["1.weight"] == 0


class Backwards(nn.Module):
    """Modules that run in the reverse of their registration."""

    def __init__(self):
        super().__init__()
        self.last, self.first = nn.Linear(4, 2), nn.Linear(4, 4)

    def forward(self, x):
        return self.last(self.first(x))


def test_a_network_that_runs_in_another_order_is_refused():
    with pytest.raises(
        ValueError, match=r"gradients of 'last' come before those of 'first', which is registered later"
    ):
        timed(Backwards())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"precision": "fp8"}, "precision 'fp8' is not known; accepted: fp32, tf32, bf16"),
        ({"precision": "bf16"}, "precision 'bf16' needs a CUDA device; accepted on 'cpu': fp32"),
        ({"image_size": 64}, r"images of 64 pixels need num_classes; it is known for those of \[224, 32\]"),
        ({"passes": 0}, "passes is 0; numbers from 1 are accepted"),
        ({"arch": "resnet19"}, "network 'resnet19' is not known"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_runs(changes, said):
    with pytest.raises(ValueError, match=said):
        layer_times.measure(**{"arch": "smallnet-4"} | SMALL | changes)


def test_a_later_measurement_replaces_its_own_and_keeps_the_others(measured):
    published = results.published("layer-times")
    both = layer_times.replace(published, [measured])
    again = layer_times.replace(both, [measured.assign(backward_seconds=2 * measured["backward_seconds"])])
    assert again.sizes == both.sizes
    last = published.sizes["run"]
    for number, times in ((0, 1), (last - 1, 1), (last, 2)):
        before, after = (tensors.from_dataset(tensors.one_measurement(ds, number)) for ds in (both, again))
        np.testing.assert_allclose(after.backward_seconds, times * before.backward_seconds)


def test_the_program_measures_says_so_and_adds_to_the_file(tmp_path, monkeypatch, capsys):
    output = tmp_path / "layer-times.nc"
    given = ["--device", "cpu", "--image-size", "32", "--batch", "4", "--passes", "2", "--warmup", "1"]
    given += ["--output", str(output), "--arch", "smallnet-4", "smallnet-8"]
    monkeypatch.setattr(sys, "argv", ["layer_times.py", *given])
    layer_times.main()
    assert "smallnet-4, 4 images of 32 pixels, fp32: " in capsys.readouterr().out
    ds = results.load(output)
    assert ds["arch"].values.tolist() == ["smallnet-4", "smallnet-8"]
    assert set(ds["source"].values) == {"measured"}


# Sizes are those of the network, and a published throughput becomes times


def test_multiplications_of_a_network_are_those_that_torch_counts():
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        models.build("resnet18", 1000).eval()(torch.empty(1, 3, 224, 224))
    assert 2 * tensors.work("resnet18")["macs"].sum() == counter.get_total_flops()


# What was published


def test_what_is_published_covers_the_panel_and_the_simulator_takes_it():
    times = results.published("layer-times")
    assert set(ARCHS) <= set(times["arch"].values)
    for number, arch in enumerate(times["arch"].values.tolist()):
        step = tensors.from_dataset(tensors.one_measurement(times, number))
        if times["image_size"].values[number] == 224:
            assert step.bytes.tolist() == tensors.work(arch)["bytes"].tolist()
            assert 0.2 < step.forward_seconds.sum() / step.compute_seconds < 0.5  # one product forward, two backward


# On a GPU


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("precision", layer_times.PRECISIONS)
def test_a_gpu_is_measured_in_every_precision(precision):
    ds = layer_times.measure("resnet18", batch_per_rank=32, image_size=32, precision=precision, device="cuda")
    step = tensors.from_dataset(ds)
    assert step.bytes.tolist() == tensors.work("resnet18", 32, num_classes=10)["bytes"].tolist()
    assert step.compute_seconds == pytest.approx(ds["pass_seconds"].item(), rel=1e-9)
    assert ds["device"].item() == torch.cuda.get_device_name()
