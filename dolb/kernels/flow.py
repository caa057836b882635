"""A residual network's arrays, and passes through it: what each layer computes, and how it is undone for gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from dolb.kernels import norm as norms
from dolb.kernels import step as steps

ALIGNMENT = 64  # elements: 128 bytes of the smallest type, what the fastest convolutions want
LARGEST_TILE = 16384  # elements of a share's columns that one program holds in registers
PROGRAMS = 2112  # sixteen to each of an H200's 132 multiprocessors: enough to hide the memory's latency

Gradients = tuple[torch.Tensor, torch.Tensor | None]  # of one tensor, from one or two that used it
Back = Callable[[Gradients], Gradients]


@dataclass(frozen=True, eq=False)
class Norm:
    """Where one batch norm's numbers lie in the arrays that hold those of all."""

    offset: int
    width: int
    eps: float


@dataclass(frozen=True, eq=False)
class Conv:
    """One convolution: the working copy of its weight, and the stretch of memory for its gradient."""

    weight: torch.Tensor
    grad: torch.Tensor
    stride: list[int]
    padding: list[int]


@dataclass(frozen=True, eq=False)
class Stem:
    """The first convolution as a matrix product: the working copy of its weight, a row to each output channel."""

    weight: torch.Tensor
    grad: torch.Tensor
    kernel: int
    stride: int
    padding: int


Layer = tuple[Conv, Norm]


@dataclass(frozen=True, eq=False)
class Block:
    """A residual block: its layers, and what its input passes through to be added."""

    layers: list[Layer]
    shortcut: Layer | None


def _channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def _tall_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return ``left.T @ right`` of two tall matrices as a sum of products of slices, which fill the device."""
    slices = 1
    while slices < 128 and len(left) % (2 * slices) == 0 and len(left) >= 1024 * slices:
        slices *= 2
    parts = torch.bmm(left.view(slices, -1, left.shape[1]).mT, right.view(slices, -1, right.shape[1]))
    return parts[0] if slices == 1 else parts.sum(0)


def blocks_of(size: int, block: int) -> int:
    """Return how many blocks cover a size."""
    return -(-size // block)


class Arrays:
    """Where a network's numbers lie: all weights in one array, those of all batch norms in others.

    The module's own parameters and buffers become views of these arrays, so its ``state_dict`` stays true.
    """

    def __init__(self, network: nn.Module, stem: nn.Conv2d, workers: int, dtype: torch.dtype):
        self.workers, self.dtype = workers, dtype
        self.device = next(network.parameters()).device
        self._gather_weights(network, stem)
        self._gather_norms(network)

    def _gather_weights(self, network: nn.Module, stem: nn.Conv2d) -> None:
        inside = [m for m in network.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
        parameters = [p for module in inside for p in module.parameters(recurse=False)]
        parameters.sort(key=lambda p: p.ndim == 1)  # biases last, so that all filters are one stretch
        pitches = [_pitch(p) if p is stem.weight else p[0].numel() for p in parameters]
        spans = [len(p) * pitch for p, pitch in zip(parameters, pitches, strict=True)]
        sizes = [math.ceil(span / ALIGNMENT) * ALIGNMENT for span in spans]
        self.total = sum(m.num_features for m in network.modules() if isinstance(m, nn.BatchNorm2d))
        # Weights, and behind them those of batch norms: an update that needs every tensor's length sees one array.
        self.masters = torch.zeros(sum(sizes) + 2 * self.total, device=self.device)
        self.movements = torch.zeros_like(self.masters)
        self.weights, self.velocities = (array[: sum(sizes)] for array in (self.masters, self.movements))
        self.filters = sum(size for p, size in zip(parameters, sizes, strict=True) if p.ndim > 1)
        self.tensors: list[tuple[int, int]] = []  # where each starts in that array, and its size
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
            self.tensors.append((start, size))  # what is behind its span stays zero, and adds to no length
            start += size
        self.working.copy_(self.weights)

    def _gather_norms(self, network: nn.Module) -> None:
        inside = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
        behind = len(self.weights)
        self.norm_parameters, self.norm_velocities = (
            array[behind:].view(2, self.total) for array in (self.masters, self.movements)
        )
        self.norm_grads, self.running = (torch.zeros(2, self.total, device=self.device) for _ in range(2))
        self.means, self.variances, self.inverses, self.weight_grads, self.bias_grads = (
            torch.zeros(self.workers, self.total, device=self.device) for _ in range(5)
        )
        self.running_inverses = torch.zeros(self.total, device=self.device)
        self.norms: dict[nn.Module, Norm] = {}
        start = 0
        for module in inside:
            columns = slice(start, start + module.num_features)
            for row, parameter, buffer in ((0, "weight", "running_mean"), (1, "bias", "running_var")):
                for array, name in ((self.norm_parameters, parameter), (self.running, buffer)):
                    view = array[row, columns]
                    view.copy_(getattr(module, name).detach())
                    getattr(module, name).data = view
            self.norms[module] = Norm(start, module.num_features, module.eps)
            self.tensors += [(behind + row * self.total + start, module.num_features) for row in range(2)]
            start += module.num_features

    def state(self) -> list[torch.Tensor]:
        """Return the tensors that training changes."""
        return [
            self.weights, self.velocities, self.working, self.norm_parameters, self.norm_velocities, self.running
        ]  # fmt: skip


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


class Flow:
    """One pass through the network: what each layer computes, and on the tape, when training, how it is undone."""

    def __init__(self, arrays: Arrays, training: bool):
        self.arrays, self.training = arrays, training
        self.tape: list[Back] = []
        self.slopes: list[tuple[torch.Tensor, torch.Tensor]] = []  # where a weight's gradient goes, and the gradient

    def undone(self, gradients: torch.Tensor) -> None:
        """Go back through what was done, from the gradients of the scores; those of weights go where they belong."""
        both: Gradients = gradients, None
        while self.tape:
            both = self.tape.pop()(both)
        torch._foreach_copy_([into for into, _ in self.slopes], [slope for _, slope in self.slopes])
        self.slopes.clear()

    def begun(self, patches: torch.Tensor, stem: Stem, shape: tuple[int, int, int]) -> torch.Tensor:
        """Convolve the images, given as windows; undone by the gradient of the weight alone."""
        if self.training:

            def back(gradients: Gradients) -> Gradients:
                rows = gradients[0].permute(0, 2, 3, 1).reshape(len(patches), -1)
                self.slopes.append((stem.grad, _tall_product(rows, patches).view(-1)))
                return gradients

            self.tape.append(back)
        return torch.mm(patches, stem.weight.t()).view(*shape, -1).permute(0, 3, 1, 2)

    def convolved(self, x: torch.Tensor, conv: Conv) -> torch.Tensor:
        """Convolve; undone by the gradients of the input and of the weight."""
        if self.training:

            def back(gradients: Gradients) -> Gradients:
                outer = gradients[0]
                inner, slope, _ = torch.ops.aten.convolution_backward(
                    outer, x, conv.weight, None, conv.stride, conv.padding, [1, 1], False, [0, 0], 1,
                    [True, True, False],
                )  # fmt: skip
                self.slopes.append((conv.grad, slope.permute(0, 2, 3, 1).reshape(-1)))
                return _channels_last(inner), None

            self.tape.append(back)
        return _channels_last(F.conv2d(x, conv.weight, None, conv.stride, conv.padding))

    def through(self, x: torch.Tensor, block: Block) -> torch.Tensor:
        """Pass a residual block; its input's two gradients, of the layers and of the shortcut, go on as they are."""
        tape, self.tape = self.tape, []
        shortcut = x
        if block.shortcut:
            shortcut = self.normalized(self.convolved(x, block.shortcut[0]), block.shortcut[1], relu=False)
        aside, self.tape = self.tape, []
        out = x
        for conv, norm in block.layers[:-1]:
            out = self.normalized(self.convolved(out, conv), norm)
        conv, norm = block.layers[-1]
        out = self.normalized(self.convolved(out, conv), norm, residual=shortcut)
        main, self.tape = self.tape, tape
        if self.training:

            def back(gradients: Gradients) -> Gradients:
                inner, beside = main.pop()(gradients)
                assert beside is not None
                straight: Gradients = inner, None
                while main:
                    straight = main.pop()(straight)
                around: Gradients = beside, None
                while aside:
                    around = aside.pop()(around)
                return straight[0], around[0]

            self.tape.append(back)
        return out

    def averaged(self, x: torch.Tensor) -> torch.Tensor:
        """Average over the image, which at the studies' sizes is one pixel by then."""
        shape = x.shape
        if self.training:

            def back(gradients: Gradients) -> Gradients:
                spread = gradients[0][:, :, None, None]
                if shape[2:] == (1, 1):
                    return spread, None
                spread = (spread / (shape[2] * shape[3])).expand(shape)
                return spread.contiguous(memory_format=torch.channels_last), None

            self.tape.append(back)
        return x.flatten(1) if shape[2:] == (1, 1) else x.mean((2, 3), dtype=torch.float32).to(x.dtype)

    def classified(self, x: torch.Tensor, last: nn.Linear) -> torch.Tensor:
        """Return class scores."""
        (working, grad), (working_bias, bias_grad) = (self.arrays.views[p] for p in last.parameters())
        if self.training:

            def back(gradients: Gradients) -> Gradients:
                outer = gradients[0]
                torch.mm(outer.t(), x, out=grad.view(working.shape))
                torch.sum(outer, 0, out=bias_grad)
                return outer @ working, None

            self.tape.append(back)
        return F.linear(x, working, working_bias)

    # -- batch norm ---------------------------------------------------------------------------------------------------

    def _statistics(self, norm: Norm) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return a batch norm's weight, bias, means and inverse deviations, as the pass uses them."""
        n, start = self.arrays, norm.offset
        weight, bias = n.norm_parameters[0, start:], n.norm_parameters[1, start:]
        if self.training:
            return weight, bias, n.means[0, start:], n.inverses[0, start:]
        return weight, bias, n.running[0, start:], n.running_inverses[start:]

    def normalized(
        self, x: torch.Tensor, norm: Norm, residual: torch.Tensor | None = None, relu: bool = True
    ) -> torch.Tensor:
        """Normalize each share by its statistics, add the residual if there is one, rectify."""
        n, y = self.arrays, torch.empty_like(x)
        grid = Grid(x, n.workers if self.training else 1)
        weight, bias, means, inverses = self._statistics(norm)
        added = x if residual is None else residual
        flags = int(relu), int(residual is not None)
        tile = grid.tile() if self.training else None
        if self.training and not tile:
            self._measure(x, norm, grid)
        programs = (grid.shares, blocks_of(norm.width, tile["COLUMNS"])) if tile else grid.over()
        how = {"WHOLE": tile is not None, **(tile or grid.block)}
        norms.norm_forward[programs](
            x, added, y, weight, bias, means, n.variances[0, norm.offset :], inverses, n.total, norm.width,
            *grid.share, norm.eps, *flags, **how,
        )  # fmt: skip
        if self.training:

            def back(gradients: Gradients) -> Gradients:
                first, second = gradients
                x_grad = torch.empty_like(x)
                residual_grad = torch.empty_like(x) if residual is not None else None
                given = first, first if second is None else second, x, y
                out = x_grad, x_grad if residual_grad is None else residual_grad, weight, bias, means, inverses
                sums = n.weight_grads[0, norm.offset :], n.bias_grads[0, norm.offset :]
                used = *flags, int(second is not None)
                if not tile:
                    partial, splits, chunk = grid.partial()
                    norms.norm_grad_partial[grid.shares, grid.columns, splits](
                        *given, partial, weight, bias, means, inverses, n.total, splits, norm.width, *grid.share,
                        chunk, *used, **grid.block,
                    )  # fmt: skip
                    norms.norm_grad_finish[grid.shares, grid.finishers](
                        partial, *sums, n.total, splits, norm.width, **grid.finish
                    )
                norms.norm_backward[programs](*given, *out, *sums, n.total, norm.width, *grid.share, *used, **how)
                return x_grad, residual_grad

            self.tape.append(back)
        return y

    def _measure(self, x: torch.Tensor, norm: Norm, grid: Grid) -> None:
        n = self.arrays
        partial, splits, chunk = grid.partial()
        norms.norm_partial[grid.shares, grid.columns, splits](
            x, partial, splits, norm.width, *grid.share, chunk, **grid.block
        )
        stats = (array[0, norm.offset :] for array in (n.means, n.variances, n.inverses))
        norms.norm_finish[grid.shares, grid.finishers](
            partial, *stats, n.total, splits, norm.width, *grid.share, chunk, norm.eps, **grid.finish
        )

    def pooled(self, x: torch.Tensor, norm: Norm) -> torch.Tensor:
        """Normalize, rectify and take the maximum of windows, keeping only the maxima."""
        n = self.arrays
        size, channels, height, width = x.shape
        grid = Grid(x, n.workers if self.training else 1)
        weight, bias, means, inverses = self._statistics(norm)
        y = torch.empty(
            size, channels, (height + 1) // 2, (width + 1) // 2, dtype=x.dtype, device=x.device,
            memory_format=torch.channels_last,
        )  # fmt: skip
        taps = torch.empty_like(y, dtype=torch.int8)
        if self.training:
            self._measure(x, norm, grid)
        shape = grid.each, grid.extra, height, width
        windows = Grid(y, grid.shares)
        steps.pool_forward[windows.over()](
            x, y, taps, weight, bias, means, inverses, n.total, channels, *shape, **windows.block
        )
        if self.training:

            def back(gradients: Gradients) -> Gradients:
                first, second = gradients
                given = first, first if second is None else second, x, taps
                sums = n.weight_grads[0, norm.offset :], n.bias_grads[0, norm.offset :]
                used = int(second is not None)
                x_grad = torch.empty_like(x)
                partial, splits, chunk = windows.partial()
                steps.pool_grad_partial[windows.shares, windows.columns, splits](
                    *given, partial, means, inverses, n.total, splits, channels, *shape, chunk, used, **windows.block
                )
                norms.norm_grad_finish[windows.shares, windows.finishers](
                    partial, *sums, n.total, splits, channels, **windows.finish
                )
                steps.pool_grad_apply[windows.over()](
                    *given, x_grad, weight, means, inverses, *sums, n.total, channels, *shape, used, **windows.block
                )
                return x_grad, None

            self.tape.append(back)
        return y


class Grid:
    """How a tensor is dealt to programs: its shares, and tiles of rows and channel columns."""

    def __init__(self, x: torch.Tensor, workers: int):
        size, self.channels, height, width = x.shape
        if x.numel() >= 2**31:
            raise ValueError(f"a tensor of shape {tuple(x.shape)} has 2**31 elements or more, which no kernel indexes")
        self.shares = min(workers, size)
        self.hw = height * width
        self.each, self.extra = divmod(size, self.shares)
        self.share = self.hw, self.each, self.extra
        self.rows = (self.each + bool(self.extra)) * self.hw  # of the largest share
        self.device = x.device
        wide = min(64, 1 << (self.channels - 1).bit_length())
        self.block = {"ROWS": 32, "COLUMNS": wide}
        self.finish = {"SPLITS": 256, "COLUMNS": 16}
        self.columns, self.finishers = blocks_of(self.channels, wide), blocks_of(self.channels, 16)

    def tile(self) -> dict[str, int] | None:
        """Return the tile that holds a share's rows, or None if that would be too large to stay in registers."""
        rows = max(16, 1 << (self.rows - 1).bit_length())
        columns = min(LARGEST_TILE // rows, 32, 1 << (self.channels - 1).bit_length())
        if columns < 16:
            return None
        return {"ROWS": rows, "COLUMNS": columns, "num_warps": min(8, max(1, rows * columns // 1024))}

    def over(self) -> tuple[int, int, int]:
        """Return the grid of a pass over all tiles."""
        return self.shares, self.columns, blocks_of(self.rows, self.block["ROWS"])

    def partial(self) -> tuple[torch.Tensor, int, int]:
        """Return an array for partial sums, into how many chunks a share is split for them, and a chunk's rows."""
        tiles = blocks_of(self.rows, self.block["ROWS"])
        splits = max(1, min(tiles, PROGRAMS // (self.shares * self.columns)))
        chunk = blocks_of(tiles, splits) * self.block["ROWS"]
        splits = blocks_of(self.rows, chunk)
        return torch.empty(2 * self.shares * splits * self.channels, device=self.device), splits, chunk
