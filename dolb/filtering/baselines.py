"""Other ways to choose what to remove, to be compared with the map at equal size.

Each is a function that gives a score per example, higher for what should go first. ``ByScore`` makes a mask of it, with
the interface of the clusterings in ``noise``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import numpy as np
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from sklearn.base import BaseEstimator
from sklearn.neighbors import NearestNeighbors

from dolb.filtering.checks import class_labels, finite_rows, keep_mask
from dolb.filtering.embedding import principal_components


def el2n(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return EL2N (Paul et al., 2021): the L2 norm of predicted probabilities less the label's unit vector.

    ``probabilities`` is (networks, n, classes), and the mean is over networks. The authors use several early in
    training.
    """
    total = np.zeros(len(labels))
    for one in probabilities.astype(np.float64):
        # |p - e_y|^2 = |p|^2 - 2 p_y + 1, without a copy of all unit vectors
        of_label = one[np.arange(len(one)), labels]
        total += np.sqrt(np.maximum(np.square(one).sum(axis=1) - 2 * of_label + 1, 0))
    return total / len(probabilities)


def forgetting(correct: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return how often each example was forgotten (Toneva et al., 2019): right after an epoch, wrong after the next.

    ``correct`` is boolean, (epochs, n). What was never right counts as forgotten most: once per epoch, which is more
    than any other example can be.
    """
    events = (correct[:-1] & ~correct[1:]).sum(axis=0)
    return np.where(correct.any(axis=0), events, len(correct))


def label_issues(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return where confident learning (cleanlab) finds the label wrong; probabilities should be out of sample."""
    return find_label_issues(labels, probabilities.astype(np.float64), n_jobs=1)


def confident_learning(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return one less cleanlab's quality of each label, 0 to 1, and one more where ``label_issues`` finds it wrong.

    So what is found wrong goes first, and an exact size can be had beyond it.
    """
    quality = get_label_quality_scores(labels, probabilities.astype(np.float64), method="normalized_margin")
    return 1 - quality + label_issues(probabilities, labels)


def neighbour_outliers(features: np.ndarray, labels: np.ndarray, k: int = 10) -> np.ndarray:
    """Return the mean distance to the ``k`` nearest others of the same class, among the first principal components."""
    features = finite_rows("features", features)
    labels = class_labels(labels, len(features))
    classes, sizes = np.unique(labels, return_counts=True)
    if k >= sizes.min():
        small = classes[sizes.argmin()]
        raise ValueError(f"class {small} has {sizes.min()} examples; accepted: more than {k}, or a smaller k")
    components = principal_components(features, 50).transform(features)
    scores = np.empty(len(labels))
    for value in classes:
        members = np.flatnonzero(labels == value)
        index = NearestNeighbors(n_neighbors=k).fit(components[members])
        scores[members] = index.kneighbors()[0].mean(axis=1)  # of the points themselves: none is its own neighbour
    return scores


# By the name of the filter; what is known of the examples is what networks say of them, or their features.
SCORES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "el2n": el2n,
    "forgetting": forgetting,
    "confident": confident_learning,
    "neighbours": neighbour_outliers,
}


class ByScore(BaseEstimator):
    """A choice of what to keep by a score, class by class.

    ``score`` is one of ``SCORES``, or ``random``, for which nothing need be known of the examples; ``size`` is as in
    ``keep_lowest``. After ``fit``, ``scores_`` is higher for what goes first, ``keep_`` is the mask, and ``labels_`` is
    0 for what is kept and -1 for what is not.
    """

    scores_: np.ndarray
    keep_: np.ndarray
    labels_: np.ndarray

    def __init__(self, score: str = "random", size: float | np.ndarray = 0.95, random_state: int = 0):
        self.score = score
        self.size = size
        self.random_state = random_state

    def fit(self, known: np.ndarray | None, labels: np.ndarray) -> Self:
        """Score the examples by what is known of them, and keep those with the lowest scores."""
        if self.score == "random":
            self.scores_ = np.random.default_rng(self.random_state).random(len(labels))
        else:
            self.scores_ = SCORES[self.score](np.asarray(known), np.asarray(labels))
        self.keep_ = keep_lowest(self.scores_, self.size, labels)
        self.labels_ = np.where(self.keep_, 0, -1)
        return self

    def fit_predict(self, known: np.ndarray | None, labels: np.ndarray) -> np.ndarray:
        """Choose what to keep and return ``labels_``."""
        return self.fit(known, labels).labels_


def keep_lowest(scores: np.ndarray, size: float | np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return a mask that keeps the lowest scores of each class; of equal ones those that come first.

    ``size`` is the share of each class to keep, to the nearest whole number, or a mask that keeps as many of each.
    """
    n = len(scores)
    if np.isnan(scores).any():
        raise ValueError(f"{np.isnan(scores).sum()} of {n} scores are NaN; accepted: none")
    groups = np.unique(class_labels(labels, n), return_inverse=True)[1]
    members = np.bincount(groups)
    if np.ndim(size):
        quota = np.bincount(groups[keep_mask(np.asarray(size), n)], minlength=len(members))
    elif 0 <= size <= 1:
        quota = np.rint(size * members)
    else:
        raise ValueError(f"size is {size}; accepted: a share from 0 to 1, or a mask")
    order = np.lexsort((scores, groups))  # stable: equal scores stay in the order of the examples
    rank = np.arange(n) - np.repeat(np.cumsum(members) - members, members)
    keep = np.zeros(n, dtype=bool)
    keep[order] = rank < np.repeat(quota, members)
    return keep
