"""Triton kernels for batch norm over shares of a batch, together with the residual sum and the ReLU that follow it.

A step at a small batch is bound by how many kernels the device can start in a second, one at a large batch by how often
activations cross its memory. Here normalization, sum and ReLU are one launch each way where a share fits a tile, and
else three, of which two read the data.

Activations are channels_last, hence matrices of (example, height, width) rows and channel columns. A *share* is the
rows of one virtual worker: the first ``extra`` shares hold ``each + 1`` examples, the others ``each``; an example is
``hw`` rows. Nothing here adds by atomics, so equal inputs give equal bits. With ``TRITON_INTERPRET=1`` all of it runs
on a CPU, which is how the tests see it without a GPU.
"""

from __future__ import annotations

import triton
import triton.language as tl

SHARE = ["hw", "each", "extra"]
FLAGS = ["relu", "has_residual", "has_second"]


@triton.jit
def rows_of(share, hw, each, extra):
    """Return a share's first row and its number of rows."""
    first = (share * each + tl.minimum(share, extra)) * hw
    count = tl.where(share < extra, each + 1, each) * hw
    return first, count


@triton.jit
def share_of(channels, hw, each, extra, COLUMNS: tl.constexpr):
    """Return a program's share, with its first row and number of rows, its columns, and which of them there are."""
    share = tl.program_id(0)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    first, count = rows_of(share, hw, each, extra)
    return share, first, count, columns, columns < channels


@triton.jit
def only_if(flag, mask):
    """Return the mask, or an empty one if the flag is 0."""
    return mask & (tl.zeros(mask.shape, tl.int32) < flag)


@triton.jit
def of_columns(means, inverses, weight, bias, place, columns, known):
    """Return what normalizes columns of a share: mean and inverse deviation, and the norm's own scale and shift."""
    mean = tl.load(means + place, mask=known)
    inverse = tl.load(inverses + place, mask=known)
    return mean, inverse, tl.load(weight + columns, mask=known), tl.load(bias + columns, mask=known)


@triton.jit
def _rectified(values, relu):
    # Not tl.maximum: a NaN must stay one, or a diverged run would look healthy.
    return tl.where(only_if(relu, values < 0), 0.0, values)


@triton.jit(do_not_specialize=[*SHARE, "relu", "has_residual"])
def norm_forward(
    x, residual, y, weight, bias, means, variances, inverses, total, channels, hw, each, extra, eps, relu, has_residual,
    WHOLE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Normalize, add the residual, rectify: by given statistics, or by those of a share that is one ``WHOLE`` tile."""
    share, first, count, columns, known = share_of(channels, hw, each, extra, COLUMNS)
    rows = tl.arange(0, ROWS)[:, None]
    if not WHOLE:
        rows += tl.program_id(2) * ROWS
    inside = (rows < count) & known[None, :]
    where = (first + rows) * channels + columns[None, :]
    place = share * total + columns
    values = tl.load(x + where, mask=inside, other=0.0).to(tl.float32)
    if WHOLE:
        mean = tl.sum(values, axis=0) / count
        centred = tl.where(inside, values - mean[None, :], 0.0)
        squares = tl.sum(centred * centred, axis=0)
        inverse = tl.rsqrt(squares / count + eps)
        tl.store(means + place, mean, mask=known)
        tl.store(variances + place, squares / tl.maximum(count - 1, 1), mask=known)
        tl.store(inverses + place, inverse, mask=known)
    else:
        centred = values - tl.load(means + place, mask=known)[None, :]
        inverse = tl.load(inverses + place, mask=known)
    scale = tl.load(weight + columns, mask=known)
    shift = tl.load(bias + columns, mask=known)
    out = centred * inverse[None, :] * scale[None, :] + shift[None, :]
    out += tl.load(residual + where, mask=only_if(has_residual, inside), other=0.0).to(tl.float32)
    tl.store(y + where, _rectified(out, relu).to(y.dtype.element_ty), mask=inside)


@triton.jit
def _slopes(first_grad, second_grad, y, where, inside, normalized, scale, shift, relu, has_residual, has_second):
    """Return the gradient of what was rectified: both consumers' summed, and zero where ReLU was."""
    grad = tl.load(first_grad + where, mask=inside, other=0.0).to(tl.float32)
    grad += tl.load(second_grad + where, mask=only_if(has_second, inside), other=0.0).to(tl.float32)
    after = tl.load(y + where, mask=only_if(has_residual, inside), other=0.0).to(tl.float32)
    after = tl.where(only_if(has_residual, inside), after, normalized * scale[None, :] + shift[None, :])
    return tl.where(only_if(relu, after <= 0), 0.0, grad)


@triton.jit(do_not_specialize=[*SHARE, *FLAGS])
def norm_backward(
    first_grad, second_grad, x, y, x_grad, residual_grad, weight, bias, means, inverses, weight_grads, bias_grads,
    total, channels, hw, each, extra, relu, has_residual, has_second, WHOLE: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Undo ``norm_forward`` for gradients, whose sums over a share are taken of a ``WHOLE`` tile, or given."""
    share, first, count, columns, known = share_of(channels, hw, each, extra, COLUMNS)
    rows = tl.arange(0, ROWS)[:, None]
    if not WHOLE:
        rows += tl.program_id(2) * ROWS
    inside = (rows < count) & known[None, :]
    where = (first + rows) * channels + columns[None, :]
    place = share * total + columns
    mean, inverse, scale, shift = of_columns(means, inverses, weight, bias, place, columns, known)
    values = tl.load(x + where, mask=inside, other=0.0).to(tl.float32)
    normalized = (values - mean[None, :]) * inverse[None, :]
    if WHOLE:
        normalized = tl.where(inside, normalized, 0.0)
    grad = _slopes(first_grad, second_grad, y, where, inside, normalized, scale, shift, relu, has_residual, has_second)
    if WHOLE:
        along_bias = tl.sum(grad, axis=0)
        along_weight = tl.sum(grad * normalized, axis=0)
        tl.store(bias_grads + place, along_bias, mask=known)
        tl.store(weight_grads + place, along_weight, mask=known)
    else:
        along_bias = tl.load(bias_grads + place, mask=known)
        along_weight = tl.load(weight_grads + place, mask=known)
    tl.store(residual_grad + where, grad.to(x_grad.dtype.element_ty), mask=only_if(has_residual, inside))
    inner = grad - (along_bias[None, :] + normalized * along_weight[None, :]) / count
    tl.store(x_grad + where, (inner * (inverse * scale)[None, :]).to(x_grad.dtype.element_ty), mask=inside)


# -- batch norm of larger shares: partial sums, their sum, and a pass over the data ------------------------------------


@triton.jit(do_not_specialize=[*SHARE, "chunk"])
def norm_partial(x, partial, splits, channels, hw, each, extra, chunk, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Mean and sum of squared deviations of one chunk of a share's rows, in two float32 planes of ``partial``."""
    share, first, count, columns, known = share_of(channels, hw, each, extra, COLUMNS)
    split = tl.program_id(2)
    start = split * chunk
    stop = tl.minimum(start + chunk, count)
    # Sums are of distances from the chunk's first row, so that squares of a large mean do not drown the deviations.
    origin = tl.load(x + (first + tl.minimum(start, count - 1)) * channels + columns, mask=known).to(tl.float32)
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    squares = tl.zeros([ROWS, COLUMNS], tl.float32)
    for row in range(start, stop, ROWS):
        rows = (row + tl.arange(0, ROWS))[:, None]
        inside = (rows < stop) & known[None, :]
        values = tl.load(x + (first + rows) * channels + columns[None, :], mask=inside, other=0.0).to(tl.float32)
        apart = tl.where(inside, values - origin[None, :], 0.0)
        sums += apart
        squares += apart * apart
    total = tl.sum(sums, axis=0)
    here = tl.maximum(stop - start, 1).to(tl.float32)
    place = (share * splits + split) * channels + columns
    tl.store(partial + place, origin + total / here, mask=known)
    plane = tl.num_programs(0) * splits * channels
    tl.store(partial + plane + place, tl.sum(squares, axis=0) - total * total / here, mask=known)


@triton.jit(do_not_specialize=[*SHARE, "chunk", "splits"])
def norm_finish(
    partial, means, variances, inverses, total, splits, channels, hw, each, extra, chunk, eps,
    SPLITS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Join the chunks' statistics into a share's."""
    share, _, count, columns, known = share_of(channels, hw, each, extra, COLUMNS)
    plane = tl.num_programs(0) * splits * channels
    mean = tl.zeros([COLUMNS], tl.float32)
    squares = tl.zeros([COLUMNS], tl.float32)
    for block in range(0, splits, SPLITS):
        split = block + tl.arange(0, SPLITS)
        size = tl.maximum(tl.minimum((split + 1) * chunk, count) - split * chunk, 0).to(tl.float32)[:, None]
        inside = (split < splits)[:, None] & known[None, :]
        place = (share * splits + split)[:, None] * channels + columns[None, :]
        mean += tl.sum(tl.load(partial + place, mask=inside, other=0.0) * size, axis=0)
    mean = mean / count
    for block in range(0, splits, SPLITS):
        split = block + tl.arange(0, SPLITS)
        size = tl.maximum(tl.minimum((split + 1) * chunk, count) - split * chunk, 0).to(tl.float32)[:, None]
        inside = (split < splits)[:, None] & known[None, :]
        place = (share * splits + split)[:, None] * channels + columns[None, :]
        apart = tl.where(inside, tl.load(partial + place, mask=inside, other=0.0) - mean[None, :], 0.0)
        squares += tl.sum(tl.load(partial + plane + place, mask=inside, other=0.0) + size * apart * apart, axis=0)
    place = share * total + columns
    tl.store(means + place, mean, mask=known)
    tl.store(variances + place, squares / tl.maximum(count - 1, 1), mask=known)
    tl.store(inverses + place, tl.rsqrt(squares / count + eps), mask=known)


@triton.jit(do_not_specialize=[*SHARE, *FLAGS, "chunk"])
def norm_grad_partial(
    first_grad, second_grad, x, y, partial, weight, bias, means, inverses, total, splits, channels, hw, each, extra,
    chunk, relu, has_residual, has_second, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Sums over one chunk of a share's rows of the gradient, and of the gradient times the normalized value."""
    share, first, count, columns, known = share_of(channels, hw, each, extra, COLUMNS)
    split = tl.program_id(2)
    start = split * chunk
    stop = tl.minimum(start + chunk, count)
    place = share * total + columns
    mean, inverse, scale, shift = of_columns(means, inverses, weight, bias, place, columns, known)
    along_bias = tl.zeros([ROWS, COLUMNS], tl.float32)
    along_weight = tl.zeros([ROWS, COLUMNS], tl.float32)
    for row in range(start, stop, ROWS):
        rows = (row + tl.arange(0, ROWS))[:, None]
        inside = (rows < stop) & known[None, :]
        where = (first + rows) * channels + columns[None, :]
        values = tl.load(x + where, mask=inside, other=0.0).to(tl.float32)
        normalized = tl.where(inside, (values - mean[None, :]) * inverse[None, :], 0.0)
        grad = _slopes(
            first_grad, second_grad, y, where, inside, normalized, scale, shift, relu, has_residual, has_second
        )
        along_bias += grad
        along_weight += grad * normalized
    place = (share * splits + split) * channels + columns
    tl.store(partial + place, tl.sum(along_bias, axis=0), mask=known)
    plane = tl.num_programs(0) * splits * channels
    tl.store(partial + plane + place, tl.sum(along_weight, axis=0), mask=known)


@triton.jit(do_not_specialize=["splits"])
def norm_grad_finish(
    partial, weight_grads, bias_grads, total, splits, channels, SPLITS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Join the chunks' sums into a share's."""
    share = tl.program_id(0)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    known = columns < channels
    plane = tl.num_programs(0) * splits * channels
    along_bias = tl.zeros([COLUMNS], tl.float32)
    along_weight = tl.zeros([COLUMNS], tl.float32)
    for block in range(0, splits, SPLITS):
        split = block + tl.arange(0, SPLITS)
        inside = (split < splits)[:, None] & known[None, :]
        place = (share * splits + split)[:, None] * channels + columns[None, :]
        along_bias += tl.sum(tl.load(partial + place, mask=inside, other=0.0), axis=0)
        along_weight += tl.sum(tl.load(partial + plane + place, mask=inside, other=0.0), axis=0)
    place = share * total + columns
    tl.store(bias_grads + place, along_bias, mask=known)
    tl.store(weight_grads + place, along_weight, mask=known)
