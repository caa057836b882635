"""The fused step: a residual network whose forward pass, backward pass and update are few launches of large kernels.

Convolutions and the last layer stay cuDNN's and cuBLAS's; everything between them is in ``norm_kernels`` and
``step_kernels``. The backward pass is written out, so that a gradient is summed, masked and stored by the kernel that
needs it. All weights lie in one array, their velocities and working copies in others, so that an update is one pass.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torchvision
from torch import nn

from dolb.augment import DeviceImages
from dolb.kernels import step as steps
from dolb.kernels.flow import Back, Block, Conv, Flow, Gradients, Layer, Norm, Stem, blocks_of
from dolb.models import SmallResNet
from dolb.training.place import Place

ALIGNMENT = 64  # elements: 128 bytes of the smallest type, what the fastest convolutions want
FOLLOW = 0.1  # how far batch norm's running estimates move towards a batch's: torch's own default


def supports(network: nn.Module) -> bool:
    """Whether a network has the shape that this module knows."""
    return isinstance(network, (torchvision.models.ResNet, SmallResNet))


class FusedNetwork:
    """A residual network on a device, with its gradients and its optimizer.

    The module's own parameters and buffers become views of the arrays here, so its ``state_dict`` stays true.
    """

    def __init__(
        self,
        network: nn.Module,
        workers: int,
        dtype: torch.dtype,
        momentum: float,
        weight_decay: float,
        smoothing: float,
    ):
        if not supports(network):
            raise ValueError(f"{type(network).__name__} cannot be fused; accepted: ResNet, SmallResNet")
        self.module, self.workers, self.dtype = network, workers, dtype
        self.momentum, self.weight_decay, self.smoothing = momentum, weight_decay, smoothing
        self.device = next(network.parameters()).device
        parts: Any = network  # torch types a module's attributes as tensors or modules
        if isinstance(network, SmallResNet):
            stem, self.pooled, stages = parts.stem[:2], False, [parts.blocks]
        else:
            stem, self.pooled = (parts.conv1, parts.bn1), True
            stages = [parts.layer1, parts.layer2, parts.layer3, parts.layer4]
        self._gather_weights(network, stem[0])
        self._gather_norms(network)
        self.stem = Stem(
            *self.views[stem[0].weight], stem[0].kernel_size[0], stem[0].stride[0], stem[0].padding[0]
        ), self._norms[stem[1]]  # fmt: skip
        self.blocks = [self._block(block) for stage in stages for block in stage]
        self.last: nn.Linear = parts.fc
        self.tape: list[Back] = []
        self.slopes: list[tuple[torch.Tensor, torch.Tensor]] = []  # where a weight's gradient goes, and the gradient

    # -- where everything lies ----------------------------------------------------------------------------------------

    def _gather_weights(self, network: nn.Module, stem: nn.Conv2d) -> None:
        inside = [m for m in network.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
        parameters = [p for module in inside for p in module.parameters(recurse=False)]
        pitches = [_pitch(p) if p is stem.weight else p[0].numel() for p in parameters]
        spans = [len(p) * pitch for p, pitch in zip(parameters, pitches, strict=True)]
        sizes = [math.ceil(span / ALIGNMENT) * ALIGNMENT for span in spans]
        self.weights = torch.zeros(sum(sizes), device=self.device)
        self.velocities = torch.zeros_like(self.weights)
        self.working = self.weights if self.dtype == torch.float32 else torch.zeros_like(self.weights, dtype=self.dtype)
        self.grads = torch.zeros_like(self.working)
        self.views: dict[nn.Parameter, tuple[torch.Tensor, torch.Tensor]] = {}  # working copy, and flat gradient
        start = 0
        for parameter, pitch, span, size in zip(parameters, pitches, spans, sizes, strict=True):
            stretch = slice(start, start + span)
            master, working = (
                _laid_out(array[stretch], parameter.shape, pitch) for array in (self.weights, self.working)
            )
            master.copy_(parameter.detach())
            parameter.data = master
            # The stem's is a matrix of windows, with zeros where a row is longer than one.
            self.views[parameter] = (
                self.working[stretch].view(-1, pitch) if parameter is stem.weight else working, self.grads[stretch]
            )  # fmt: skip
            start += size
        self.working.copy_(self.weights)

    def _gather_norms(self, network: nn.Module) -> None:
        inside = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
        self.total = sum(m.num_features for m in inside)
        self.norm_parameters, self.norm_velocities, self.running = (
            torch.zeros(2, self.total, device=self.device) for _ in range(3)
        )
        self.means, self.variances, self.inverses, self.weight_grads, self.bias_grads = (
            torch.zeros(self.workers, self.total, device=self.device) for _ in range(5)
        )
        self.running_inverses = torch.zeros(self.total, device=self.device)
        self._norms: dict[nn.Module, Norm] = {}
        start = 0
        for module in inside:
            columns = slice(start, start + module.num_features)
            for row, parameter, buffer in ((0, "weight", "running_mean"), (1, "bias", "running_var")):
                for array, name in ((self.norm_parameters, parameter), (self.running, buffer)):
                    view = array[row, columns]
                    view.copy_(getattr(module, name).detach())
                    getattr(module, name).data = view
            self._norms[module] = Norm(start, module.num_features, module.eps)
            start += module.num_features

    def _layer(self, conv: Any, norm: nn.Module) -> Layer:
        return Conv(*self.views[conv.weight], list(conv.stride), list(conv.padding)), self._norms[norm]

    def _block(self, block: Any) -> Block:
        numbers = (1, 2, 3) if hasattr(block, "conv3") else (1, 2)
        layers = [self._layer(getattr(block, f"conv{i}"), getattr(block, f"bn{i}")) for i in numbers]
        return Block(layers, self._layer(*block.downsample) if block.downsample is not None else None)

    def state(self) -> list[torch.Tensor]:
        """Return the tensors that training changes."""
        return [
            self.weights, self.velocities, self.working, self.norm_parameters, self.norm_velocities, self.running
        ]  # fmt: skip

    # -- one step -----------------------------------------------------------------------------------------------------

    def step(self, size: int, images: DeviceImages, place: Place) -> None:
        """Make the next batch of ``size``, and train on it."""
        self.tape.clear()
        scores, labels = self._scores(size, images, place, training=True)
        losses = torch.empty(size, device=self.device)
        slopes = torch.empty_like(scores)
        classes = scores.shape[1]
        steps.cross_entropy[(blocks_of(size, 32),)](
            scores, labels, losses, slopes, size, classes, self.smoothing,
            ROWS=32, CLASSES=max(2, 1 << (classes - 1).bit_length()),
        )  # fmt: skip
        gradients: Gradients = slopes, None
        while self.tape:
            gradients = self.tape.pop()(gradients)
        self._update(min(self.workers, size), place)
        self.slopes.clear()
        steps.advance[(1,)](losses, place.loss_sum, place.cursor, place.updates, size, BLOCK=1024)

    def _update(self, shares: int, place: Place) -> None:
        torch._foreach_copy_([into for into, _ in self.slopes], [slope for _, slope in self.slopes])
        size = self.weights.numel()
        steps.update_weights[(blocks_of(size, 1024),)](
            self.grads, self.weights, self.velocities, self.working, place.rates, place.updates, size,
            self.momentum, self.weight_decay, BLOCK=1024,
        )  # fmt: skip
        steps.update_norms[(blocks_of(self.total, 128),)](
            self.norm_parameters, self.norm_velocities, self.weight_grads, self.bias_grads, self.running, self.means,
            self.variances, place.rates, place.updates, self.total, shares, self.momentum, self.weight_decay, FOLLOW,
            BLOCK=128,
        )  # fmt: skip

    def evaluate(self, images: DeviceImages, start: int, stop: int) -> torch.Tensor:
        """Return the scores of images start..stop, as they are, by the running estimates."""
        size = stop - start
        place = Place.start(size, self.weights)
        place.order.copy_(torch.arange(start, stop, device=self.device))
        for shift in (place.dy, place.dx):
            shift.fill_(images.pad)
        self.running_inverses.copy_(torch.rsqrt(self.running[1] + self.stem[1].eps))
        return self._scores(size, images, place, training=False)[0]

    def forget_gradients(self) -> None:
        """Drop nothing: gradients live in memory of the network's own."""

    def _scores(
        self, size: int, images: DeviceImages, place: Place, training: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        stem, norm = self.stem
        height, width = ((side + 2 * stem.padding - stem.kernel) // stem.stride + 1 for side in images.sides)
        patches = torch.empty(size * height * width, stem.weight.shape[1], dtype=self.dtype, device=self.device)
        labels = torch.empty(size, dtype=torch.int64, device=self.device)
        steps.make_patches[(size, blocks_of(patches.numel() // size, 1024))](
            images.images, images.labels, place.order, place.dy, place.dx, place.flip, place.cursor, images.table,
            patches, labels, images.height, images.pad, images.width, images.channels, stem.kernel, stem.stride,
            stem.padding, width, stem.weight.shape[1], height, BLOCK=1024,
        )  # fmt: skip
        flow = Flow(self, training)
        x = flow.begun(patches, stem, (size, height, width))
        x = flow.pooled(x, norm) if self.pooled else flow.normalized(x, norm)
        for block in self.blocks:
            x = flow.through(x, block)
        return flow.classified(flow.averaged(x), self.last), labels


def _pitch(weight: torch.Tensor) -> int:
    """Return the length of a matrix's row that holds a window and starts where fast products want it."""
    return math.ceil(weight[0].numel() / 8) * 8


def _laid_out(flat: torch.Tensor, shape: torch.Size, pitch: int) -> torch.Tensor:
    """View a stretch of an array in a parameter's shape, convolutions channels_last."""
    if len(shape) != 4:
        return flat.view(shape)
    outputs, inputs, height, width = shape
    rows = flat.view(outputs, pitch)[:, : inputs * height * width]
    return rows.unflatten(1, (height, width, inputs)).permute(0, 3, 1, 2)
