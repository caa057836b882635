"""Other ways to choose what to remove, to be compared with the map at equal size.

Each is a function that gives a score per example, higher for what should go first. ``ByScore`` makes a mask of it, with
the interface of the clusterings in ``noise``.
"""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import pandas as pd
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from sklearn.neighbors import NearestNeighbors

from dolb.data import keep_mask
from dolb.filtering.checks import Filter, class_labels, rows_for
from dolb.filtering.config import BASELINES
from dolb.filtering.embedding import principal_components


def el2n(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return EL2N (Paul et al., 2021): the L2 norm of predicted probabilities less the label's unit vector.

    ``probabilities`` is (networks, n, classes), and the mean is over networks. The authors use several early in
    training.
    """
    total = np.zeros(len(labels))
    for one in probabilities.astype(np.float64):
        # |p - e_y|^2 = |p|^2 - 2 p_y + 1, without a copy of all unit vectors
        total += np.sqrt(np.maximum(np.square(one).sum(axis=1) - 2 * one[np.arange(len(one)), labels] + 1, 0))
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
    """Return the mean distance to the ``k`` nearest others of the same class, among the first principal components.

    A class of fewer has all others for neighbours, and one alone is at no distance: scores compare within a class.
    """
    components = principal_components(features, 50).transform(features)
    scores = np.zeros(len(labels))
    for value in np.unique(labels):
        members = np.flatnonzero(labels == value)
        if len(members) == 1:
            continue
        index = NearestNeighbors(n_neighbors=min(k, len(members) - 1)).fit(components[members])
        scores[members] = index.kneighbors()[0].mean(axis=1)  # of the points themselves: none is its own neighbour
    return scores


# By the name of the filter, from what ``config.BASELINES`` says that it goes by.
SCORES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "el2n": el2n,
    "forgetting": forgetting,
    "confident": confident_learning,
    "neighbours": neighbour_outliers,
}


_SHAPES = {
    "young networks": ("networks", "n", "classes"),  # probabilities
    "training": ("epochs", "n"),  # whether they were right
    "held-out predictions": ("n", "classes"),  # probabilities
}


class ByScore(Filter):
    """A choice of what to keep by a score, class by class.

    ``by`` is one of ``SCORES``, or ``random``, for which nothing need be known of the examples. What is fitted is the
    features for ``neighbours``, probabilities (n, classes) for ``confident``, (networks, n, classes) for ``el2n``, and
    for ``forgetting`` which examples were right, (epochs, n). ``size`` is as in ``keep_lowest``. After ``fit``,
    ``scores_`` is higher for what goes first.
    """

    scores_: np.ndarray

    def __init__(self, by: str = "random", size: float | np.ndarray = 0.95, random_state: int = 0):
        self.by = by
        self.size = size
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Score the examples by what is known of them, and keep those with the lowest scores."""
        if self.by not in ("random", *SCORES):
            raise ValueError(f"by is {self.by!r}; accepted: random, {', '.join(SCORES)}")
        of_features = BASELINES[self.by] == "features"
        known = rows_for(self, "features", X) if of_features else np.asarray(X)
        labels = class_labels(y, len(known) if of_features else np.size(y))
        if labels.dtype.kind == "U":  # columns of probabilities are the classes in sorted order
            labels = np.unique(labels, return_inverse=True)[1]
        shape = _SHAPES.get(BASELINES[self.by], ())
        if shape and (known.ndim != len(shape) or known.shape[shape.index("n")] != len(labels)):
            accepted = f"({', '.join(shape)}) with n {len(labels)}"
            raise ValueError(f"what {self.by} goes by has shape {known.shape}; accepted: {accepted}")
        if self.by == "random":
            self.scores_ = np.random.default_rng(self.random_state).random(len(labels))
        else:
            self.scores_ = SCORES[self.by](known, labels)
        self.keep_ = keep_lowest(self.scores_, self.size, labels)
        self.labels_ = np.where(self.keep_, 0, -1)
        return self


def keep_lowest(scores: np.ndarray, size: float | np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return a mask that keeps the lowest scores of each class; of equal ones those that come first.

    ``size`` is the share of each class to keep, to the nearest whole number but one at least, or a mask that keeps as
    many of each.
    """
    n = len(scores)
    if np.isnan(scores).any():
        raise ValueError(f"{np.isnan(scores).sum()} of {n} scores are NaN; accepted: none")
    groups = np.unique(labels, return_inverse=True)[1]
    members = np.bincount(groups)
    if np.ndim(size):
        quota = np.bincount(groups[keep_mask(np.asarray(size), n)], minlength=len(members))
    elif 0 < size < 1:
        quota = np.maximum(1, np.rint(size * members))
    else:
        raise ValueError(f"size is {size}; accepted: a share above 0 and below 1, or a mask")
    return pd.Series(scores).groupby(groups).rank("first").to_numpy() <= quota[groups]
