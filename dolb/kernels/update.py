"""Triton kernels for the update in a fused training step, over all weights at once.

SGD is one pass over the weights and one over batch norms. LARS and LAMB need lengths of whole tensors first: the arrays
are cut into chunks (``rules``), a program to each. A kernel leaves each chunk's sums of squares, and the next one sums
those of its tensor, always in the same order, so that one seed has one result.
"""

from __future__ import annotations

import triton
import triton.language as tl

# -- SGD --------------------------------------------------------------------------------------------------------------


@triton.jit
def _updated(value, slope, velocity, rate, momentum, decay, NESTEROV: tl.constexpr):
    slope = slope + decay * value
    velocity = momentum * velocity + slope
    move = velocity
    if NESTEROV:
        move = slope + momentum * velocity
    return value - rate * move, velocity


@triton.jit
def update_weights(
    grads, weights, velocities, working, rates, updates, size, decayed, momentum, decay, NESTEROV: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """SGD on all weights at once, and their copies in the type that the network computes with.

    Those from ``decayed`` on go without weight decay.
    """
    where = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = where < size
    rate = tl.load(rates + tl.load(updates))
    slope = tl.load(grads + where, mask=inside, other=0.0).to(tl.float32)
    value = tl.load(weights + where, mask=inside, other=0.0)
    velocity = tl.load(velocities + where, mask=inside, other=0.0)
    decays = tl.where(where < decayed, decay, 0.0)
    value, velocity = _updated(value, slope, velocity, rate, momentum, decays, NESTEROV)
    tl.store(weights + where, value, mask=inside)
    tl.store(velocities + where, velocity, mask=inside)
    tl.store(working + where, value.to(working.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["shares"])
def update_norms(
    parameters, velocities, weight_grads, bias_grads, grads, running, means, variances, rates, updates, total, shares,
    momentum, decay, follow, ONLY_SUM: tl.constexpr, NESTEROV: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """SGD on every batch norm's weight and bias, summed over shares, and one move of the running estimates.

    With ``ONLY_SUM`` the gradients are summed, and the update is left to others.
    """
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
    for row in tl.static_range(2):  # weights and means, then biases and variances
        place = row * total + columns
        slope = weight_slope if row == 0 else bias_slope
        if ONLY_SUM:
            tl.store(grads + place, slope, mask=known)
        else:
            value, velocity = tl.load(parameters + place, mask=known), tl.load(velocities + place, mask=known)
            value, velocity = _updated(value, slope, velocity, rate, momentum, decay, NESTEROV)
            tl.store(parameters + place, value, mask=known)
            tl.store(velocities + place, velocity, mask=known)
        old = tl.load(running + place, mask=known)
        measured = mean if row == 0 else variance
        tl.store(running + place, old + follow * (measured / shares - old), mask=known)


# -- LARS and LAMB: a program to each chunk ---------------------------------------------------------------------------


@triton.jit
def _chunk(chunks, count, CHUNK: tl.constexpr, ALIGNED: tl.constexpr):
    """Return where a chunk's numbers are, which of the lanes have one, and whether its tensor is adapted.

    Chunks begin and end at multiples of ``ALIGNED``, by which the compiler knows how wide loads may be.
    """
    row = chunks + tl.program_id(0)
    where = tl.multiple_of(tl.load(row), ALIGNED) + tl.arange(0, CHUNK)
    return where, where < tl.multiple_of(tl.load(row + count), ALIGNED), tl.load(row + 4 * count) != 0


@triton.jit
def _slopes(grads, norm_grads, where, inside, edge):
    """Return gradients, which from ``edge`` on are those of batch norms, in an array of their own."""
    slope = tl.load(grads + where, mask=inside & (where < edge), other=0.0).to(tl.float32)
    return slope + tl.load(norm_grads + (where - edge), mask=inside & (where >= edge), other=0.0)


@triton.jit
def _length(sums, chunks, count):
    """Return the length of the chunk's tensor, by the sums of squares of all its chunks."""
    row = chunks + tl.program_id(0)
    first, pieces = tl.load(row + 2 * count), tl.load(row + 3 * count)
    lanes = tl.arange(0, 256)
    total = tl.zeros([256], tl.float32)
    for start in range(0, pieces, 256):
        total += tl.load(sums + first + start + lanes, mask=start + lanes < pieces, other=0.0)
    return tl.sqrt(tl.sum(total, axis=0))


@triton.jit
def length_sums(grads, norm_grads, weights, chunks, sums, count, edge, CHUNK: tl.constexpr, ALIGNED: tl.constexpr):
    """Sums of squares over each chunk, of weights and of gradients."""
    where, inside, _ = _chunk(chunks, count, CHUNK, ALIGNED)
    value = tl.load(weights + where, mask=inside, other=0.0)
    slope = _slopes(grads, norm_grads, where, inside, edge)
    tl.store(sums + tl.program_id(0), tl.sum(value * value, axis=0))
    tl.store(sums + count + tl.program_id(0), tl.sum(slope * slope, axis=0))


@triton.jit
def lars_update(
    grads, norm_grads, weights, velocities, working, chunks, sums, rates, updates, count, edge, momentum, decay, trust,
    eps, CHUNK: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """LARS on all weights and batch norms at once, and the working copies of weights."""
    where, inside, adapted = _chunk(chunks, count, CHUNK, ALIGNED)
    length, steep = _length(sums, chunks, count), _length(sums + count, chunks, count)
    rate = tl.load(rates + tl.load(updates))
    decay = tl.where(adapted, decay, 0.0)
    ratio = tl.where(adapted & (length > 0) & (steep > 0), trust * length / (steep + decay * length + eps), 1.0)
    value = tl.load(weights + where, mask=inside, other=0.0)
    velocity = tl.load(velocities + where, mask=inside, other=0.0)
    slope = _slopes(grads, norm_grads, where, inside, edge) + decay * value
    velocity = momentum * velocity + ratio * slope
    value = value - rate * velocity
    tl.store(velocities + where, velocity, mask=inside)
    tl.store(weights + where, value, mask=inside)
    tl.store(working + where, value.to(working.dtype.element_ty), mask=inside & (where < edge))


@triton.jit
def _lamb_step(value, first, second, updates, log_beta, log_second, decay, eps):
    """Return the step of LAMB before it is scaled, from moments that are biased towards zero in the first updates."""
    number = (tl.load(updates) + 1).to(tl.float64)
    rise = (1.0 - tl.exp2(number * log_beta)).to(tl.float32)
    spread = (1.0 - tl.exp2(number * log_second)).to(tl.float32)
    return first / rise / (tl.sqrt(second / spread) + eps) + decay * value


@triton.jit
def lamb_moments(
    grads, norm_grads, weights, firsts, seconds, chunks, sums, squares, updates, count, edge, beta, second_beta, gain,
    second_gain, longest, log_beta, log_second, decay, eps, CHUNK: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """LAMB's moments, of gradients that together are not longer than ``longest``, and each chunk's sum of its steps."""
    where, inside, adapted = _chunk(chunks, count, CHUNK, ALIGNED)
    over = tl.maximum(tl.sqrt(tl.load(squares)) / longest, 1.0)
    slope = _slopes(grads, norm_grads, where, inside, edge) / over
    value = tl.load(weights + where, mask=inside, other=0.0)
    first = beta * tl.load(firsts + where, mask=inside, other=0.0) + gain * slope
    second = second_beta * tl.load(seconds + where, mask=inside, other=0.0) + second_gain * slope * slope
    tl.store(firsts + where, first, mask=inside)
    tl.store(seconds + where, second, mask=inside)
    decay = tl.where(adapted, decay, 0.0)
    step = _lamb_step(value, first, second, updates, log_beta, log_second, decay, eps)
    tl.store(sums + 2 * count + tl.program_id(0), tl.sum(step * step, axis=0))


@triton.jit
def lamb_update(
    weights, firsts, seconds, working, chunks, sums, rates, updates, count, edge, log_beta, log_second, decay, eps,
    CHUNK: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """LAMB on all weights and batch norms at once, by the moments of this update, and the working copies of weights."""
    where, inside, adapted = _chunk(chunks, count, CHUNK, ALIGNED)
    length, stride = _length(sums, chunks, count), _length(sums + 2 * count, chunks, count)
    rate = tl.load(rates + tl.load(updates))
    ratio = tl.where(adapted & (length > 0) & (stride > 0), length / stride, 1.0)
    decay = tl.where(adapted, decay, 0.0)
    value = tl.load(weights + where, mask=inside, other=0.0)
    first = tl.load(firsts + where, mask=inside, other=0.0)
    second = tl.load(seconds + where, mask=inside, other=0.0)
    value = value - rate * ratio * _lamb_step(value, first, second, updates, log_beta, log_second, decay, eps)
    tl.store(weights + where, value, mask=inside)
    tl.store(working + where, value.to(working.dtype.element_ty), mask=inside & (where < edge))
