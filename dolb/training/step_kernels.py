"""Triton kernels for the rest of a fused training step: making the batch, the stem's pooling, the loss, the update.

The stem's max pool reads what the first convolution wrote and never writes the normalized image, which would be the
largest tensor of the network. Shares, layout and determinism are as in ``norm_kernels``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dolb.training.norm_kernels import _rectified, _share, only_if


@triton.jit(do_not_specialize=["width", "pad"])
def make_batch(
    images, labels, order, dys, dxs, flips, cursor, mean, std, out, out_labels, height, width, channels, pad,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Crop, mirror and normalize the next examples of the epoch's order, as ``DeviceImages.batch`` does."""
    row = tl.program_id(0)
    visit = tl.load(cursor) + row
    example = tl.load(order + visit)
    dy, dx, flip = tl.load(dys + visit), tl.load(dxs + visit), tl.load(flips + visit)
    if tl.program_id(1) == 0:
        tl.store(out_labels + row, tl.load(labels + example))
    element = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = element < height * width * channels
    channel = element % channels
    x = element // channels % width
    y = element // channels // width
    x = dx + tl.where(flip, width - 1 - x, x)
    source = ((example * (height + 2 * pad) + dy + y) * (width + 2 * pad) + x) * channels + channel
    value = tl.load(images + source, mask=inside, other=0).to(tl.float32)
    value = tl.div_rn(value, 255.0) - tl.load(mean + channel)
    value = tl.div_rn(value, tl.load(std + channel))
    tl.store(out + row * height * width * channels + element, value.to(out.dtype.element_ty), mask=inside)


# -- the stem: batch norm, ReLU and max pooling of 3 x 3 windows, two apart, with a frame of one -----------------------

NO_TAP = tl.constexpr(9)  # of a window whose maximum ReLU made zero


@triton.jit(do_not_specialize=["each", "extra", "height", "width"])
def pool_forward(
    x, y, taps, weight, bias, means, inverses, total, channels, each, extra, height, width,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Normalize by given statistics, rectify, and take each window's maximum and which of its 9 taps that was."""
    share = tl.program_id(0)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    pooled_height, pooled_width = (height + 1) // 2, (width + 1) // 2
    pooled = pooled_height * pooled_width
    first, count = _share(share, pooled, each, extra)
    rows = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    known = columns < channels
    inside = (rows < count)[:, None] & known[None, :]
    example = (first + rows) // pooled
    top = (first + rows) % pooled // pooled_width * 2 - 1
    left = (first + rows) % pooled_width * 2 - 1
    place = share * total + columns
    mean = tl.load(means + place, mask=known)
    inverse = tl.load(inverses + place, mask=known)
    scale = tl.load(weight + columns, mask=known)
    shift = tl.load(bias + columns, mask=known)
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


@triton.jit
def _unpooled(first_grad, second_grad, taps, rows, columns, channels, height, width, inside, has_second):
    """Return the gradient of each position before pooling: of the up to four windows that chose it."""
    pooled_height, pooled_width = (height + 1) // 2, (width + 1) // 2
    example = rows // (height * width)
    h = rows % (height * width) // width
    w = rows % width
    grad = tl.zeros(inside.shape, tl.float32)
    for corner in tl.static_range(4):
        down, right = corner // 2, corner % 2
        oh, ow = (h + down) // 2, (w + right) // 2
        there = (oh < pooled_height) & (ow < pooled_width)
        if down == 1:
            there = there & (h % 2 == 1)  # an even line lies in one window only
        if right == 1:
            there = there & (w % 2 == 1)
        mask = there[:, None] & inside
        tap = (h + 1 - 2 * oh) * 3 + (w + 1 - 2 * ow)
        source = ((example * pooled_height + oh) * pooled_width + ow)[:, None] * channels + columns[None, :]
        mask = mask & (tl.load(taps + source, mask=mask, other=NO_TAP).to(tl.int32) == tap[:, None])
        grad += tl.load(first_grad + source, mask=mask, other=0.0).to(tl.float32)
        grad += tl.load(second_grad + source, mask=only_if(has_second, mask), other=0.0).to(tl.float32)
    return grad


@triton.jit(do_not_specialize=["each", "extra", "height", "width", "chunk", "has_second"])
def pool_grad_partial(
    first_grad, second_grad, x, taps, partial, means, inverses, total, splits, channels, each, extra, height, width,
    chunk, has_second, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Sums over one chunk of a share's rows of the gradient, and of the gradient times the normalized value."""
    share, split = tl.program_id(0), tl.program_id(2)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    first, count = _share(share, height * width, each, extra)
    start = split * chunk
    stop = tl.minimum(start + chunk, count)
    known = columns < channels
    place = share * total + columns
    mean = tl.load(means + place, mask=known)
    inverse = tl.load(inverses + place, mask=known)
    along_bias = tl.zeros([COLUMNS], tl.float32)
    along_weight = tl.zeros([COLUMNS], tl.float32)
    for row in range(start, stop, ROWS):
        rows = row + tl.arange(0, ROWS)
        inside = (rows < stop)[:, None] & known[None, :]
        where = (first + rows)[:, None] * channels + columns[None, :]
        grad = _unpooled(
            first_grad, second_grad, taps, first + rows, columns, channels, height, width, inside, has_second
        )
        values = tl.load(x + where, mask=inside, other=0.0).to(tl.float32)
        along_bias += tl.sum(grad, axis=0)
        along_weight += tl.sum(grad * (values - mean[None, :]) * inverse[None, :], axis=0)
    place = (share * splits + split) * channels + columns
    tl.store(partial + place, along_bias, mask=known)
    tl.store(partial + tl.num_programs(0) * splits * channels + place, along_weight, mask=known)


@triton.jit(do_not_specialize=["each", "extra", "height", "width", "has_second"])
def pool_grad_apply(
    first_grad, second_grad, x, taps, x_grad, weight, means, inverses, weight_grads, bias_grads, total, channels,
    each, extra, height, width, has_second, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The gradient of what the first convolution wrote, given a share's sums."""
    share = tl.program_id(0)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    first, count = _share(share, height * width, each, extra)
    rows = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    known = columns < channels
    inside = (rows < count)[:, None] & known[None, :]
    where = (first + rows)[:, None] * channels + columns[None, :]
    place = share * total + columns
    mean = tl.load(means + place, mask=known)
    inverse = tl.load(inverses + place, mask=known)
    scale = tl.load(weight + columns, mask=known)
    along_bias = tl.load(bias_grads + place, mask=known)
    along_weight = tl.load(weight_grads + place, mask=known)
    grad = _unpooled(first_grad, second_grad, taps, first + rows, columns, channels, height, width, inside, has_second)
    values = tl.load(x + where, mask=inside, other=0.0).to(tl.float32)
    normalized = (values - mean[None, :]) * inverse[None, :]
    inner = grad - (along_bias[None, :] + normalized * along_weight[None, :]) / count
    tl.store(x_grad + where, (inner * (inverse * scale)[None, :]).to(x_grad.dtype.element_ty), mask=inside)


# -- the loss and the update ------------------------------------------------------------------------------------------


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


@triton.jit
def _updated(value, slope, velocity, rate, momentum, decay):
    velocity = momentum * velocity + (slope + decay * value)
    return value - rate * velocity, velocity


@triton.jit
def update_weights(grads, weights, velocities, working, rates, updates, size, momentum, decay, BLOCK: tl.constexpr):
    """SGD on all weights at once, and their copies in the type that the network computes with."""
    where = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = where < size
    rate = tl.load(rates + tl.load(updates))
    slope = tl.load(grads + where, mask=inside, other=0.0).to(tl.float32)
    value = tl.load(weights + where, mask=inside, other=0.0)
    velocity = tl.load(velocities + where, mask=inside, other=0.0)
    value, velocity = _updated(value, slope, velocity, rate, momentum, decay)
    tl.store(weights + where, value, mask=inside)
    tl.store(velocities + where, velocity, mask=inside)
    tl.store(working + where, value.to(working.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["shares"])
def update_norms(
    parameters, velocities, weight_grads, bias_grads, running, means, variances, rates, updates, total, shares,
    momentum, decay, follow, BLOCK: tl.constexpr,
):  # fmt: skip
    """SGD on every batch norm's weight and bias, summed over shares, and one move of the running estimates."""
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    known = columns < total
    rate = tl.load(rates + tl.load(updates))
    weight_slope = tl.zeros([BLOCK], tl.float32)
    bias_slope = tl.zeros([BLOCK], tl.float32)
    mean = tl.zeros([BLOCK], tl.float32)
    variance = tl.zeros([BLOCK], tl.float32)
    for share in range(shares):
        place = share * total + columns
        weight_slope += tl.load(weight_grads + place, mask=known)
        bias_slope += tl.load(bias_grads + place, mask=known)
        mean += tl.load(means + place, mask=known)
        variance += tl.load(variances + place, mask=known)
    weight, velocity = _updated(
        tl.load(parameters + columns, mask=known), weight_slope, tl.load(velocities + columns, mask=known),
        rate, momentum, decay,
    )  # fmt: skip
    tl.store(parameters + columns, weight, mask=known)
    tl.store(velocities + columns, velocity, mask=known)
    second = total + columns
    bias, velocity = _updated(
        tl.load(parameters + second, mask=known), bias_slope, tl.load(velocities + second, mask=known),
        rate, momentum, decay,
    )  # fmt: skip
    tl.store(parameters + second, bias, mask=known)
    tl.store(velocities + second, velocity, mask=known)
    old = tl.load(running + columns, mask=known)
    tl.store(running + columns, old + follow * (mean / shares - old), mask=known)
    old = tl.load(running + second, mask=known)
    tl.store(running + second, old + follow * (variance / shares - old), mask=known)
