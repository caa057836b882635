"""The gradient of t-SNE on a GPU, every pair of points counted: what openTSNE interpolates on a grid, here exactly.

Of 50,000 points there are 2.5 billion pairs, which a GPU goes through sooner than a CPU through the grid. A program has
some rows to itself and sums in one order, so that one seed has one map.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

_ROWS, _COLUMNS, _NEIGHBOURS = 32, 128, 128


@triton.jit
def _repel(places, forces, sums, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Sum 1 / (1 + distance squared) over all other points, and the force that its square makes."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = rows < n
    x = tl.load(places + 2 * rows, mask=inside, other=0.0)[:, None]
    y = tl.load(places + 2 * rows + 1, mask=inside, other=0.0)[:, None]
    near = tl.zeros([ROWS], tl.float32)
    across = tl.zeros([ROWS], tl.float32)
    up = tl.zeros([ROWS], tl.float32)
    for begin in range(0, n, COLUMNS):
        columns = begin + tl.arange(0, COLUMNS)
        known = columns < n
        dx = x - tl.load(places + 2 * columns, mask=known, other=0.0)[None, :]
        dy = y - tl.load(places + 2 * columns + 1, mask=known, other=0.0)[None, :]
        q = tl.where(known[None, :] & (rows[:, None] != columns[None, :]), 1.0 / (1.0 + dx * dx + dy * dy), 0.0)
        near += tl.sum(q, 1)
        across += tl.sum(q * q * dx, 1)
        up += tl.sum(q * q * dy, 1)
    tl.store(sums + rows, near, mask=inside)
    tl.store(forces + 2 * rows, across, mask=inside)
    tl.store(forces + 2 * rows + 1, up, mask=inside)


@triton.jit
def _attract(places, starts, neighbours, affinities, forces, NEIGHBOURS: tl.constexpr):
    """Sum the force of each point's neighbours."""
    row = tl.program_id(0)
    x, y = tl.load(places + 2 * row), tl.load(places + 2 * row + 1)
    across = tl.zeros([NEIGHBOURS], tl.float32)
    up = tl.zeros([NEIGHBOURS], tl.float32)
    end = tl.load(starts + row + 1)
    for begin in range(tl.load(starts + row), end, NEIGHBOURS):
        where = begin + tl.arange(0, NEIGHBOURS)
        inside = where < end
        other = tl.load(neighbours + where, mask=inside, other=0)
        dx = x - tl.load(places + 2 * other, mask=inside, other=0.0)
        dy = y - tl.load(places + 2 * other + 1, mask=inside, other=0.0)
        force = tl.load(affinities + where, mask=inside, other=0.0) / (1.0 + dx * dx + dy * dy)
        across += force * dx
        up += force * dy
    tl.store(forces + 2 * row, tl.sum(across))
    tl.store(forces + 2 * row + 1, tl.sum(up))


class Gradient:
    """What openTSNE takes as its ``negative_gradient_method``, for making a map; the divergence is not computed."""

    def __init__(self, device: torch.device | str):
        self._device = torch.device(device)
        self._of: tuple[int, float] | None = None

    def __call__(self, embedding: np.ndarray, P: Any, **_: object) -> tuple[float, np.ndarray]:
        """Return NaN for the divergence, and the gradient at an embedding by affinities, a sparse matrix by rows."""
        if self._of != (now := (id(P), float(P.data[0]))):  # openTSNE exaggerates them in place
            held = (P.indptr.astype(np.int32), P.indices.astype(np.int32), P.data.astype(np.float32))
            self._starts, self._neighbours, self._affinities = (torch.from_numpy(x).to(self._device) for x in held)
            self._of = now
        n = len(embedding)
        places = torch.from_numpy(np.asarray(embedding, dtype=np.float32)).to(self._device)
        apart, together, sums = torch.empty_like(places), torch.empty_like(places), places.new_empty(n)
        _repel[(triton.cdiv(n, _ROWS),)](places, apart, sums, n, _ROWS, _COLUMNS)
        _attract[(n,)](places, self._starts, self._neighbours, self._affinities, together, _NEIGHBOURS)
        gradient = together.double() - apart.double() / sums.double().sum()
        return float("nan"), gradient.cpu().numpy()
