"""Fast convolution gradients are torch's own numbers, for the shapes networks have and at any order."""

import itertools
from functools import partial

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from dolb import models
from dolb.training.convolution import ByProducts, Convolution, convert

torch.manual_seed(0)


def gradients(module: nn.Module, images: torch.Tensor) -> list[torch.Tensor]:
    images = images.clone().requires_grad_()
    out = module(images)
    pull = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    return [out, *torch.autograd.grad(out, [images, *module.parameters()], pull)]


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "size"),
    [
        shape
        for shape in itertools.product((1, 3, 7), (1, 2), (0, 1, 3), (1, 4, 9))
        if shape[3] + 2 * shape[2] >= shape[0]
    ],
)
@pytest.mark.parametrize("products", [False, True])
def test_output_and_gradients_are_those_of_torch(kernel, stride, padding, size, products):
    plain = nn.Conv2d(3, 4, kernel, stride, padding, bias=False).double()
    images = torch.randn(2, 3, size, size + 1, dtype=torch.float64)
    expected = gradients(plain, images)
    assert type(convert(plain, products)) is (ByProducts if products else Convolution)
    for ours, theirs in zip(gradients(plain, images), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("products", [False, True])
@pytest.mark.parametrize(("stride", "size"), [(1, 3), (2, 3), (2, 4), (1, 1)])
def test_second_derivatives_are_right(stride, size, products):
    layer = convert(nn.Conv2d(2, 2, 3, stride, 1, bias=False).double(), products)
    images = torch.randn(2, 2, size, size, dtype=torch.float64, requires_grad=True)
    weight = layer.weight.detach().clone().requires_grad_()
    convolve = partial(functional_call, layer)
    assert torch.autograd.gradgradcheck(lambda images, weight: convolve({"weight": weight}, images), (images, weight))


def test_a_network_keeps_its_weights_and_gets_the_same_gradients():
    plain, fast = (models.initialize("resnet18", 10, 3, 1, 0).double() for _ in range(2))
    convert(fast)
    assert list(fast.state_dict()) == list(plain.state_dict())
    kinds = {type(module) for module in fast.modules()}
    assert Convolution in kinds
    assert nn.Conv2d not in kinds
    images, labels = torch.randn(4, 3, 32, 32, dtype=torch.float64), torch.arange(4)
    for network in (plain, fast):
        F.cross_entropy(network(images), labels).backward()
    for ours, theirs in zip(fast.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-8, atol=1e-10)


def test_half_precision_keeps_gradients_of_the_weights_in_full():
    layer = convert(nn.Conv2d(3, 4, 3, padding=1, bias=False))
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(torch.randn(2, 3, 4, 4))
    out.float().sum().backward()
    assert out.dtype == torch.bfloat16
    assert layer.weight.grad.dtype == torch.float32


@pytest.mark.parametrize("changes", [{"groups": 2}, {"dilation": 2}, {"bias": True}, {"padding": "same"}])
def test_other_convolutions_stay_as_they_are(changes):
    layer = nn.Conv2d(4, 4, 3, **{"bias": False, **changes})
    assert type(convert(layer)) is nn.Conv2d
