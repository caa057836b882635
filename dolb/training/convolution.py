"""Convolutions whose gradients, of first and second order, are a few large matrix products: the same sums, sooner.

On 64-bit Arm oneDNN has a fast convolution but no fast gradients of it, and torch's own gradients multiply example by
example, which late layers, of many channels and few pixels, suffer from most. Here a gradient is one product over the
whole batch, or oneDNN's convolution with the kernel turned round. Training ResNet-18 with batches of 32 on two
Neoverse-N1 cores: `benchmarks/cpu_step.py` measures it, and the book's page on the engine shows it.

Products with a Hessian differentiate a gradient, and torch writes that as convolutions whose kernels are whole images,
which cuDNN is slow at in float32. Here they are the same three sums again.
"""

import platform
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

Pair = tuple[int, ...]


class How(NamedTuple):
    """How kernels move over images, and whether everything is a product of windows, the convolution itself too."""

    stride: Pair
    padding: Pair
    products: bool


def with_fast_gradients(network: nn.Module) -> nn.Module:
    """Give the network's convolutions these gradients where torch's are slow (64-bit Arm); elsewhere change nothing."""
    return convert(network) if platform.machine() in ("aarch64", "arm64") else network


def convert(network: nn.Module, products: bool = False) -> nn.Module:
    """Give the network's plain convolutions these gradients, in place; weights and their names stay as they are.

    With ``products`` nothing is left to the device's own convolution, which pays on GPUs in float32.
    """
    for module in network.modules():
        if type(module) is nn.Conv2d and _is_plain(module):
            module.__class__ = ByProducts if products else Convolution
    return network


def _is_plain(module: nn.Conv2d) -> bool:
    zeros = module.padding_mode == "zeros" and not isinstance(module.padding, str)
    return zeros and module.bias is None and module.groups == 1 and module.dilation == (1, 1)


class Convolution(nn.Conv2d):
    """A convolution without bias, groups or dilation that leaves out kernel taps which only ever meet padding."""

    products = False

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
        return _Convolve.apply(input, weight, How(self.stride, padding, self.products))


class ByProducts(Convolution):
    """The same, with nothing left to the device's own convolution."""

    products = True


def _reach(size: int, kernel: int, stride: int, padding: int) -> range:
    """Return the taps of a kernel that meet a pixel: of 3 over an image of 1 pixel, framed by 1, the middle one."""
    steps = (size + 2 * padding - kernel) // stride
    taps = range(max(0, padding - steps * stride), min(kernel, size + padding))
    before = padding - taps.start
    after = steps * stride + len(taps) - size - before
    return taps if before == after else range(kernel)  # torch pads both sides alike


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(images: torch.Tensor, weight: torch.Tensor, how: How) -> torch.Tensor:
        return _convolved(images, weight, how)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: torch.Tensor) -> None:
        images, weight, ctx.how = inputs
        ctx.save_for_backward(images, weight)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None]:
        return *_Gradients.apply(*grads, *ctx.saved_tensors, ctx.how, ctx.needs_input_grad[:2]), None


class _Gradients(torch.autograd.Function):
    """The gradients of images and weight, those that are wanted; each is linear in what it is made of."""

    @staticmethod
    def forward(
        grad: torch.Tensor, images: torch.Tensor, weight: torch.Tensor, how: How, wanted: tuple[bool, bool]
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        return (
            _gradient_of_images(grad, images, weight, how) if wanted[0] else None,
            _gradient_of_weight(grad, images, weight, how) if wanted[1] else None,
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        grad, images, weight, ctx.how, _ = inputs
        ctx.save_for_backward(grad, images, weight)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        (like_images, like_weight), (grad, images, weight), how = grads, ctx.saved_tensors, ctx.how
        of_grad = of_images = of_weight = None
        if like_images is not None:
            of_grad = _convolved(like_images, weight, how)
            of_weight = _gradient_of_weight(grad, like_images, weight, how)
        if like_weight is not None:
            more = _convolved(images, like_weight, how)
            of_grad = more if of_grad is None else of_grad + more
            if ctx.needs_input_grad[1]:
                of_images = _gradient_of_images(grad, images, like_weight, how)
        return of_grad, of_images, of_weight, None, None


def _convolved(images: torch.Tensor, weight: torch.Tensor, how: How) -> torch.Tensor:
    if not how.products:
        return F.conv2d(images, weight, None, how.stride, how.padding)
    windows = _windows(images, weight, how)
    turned = weight.permute(2, 3, 1, 0).flatten(0, 2)
    return (windows.reshape(-1, len(turned)) @ turned).view(*windows.shape[:3], -1).permute(0, 3, 1, 2)


def _gradient_of_weight(grad: torch.Tensor, images: torch.Tensor, weight: torch.Tensor, how: How) -> torch.Tensor:
    outputs, channels, height, width = weight.shape
    product = _by_channel(grad) @ _windows(images, weight, how).reshape(-1, height * width * channels)
    return product.view(outputs, height, width, channels).permute(0, 3, 1, 2)


def _gradient_of_images(grad: torch.Tensor, images: torch.Tensor, weight: torch.Tensor, how: How) -> torch.Tensor:
    kernel, size = weight.shape[2:], images.shape[2:]
    around = (kernel[0] - 1 - how.padding[0], kernel[1] - 1 - how.padding[1])
    pixels = grad.shape[2] * grad.shape[3]
    if min(around) >= 0 and (how.products or (how.stride == (1, 1) and pixels > 1)):
        turned = weight.flip(2, 3).transpose(0, 1)
        if how.stride != (1, 1):
            # As far apart as the windows were; what no window reached at the end gets nothing.
            rows, columns = (size[i] + 2 * how.padding[i] + 1 - kernel[i] for i in (0, 1))
            apart = grad.new_zeros(len(grad), rows, columns, len(weight)).permute(0, 3, 1, 2)
            apart[:, :, :: how.stride[0], :: how.stride[1]] = grad
            grad = apart
        return _convolved(grad, turned, How((1, 1), around, how.products))
    windows = weight.flatten(1).t() @ _by_channel(grad)
    windows = windows.view(-1, len(grad), pixels).transpose(0, 1)
    return F.fold(windows, size, kernel, padding=how.padding, stride=how.stride)


def _windows(images: torch.Tensor, weight: torch.Tensor, how: How) -> torch.Tensor:
    """Return (example, row, column, height, width, channel): with channels innermost a copy moves whole runs."""
    (height, width), (rows, columns) = weight.shape[2:], how.padding
    framed = images.permute(0, 2, 3, 1)
    if rows or columns:
        framed = F.pad(framed, (0, 0, columns, columns, rows, rows))
    windows = framed.unfold(1, height, how.stride[0]).unfold(2, width, how.stride[1])
    return windows.permute(0, 1, 2, 4, 5, 3)


def _by_channel(grad: torch.Tensor) -> torch.Tensor:
    return grad.transpose(0, 1).flatten(1)
