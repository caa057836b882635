"""Curvature against what is known: quadratic functions, dense Hessians, and invariance to scale."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, hessian
from torch.nn import functional as F

from dolb import models
from dolb.training.convolution import convert
from dolb.training.curvature import (
    MeanLoss,
    filter_directions,
    filter_norms,
    hessian_vector_product,
    hutchinson_trace,
    lanczos,
    loss_surface,
    sharpness,
)


class Quadratic:
    """Half of x H x, looked at from a point."""

    def __init__(self, matrix, point):
        self.matrix, self.point = matrix, point

    def value(self, at):
        return float(at @ self.matrix @ at) / 2

    def gradient(self, at):
        return self.matrix @ at


def symmetric(values, seed=0):
    """Make a symmetric matrix with these eigenvalues, in random directions."""
    drawn = torch.from_numpy(np.random.default_rng(seed).standard_normal((len(values), len(values))))
    directions = torch.linalg.qr(drawn)[0]
    return directions @ torch.diag(torch.tensor(values, dtype=torch.float64)) @ directions.T


def trained(network, images, labels, steps=30, rate=0.05):
    """Train a little, batch norm with its own statistics, so that running estimates are those of the data."""
    optimizer = torch.optim.SGD(network.parameters(), rate, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(network(images), labels).backward()
        optimizer.step()
    return network.eval()


def tiny(dtype=torch.float64, examples=24):
    """Make a trained network of a few hundred weights, with convolution, batch norm and a linear layer."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 3, bias=False),
            nn.BatchNorm2d(3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 3),
        ).to(dtype)  # fmt: skip
        labels = torch.arange(examples) % 3
        images = torch.randn(examples, 1, 6, 6, dtype=dtype) + labels[:, None, None, None]
        return trained(network, images, labels), images, labels


@pytest.fixture(scope="module")
def loss():
    return MeanLoss(*tiny())


@pytest.fixture(scope="module")
def dense(loss):
    """The whole Hessian, by differentiating twice in forward and backward mode."""
    sizes = [shape.numel() for shape in loss.shapes]

    def mean_loss(flat):
        parts = [part.view(shape) for part, shape in zip(flat.split(sizes), loss.shapes, strict=True)]
        scores = functional_call(loss.network, dict(zip(loss.names, parts, strict=True)), (loss.images,))
        return F.cross_entropy(scores, loss.labels)

    return hessian(mean_loss)(loss.point)


# Products with the Hessian


def test_a_product_is_that_of_the_dense_hessian(loss, dense):
    vector = torch.from_numpy(np.random.default_rng(1).standard_normal(len(loss.point)))
    torch.testing.assert_close(hessian_vector_product(loss, vector), dense @ vector)


@pytest.mark.parametrize("products", [False, True])
def test_with_fast_gradients_a_product_is_the_same(loss, products):
    network, images, labels = tiny()
    fast = MeanLoss(convert(network, products), images, labels)
    vector = torch.from_numpy(np.random.default_rng(1).standard_normal(len(loss.point)))
    torch.testing.assert_close(hessian_vector_product(fast, vector), hessian_vector_product(loss, vector))


def test_batch_norm_goes_by_its_running_estimates_and_they_stay():
    network, images, labels = tiny()
    network.train()
    before = [buffer.clone() for buffer in network.buffers()]
    loss = MeanLoss(network, images, labels)
    hessian_vector_product(loss, torch.ones_like(loss.point))
    assert not network.training
    assert all(torch.equal(*pair) for pair in zip(before, network.buffers(), strict=True))
    # So the loss of an example does not depend on the others that are looked at.
    alone = MeanLoss(network, images[:1], labels[:1])
    torch.testing.assert_close(alone.by_example(alone.point)[0], loss.by_example(loss.point)[0][:1])


# Lanczos


def test_the_error_is_a_bound_also_where_it_has_not_converged():
    matrix = symmetric(list(np.linspace(0, 1, 200)))
    found = lanczos(matrix.matmul, matrix[0], most=6, tolerance=1e-6)
    assert len(found.basis) == 6
    assert 1e-6 * found.value < np.abs(np.linspace(0, 1, 200) - found.value).min() <= found.error


def test_eigenvalue_and_trace_of_a_network_are_those_of_its_dense_hessian(loss, dense):
    product = partial(hessian_vector_product, loss)
    found = lanczos(product, loss.point, tolerance=1e-8)
    assert found.value == pytest.approx(torch.linalg.eigvalsh(dense)[-1].item(), rel=1e-6)
    value, error = hutchinson_trace(product, loss.point, lanczos(product, loss.point), probes=40)
    assert abs(value - float(dense.trace())) < 4 * error < 0.4 * float(dense.trace())


# Sharpness


def test_several_steps_find_the_worst_of_the_ball():
    quadratic = Quadratic(torch.diag(torch.tensor([1.0, 9.0])), torch.tensor([0.01, 0.001]))
    angles = torch.linspace(0, 2 * torch.pi, 10_000)
    ball = quadratic.point + 0.5 * torch.stack([angles.cos(), angles.sin()], 1)
    worst = max(quadratic.value(at) for at in ball) - quadratic.value(quadratic.point)
    one, many = (sharpness(quadratic, 0.5, steps=steps)[0] for steps in (1, 30))
    assert one < many
    assert many == pytest.approx(worst, rel=1e-4)


def test_beyond_the_slope_a_rise_is_half_the_curvature_times_the_radius_squared():
    quadratic = Quadratic(torch.diag(torch.tensor([1.0, 9.0])), torch.tensor([0.0, 2.0]))
    # The gradient is (0, 18), and the curvature along it 9.
    rise, slope = sharpness(quadratic, 0.1)
    assert slope == pytest.approx(0.1 * 18, rel=1e-5)
    assert rise - slope == pytest.approx(9 * 0.1**2 / 2, rel=1e-4)
    assert sharpness(quadratic, 0.1, steps=5)[1] == slope


# Filters


def test_a_filter_is_the_weights_of_one_output_and_nothing_else_has_a_length(loss):
    norms = dict(zip(loss.names, filter_norms(loss).split([s.numel() for s in loss.shapes]), strict=True))
    weights = dict(loss.network.named_parameters())
    for name in ("0.weight", "8.weight"):
        expected = weights[name].detach().flatten(1).norm(dim=1, keepdim=True).expand(-1, weights[name][0].numel())
        torch.testing.assert_close(norms[name].view(expected.shape), expected)
    for name in ("1.weight", "1.bias", "8.bias"):
        assert not norms[name].any()


def measured(network, images, labels):
    """Return curvature and sharpness, as they are and with filters of length one."""
    loss = MeanLoss(network, images, labels)
    found = {}
    for name, scale in (("raw", 1.0), ("normalized", filter_norms(loss))):
        product = partial(hessian_vector_product, loss, scale=scale)
        known = lanczos(product, loss.point, tolerance=1e-7)
        trace, _ = hutchinson_trace(product, loss.point, known, probes=8)
        found[name] = np.array([known.value, trace, sharpness(loss, 0.01, scale=scale)[0]])
    return found


def rescaled(network, factor):
    """Make the first filters larger, their running estimates with them: the network computes the same."""
    with torch.no_grad():
        network[0].weight *= factor
        network[1].running_mean *= factor
        network[1].running_var *= factor**2
        network[1].eps *= factor**2
    return network


def test_only_with_filters_of_length_one_does_the_scale_of_weights_not_matter():
    before = measured(*tiny())
    network, images, labels = tiny()
    scores = network(images)
    rescaled(network, 10.0)
    torch.testing.assert_close(network(images), scores)
    after = measured(network, images, labels)
    np.testing.assert_allclose(after["normalized"], before["normalized"], rtol=1e-4)
    assert (np.abs(after["raw"] / before["raw"] - 1) > 0.02).all()


# The surface


def test_one_pass_gives_the_surface_of_every_set_and_its_middle_is_the_trained_network(loss):
    members = torch.zeros(2, len(loss.labels), dtype=torch.bool)
    members[0, :10] = members[1, 5:] = True
    losses, accuracies = loss_surface(loss, filter_directions(loss), [-1, 0, 1], members)
    assert losses.shape == accuracies.shape == (2, 3, 3)
    for chosen, row, right in zip(members, losses, accuracies, strict=True):
        alone = MeanLoss(loss.network, loss.images[chosen], loss.labels[chosen])
        np.testing.assert_allclose(
            row, loss_surface(alone, filter_directions(loss), [-1, 0, 1], chosen[chosen][None])[0, 0]
        )
        assert row[1, 1] == pytest.approx(alone.value(alone.point), rel=1e-12)
        assert right[1, 1] == pytest.approx(
            (alone.network(alone.images).argmax(1) == alone.labels).double().mean().item()
        )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_curvature_is_that_of_the_cpu_in_full_float32():
    network = models.initialize("resnet18", 10, 3, 1, seed=0)
    rng = np.random.default_rng(0)
    labels = torch.from_numpy(rng.integers(0, 10, 32))
    images = torch.from_numpy(rng.standard_normal((32, 3, 32, 32)).astype(np.float32))
    here = MeanLoss(trained(network, images, labels, steps=3, rate=0.01), images, labels)
    host = {name: value.clone() for name, value in network.state_dict().items()}
    there = models.build("resnet18", 10, 3)
    there.load_state_dict(host)
    device = MeanLoss(convert(there, products=True).cuda(), images.cuda(), labels.cuda())
    vector = torch.from_numpy(rng.standard_normal(len(here.point)).astype(np.float32))
    ours, reference = hessian_vector_product(device, vector.cuda()).cpu(), hessian_vector_product(here, vector)
    # Rounded to TF32, weights and images alone would move it by several percent.
    assert float((ours - reference).norm() / reference.norm()) < 1e-4
    found = [lanczos(partial(hessian_vector_product, loss), loss.point, most=12) for loss in (device, here)]
    assert found[0].value == pytest.approx(found[1].value, rel=1e-3)
