"""Other ways to choose what to remove, to be compared with the map at equal size.

Each has a function that gives a score per example, higher for what should go first, of which ``keep_lowest`` makes a
mask of any size; and a class with the interface of those in ``noise``, whose ``fit`` does both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

import numpy as np
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from sklearn.base import BaseEstimator
from sklearn.neighbors import NearestNeighbors

from dolb.filtering.checks import class_labels, finite_rows, keep_mask
from dolb.filtering.embedding import principal_components


def keep_lowest(scores: np.ndarray, size: int | np.ndarray, labels: np.ndarray | None = None) -> np.ndarray:
    """Return a mask that keeps the ``size`` examples with the lowest scores; of equal ones those that come first.

    Parameters
    ----------
    scores
        A number per example; it may be infinite.
    size
        How many to keep, or a mask that keeps as many.
    labels
        If given, each class is chosen from by itself and keeps as many as in that mask, or its share of ``size``.
    """
    scores = np.asarray(scores)
    if scores.ndim != 1 or np.isnan(scores).any():
        raise ValueError(f"scores have shape {scores.shape} and {np.isnan(scores).sum()} NaN; accepted: (n,) and none")
    n = len(scores)
    groups = (
        np.zeros(n, dtype=np.int64) if labels is None else np.unique(class_labels(labels, n), return_inverse=True)[1]
    )
    members = np.bincount(groups)
    if np.ndim(size):
        quota = np.bincount(groups[keep_mask(np.asarray(size), n)], minlength=len(members))
    else:
        quota = _shared_out(int(size), members)
    order = np.lexsort((scores, groups))  # stable: equal scores stay in the order of the examples
    rank = np.arange(n) - np.repeat(np.cumsum(members) - members, members)
    keep = np.zeros(n, dtype=bool)
    keep[order] = rank < np.repeat(quota, members)
    return keep


def el2n(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return EL2N (Paul et al., 2021): the L2 norm of predicted probabilities less the label's unit vector.

    ``probabilities`` is (n, classes), or (checkpoints, n, classes), over which the mean is taken. The authors use
    checkpoints of several networks early in training.
    """
    probabilities = np.asarray(probabilities)
    stack = probabilities[None] if probabilities.ndim == 2 else probabilities
    if stack.ndim != 3 or not len(stack):
        raise ValueError(
            f"probabilities have shape {probabilities.shape}; accepted: (n, classes) or (checkpoints, n, classes)"
        )
    total = np.zeros(stack.shape[1])
    for one in stack:
        one, labels = _predictions(one, labels)
        # |p - e_y|^2 = |p|^2 - 2 p_y + 1, without a copy of all unit vectors
        of_label = one[np.arange(len(one)), labels]
        total += np.sqrt(np.maximum(np.square(one).sum(axis=1) - 2 * of_label + 1, 0))
    return total / len(stack)


def forgetting(correct: np.ndarray) -> np.ndarray:
    """Return how often each example was forgotten (Toneva et al., 2019): right after an epoch, wrong after the next.

    ``correct`` is boolean, (epochs, n). What was never right counts as forgotten most: once per epoch, which is more
    than any other example can be.
    """
    correct = np.asarray(correct)
    if correct.dtype != np.bool_ or correct.ndim != 2 or not len(correct):
        raise ValueError(f"correct has dtype {correct.dtype} and shape {correct.shape}; accepted: bool, (epochs, n)")
    events = (correct[:-1] & ~correct[1:]).sum(axis=0)
    return np.where(correct.any(axis=0), events, len(correct))


def label_issues(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return where confident learning (cleanlab) finds the label wrong; probabilities should be out of sample."""
    probabilities, labels = _predictions(probabilities, labels)
    return find_label_issues(labels, probabilities, n_jobs=1)


def confident_learning(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return one less cleanlab's quality of each label, 0 to 1, and one more where ``label_issues`` finds it wrong.

    So what is found wrong goes first, and an exact size can be had beyond it.
    """
    issues = label_issues(probabilities, labels)
    probabilities, labels = _predictions(probabilities, labels)
    return 1 - get_label_quality_scores(labels, probabilities, method="normalized_margin") + issues


def neighbour_outliers(features: np.ndarray, labels: np.ndarray, k: int = 10, n_components: int = 50) -> np.ndarray:
    """Return the mean distance to the ``k`` nearest others of the same class, among the first principal components."""
    features = finite_rows("features", features)
    labels = class_labels(labels, len(features))
    classes, sizes = np.unique(labels, return_counts=True)
    if not 1 <= k < sizes.min():
        small = classes[sizes.argmin()]
        raise ValueError(f"k is {k}; accepted: 1 to {sizes.min() - 1}, as class {small} has {sizes.min()} examples")
    components = principal_components(features, n_components).transform(features)
    scores = np.empty(len(labels))
    for value in classes:
        members = np.flatnonzero(labels == value)
        index = NearestNeighbors(n_neighbors=k).fit(components[members])
        scores[members] = index.kneighbors()[0].mean(axis=1)  # of the points themselves: none is its own neighbour
    return scores


class _ByScore(BaseEstimator, ABC):
    """A choice of what to keep by a score, class by class, with the interface of ``noise.ClassDBSCAN``.

    ``size`` is how many examples to keep: a share of them below one, a number, or a mask that keeps as many of each
    class. After ``fit``: ``scores_``, higher for what goes first; ``keep_``, the mask; ``labels_``, 0 for what is kept
    and -1 for what is not; ``classes_``, the classes in ascending order.
    """

    scores_: np.ndarray
    keep_: np.ndarray
    labels_: np.ndarray
    classes_: np.ndarray

    def __init__(self, size: float | np.ndarray = 0.95):
        self.size = size

    def fit(self, evidence: np.ndarray, labels: np.ndarray) -> Self:
        """Score the examples by what is known of them, and keep those with the lowest scores."""
        self.scores_ = self._scores(np.asarray(evidence), np.asarray(labels))
        n = len(self.scores_)
        self.classes_ = np.unique(class_labels(labels, n))
        share = np.ndim(self.size) == 0 and 0 < self.size < 1
        self.keep_ = keep_lowest(self.scores_, round(self.size * n) if share else self.size, labels)  # type: ignore[arg-type]
        self.labels_ = np.where(self.keep_, 0, -1)
        return self

    def fit_predict(self, evidence: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Choose what to keep and return ``labels_``."""
        return self.fit(evidence, labels).labels_

    @abstractmethod
    def _scores(self, evidence: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return a number per example, higher for what goes first."""


class Random(_ByScore):
    """As many random examples of each class; of the evidence nothing is asked but its length."""

    def __init__(self, size: float | np.ndarray = 0.95, random_state: int = 0):
        super().__init__(size)
        self.random_state = random_state

    def _scores(self, evidence: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return np.random.default_rng(self.random_state).random(len(labels))


class EL2N(_ByScore):
    """What a network errs on early goes first: ``fit`` takes probabilities, as `el2n` does."""

    def _scores(self, evidence: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return el2n(evidence, labels)


class Forgetting(_ByScore):
    """What a network forgets in training goes first: ``fit`` takes what was right by epoch, as `forgetting` does."""

    def _scores(self, evidence: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return forgetting(evidence)


class ConfidentLearning(_ByScore):
    """Labels that confident learning doubts most go first: ``fit`` takes probabilities out of sample."""

    def _scores(self, evidence: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return confident_learning(evidence, labels)


class NeighbourOutliers(_ByScore):
    """What lies far from the nearest others of its class goes first: ``fit`` takes features."""

    def __init__(self, size: float | np.ndarray = 0.95, k: int = 10, n_components: int = 50):
        super().__init__(size)
        self.k = k
        self.n_components = n_components

    def _scores(self, evidence: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return neighbour_outliers(evidence, labels, self.k, self.n_components)


# By the name of the filter; `fit` takes what a network says of the examples, or their features.
BY_SCORE: dict[str, type[_ByScore]] = {
    "el2n": EL2N,
    "forgetting": Forgetting,
    "confident": ConfidentLearning,
    "neighbours": NeighbourOutliers,
}


def _shared_out(size: int, members: np.ndarray) -> np.ndarray:
    """Split a number in proportion to ``members``, exactly: what rounding leaves goes to the largest remainders."""
    n = members.sum()
    if not 0 <= size <= n:
        raise ValueError(f"size is {size}; accepted: 0 to {n}")
    quota, remainder = np.divmod(size * members, n)
    quota[np.argsort(-remainder, kind="stable")[: size - quota.sum()]] += 1
    return quota


def _predictions(probabilities: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    probabilities = finite_rows("probabilities", probabilities).astype(np.float64)
    labels = class_labels(labels, len(probabilities))
    if labels.min() < 0 or labels.max() >= probabilities.shape[1]:
        raise ValueError(
            f"labels run from {labels.min()} to {labels.max()}; accepted: 0 to {probabilities.shape[1] - 1}, the "
            "columns of the probabilities"
        )
    off = np.abs(probabilities.sum(axis=1) - 1).max()
    if probabilities.min() < 0 or off > 1e-3:
        raise ValueError(
            f"probabilities go down to {probabilities.min():g} and sum to 1 within {off:g}; accepted: none below 0, "
            "and rows that sum to 1 within 0.001"
        )
    return probabilities, labels
