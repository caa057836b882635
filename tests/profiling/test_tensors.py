"""What a step has to do: exact sizes, and times that add up."""

import numpy as np
import pytest
import xarray as xr
from made_layers import made_times

from dolb import models
from dolb.profiling.simulator import tensors


@pytest.mark.parametrize("arch", ["resnet18", "resnet50"])
def test_sizes_are_those_of_the_network(arch):
    parameters = [p.numel() * p.element_size() for p in models.build(arch, 1000).parameters()]
    assert tensors.work(arch)["bytes"].tolist() == parameters


def test_multiplications_of_a_network_are_those_that_torch_counts():
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        models.build("resnet18", 1000).eval()(torch.empty(1, 3, 224, 224))
    assert 2 * tensors.work("resnet18")["macs"].sum() == counter.get_total_flops()


def test_a_v100_trains_resnet50_as_fast_as_published():
    step = tensors.v100("resnet50", batch_per_rank=32)
    assert 32 / step.compute_seconds == pytest.approx(tensors.V100_BATCH_32)
    assert step.backward_seconds.sum() == pytest.approx(2 * step.forward_seconds.sum())


def test_gradients_become_ready_from_the_last_layer_to_the_first():
    step = tensors.v100("resnet18")
    ready = step.ready_seconds()
    assert (np.diff(ready) >= 0).all()
    assert ready[0] >= step.forward_seconds.sum()
    assert ready[-1] == pytest.approx(step.compute_seconds)


def test_a_module_gives_none_of_its_gradients_before_it_has_run():
    step = tensors.v100("resnet18")
    backward = dict(zip(step.names, step.backward_seconds, strict=True))
    assert backward["fc.bias"] > 0
    assert backward["fc.weight"] == 0


def layers(**columns):
    table = {
        "tensor": ["a", "b"],
        "tensor_bytes": [4, 8],
        "forward_seconds": [1.0, 2.0],
        "backward_seconds": [3.0, 4.0],
    }
    return xr.Dataset({name: ("layer", np.array(values)) for name, values in {**table, **columns}.items()})


def test_measured_layers_are_read():
    step = tensors.from_dataset(layers())
    assert step.ready_seconds().tolist() == [1 + 2 + 4, 1 + 2 + 4 + 3]


def test_measured_layers_that_lack_a_column_are_refused():
    with pytest.raises(ValueError, match="tensor_bytes not found on dimension 'layer'; needed: tensor, tensor_bytes"):
        tensors.from_dataset(layers().drop_vars("tensor_bytes"))


def test_a_negative_time_is_refused():
    with pytest.raises(ValueError, match="backward_seconds has -1"):
        tensors.from_dataset(layers(backward_seconds=[3.0, -1.0]))


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_time_that_is_no_number_is_refused(wrong):
    with pytest.raises(ValueError, match="forward_seconds has"):
        tensors.from_dataset(layers(forward_seconds=[1.0, wrong]))


def test_several_measurements_at_once_are_refused():
    with pytest.raises(ValueError, match="there are 2 measurements; one is accepted"):
        tensors.from_dataset(made_times(["resnet18", "resnet34"]))


def test_a_measurement_is_found_among_others():
    times = made_times(["resnet18", "resnet34"])
    step = tensors.measured("resnet34", times=times)
    assert step.bytes.tolist() == tensors.work("resnet34")["bytes"].tolist()
    assert 32 / step.compute_seconds == pytest.approx(times["images_per_second"].values[1])


def test_a_measurement_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(
        ValueError, match=r"0 measurements of .*'resnet50'.* on 'H200'.*: resnet18, 32, 224, fp32, NVIDIA"
    ):
        tensors.measured("resnet50", times=made_times(["resnet18"]))


def test_a_measured_profile_moves_the_time_of_a_v100_between_layers_and_keeps_its_total():
    profile = tensors.measured("resnet18", times=made_times(["resnet18"]))
    counted, spread = tensors.v100("resnet18"), tensors.v100("resnet18", profile=profile)
    assert spread.compute_seconds == pytest.approx(counted.compute_seconds)
    np.testing.assert_allclose(spread.backward_seconds / profile.backward_seconds, spread.compute_seconds / 0.032)
    assert not np.allclose(spread.ready_seconds(), counted.ready_seconds())


def test_a_profile_of_another_network_is_refused():
    profile = tensors.measured("resnet18", times=made_times(["resnet18"]))
    with pytest.raises(ValueError, match=r"the profile has 62 tensors .* a profile of the same network"):
        tensors.v100("resnet34", profile=profile)
