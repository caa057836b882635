"""The fused step: a residual network whose forward pass, backward pass and update are few launches of large kernels.

Convolutions and the last layer stay cuDNN's and cuBLAS's; everything between them is in ``norm``, ``step`` and
``update``. The backward pass is written out (``flow``), so that a gradient is summed, masked and stored by the kernel
that needs it. All weights lie in one array, their velocities and working copies in others, so that an update is one
pass.
"""

from __future__ import annotations

from typing import Any

import torch
import torchvision
from torch import nn

from dolb.augment import DeviceImages, Place
from dolb.kernels import step as steps
from dolb.kernels.flow import Arrays, Block, Conv, Flow, Layer, Stem, blocks_of
from dolb.kernels.rules import Rule, Update
from dolb.models import SmallResNet


class FusedNetwork(Arrays):
    """A residual network on a device, with its gradients and its optimizer."""

    def __init__(self, network: nn.Module, workers: int, dtype: torch.dtype, rule: Rule, smoothing: float):
        if not isinstance(network, (torchvision.models.ResNet, SmallResNet)):
            raise ValueError(f"{type(network).__name__} cannot be fused; accepted: ResNet, SmallResNet")
        self.network, self.smoothing = network, smoothing
        parts: Any = network  # torch types a module's attributes as tensors or modules
        if isinstance(network, SmallResNet):
            stem, self.pooled, stages = parts.stem[:2], False, [parts.blocks]
        else:
            stem, self.pooled = (parts.conv1, parts.bn1), True
            stages = [parts.layer1, parts.layer2, parts.layer3, parts.layer4]
        super().__init__(network, stem[0], workers, dtype)
        self.update = Update(self, rule)
        self.stem = Stem(
            *self.views[stem[0].weight], stem[0].kernel_size[0], stem[0].stride[0], stem[0].padding[0]
        ), self.norms[stem[1]]  # fmt: skip
        self.blocks = [self._block(block) for stage in stages for block in stage]
        self.last: nn.Linear = parts.fc

    def _layer(self, conv: Any, norm: nn.Module) -> Layer:
        return Conv(*self.views[conv.weight], list(conv.stride), list(conv.padding)), self.norms[norm]

    def _block(self, block: Any) -> Block:
        numbers = (1, 2, 3) if hasattr(block, "conv3") else (1, 2)
        layers = [self._layer(getattr(block, f"conv{i}"), getattr(block, f"bn{i}")) for i in numbers]
        return Block(layers, self._layer(*block.downsample) if block.downsample is not None else None)

    def step(self, size: int, images: DeviceImages, place: Place) -> None:
        """Make the next batch of ``size``, and train on it."""
        flow = Flow(self, training=True)
        scores, labels = self._scores(flow, size, images, place)
        losses = torch.empty(size, device=self.device)
        slopes = torch.empty_like(scores)
        classes = scores.shape[1]
        steps.cross_entropy[(blocks_of(size, 32),)](
            scores, labels, losses, slopes, size, classes, self.smoothing,
            ROWS=32, CLASSES=max(2, 1 << (classes - 1).bit_length()),
        )  # fmt: skip
        flow.undone(slopes)
        self.update(self, min(self.workers, size), place)
        steps.advance[(1,)](losses, place.loss_sum, place.cursor, place.updates, size, BLOCK=1024)

    def state(self) -> list[torch.Tensor]:
        """Return the tensors that training changes."""
        return [*super().state(), *self.update.state()]

    def evaluate(self, images: DeviceImages, start: int, stop: int) -> torch.Tensor:
        """Return the scores of images start..stop, as they are, by the running estimates."""
        size = stop - start
        place = Place.start(size, self.weights)
        place.order.copy_(torch.arange(start, stop, device=self.device))
        for shift in (place.dy, place.dx):
            shift.fill_(images.pad)
        self.running_inverses.copy_(torch.rsqrt(self.running[1] + self.stem[1].eps))
        return self._scores(Flow(self, training=False), size, images, place)[0]

    def forget_gradients(self) -> None:
        """Drop nothing: gradients live in memory of the network's own."""

    def _scores(self, flow: Flow, size: int, images: DeviceImages, place: Place) -> tuple[torch.Tensor, torch.Tensor]:
        stem, norm = self.stem
        sides = images.height, images.width
        height, width = ((side + 2 * stem.padding - stem.kernel) // stem.stride + 1 for side in sides)
        patches = torch.empty(size * height * width, stem.weight.shape[1], dtype=self.dtype, device=self.device)
        labels = torch.empty(size, dtype=torch.int64, device=self.device)
        steps.make_patches[(size, blocks_of(patches.numel() // size, 1024))](
            images.images, images.labels, place.order, place.dy, place.dx, place.flip, place.cursor, images.table,
            patches, labels, images.height, images.pad, images.width, images.channels, stem.kernel, stem.stride,
            stem.padding, width, stem.weight.shape[1], height, BLOCK=1024,
        )  # fmt: skip
        x = flow.begun(patches, stem, (size, height, width))
        x = flow.pooled(x, norm) if self.pooled else flow.normalized(x, norm)
        for block in self.blocks:
            x = flow.through(x, block)
        return flow.classified(flow.averaged(x), self.last), labels
