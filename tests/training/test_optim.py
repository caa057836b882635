"""Update rules: LARS and LAMB are by their formulas and agree with timm's, and every option takes effect."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

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


def trained(dtype: torch.dtype, rates: list[float], optimizer_of) -> list[torch.Tensor]:
    """Return the weights of a small network after as many steps as there are rates."""
    net, rng = network(dtype), torch.Generator().manual_seed(1)
    images, labels = torch.randn(16, 3, 8, 8, generator=rng).to(dtype), torch.randint(10, (16,), generator=rng)
    step = optimizer_of(list(net.parameters()))
    for rate in rates:
        net.zero_grad()
        F.cross_entropy(net(images), labels).backward()
        step(rate)
    return [p.detach() for p in net.parameters()]


def ours(config: RunConfig):
    def optimizer_of(parameters):
        rate = torch.zeros((), dtype=parameters[0].dtype)
        optimizer = optim.build(config, parameters, rate)

        def step(value: float) -> None:
            rate.fill_(value)
            optimizer.step()

        return step

    return optimizer_of


def by_formula(config: RunConfig):
    """LARS and LAMB one tensor after the other, in NumPy.

    From algorithm 1 of You et al. (2017), but with the rate outside the velocity and a small number under the ratio,
    and algorithm 2 of You et al. (2020), but after long gradients are shortened: both as timm has it.
    """

    def optimizer_of(parameters):
        weights = [p.detach().numpy() for p in parameters]
        first, second = ([np.zeros_like(w) for w in weights] for _ in range(2))
        count = 0

        def step(rate: float) -> None:
            nonlocal count
            count += 1
            slopes = [p.grad.numpy().copy() for p in parameters]
            length, longest = np.sqrt(sum((g**2).sum() for g in slopes)), config.max_gradient_norm
            for w, g, m, v in zip(weights, slopes, first, second, strict=True):
                adapted = config.weight_decay_on == "all" or w.ndim > 1
                decay = config.weight_decay if adapted else 0.0
                own = np.linalg.norm(w)
                if config.optimizer == "lars":
                    local = config.trust * own / (np.linalg.norm(g) + decay * own + 1e-8)
                    m[:] = config.momentum * m + (local if adapted and own > 0 else 1.0) * (g + decay * w)
                    w -= rate * m
                    continue
                g = g * longest / length if 0 < longest < length else g
                m[:] = config.momentum * m + (1 - config.momentum) * g
                v[:] = 0.999 * v + 0.001 * g**2
                r = m / (1 - config.momentum**count) / (np.sqrt(v / (1 - 0.999**count)) + 1e-6) + decay * w
                w -= rate * (own / np.linalg.norm(r) if adapted and own > 0 else 1.0) * r

        return step

    return optimizer_of


def timms(config: RunConfig):
    from timm.optim import Lamb, Lars

    def optimizer_of(parameters):
        groups = [{"params": parameters, "always_adapt": True}]
        if config.weight_decay_on == "filters":
            groups = [{"params": [p for p in parameters if p.ndim > 1], "always_adapt": True}]
            groups.append({"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0})
        optimizer = (
            Lars(groups, momentum=config.momentum, weight_decay=config.weight_decay, trust_coeff=config.trust)
            if config.optimizer == "lars"
            else Lamb(
                groups, betas=(config.momentum, 0.999), weight_decay=config.weight_decay,
                max_grad_norm=config.max_gradient_norm or None,
            )
        )  # fmt: skip

        def step(rate: float) -> None:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()

        return step

    return optimizer_of


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_lars_and_lamb_are_by_their_formulas(options):
    config = RunConfig(**options)
    expected = trained(torch.float64, RATES[config.optimizer], by_formula(config))
    for have, want in zip(trained(torch.float64, RATES[config.optimizer], ours(config)), expected, strict=True):
        torch.testing.assert_close(have, want, rtol=1e-9, atol=1e-12)


@pytest.mark.gpu if torch.cuda.is_available() else lambda test: test  # where `make test-gpu` runs, timm often is
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_lars_and_lamb_agree_with_timms(options, require_part):
    require_part("timm", importlib.util.find_spec("timm") is not None, "timm is not installed")
    config = RunConfig(**options)
    for dtype, atol in ((torch.float64, 1e-12), (torch.float32, 5e-6)):
        expected = trained(dtype, RATES[config.optimizer], timms(config))
        for have, want in zip(trained(dtype, RATES[config.optimizer], ours(config)), expected, strict=True):
            torch.testing.assert_close(have, want, rtol=1e-6, atol=atol)


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
