"""Noise on the map: which examples of a class lie apart from it, and the mask of those to keep.

Clustering runs on the points of one class at a time, as in the study. A class must not vanish, or training would have
fewer classes than the data: where all points of a class are noise, which a class of fewer than ``min_samples`` points
always is, ``fit`` raises an error, or keeps that class whole with a warning if ``on_empty_class`` is ``"keep"``.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.cluster import HDBSCAN

from dolb.filtering import density
from dolb.filtering.checks import EmptyClassError, class_labels, finite_rows

ON_EMPTY_CLASS = ("raise", "keep")


class _ByClass(BaseEstimator, ABC):
    """A clustering of the map, class by class.

    After ``fit``: ``labels_``, the cluster of each point, -1 for noise, no number used by two classes; ``keep_``, the
    mask of what is not noise; ``classes_``, the classes in ascending order.
    """

    labels_: np.ndarray
    keep_: np.ndarray
    classes_: np.ndarray
    on_empty_class: str

    def fit(self, coordinates: np.ndarray, labels: np.ndarray) -> Self:
        """Cluster the points of each class."""
        if self.on_empty_class not in ON_EMPTY_CLASS:
            raise ValueError(f"on_empty_class is {self.on_empty_class!r}; accepted: {', '.join(ON_EMPTY_CLASS)}")
        coordinates, labels = _map(coordinates, labels)
        self.classes_ = np.unique(labels)
        self.labels_ = np.full(len(labels), -1)
        used = 0
        for position, value in enumerate(self.classes_):
            members = np.flatnonzero(labels == value)
            try:
                clusters = self._cluster(coordinates[members], position)
            except ValueError as error:
                error.add_note(f"in class {value}, of {len(members)} points")
                raise
            self.labels_[members] = np.where(clusters >= 0, clusters + used, -1)
            used += clusters.max(initial=-1) + 1
        self.keep_ = self._without_empty_classes(self.labels_ >= 0, labels)
        return self

    def fit_predict(self, coordinates: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Cluster the points of each class and return ``labels_``."""
        return self.fit(coordinates, labels).labels_

    @abstractmethod
    def _cluster(self, points: np.ndarray, position: int) -> np.ndarray:
        """Return the clusters of one class's points, numbered from 0, and -1 for noise."""

    def _without_empty_classes(self, keep: np.ndarray, labels: np.ndarray) -> np.ndarray:
        empty = np.setdiff1d(self.classes_, labels[keep])
        if not len(empty):
            return keep
        sizes = ", ".join(f"class {value} ({np.sum(labels == value)} points)" for value in empty)
        if self.on_empty_class == "raise":
            raise EmptyClassError(
                f"{self} calls all of {sizes} noise, and without it training would lack a class; change its "
                "parameters, or keep such classes whole with on_empty_class='keep'"
            )
        warnings.warn(f"{self} calls all of {sizes} noise; kept whole", UserWarning, stacklevel=3)
        return keep | np.isin(labels, empty)


class ClassDBSCAN(_ByClass):
    """DBSCAN on the map, class by class; its defaults are scikit-learn's.

    Parameters
    ----------
    eps
        Radius of a neighbourhood, or ``"knee"`` for the knee of each class's own k-distances (``knee``).
    min_samples
        Points within eps, itself counted, that make a core point.
    on_empty_class
        What to do if all points of a class are noise: ``"raise"`` or ``"keep"`` the class whole.

    Besides the attributes common to both filters, ``eps_`` holds the radius used for each of ``classes_``; it is NaN
    where the knee was asked of a class with fewer than ``min_samples`` points.
    """

    eps_: np.ndarray

    def __init__(self, eps: float | str = 0.5, min_samples: int = 5, on_empty_class: str = "raise"):
        self.eps = eps
        self.min_samples = min_samples
        self.on_empty_class = on_empty_class

    def fit(self, coordinates: np.ndarray, labels: np.ndarray) -> Self:
        """Cluster the points of each class."""
        if isinstance(self.eps, str) and self.eps != "knee":
            raise ValueError(f"eps is {self.eps!r}; accepted: a number above 0, or 'knee'")
        self.eps_ = np.full(len(np.unique(labels)), np.nan)
        return super().fit(coordinates, labels)

    def _cluster(self, points: np.ndarray, position: int) -> np.ndarray:
        eps = self.eps
        if isinstance(eps, str):
            if len(points) < self.min_samples:
                return np.full(len(points), -1)
            eps = knee(density.core_radius(points, self.min_samples))
        self.eps_[position] = eps
        return density.dbscan(points, eps, self.min_samples)


class ClassHDBSCAN(_ByClass):
    """HDBSCAN on the map, class by class, with scikit-learn's defaults; it needs no eps."""

    def __init__(
        self,
        min_cluster_size: int = 5,
        min_samples: int | None = None,
        allow_single_cluster: bool = False,
        on_empty_class: str = "raise",
    ):
        self.min_cluster_size = min_cluster_size
        self.min_samples = min_samples
        self.allow_single_cluster = allow_single_cluster
        self.on_empty_class = on_empty_class

    def _cluster(self, points: np.ndarray, position: int) -> np.ndarray:
        if len(points) < max(self.min_cluster_size, self.min_samples or 0):
            return np.full(len(points), -1)  # as DBSCAN has it; scikit-learn's HDBSCAN refuses some of these
        clusterer = HDBSCAN(
            min_cluster_size=self.min_cluster_size,
            min_samples=self.min_samples,
            allow_single_cluster=self.allow_single_cluster,
            copy=True,
        )
        return clusterer.fit(points).labels_


def knee(distances: np.ndarray) -> float:
    """Return the knee of k-distances: where, sorted, they turn from flat to steep.

    The rule is that of Kneedle (Satopaa et al., 2011) for a curve that grows and is convex, without smoothing: with
    both axes scaled to 0..1, the point farthest below the diagonal. A knee at distance 0, where most points have
    duplicates, is no radius: then it is the smallest distance above 0.
    """
    rising = np.sort(distances)
    if not len(rising) or not np.isfinite(rising[-1]) or rising[-1] <= 0:
        raise ValueError(f"the {len(rising)} distances have no knee; accepted: finite ones, some of them above 0")
    height = np.ptp(rising) or 1.0
    below = np.linspace(0, 1, len(rising)) - (rising - rising[0]) / height
    # On a flat curve, all points of a lattice say, every point is a knee: the last keeps all.
    at = float(rising[-1] if rising[0] == rising[-1] else rising[np.argmax(below)])
    return at if at > 0 else float(rising[rising > 0][0])


def noise_until(coordinates: np.ndarray, labels: np.ndarray, min_samples: int = 5) -> np.ndarray:
    """Return for each point the radius below which it is noise: ``ClassDBSCAN`` calls it noise if eps is less.

    Computed once, it answers every eps; it is infinite in a class of fewer than ``min_samples`` points.
    """
    coordinates, labels = _map(coordinates, labels)
    until = np.empty(len(labels))
    for value in np.unique(labels):
        members = labels == value
        until[members] = density.noise_radius(coordinates[members], min_samples)
    return until


def share_radius(until: np.ndarray, share: float) -> float:
    """Return the radius at which ``share`` of the points are noise, given ``noise_until`` of each, or next below it."""
    if not 0 < share < 1:
        raise ValueError(f"share is {share}; accepted: above 0 and below 1")
    radius = float(np.quantile(until, 1 - share, method="higher"))
    if not 0 < radius < np.inf:
        raise ValueError(f"no radius leaves {share:.2%} of these {len(until)} points as noise")
    return radius


def grid_sample(
    coordinates: np.ndarray, labels: np.ndarray, share: float, *, cells: int = 50, random_state: int = 0
) -> np.ndarray:
    """Return a mask that keeps an equal share of each class from every cell of a grid over the map.

    Each class keeps ``share`` of its examples, rounded, and so does each occupied cell, up to one example more or less.
    ``cells`` is the number of cells along either axis.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share is {share}; accepted: above 0, up to 1")
    if cells < 1:
        raise ValueError(f"cells is {cells}; accepted: 1 or more")
    coordinates, labels = _map(coordinates, labels)
    extent = np.ptp(coordinates, axis=0)
    scaled = (coordinates - coordinates.min(axis=0)) / np.where(extent > 0, extent, 1)
    column, row = np.minimum(scaled * cells, cells - 1).astype(np.int64).T
    rng = np.random.default_rng(random_state)
    place = rng.permutation(cells * cells)[column * cells + row]  # no cell is always the one that is rounded up
    keep = np.zeros(len(labels), dtype=bool)
    for value in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == value))
        members = members[np.argsort(place[members], kind="stable")]
        # Cell after cell, keep an example whenever the running total of shares passes a whole number and a half.
        total = np.floor(np.arange(len(members) + 1) * share + 0.5)
        keep[members] = np.diff(total) > 0
    return keep


def _map(coordinates: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    coordinates = finite_rows("coordinates", coordinates, width=2).astype(np.float64)
    return coordinates, class_labels(labels, len(coordinates))
