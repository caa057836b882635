"""Networks by name: their features and sizes, ghost batch norm against ordinary batch norm, initial weights by seed."""

from collections import Counter
from functools import partial

import pytest
import torch
import torchvision
from torch import nn

from dolb import models

# Of the ResNets those of claim G5.
WIDTHS = {"resnet18": 512, "resnet34": 512, "resnet50": 2048, "resnet101": 2048, "resnet152": 2048, "vgg11": 4096}


# Ghost batch norm


def ghost_and_shares(workers: int, batch: int) -> tuple[models.GhostBatchNorm2d, list[nn.BatchNorm2d], torch.Tensor]:
    """Make a ghost layer, one ordinary layer for each worker with the same weights, and a batch."""
    torch.manual_seed(0)
    ghost = models.GhostBatchNorm2d(6, workers)
    nn.init.normal_(ghost.weight)
    nn.init.normal_(ghost.bias)
    ordinary = [nn.BatchNorm2d(6) for _ in range(min(workers, batch))]
    for layer in ordinary:
        layer.load_state_dict(ghost.state_dict())
    return ghost, ordinary, torch.randn(batch, 6, 5, 5) * 3 + 2


# 4 workers with 8 each; 4 with 3, 3, 2, 2; more workers than examples.
@pytest.mark.parametrize(("workers", "batch"), [(4, 32), (4, 10), (8, 5)])
def test_ghost_batch_norm_equals_a_layer_for_each_share_and_running_estimates_follow_their_mean(workers, batch):
    ghost, ordinary, images = ghost_and_shares(workers, batch)
    direction = torch.randn_like(images)
    for _ in range(3):
        images = images * 1.5 + 1
        here, there = images.clone().requires_grad_(), images.clone().requires_grad_()
        parts = there.tensor_split(len(ordinary))
        out, expected = ghost(here), torch.cat([layer(part) for layer, part in zip(ordinary, parts, strict=True)])
        torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
    (out * direction).sum().backward()
    (expected * direction).sum().backward()
    torch.testing.assert_close(here.grad, there.grad, rtol=1e-4, atol=1e-5)
    for name in ("weight", "bias"):
        shares = torch.stack([getattr(layer, name).grad for layer in ordinary]).sum(0)
        torch.testing.assert_close(getattr(ghost, name).grad, shares, rtol=1e-4, atol=1e-4)
    for name in ("running_mean", "running_var"):
        mean = torch.stack([getattr(layer, name) for layer in ordinary]).mean(0)
        torch.testing.assert_close(getattr(ghost, name), mean, rtol=1e-5, atol=1e-5)


def test_ghost_batch_norm_is_compiled_for_every_width_that_comes(monkeypatch):
    run = Counter()

    def backend(graph, example):
        def call(*values):
            run["compiled"] += 1
            return graph.forward(*values)

        return call

    monkeypatch.setattr(models.torch, "compile", partial(torch.compile, backend=backend))
    models._compiled_ghost_normalize.cache_clear()
    try:
        normalize = models._compiled_ghost_normalize()
        widths = range(2, 12)  # more than torch compiles by default
        for width in widths:
            weight, bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
            out, *_ = normalize(torch.randn(4, width, 3, 3), 2, weight, bias, 1e-5)
            assert torch.allclose(out.mean((2, 3)).unflatten(0, (2, 2)).mean(1), torch.zeros(2, width), atol=1e-5)
    finally:
        models._compiled_ghost_normalize.cache_clear()
    assert run["compiled"] == len(widths)


def test_in_evaluation_ghost_batch_norm_is_ordinary_batch_norm():
    ghost, ordinary, images = ghost_and_shares(4, 32)
    ghost(images)
    plain = ordinary[0]
    plain.load_state_dict(ghost.state_dict())
    before = ghost.running_mean.clone()
    assert torch.equal(ghost.eval()(images * 2), plain.eval()(images * 2))
    assert torch.equal(ghost.running_mean, before)


# Building


def test_ghost_networks_have_the_weights_of_stock_ones():
    stock, ghost = (models.initialize("smallnet-8", 10, 1, workers, seed=4).state_dict() for workers in (1, 8))
    assert stock.keys() == ghost.keys()
    assert all(torch.equal(stock[name], ghost[name]) for name in stock)


@pytest.mark.parametrize(("name", "width"), WIDTHS.items())
def test_larger_networks_are_torchvisions_with_features_as_wide_as_they_say(name, width):
    with torch.device("meta"):  # shapes alone
        network = models.build(name, 1000).eval()
        features = models.features(network, name, torch.zeros(2, 3, 32, 32))
    parameters = sum(parameter.numel() for parameter in network.parameters())
    assert parameters == torchvision.models.get_model_weights(name).DEFAULT.meta["num_params"]
    assert features.shape == (2, width)
    assert models.require(name).feature_width == width


@pytest.mark.parametrize("name", [name for name in models.names() if name.startswith("smallnet")])
def test_the_small_networks_have_the_layers_in_their_name_and_the_features_they_say(name):
    network = models.build(name, 7, channels=1).eval()
    layers = [m for m in network.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(layers) == int(name.removeprefix("smallnet-"))
    with torch.no_grad():
        images = torch.randn(3, 1, 8, 8)
        features = models.features(network, name, images)
        assert features.shape == (3, models.require(name).feature_width)
        torch.testing.assert_close(network.fc(features), network(images))


def test_a_network_takes_images_of_any_number_of_channels():
    for name in (*models.names()[:4], "vgg11"):
        for channels in (1, 3, 4):
            with torch.device("meta"):  # shapes alone: the weights of VGG-11 take seconds
                assert models.build(name, 5, channels).eval()(torch.zeros(2, channels, 32, 32)).shape == (2, 5)


# Initial weights


def test_initial_weights_depend_on_the_seed_alone():
    def weights(seed: int) -> torch.Tensor:
        return torch.cat([p.flatten() for p in models.initialize("smallnet-4", 10, 1, 1, seed).parameters()])

    torch.manual_seed(1)
    first = weights(seed=5)
    torch.manual_seed(2)
    torch.rand(100)
    assert torch.equal(weights(seed=5), first)
    assert not torch.equal(weights(seed=6), first)
