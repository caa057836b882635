"""What a step must compute and move, counted from the network."""

import pytest
import torch
import torchvision

from benchmarks import roofline
from dolb import models


@pytest.mark.parametrize("arch", ["resnet18", "resnet50"])
def test_the_arithmetic_is_what_torchvision_states_for_imagenet_and_twice_as_much_backward(arch):
    """torchvision states multiply-adds of the forward pass; the images of the first layer need no gradient."""
    stated = torchvision.models.get_model_weights(arch).DEFAULT.meta["_ops"] * 1e9
    first = 2 * 64 * 112 * 112 * 7 * 7 * 3
    counted = roofline.count(arch, (224, 224, 3), 1000).image_flops
    assert counted == pytest.approx(3 * 2 * stated - first, rel=0.01)


def test_bytes_grow_with_the_batch_from_what_the_weights_alone_need():
    work = roofline.count("resnet18")
    weights = sum(p.numel() for p in models.build("resnet18", 10).parameters())
    assert work.bytes(0) == roofline.WEIGHT_BYTES * weights
    assert work.bytes(20) - work.bytes(10) == pytest.approx(10 * work.image_bytes)
    assert work.flops(20) == 2 * work.flops(10)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_device_multiplies_and_copies_at_a_plausible_speed():
    flops, bandwidth = roofline.peaks(torch.device("cuda"))
    assert 1e12 < flops < 1e16
    assert 1e11 < bandwidth < 1e14
