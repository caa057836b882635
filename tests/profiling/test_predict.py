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


def test_the_mode_of_every_layer_stays_as_it_was():
    mine = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8).eval())
    tensors.count(mine, (1, 8, 8))
    assert (mine.training, mine[1].training) == (True, False)


class Words(nn.Module):
    """Takes whole numbers; one layer is called twice."""

    def __init__(self):
        super().__init__()
        self.known, self.mixed = nn.Embedding(10, 8), nn.Linear(8, 8)

    def forward(self, words):
        return self.mixed(self.mixed(self.known(words)))


@pytest.mark.parametrize(
    ("network", "fed", "expected"),
    [
        (nn.LSTM(16, 32, num_layers=2, batch_first=True), torch.zeros(4, 10, 16), 10 * 4 * 32 * (16 + 3 * 32)),
        (nn.ConvTranspose2d(3, 8, 4, stride=2), (3, 16, 16), 16 * 16 * 3 * 8 * 16),
        (Words(), torch.zeros(2, 5, dtype=torch.long), 2 * 5 * 8 * 8),
        # projections of 7 places to three of 32 and back, scores of 7 places by 7, and their sums
        (nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).self_attn, None, 7 * (4 * 32 * 32 + 2 * 7 * 32)),
    ],
    ids=["recurrent", "transposed", "words", "attention"],
)
def test_multiplications_are_those_of_every_call_of_a_layer(network, fed, expected):
    if fed is None:  # attention alone takes three inputs, so within a layer
        fed, attention = torch.zeros(1, 7, 32), network
        network = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        network.self_attn, network.linear1, network.linear2 = attention, nn.Identity(), nn.Identity()
    assert tensors.count(network, fed)["macs"].sum() == expected


def test_a_network_without_work_that_is_counted_is_refused():
    with pytest.raises(ValueError, match="accepted: convolution, linear, recurrent, attention"):
        tensors.count(nn.Sequential(nn.BatchNorm2d(3)), (3, 8, 8))


def test_faster_links_help_most_where_there_is_most_to_send():
    def efficiency(arch, gbit):
        return predict(arch, 32, cluster(8, gbit), [8], gpu="H200")["efficiency"].item()

    assert efficiency("vgg11", 100) / efficiency("vgg11", 10) > efficiency("resnet50", 100) / efficiency("resnet50", 10)
