"""How a cluster of one's own would scale: from a module, from a name."""

import pytest
import torch
from torch import nn

from dolb.profiling.simulator import tensors
from dolb.profiling.simulator.libraries import DDP, horovod
from dolb.profiling.simulator.network import cluster
from dolb.profiling.simulator.predict import predict
from dolb.profiling.simulator.step import Scenario, simulate

OVER = cluster(gpus=8, gbit=100)


def test_a_table_has_what_the_simulator_says_within_its_band():
    table = predict("resnet50", 64, OVER, nodes=[1, 4], gpu="V100", precision="amp")
    expected = simulate(Scenario(tensors.at_speed("resnet50", 64, 1200.0), OVER, DDP(), 64), 32)
    last = table.iloc[-1]
    assert (last["gpus"], last["efficiency"]) == (32, expected.efficiency)
    assert last["efficiency_low"] < last["efficiency"] < last["efficiency_high"]
    assert last["images_per_second"] == pytest.approx(32 * 1200 * expected.efficiency)
    assert set(table["source"]) == {"simulated"}


def test_any_module_is_predicted_from_the_speed_of_one_gpu_and_stays_as_it_was():
    mine = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 36, 10))
    statistics = mine[1].running_mean.clone()
    table = predict(mine, 64, OVER, nodes=[1, 2], library=horovod(), images_per_second=5e4, image=(1, 8, 8))
    assert table["efficiency"].between(0, 1).all()
    assert mine.training
    assert torch.equal(mine[1].running_mean, statistics)


def test_faster_links_help_most_where_there_is_most_to_send():
    def efficiency(arch, gbit):
        return predict(arch, 32, cluster(8, gbit), [8], gpu="H200")["efficiency"].item()

    assert efficiency("vgg11", 100) / efficiency("vgg11", 10) > efficiency("resnet50", 100) / efficiency("resnet50", 10)
