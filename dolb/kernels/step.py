"""Triton kernels for the rest of a fused training step: making the batch, the stem's pooling, the loss.

The stem's max pool reads what the first convolution wrote and never writes the normalized image, which would be the
largest tensor of the network. Shares, layout and determinism are as in ``norm``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dolb.kernels.norm import _rectified, of_columns, only_if, rows_of, share_of


@triton.jit(do_not_specialize=["height", "pad"])
def make_patches(
    images, labels, order, dys, dxs, flips, cursor, table, out, out_labels, height, pad, width: tl.constexpr,
    channels: tl.constexpr, kernel: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr,
    out_width: tl.constexpr, pitch: tl.constexpr, out_height, BLOCK: tl.constexpr,
):  # fmt: skip
    """Crop, mirror and normalize the next examples of the epoch's order, laid out as the first convolution reads them.

    A row of ``out`` is one window, so that the convolution is a matrix product; columns past the window are zero.
    ``table`` holds the normalized value of every byte, by channel, as ``DeviceImages`` computes it.
    """
    row = tl.program_id(0)
    visit = tl.load(cursor) + row
    example = tl.load(order + visit)
    dy, dx, flip = tl.load(dys + visit), tl.load(dxs + visit), tl.load(flips + visit)
    if tl.program_id(1) == 0:
        tl.store(out_labels + row, tl.load(labels + example))
    element = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    window, place = element // pitch, element % pitch
    channel = place % channels
    y = window // out_width * stride - padding + place // channels // kernel
    x = window % out_width * stride - padding + place // channels % kernel
    inside = (place < kernel * kernel * channels) & (y >= 0) & (y < height) & (x >= 0) & (x < width)
    inside = inside & (window < out_height * out_width)
    x = tl.where(flip, width - 1 - x, x)
    line = width + 2 * pad
    corner = images + ((example * (height + 2 * pad) + dy) * line + dx) * channels
    byte = tl.load(corner + (y * line + x) * channels + channel, mask=inside, other=0).to(tl.int32)
    value = tl.load(table + channel * 256 + byte, mask=inside, other=0.0)
    size = out_height * out_width * pitch
    tl.store(out + row.to(tl.int64) * size + element, value.to(out.dtype.element_ty), mask=element < size)


# -- the stem: batch norm, ReLU and max pooling of 3 x 3 windows, two apart, with a frame of one -----------------------

NO_TAP = tl.constexpr(9)  # of a window whose maximum ReLU made zero


@triton.jit(do_not_specialize=["each", "extra", "height", "width"])
def pool_forward(
    x, y, taps, weight, bias, means, inverses, total, channels, each, extra, height, width,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Normalize by given statistics, rectify, and take each window's maximum and which of its 9 taps that was."""
    pooled_height, pooled_width = (height + 1) // 2, (width + 1) // 2
    pooled = pooled_height * pooled_width
    share, first, count, columns, known = share_of(channels, pooled, each, extra, COLUMNS)
    rows = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    inside = (rows < count)[:, None] & known[None, :]
    example = (first + rows) // pooled
    top = (first + rows) % pooled // pooled_width * 2 - 1
    left = (first + rows) % pooled_width * 2 - 1
    place = share * total + columns
    mean, inverse, scale, shift = of_columns(means, inverses, weight, bias, place, columns, known)
    best = tl.full([ROWS, COLUMNS], float("-inf"), tl.float32)
    chosen = tl.full([ROWS, COLUMNS], 0, tl.int32)
    for tap in tl.static_range(9):
        h, w = top + tap // 3, left + tap % 3
        there = ((h >= 0) & (h < height) & (w >= 0) & (w < width))[:, None] & inside
        source = ((example * height + h) * width + w)[:, None] * channels + columns[None, :]
        value = tl.load(x + source, mask=there, other=0.0).to(tl.float32)
        value = (value - mean[None, :]) * inverse[None, :] * scale[None, :] + shift[None, :]
        better = there & ((value > best) | (value != value))
        best = tl.where(better, value, best)
        chosen = tl.where(better, tap, chosen)
    chosen = tl.where(best > 0, chosen, NO_TAP)
    where = (first + rows)[:, None] * channels + columns[None, :]
    tl.store(y + where, _rectified(best, 1).to(y.dtype.element_ty), mask=inside)
    tl.store(taps + where, chosen.to(tl.int8), mask=inside)


@triton.jit(do_not_specialize=["each", "extra", "height", "width", "chunk", "has_second"])
def pool_grad_partial(
    first_grad, second_grad, x, taps, partial, means, inverses, total, splits, channels, each, extra, height, width,
    chunk, has_second, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Sums over one chunk of a share's windows of the gradient, and of it times the normalized value it belongs to."""
    pooled_height, pooled_width = (height + 1) // 2, (width + 1) // 2
    pooled = pooled_height * pooled_width
    share, first, count, columns, known = share_of(channels, pooled, each, extra, COLUMNS)
    split = tl.program_id(2)
    start = split * chunk
    stop = tl.minimum(start + chunk, count)
    place = share * total + columns
    mean = tl.load(means + place, mask=known)
    inverse = tl.load(inverses + place, mask=known)
    along_bias = tl.zeros([ROWS, COLUMNS], tl.float32)
    along_weight = tl.zeros([ROWS, COLUMNS], tl.float32)
    for row in range(start, stop, ROWS):
        rows = row + tl.arange(0, ROWS)
        inside = (rows < stop)[:, None] & known[None, :]
        where = (first + rows)[:, None] * channels + columns[None, :]
        example = (first + rows) // pooled
        top = (first + rows) % pooled // pooled_width * 2 - 1
        left = (first + rows) % pooled_width * 2 - 1
        tap = tl.load(taps + where, mask=inside, other=NO_TAP).to(tl.int32)
        inside = tap < NO_TAP
        grad = tl.load(first_grad + where, mask=inside, other=0.0).to(tl.float32)
        grad += tl.load(second_grad + where, mask=only_if(has_second, inside), other=0.0).to(tl.float32)
        chosen = ((example * height + top) * width + left)[:, None] + tap // 3 * width + tap % 3
        values = tl.load(x + chosen * channels + columns[None, :], mask=inside, other=0.0).to(tl.float32)
        along_bias += grad
        along_weight += grad * (values - mean[None, :]) * inverse[None, :]
    place = (share * splits + split) * channels + columns
    tl.store(partial + place, tl.sum(along_bias, axis=0), mask=known)
    plane = tl.num_programs(0) * splits * channels
    tl.store(partial + plane + place, tl.sum(along_weight, axis=0), mask=known)


@triton.jit
def _window(first_grad, second_grad, taps, rows, there, columns, channels, has_second):
    """Return the tap that windows chose and their gradients, none outside the image."""
    where = rows[:, None] * channels + columns[None, :]
    tap = tl.load(taps + where, mask=there, other=NO_TAP).to(tl.int32)
    grad = tl.load(first_grad + where, mask=there, other=0.0).to(tl.float32)
    grad += tl.load(second_grad + where, mask=only_if(has_second, there), other=0.0).to(tl.float32)
    return tap, grad


@triton.jit(do_not_specialize=["each", "extra", "height", "width", "has_second"])
def pool_grad_apply(
    first_grad, second_grad, x, taps, x_grad, weight, means, inverses, weight_grads, bias_grads, total, channels,
    each, extra, height, width, has_second, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The gradient of what the first convolution wrote, given a share's sums, four positions to each window.

    Window (r, c) covers lines 2r - 1 to 2r + 1: an even line lies in one window, an odd one in two.
    """
    pooled_height, pooled_width = (height + 1) // 2, (width + 1) // 2
    pooled = pooled_height * pooled_width
    share, first, windows, columns, known = share_of(channels, pooled, each, extra, COLUMNS)
    _, count = rows_of(share, height * width, each, extra)
    rows = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    inside = (rows < windows)[:, None] & known[None, :]
    rows = first + rows
    example = rows // pooled
    r = rows % pooled // pooled_width
    c = rows % pooled_width
    place = share * total + columns
    mean = tl.load(means + place, mask=known)
    inverse = tl.load(inverses + place, mask=known)
    scale = tl.load(weight + columns, mask=known)
    along_bias = tl.load(bias_grads + place, mask=known)
    along_weight = tl.load(weight_grads + place, mask=known)
    below = (r + 1 < pooled_height)[:, None] & inside
    right = (c + 1 < pooled_width)[:, None] & inside
    across = below & right
    tap, grad = _window(first_grad, second_grad, taps, rows, inside, columns, channels, has_second)
    right_tap, right_grad = _window(first_grad, second_grad, taps, rows + 1, right, columns, channels, has_second)
    below_tap, below_grad = _window(
        first_grad, second_grad, taps, rows + pooled_width, below, columns, channels, has_second
    )
    across_tap, across_grad = _window(
        first_grad, second_grad, taps, rows + pooled_width + 1, across, columns, channels, has_second
    )
    corner = (example * height + 2 * r) * width + 2 * c
    odd_line = (2 * r + 1 < height)[:, None] & inside
    odd_column = (2 * c + 1 < width)[:, None] & inside
    for position in tl.static_range(4):
        down, over = position // 2, position % 2
        there = inside
        slope = tl.where(tap == 4 + 3 * down + over, grad, 0.0)
        if over:
            there = odd_column
            slope += tl.where(right_tap == 3 + 3 * down, right_grad, 0.0)
        if down:
            there = there & odd_line
            lower = tl.where(below_tap == 1 + over, below_grad, 0.0)
            if over:
                lower += tl.where(across_tap == 0, across_grad, 0.0)
            slope += lower
        where = (corner + down * width + over)[:, None] * channels + columns[None, :]
        values = tl.load(x + where, mask=there, other=0.0).to(tl.float32)
        normalized = (values - mean[None, :]) * inverse[None, :]
        inner = slope - (along_bias[None, :] + normalized * along_weight[None, :]) / count
        tl.store(x_grad + where, (inner * (inverse * scale)[None, :]).to(x_grad.dtype.element_ty), mask=there)


# -- the loss ----------------------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["size", "classes"])
def cross_entropy(
    scores, labels, losses, scores_grad, size, classes, smoothing, ROWS: tl.constexpr, CLASSES: tl.constexpr
):
    """Each example's cross-entropy, and the gradient of their mean."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, CLASSES)
    inside = (rows < size)[:, None] & (columns < classes)[None, :]
    where = rows[:, None] * classes + columns[None, :]
    values = tl.load(scores + where, mask=inside, other=float("-inf")).to(tl.float32)
    values = values - tl.max(values, axis=1)[:, None]
    weights = tl.exp(values)
    total = tl.sum(weights, axis=1)
    label = tl.load(labels + rows, mask=rows < size, other=0)
    target = tl.where(columns[None, :] == label[:, None], 1.0 - smoothing, 0.0) + smoothing / classes
    target = tl.where(inside, target, 0.0)
    loss = tl.log(total) - tl.sum(tl.where(inside, values * target, 0.0), axis=1)
    tl.store(losses + rows, loss, mask=rows < size)
    grad = (weights / total[:, None] - target) / size
    tl.store(scores_grad + where, grad.to(scores_grad.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["size"])
def advance(losses, loss_sum, cursor, updates, size, BLOCK: tl.constexpr):
    """Add the examples' losses to the epoch's, and move on to the next batch and the next update."""
    columns = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float64)
    for start in range(0, size, BLOCK):
        total += tl.load(losses + start + columns, mask=start + columns < size, other=0.0).to(tl.float64)
    tl.store(loss_sum, tl.load(loss_sum) + tl.sum(total, axis=0))
    tl.store(cursor, tl.load(cursor) + size)
    tl.store(updates, tl.load(updates) + 1)
