"""DBSCAN of points in the plane, in memory that grows with the points and not with their neighbourhoods.

The usual program lists every neighbourhood, which for n points that are all neighbours takes n squared entries. Two
facts make the lists unnecessary. A point that is not a core point has fewer than ``min_samples`` neighbours, so its
nearest ``min_samples`` points say whether it is noise and which clusters it touches. And core points in one cell of a
grid with sides below eps / sqrt(2) are all neighbours, so clusters are connected cells, and two cells are connected
if the closest pair of core points across them is within eps. Labels are those of ``sklearn.cluster.DBSCAN``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

_NUMBERS_AT_ONCE = 2**20  # bounds the memory of a query: 16 MB of indices and squared distances
_SLACK = 1e-3  # cells are this much smaller than they may be, so that rounding cannot put distant points into one
_FINEST = 1e-9  # eps over the width of the map below which cells could not be numbered


class Neighbours:
    """Points without their duplicates, and for each the nearest others: what noise at every eps follows from."""

    def __init__(self, points: np.ndarray, min_samples: int):
        if min_samples < 1:
            raise ValueError(f"min_samples is {min_samples}; accepted: 1 or more")
        # As complex numbers, points sort fast. A tree with many equal points would have one huge leaf.
        as_complex = np.ascontiguousarray(points, dtype=np.float64).view(np.complex128)[:, 0]
        distinct, self.which, self.count = np.unique(as_complex, return_inverse=True, return_counts=True)
        self.points = distinct.view(np.float64).reshape(-1, 2)
        self.min_samples = min_samples
        self._tree = cKDTree(self.points)
        self._nearest = np.arange(1, min(min_samples, len(self.points)) + 1)
        core = [self._core_squared(index, squared) for _, index, squared in self.of(np.arange(len(self.points)))]
        # Squared distance to the ``min_samples``-th nearest point, the point itself counted; infinite where too few.
        self.core_squared = np.concatenate(core)

    def of(self, rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield some of ``rows`` at a time, with index and squared distance of their ``min_samples`` nearest points."""
        step = max(1, _NUMBERS_AT_ONCE // len(self._nearest))
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            _, index = self._tree.query(self.points[part], k=self._nearest)
            yield part, index, _squared(self.points[part][:, None], self.points[index])

    def noise_squared(self) -> np.ndarray:
        """Return for each point the smallest squared eps at which it is not noise.

        A point is not noise if some point q within eps is a core point, so this is the least over q of the larger of
        distance and q's core distance. Farther q than its own core distance cannot be less than that.
        """
        parts = [
            np.maximum(squared, self.core_squared[index]).min(axis=1)
            for _, index, squared in self.of(np.arange(len(self.points)))
        ]
        return np.concatenate(parts)

    def _core_squared(self, index: np.ndarray, squared: np.ndarray) -> np.ndarray:
        enough = self.count[index].cumsum(axis=1) >= self.min_samples
        farthest = np.maximum.accumulate(squared, axis=1)
        at = np.take_along_axis(farthest, enough.argmax(axis=1)[:, None], axis=1)[:, 0]
        return np.where(enough.any(axis=1), at, np.inf)


def core_radius(points: np.ndarray, min_samples: int) -> np.ndarray:
    """Return for each point the smallest eps at which it is a core point; infinite where there are too few points."""
    near = Neighbours(points, min_samples)
    return _radius(near.core_squared)[near.which]


def noise_radius(points: np.ndarray, min_samples: int) -> np.ndarray:
    """Return for each point the radius below which DBSCAN calls it noise: it is noise at eps if eps is less."""
    near = Neighbours(points, min_samples)
    return _radius(near.noise_squared())[near.which]


def dbscan(points: np.ndarray, eps: float, min_samples: int) -> np.ndarray:
    """Return the cluster of each point, -1 for noise, numbered as scikit-learn does: by the first core point.

    Points are neighbours if the squared distance is at most the square of ``eps``, both in float64.
    """
    if not (np.isfinite(eps) and eps > 0):
        raise ValueError(f"eps is {eps}; accepted: a finite number above 0")
    near = Neighbours(points, min_samples)
    labels = np.full(len(near.points), -1)
    core = near.core_squared <= eps * eps
    if not core.any():
        return labels[near.which]
    labels[core] = _connected(near.points[core], eps)
    # Clusters in the order of their first core point.
    found, first = np.unique(labels[near.which], return_index=True)
    clusters = found >= 0
    number = np.empty(clusters.sum(), dtype=np.int64)
    number[found[clusters][np.argsort(first[clusters])]] = np.arange(len(number))
    labels[core] = number[labels[core]]
    core_labels = np.where(core, labels, len(number))  # of core points alone: what touches only a border point is noise
    for rows, index, squared in near.of(np.flatnonzero(~core)):
        touched = np.where(squared <= eps * eps, core_labels[index], len(number)).min(axis=1)
        labels[rows] = np.where(touched < len(number), touched, -1)  # of several clusters the first takes it
    return labels[near.which]


def _connected(points: np.ndarray, eps: float) -> np.ndarray:
    """Number the connected parts of distinct points of which those within eps are joined."""
    extent = np.ptp(points, axis=0).max()
    if eps < _FINEST * extent:
        raise ValueError(f"eps is {eps:g} on a map {extent:g} wide; accepted: at least {_FINEST * extent:g}")
    side = eps / np.sqrt(2) * (1 - _SLACK)
    column, row = np.floor((points - points.min(axis=0)) / side).astype(np.int64).T
    stride = int(row.max()) + 5  # two empty rows on either side: a neighbour never wraps round into the next column
    cells, which = np.unique(column * stride + row + 2, return_inverse=True)
    size, order = np.bincount(which), np.argsort(which)
    # A third coordinate keeps the cells apart, so that one tree finds the closest point of any one cell.
    apart = 4 * eps
    tree = cKDTree(np.column_stack([points, which * apart]))

    edges = np.empty((0, 2), dtype=np.int64)
    part = np.arange(len(cells))
    # Half of the 24 cells around each, near ones first: most cells are joined by then, and need no more looking.
    for right, up in sorted(itertools.product(range(3), range(-2, 3)), key=lambda offset: np.hypot(*offset)):
        if (right, up) <= (0, 0):
            continue
        wanted = cells + right * stride + up
        there = np.minimum(np.searchsorted(cells, wanted), len(cells) - 1)
        a = np.flatnonzero((cells[there] == wanted) & (part[there] != part))
        b = there[a]
        a, b = np.where(size[a] <= size[b], (a, b), (b, a))  # look from the cell with fewer points into the other
        pair, seeker = _members(a, order, size)  # at most all points twice: a cell has two neighbours either way
        _, closest = tree.query(
            np.column_stack([points[seeker], b[pair] * apart]), distance_upper_bound=eps * (1 + _SLACK)
        )
        hit = closest < len(points)
        hit[hit] = _squared(points[seeker[hit]], points[closest[hit]]) <= eps * eps
        touching = np.unique(pair[hit])
        edges = np.concatenate([edges, np.column_stack([a[touching], b[touching]])])
        graph = coo_array((np.ones(len(edges), dtype=bool), tuple(edges.T)), shape=(len(cells), len(cells)))
        part = connected_components(graph, directed=False)[1]
    return part[which]


def _members(cells: np.ndarray, order: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the points of each of ``cells`` one after the other, and with each the position of its cell in ``cells``.

    ``order`` holds all points cell by cell, ``size`` how many each cell has.
    """
    first = np.cumsum(size) - size
    position = np.repeat(np.arange(len(cells)), size[cells])
    rank = np.arange(len(position)) - np.repeat(np.cumsum(size[cells]) - size[cells], size[cells])
    return position, order[first[cells[position]] + rank]


def _squared(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.square(a - b).sum(axis=-1)


def _radius(squared: np.ndarray) -> np.ndarray:
    """Return the smallest number whose square, rounded, is not below ``squared``; a plain root may be one step less."""
    root = np.sqrt(squared)
    return np.where(root * root < squared, np.nextafter(root, np.inf), root)
