"""DBSCAN of points in the plane, and the radius at which each of them stops being noise.

Two points are neighbours if their squared distance is at most the square of eps, both in float64. That one comparison
decides everywhere; scikit-learn's own search compares roots too, and may differ from a radius found here by a bit.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array
from scipy.spatial import cKDTree
from sklearn.cluster import DBSCAN

_SLACK = 1e-9  # by which the search goes beyond eps, so that rounding loses no neighbour before they are compared


def core_radius(points: np.ndarray, min_samples: int) -> np.ndarray:
    """Return for each point the smallest eps at which it is a core point; infinite where there are too few points."""
    return _radius(_nearest(points, min_samples)[1].max(axis=1))


def noise_radius(points: np.ndarray, min_samples: int) -> np.ndarray:
    """Return for each point the radius below which DBSCAN calls it noise: it is noise at eps if eps is less.

    A point is not noise if some point q within eps is a core point, so this is the least over q of the larger of
    distance and q's core distance. Farther q than the ``min_samples`` nearest cannot be less than its own.
    """
    index, squared = _nearest(points, min_samples)
    core = squared.max(axis=1)
    return _radius(np.maximum(squared, core[np.minimum(index, len(core) - 1)]).min(axis=1))


def dbscan(points: np.ndarray, eps: float, min_samples: int) -> np.ndarray:
    """Return the cluster of each point, -1 for noise, as scikit-learn numbers them: by the first core point."""
    if not (np.isfinite(eps) and eps > 0):
        raise ValueError(f"eps is {eps}; accepted: a finite number above 0")
    one, other = cKDTree(points).query_pairs(eps * (1 + _SLACK), output_type="ndarray").T
    near = np.square(points[one] - points[other]).sum(axis=1) <= eps * eps
    own, n = np.arange(len(points)), len(points)
    rows, columns = np.concatenate([one[near], other[near], own]), np.concatenate([other[near], one[near], own])
    graph = coo_array((np.zeros(len(rows)), (rows, columns)), shape=(n, n)).tocsr()
    return DBSCAN(eps=eps, min_samples=min_samples, metric="precomputed").fit_predict(graph)


def _nearest(points: np.ndarray, min_samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return index and squared distance of each point's nearest, itself counted; infinite where there are too few."""
    if min_samples < 1:
        raise ValueError(f"min_samples is {min_samples}; accepted: 1 or more")
    distance, index = cKDTree(points).query(points, k=np.arange(1, min_samples + 1))
    there = points[np.minimum(index, len(points) - 1)]
    return index, np.where(np.isinf(distance), np.inf, np.square(points[:, None] - there).sum(axis=2))


def _radius(squared: np.ndarray) -> np.ndarray:
    """Return the smallest number whose square, rounded, is not below ``squared``; a plain root may be one step less."""
    root = np.sqrt(squared)
    return np.where(root * root < squared, np.nextafter(root, np.inf), root)
