"""Convolutions for CPUs on which torch's own have slow gradients: the same sums, as a few large matrix products.

On 64-bit Arm oneDNN has a fast convolution but no fast gradients of it, and torch's own gradients multiply example by
example, which late layers, of many channels and few pixels, suffer from most. Here a gradient is one product over the
whole batch, or oneDNN's convolution with the kernel turned round. Training ResNet-18 with batches of 32 on two
Neoverse-N1 cores: `benchmarks/cpu_step.py` measures it, and the book's page on the engine shows it.
"""

import platform
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Pair = tuple[int, int]


def with_fast_gradients(network: nn.Module) -> nn.Module:
    """Give the network's convolutions these gradients where torch's are slow (64-bit Arm); elsewhere change nothing."""
    return convert(network) if platform.machine() in ("aarch64", "arm64") else network


def convert(network: nn.Module) -> nn.Module:
    """Give the network's plain convolutions these gradients, in place; weights and their names stay as they are."""
    for module in network.modules():
        if type(module) is nn.Conv2d and _is_plain(module):
            module.__class__ = Convolution
    return network


def _is_plain(module: nn.Conv2d) -> bool:
    zeros = module.padding_mode == "zeros" and not isinstance(module.padding, str)
    return zeros and module.bias is None and module.groups == 1 and module.dilation == (1, 1)


class Convolution(nn.Conv2d):
    """A convolution without bias, groups or dilation that leaves out kernel taps which only ever meet padding."""

    def _conv_forward(self, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        assert not isinstance(self.padding, str)  # `convert` sees to that, and to the bias
        rows, columns = (
            _reach(input.shape[2 + i], self.kernel_size[i], self.stride[i], self.padding[i]) for i in (0, 1)
        )
        if (len(rows), len(columns)) != self.kernel_size:
            weight = weight[:, :, rows.start : rows.stop, columns.start : columns.stop].contiguous()
        padding = (self.padding[0] - rows.start, self.padding[1] - columns.start)
        if torch.is_autocast_enabled(input.device.type):
            half = torch.get_autocast_dtype(input.device.type)
            input, weight = input.to(half), weight.to(half)
        return _Convolve.apply(input, weight, self.stride, padding)


def _reach(size: int, kernel: int, stride: int, padding: int) -> range:
    """Return the taps of a kernel that meet a pixel: of 3 over an image of 1 pixel, framed by 1, the middle one."""
    steps = (size + 2 * padding - kernel) // stride
    taps = range(max(0, padding - steps * stride), min(kernel, size + padding))
    before = padding - taps.start
    after = steps * stride + len(taps) - size - before
    return taps if before == after else range(kernel)  # torch pads both sides alike


class _Convolve(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(images: torch.Tensor, weight: torch.Tensor, stride: Pair, padding: Pair) -> torch.Tensor:
        return F.conv2d(images, weight, None, stride, padding)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: torch.Tensor) -> None:
        images, weight, ctx.stride, ctx.padding = inputs
        ctx.save_for_backward(images, weight)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None, None]:
        (grad,), (images, weight) = grads, ctx.saved_tensors
        of_images = of_weight = None
        if ctx.needs_input_grad[0]:
            of_images = _gradient_of_images(grad, images, weight, ctx.stride, ctx.padding)
        if ctx.needs_input_grad[1]:
            of_weight = _gradient_of_weight(grad, images, weight, ctx.stride, ctx.padding)
        return of_images, of_weight, None, None


def _gradient_of_weight(
    grad: torch.Tensor, images: torch.Tensor, weight: torch.Tensor, stride: Pair, padding: Pair
) -> torch.Tensor:
    outputs, channels, height, width = weight.shape
    # Windows with channels innermost: their copy moves whole runs of memory.
    framed = F.pad(images.permute(0, 2, 3, 1), (0, 0, padding[1], padding[1], padding[0], padding[0]))
    windows = framed.unfold(1, height, stride[0]).unfold(2, width, stride[1]).permute(0, 1, 2, 4, 5, 3)
    product = _by_channel(grad) @ windows.reshape(-1, height * width * channels)
    return product.view(outputs, height, width, channels).permute(0, 3, 1, 2)


def _gradient_of_images(
    grad: torch.Tensor, images: torch.Tensor, weight: torch.Tensor, stride: Pair, padding: Pair
) -> torch.Tensor:
    kernel = weight.shape[2:]
    around = (kernel[0] - 1 - padding[0], kernel[1] - 1 - padding[1])
    pixels = grad.shape[2] * grad.shape[3]
    if stride == (1, 1) and min(around) >= 0 and pixels > 1:
        return F.conv2d(grad, weight.flip(2, 3).transpose(0, 1), None, 1, around)
    windows = weight.flatten(1).t() @ _by_channel(grad)
    windows = windows.view(-1, len(grad), pixels).transpose(0, 1)
    return F.fold(windows, images.shape[2:], kernel, padding=padding, stride=stride)


def _by_channel(grad: torch.Tensor) -> torch.Tensor:
    return grad.transpose(0, 1).flatten(1)
