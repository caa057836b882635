"""Update rules: LARS and LAMB are by their formulas, and every option takes effect."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from dolb.training import optim
from dolb.training.config import RunConfig

STEPS = 20
RATES = {"lars": [2.0 * (k + 1) / STEPS for k in range(STEPS)], "lamb": [0.02 * (k + 1) / STEPS for k in range(STEPS)]}
OPTIONS = [
    {"optimizer": "lars"},
    {"optimizer": "lars", "weight_decay": 0.01, "momentum": 0.5, "trust": 0.02},
    {"optimizer": "lars", "weight_decay": 0.01, "weight_decay_on": "filters"},
    {"optimizer": "lamb", "max_gradient_norm": 0.0},
    {"optimizer": "lamb", "weight_decay": 0.01, "momentum": 0.5, "max_gradient_norm": 0.1},
    {"optimizer": "lamb", "weight_decay": 0.01, "weight_decay_on": "filters"},
]


def network(dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10)
    return nn.Sequential(*layers).to(dtype)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_lars_and_lamb_are_by_their_formulas(options):
    """From algorithm 1 of You et al. (2017), but with the rate outside the velocity and a small number under the ratio.

    And algorithm 2 of You et al. (2020), but after long gradients are shortened: both as timm has it.
    """
    config, net, rate = RunConfig(**options), network(torch.float64), torch.zeros((), dtype=torch.float64)
    optimizer, rng = optim.build(config, net.parameters(), rate), np.random.default_rng(0)
    weights = [p.detach().numpy().copy() for p in net.parameters()]
    first, second = ([np.zeros_like(w) for w in weights] for _ in range(2))
    for count, value in enumerate(RATES[config.optimizer], start=1):
        slopes = [0.01 * rng.standard_normal(w.shape) for w in weights]
        for p, g in zip(net.parameters(), slopes, strict=True):
            p.grad = torch.from_numpy(g)
        rate.fill_(value)
        optimizer.step()
        length, longest = np.sqrt(sum((g**2).sum() for g in slopes)), config.max_gradient_norm
        for w, g, m, v in zip(weights, slopes, first, second, strict=True):
            adapted = config.weight_decay_on == "all" or w.ndim > 1
            decay = config.weight_decay if adapted else 0.0
            own = np.linalg.norm(w)
            if config.optimizer == "lars":
                local = config.trust * own / (np.linalg.norm(g) + decay * own + 1e-8)
                m[:] = config.momentum * m + (local if adapted and own > 0 else 1.0) * (g + decay * w)
                w -= value * m
                continue
            g = g * longest / length if 0 < longest < length else g
            m[:] = config.momentum * m + (1 - config.momentum) * g
            v[:] = 0.999 * v + 0.001 * g**2
            r = m / (1 - config.momentum**count) / (np.sqrt(v / (1 - 0.999**count)) + 1e-6) + decay * w
            w -= value * (own / np.linalg.norm(r) if adapted and own > 0 else 1.0) * r
    for have, want in zip(net.parameters(), weights, strict=True):
        torch.testing.assert_close(have.detach(), torch.from_numpy(want), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("options", [*OPTIONS, {"optimizer": "nesterov"}, {"weight_decay_on": "filters"}], ids=str)
def test_a_step_changes_no_gradient_and_keeps_all_it_knows_in_tensors(options):
    """So a captured graph can repeat it, and a paused run can go on."""
    net, rate = network(torch.float32), torch.tensor(0.1)
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    optimizer = optim.build(RunConfig(**{"weight_decay": 0.1} | options), net.parameters(), rate)
    optimizer.step()
    assert all((p.grad == 1).all() for p in net.parameters())
    known = [value for state in optimizer.state.values() for value in state.values()]
    assert known
    assert all(isinstance(value, torch.Tensor) for value in known)


@pytest.mark.parametrize("optimizer", ["sgd", "nesterov"])
def test_norms_and_biases_can_go_without_decay(optimizer):
    config = RunConfig(optimizer=optimizer, weight_decay=0.5, weight_decay_on="filters")
    net, before = network(torch.float32), [p.detach().clone() for p in network(torch.float32).parameters()]
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    optim.build(config, net.parameters(), torch.tensor(0.1)).step()
    for p, was in zip(net.parameters(), before, strict=True):
        factor = 1 - 0.1 * 0.5 * (1.9 if optimizer == "nesterov" else 1.0) if p.ndim > 1 else 1.0
        torch.testing.assert_close(p.detach(), was * factor)


@pytest.mark.parametrize("optimizer", ["lars", "lamb"])
def test_a_tensor_of_zeros_moves_as_without_adaptation(optimizer):
    """As the biases of a network do at first: a part of no length is no step at all."""
    weight = nn.Parameter(torch.zeros(3))
    weight.grad = torch.ones(3)
    optim.build(RunConfig(optimizer=optimizer), [weight], torch.tensor(0.1)).step()
    torch.testing.assert_close(weight.detach(), torch.full((3,), -0.1), rtol=1e-5, atol=0)


@pytest.mark.parametrize("options", [{}, {"momentum": 0.0}, {"weight_decay": 0.1}, {"optimizer": "nesterov"}], ids=str)
def test_sgd_has_the_bits_of_torchs_own(options):
    config, rate = RunConfig(**options), torch.tensor(0.1)
    nets = [network(torch.float32) for _ in range(2)]
    ours = optim.build(config, nets[0].parameters(), rate)
    same = {"lr": rate, "momentum": config.momentum, "weight_decay": config.weight_decay}
    torchs = torch.optim.SGD(nets[1].parameters(), **same, nesterov=config.optimizer == "nesterov", fused=True)
    for step in range(STEPS):
        slopes = [torch.randn_like(p) for p in nets[0].parameters()]
        for net in nets:
            for p, slope in zip(net.parameters(), slopes, strict=True):
                p.grad = slope.clone()
        rate.fill_(0.1 / (step + 1))
        ours.step()
        torchs.step()
    for have, want in zip(*(net.parameters() for net in nets), strict=True):
        assert torch.equal(have, want)


def test_a_process_that_trains_a_small_network_imports_no_compiler():
    """It would take as long as importing torch does; torchvision imports it too."""
    program = (
        "import sys; from dolb import data; from dolb.training import config, engine\n"
        "engine.train(config.RunConfig(arch='smallnet-4', data='digits', epochs=1), data.load('digits'), 'cpu')\n"
        "assert not {'torch._dynamo', 'torchvision'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
