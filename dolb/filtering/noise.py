"""Noise on the map: which examples of a class lie apart from it, and the mask of those to keep.

Clustering runs on the points of one class at a time, as in the study. A class must not vanish, or training would have
fewer classes than the data: where all points of a class are noise, which a class of fewer than ``min_samples`` points
always is, it is kept whole, with a warning.
"""

import warnings
from abc import abstractmethod
from typing import Any, Self

import numpy as np
from scipy.spatial import cKDTree
from sklearn.cluster import DBSCAN, HDBSCAN

from dolb.filtering.checks import Filter, class_labels, rows_for

_CELLS = 50  # of the grid, along either axis
_SLACK = 1e-12  # a radius that was found as a distance reaches that point, whichever way its root was rounded
_SMALLEST_CLUSTER = 5  # scikit-learn's default for HDBSCAN


class _ByClass(Filter):
    """A clustering of the map, or of other rows of numbers, class by class.

    After ``fit``, ``labels_`` is the cluster of each point, no number used by two classes, a class that is kept whole
    being one; and ``eps_`` the radius used for each class in ascending order, NaN where there was none.
    """

    eps_: np.ndarray

    def fit(self, X: Any, y: Any) -> Self:
        """Cluster the points of each class."""
        coordinates = rows_for(self, "coordinates", X).astype(np.float64)
        labels = class_labels(y, len(coordinates))
        classes = np.unique(labels)
        self.labels_, self.eps_ = np.full(len(labels), -1), np.full(len(classes), np.nan)
        used = 0
        for position, value in enumerate(classes):
            members = np.flatnonzero(labels == value)
            clusters, self.eps_[position] = self._cluster(coordinates[members])
            self.labels_[members] = np.where(clusters >= 0, clusters + used, -1)
            used += clusters.max() + 1
        self.keep_ = self.labels_ >= 0
        if len(empty := np.setdiff1d(classes, labels[self.keep_])):
            sizes = ", ".join(f"class {value} ({np.sum(labels == value)} points)" for value in empty)
            warnings.warn(f"{self} calls all of {sizes} noise; kept whole", UserWarning, stacklevel=2)
            for number, value in enumerate(empty, used):
                self.labels_[labels == value] = number
            self.keep_ = self.labels_ >= 0
        return self

    @abstractmethod
    def _cluster(self, points: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the clusters of one class's points, numbered from 0, and -1 for noise; and the radius."""


class ClassDBSCAN(_ByClass):
    """DBSCAN on the map, class by class; its defaults are scikit-learn's.

    ``eps`` is the radius of a neighbourhood, or ``"knee"`` for the knee of each class's own k-distances (``knee``), and
    ``min_samples`` the points within eps, itself counted, that make a core point. With ``share`` eps is, in its place,
    the one radius at which that share of all points is noise.
    """

    def __init__(self, eps: float | str = 0.5, min_samples: int = 5, share: float | None = None):
        self.eps = eps
        self.min_samples = min_samples
        self.share = share

    def fit(self, X: Any, y: Any) -> Self:
        """Cluster the points of each class."""
        self._radius = self.eps
        if self.share is not None:
            if not 0 < self.share < 1:
                raise ValueError(f"share is {self.share}; accepted: above 0 and below 1")
            coordinates = rows_for(self, "coordinates", X)
            until = noise_until(coordinates, class_labels(y, len(coordinates)), self.min_samples)
            if np.isfinite(until).any():  # else every class is too small, and kept whole
                self._radius = share_radius(until, self.share)
        return super().fit(X, y)

    def _cluster(self, points: np.ndarray) -> tuple[np.ndarray, float]:
        if len(points) < self.min_samples:
            return np.full(len(points), -1), np.nan
        eps = knee(_nearest(points, self.min_samples)[0][:, -1]) if self._radius == "knee" else self._radius
        if isinstance(eps, str):
            raise ValueError(f"eps is {eps!r}; accepted: a number above 0, or 'knee'")
        return DBSCAN(eps=eps * (1 + _SLACK), min_samples=self.min_samples).fit_predict(points), eps


class ClassHDBSCAN(_ByClass):
    """HDBSCAN on the map, class by class, with scikit-learn's defaults; it needs no eps."""

    def __init__(self, min_samples: int | None = None):
        self.min_samples = min_samples

    def _cluster(self, points: np.ndarray) -> tuple[np.ndarray, float]:
        if len(points) < max(_SMALLEST_CLUSTER, self.min_samples or 0):
            return np.full(len(points), -1), np.nan  # as DBSCAN has it; scikit-learn's HDBSCAN refuses some of these
        clusterer = HDBSCAN(min_cluster_size=_SMALLEST_CLUSTER, min_samples=self.min_samples, copy=True)
        return clusterer.fit(points).labels_, np.nan


def knee(distances: np.ndarray) -> float:
    """Return the knee of k-distances: where, sorted, they turn from flat to steep.

    The rule is that of Kneedle (Satopaa et al., 2011) for a curve that grows and is convex, without smoothing: with
    both axes scaled to 0..1, the point farthest below the diagonal. A knee at distance 0, where most points have
    duplicates, is no radius: then it is the smallest distance above 0.
    """
    rising = np.sort(distances)
    if not rising[-1] > 0:
        raise ValueError(f"the {len(rising)} distances have no knee; accepted: some of them above 0")
    below = np.linspace(0, 1, len(rising)) - (rising - rising[0]) / (np.ptp(rising) or 1.0)
    at = float(rising[np.argmax(below)])
    return at if at > 0 else float(rising[rising > 0][0])


def noise_until(coordinates: np.ndarray, labels: np.ndarray, min_samples: int = 5) -> np.ndarray:
    """Return for each point the radius below which it is noise: ``ClassDBSCAN`` calls it noise if eps is less.

    Computed once, it answers every eps; it is infinite in a class of fewer than ``min_samples`` points. A point is not
    noise if some point q within eps is a core point, so this is the least over q of the larger of distance and q's core
    distance. Farther q than the ``min_samples`` nearest cannot be less than its own.
    """
    until = np.empty(len(labels))
    for value in np.unique(labels):
        members = labels == value
        distance, index = _nearest(coordinates[members].astype(np.float64), min_samples)
        core = np.append(distance[:, -1], np.inf)  # the last: of a neighbour that there is not
        until[members] = np.maximum(distance, core[index]).min(axis=1)
    return until


def _nearest(points: np.ndarray, min_samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return distance and index of the nearest points to each, itself counted; infinite where there are too few."""
    return cKDTree(points).query(points, k=np.arange(1, min_samples + 1))


def share_radius(until: np.ndarray, share: float) -> float:
    """Return the radius at which ``share`` of the points are noise, given ``noise_until`` of each, or next below it.

    Points of a class that is too small for any density, whose radius is infinite, do not count.
    """
    if not (finite := until[np.isfinite(until)]).size:
        raise ValueError("no class has images enough for a density; accepted: 5 or more in some class")
    radius = float(np.quantile(finite, 1 - share, method="higher"))
    if not radius > 0:
        raise ValueError(f"no radius leaves {share:.2%} of these {len(until)} points as noise")
    return radius


def keep_within(until: np.ndarray, labels: np.ndarray, eps: float) -> np.ndarray:
    """Return what ``ClassDBSCAN`` keeps, by ``noise_until`` and without pairs of neighbours: a large eps has many."""
    keep = until <= eps
    return keep | np.isin(labels, np.setdiff1d(labels, labels[keep]))  # a class that is all noise is kept whole


def grid_sample(coordinates: np.ndarray, labels: np.ndarray, share: float, random_state: int = 0) -> np.ndarray:
    """Return a mask that keeps an equal share of each class from every cell of a grid over the map.

    Each class keeps ``share`` of its examples, rounded, and so does each occupied cell, up to one example more or less.
    """
    extent = np.ptp(coordinates, axis=0)
    scaled = (coordinates - coordinates.min(axis=0)) / np.where(extent > 0, extent, 1)
    column, row = np.minimum(scaled * _CELLS, _CELLS - 1).astype(np.int64).T
    rng = np.random.default_rng(random_state)
    place = rng.permutation(_CELLS**2)[column * _CELLS + row]  # no cell is always the one that is rounded up
    keep = np.zeros(len(labels), dtype=bool)
    for value in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == value))
        members = members[np.argsort(place[members], kind="stable")]
        # Cell after cell, keep an example whenever the running total of shares passes a whole number and a half.
        total = np.floor(np.arange(len(members) + 1) * share + 0.5)
        keep[members] = np.diff(total) > 0
    return keep
