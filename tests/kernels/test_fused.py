"""The fused step against torch's own operations and autograd; without a GPU, through Triton's interpreter."""

from copy import deepcopy

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from torch import nn
from torch.nn import functional as F
from torchvision.models.resnet import Bottleneck, ResNet

from dolb import models
from dolb.augment import DeviceImages, Place, draw_epoch
from dolb.kernels import flow as passes
from dolb.kernels import rules
from dolb.kernels.flow import Flow, Grid
from dolb.kernels.fused import FusedNetwork
from dolb.kernels.rules import Rule
from dolb.training.config import RunConfig
from dolb.training.step import EagerNetwork

pytestmark = pytest.mark.gpu if torch.cuda.is_available() else []
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TIGHT = {"rtol": 2e-4, "atol": 2e-5}  # float32 sums in another order


def small(workers: int) -> FusedNetwork:
    """A network of which only the first batch norm is used here."""
    torch.manual_seed(0)
    network = models.SmallResNet(1, 16, 10, 1, lambda n: models.GhostBatchNorm2d(n, workers)).to(DEVICE)
    with torch.no_grad():
        network.stem[1].weight.uniform_(0.5, 1.5)
        network.stem[1].bias.normal_()
    return FusedNetwork(network, workers, torch.float32, Rule(), 0.0)


def random(*shape: int, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    made = torch.randn(shape, generator=generator).to(DEVICE)
    return made.contiguous(memory_format=torch.channels_last) if made.ndim == 4 else made


def assert_torchs(network, workers, x, gradients, found, then=lambda normalized: normalized):
    """Compare an output and its gradients with batch norm of each worker's part by itself, and what follows, by torch.

    ``found`` is the output and the gradient of ``x``.
    """
    x = x.clone().requires_grad_()
    weight, bias = (p[:16].clone().requires_grad_() for p in network.norm_parameters)
    parts = [F.batch_norm(part, None, None, weight, bias, training=True) for part in x.tensor_split(workers)]
    want = then(torch.cat(parts))
    want.backward(sum(gradients))
    sums = (array.sum(0)[:16] for array in (network.weight_grads, network.bias_grads))
    for ours, theirs in zip((*found, *sums), (want, x.grad, weight.grad, bias.grad), strict=True):
        torch.testing.assert_close(ours, theirs, **TIGHT)


@pytest.mark.parametrize(("workers", "with_residual", "relu"), [(1, True, True), (3, True, True), (4, False, False)])
@pytest.mark.parametrize("tiled", [True, False], ids=["one launch", "three launches"])
def test_normalization_and_its_gradients_are_torchs(monkeypatch, workers, with_residual, relu, tiled):
    if not tiled:
        monkeypatch.setattr(passes, "LARGEST_TILE", 0)
        monkeypatch.setattr(passes, "PROGRAMS", 12)  # so that a program loops over tiles and chunks are joined
    network = small(workers)
    x, residual, first, second = (random(13, 16, 5, 5, seed=seed) for seed in range(4))
    assert (Grid(x, workers).tile() is not None) == tiled
    flow = Flow(network, training=True)
    out = flow.normalized(x, network.stem[1], residual if with_residual else None, relu)
    x_grad, residual_grad = flow.tape.pop()((first, second))
    residual.requires_grad_()

    def then(normalized):
        summed = normalized + residual if with_residual else normalized
        return summed.relu() if relu else summed

    assert_torchs(network, workers, x, (first, second), (out, x_grad), then)
    if with_residual:
        torch.testing.assert_close(residual_grad, residual.grad, **TIGHT)
    else:
        assert residual_grad is None


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("side", [6, 7])
def test_the_pooled_stem_and_its_gradients_are_torchs(workers, side):
    network = small(workers)
    x = random(5, 16, side, side)
    flow = Flow(network, training=True)
    out = flow.pooled(x, network.stem[1])
    first, second = random(*out.shape, seed=2), random(*out.shape, seed=3)
    x_grad, _ = flow.tape.pop()((first, second))
    assert_torchs(network, workers, x, (first, second), (out, x_grad), lambda y: F.max_pool2d(y.relu(), 3, 2, 1))


def test_a_nan_passes_normalization_and_pooling():
    network = small(1)
    x = random(2, 16, 4, 4)
    x[0, 3, 1, 1] = float("nan")
    flow = Flow(network, training=True)
    assert flow.normalized(x, network.stem[1])[:, 3].isnan().all()
    assert flow.pooled(x, network.stem[1])[:, 3].isnan().all()


def programs(network: nn.Module, workers: int, **changes) -> tuple[EagerNetwork, FusedNetwork]:
    values = {"data": "digits", "batch_size": 12, "lr": 0.05, "epochs": 1, "bn_workers": workers}
    config = RunConfig(**values | {"weight_decay": 5e-4, "label_smoothing": 0.1} | changes)
    plain, fast = (deepcopy(network).to(DEVICE).train() for _ in range(2))
    fast = fast.to(memory_format=torch.channels_last)
    rule = Rule(**{name: getattr(config, name) for name in Rule._fields})
    return EagerNetwork(plain, config), FusedNetwork(fast, workers, torch.float32, rule, 0.1)


def visits(images: np.ndarray, rates: list[float]) -> tuple[DeviceImages, Place]:
    labels = np.random.default_rng(1).integers(0, 10, len(images))
    channels = images.shape[-1]
    on_device = DeviceImages(images, labels, (0.5,) * channels, (0.25,) * channels, DEVICE, 2)
    place = Place.start(len(images), torch.tensor(rates, device=DEVICE))
    draw = draw_epoch(len(images), 0, 0, "crop-flip", 2)
    for name in ("order", "dy", "dx", "flip"):
        getattr(place, name).copy_(torch.from_numpy(getattr(draw, name)))
    return on_device, place


@pytest.mark.parametrize(("blocks", "workers"), [(1, 1), (2, 4)])
def test_steps_make_the_same_updates_as_torchs_modules_and_optimizer(blocks, workers):
    """A full batch and a rest that the workers do not share evenly, at two rates."""
    images = np.random.default_rng(0).integers(0, 256, (19, 8, 8, 1)).astype("uint8")
    ends = []
    torch.manual_seed(0)
    network = models.SmallResNet(blocks, 16, 10, 1, lambda n: models.GhostBatchNorm2d(n, workers))
    for program in programs(network, workers):
        on_device, place = visits(images, [0.05, 0.1, 0.0])
        for size in (12, 7):
            program.step(size, on_device, place)
        assert place.cursor.item() == 19
        assert place.updates.item() == 2
        ends.append((place.loss_sum, program.network.state_dict(), program.evaluate(on_device, 3, 12)))
    (plain_loss, plain, plain_scores), (fast_loss, fast, fast_scores) = ends
    torch.testing.assert_close(fast_loss, plain_loss, rtol=1e-5, atol=0)
    torch.testing.assert_close(fast_scores, plain_scores, **TIGHT)
    for name in plain:
        if not name.endswith("num_batches_tracked"):
            torch.testing.assert_close(fast[name], plain[name], **TIGHT, msg=name)


RULES = [
    {"optimizer": "sgd", "weight_decay_on": "filters"},
    {"optimizer": "nesterov"},
    {"optimizer": "lars", "trust": 0.02},
    {"optimizer": "lars", "weight_decay": 0.0, "weight_decay_on": "filters"},
    {"optimizer": "lamb"},
    {"optimizer": "lamb", "max_gradient_norm": 0.05, "weight_decay_on": "filters"},
    {"optimizer": "lamb", "max_gradient_norm": 0.0, "momentum": 0.0},
]


@pytest.mark.parametrize("changes", RULES, ids=str)
def test_every_optimizer_moves_weights_as_the_plain_one_does(monkeypatch, changes):
    """On the same gradients, over three updates at rates that rise; tensors of several chunks and of part of one."""
    monkeypatch.setattr(rules, "CHUNK", 1024)
    changes = {"weight_decay": 0.05} | changes
    plain, fast = programs(models.initialize("smallnet-4", 10, 1, 2, 0), 2, **changes)
    biases = [p for p in plain.network.parameters() if p.ndim == 1]
    with torch.no_grad():
        for one, other in zip(plain.network.parameters(), fast.network.parameters(), strict=True):
            if one.ndim == 1 and one is not biases[1]:  # a bias of batch norm stays zero, and its ratio 1
                one.add_(random(*one.shape, seed=one.numel()))
                other.copy_(one)
    fast.working.copy_(fast.weights)
    rates = torch.tensor([0.01, 0.03, 0.05, 0.0], device=DEVICE) * (20 if "lars" in str(changes) else 1)
    place = Place.start(1, rates)
    for number in range(3):
        given = [0.3 * random(*p.shape, seed=100 * number + k) for k, p in enumerate(plain.network.parameters())]
        for p, slope in zip(plain.network.parameters(), given, strict=True):
            p.grad = slope.contiguous()  # as autograd lays it out: the fused SGD of torch counts on it
        plain.rate.copy_(rates[number])
        plain.optimizer.step()
        put(fast, dict(zip(fast.network.parameters(), given, strict=True)))
        fast.update(fast, 2, place)
        place.updates.add_(1)
    moved = plain.network.state_dict()
    for name, weight in fast.network.named_parameters():
        torch.testing.assert_close(weight.detach(), moved[name], rtol=2e-5, atol=2e-6, msg=name)
    torch.testing.assert_close(fast.working, fast.weights)


def put(fast: FusedNetwork, slopes: dict[nn.Parameter, torch.Tensor]) -> None:
    """Put gradients where the backward pass would: of batch norms in two shares, of the stem in rows of its pitch."""
    fast.grads.zero_()
    for parameter, (working, grad) in fast.views.items():
        slope = slopes[parameter]
        rows = slope.permute(0, 2, 3, 1).reshape(len(slope), -1) if slope.ndim == 4 else slope.view(len(slope), -1)
        grad.view(len(working), -1)[:, : rows.shape[1]] = rows
    for module, norm in fast.norms.items():
        columns = slice(norm.offset, norm.offset + norm.width)
        for sums, parameter in ((fast.weight_grads, module.weight), (fast.bias_grads, module.bias)):
            sums[0, columns], sums[1, columns] = 0.25 * slopes[parameter], 0.75 * slopes[parameter]


def test_a_network_of_bottlenecks_scores_images_as_torchs_module_does():
    """By the running estimates: training statistics of few examples would amplify rounding from layer to layer."""
    torch.manual_seed(0)
    plain, fast = programs(ResNet(Bottleneck, [2, 1, 1, 1], num_classes=10), 1)
    pixels = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3)).astype("uint8")
    images, _ = visits(pixels, [0.0])
    torch.testing.assert_close(fast.evaluate(images, 1, 3), plain.evaluate(images, 1, 3), **TIGHT)


def test_a_network_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="Sequential cannot be fused; accepted: ResNet, SmallResNet"):
        FusedNetwork(nn.Sequential(nn.Linear(2, 2)), 1, torch.float32, Rule(), 0.0)
