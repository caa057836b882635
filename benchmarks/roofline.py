"""What a training step must compute and move at least, counted from the network, and what a device can do at most."""

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dolb import models

HALF = 2  # bytes of an activation or a working weight
# A weight is read by the forward and the backward pass, its gradient is written and read, and the update reads and
# writes master weight and velocity in float32 and writes the working copy.
WEIGHT_BYTES = 2 * HALF + 2 * HALF + 4 * 4 + HALF


@dataclass(frozen=True)
class Work:
    """The arithmetic of a training step and the least bytes it moves: so much for each image, and so much at all."""

    image_flops: float
    image_bytes: float
    fixed_bytes: float

    def flops(self, batch_size: int) -> float:
        """Return the floating-point operations of a step."""
        return self.image_flops * batch_size

    def bytes(self, batch_size: int) -> float:
        """Return the bytes that a step moves at least."""
        return self.image_bytes * batch_size + self.fixed_bytes


def count(arch: str, image_shape: tuple[int, int, int] = (32, 32, 3), num_classes: int = 10) -> Work:
    """Count a step of a network with batch norm after each convolution, in bfloat16.

    Arithmetic is that of the convolutions and the last layer: forward, gradient of the input, gradient of the weight.
    Memory is that of activations, each pass counted once. Batch norm needs a whole output before it can scale any of
    it, so forward an output is written, read, and written normalized, and the input is read; backward its gradient and
    the output are read once for the sums and once more for the result, which is written, read with the input for the
    weight's gradient, and turned into the input's gradient. What fits in cache could move less.
    """
    height, width, channels = image_shape
    network = models.build(arch, num_classes, channels).eval()
    layers: list[tuple[nn.Module, int, int]] = []

    def note(module: nn.Module, given: Any, out: torch.Tensor) -> None:
        layers.append((module, given[0][0].numel(), out[0].numel()))

    hooks = [m.register_forward_hook(note) for m in network.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    with torch.no_grad():
        network(torch.zeros(1, channels, height, width))
    for hook in hooks:
        hook.remove()
    flops, moved = 0.0, 0.0
    for position, (module, inputs, outputs) in enumerate(layers):
        weight: Any = module.weight
        passes = 2 if position == 0 else 3  # the images need no gradient
        flops += passes * 2.0 * weight[0].numel() * outputs
        moved += HALF * (passes * inputs + 9 * outputs)
    weights = sum(p.numel() for p in network.parameters())
    return Work(flops, moved, weights * WEIGHT_BYTES)


def peaks(device: torch.device) -> tuple[float, float]:
    """Measure the fastest bfloat16 matrix product, in FLOP/s, and the fastest copy, in bytes/s, of a CUDA device."""
    side = 8192
    left, right = (torch.randn(side, side, device=device, dtype=torch.bfloat16) for _ in range(2))
    product = torch.empty_like(left)
    source = torch.empty(2**31, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    flops = 2.0 * side**3 / _seconds(lambda: torch.mm(left, right, out=product), device)
    return flops, 2.0 * source.numel() / _seconds(lambda: target.copy_(source), device)


def _seconds(work: Any, device: torch.device, repeats: int = 20) -> float:
    for _ in range(5):
        work()
    torch.cuda.synchronize(device)
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    torch.cuda.synchronize(device)
    return (time.perf_counter() - start) / repeats
