"""What a step has to do: exact sizes, and times that add up."""

import numpy as np
import pytest
import xarray as xr

from dolb import models
from dolb.profiling import tensors


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
    table = {"name": ["a", "b"], "bytes": [4, 8], "forward_seconds": [1.0, 2.0], "backward_seconds": [3.0, 4.0]}
    return xr.Dataset({name: ("layer", np.array(values)) for name, values in {**table, **columns}.items()})


def test_measured_layers_are_read():
    step = tensors.from_dataset(layers())
    assert step.ready_seconds().tolist() == [1 + 2 + 4, 1 + 2 + 4 + 3]


def test_measured_layers_that_lack_a_column_are_refused():
    with pytest.raises(ValueError, match="bytes not found on dimension 'layer'; needed: name, bytes"):
        tensors.from_dataset(layers().drop_vars("bytes"))


def test_a_negative_time_is_refused():
    with pytest.raises(ValueError, match="backward_seconds has -1"):
        tensors.from_dataset(layers(backward_seconds=[3.0, -1.0]))
