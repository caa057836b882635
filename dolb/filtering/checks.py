"""What filters have in common, and what they ask of arrays: errors name the first fault."""

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import validate_data

from dolb.data import ImageData

_PART = 4096  # rows that are looked at together


class MaskError(ValueError):
    """A mask that is not of the data it is to be used with."""


class EmptyClassError(ValueError):
    """A mask would remove every example of a class."""


class Filter(BaseEstimator):
    """A choice among labelled rows: after ``fit``, ``keep_`` is the mask, and ``labels_`` is -1 for what goes."""

    keep_: np.ndarray
    labels_: np.ndarray

    @abstractmethod
    def fit(self, X: Any, y: Any) -> Self:
        """Choose what to keep; labels are whole numbers or text."""

    def fit_predict(self, X: Any, y: Any) -> np.ndarray:
        """Choose what to keep and return ``labels_``."""
        return self.fit(X, y).labels_

    def __sklearn_tags__(self) -> Tags:
        """Tell scikit-learn that there is nothing to be had without labels."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def finite_rows(what: str, array: np.ndarray) -> np.ndarray:
    """Return a 2-D array of at least one row unchanged if all of it is finite, else raise a ``ValueError``."""
    array = np.asarray(array)
    if array.ndim != 2 or array.size == 0 or array.dtype.kind not in "fiu":
        shape = "(n, width), n > 0"
        raise ValueError(f"{what} have dtype {array.dtype} and shape {array.shape}; accepted: numbers, {shape}")
    # In parts: of features in a file no copy is to be in memory.
    bad = ~np.concatenate([np.isfinite(array[k : k + _PART]).all(axis=1) for k in range(0, len(array), _PART)])
    if bad.any():
        raise ValueError(
            f"{what} hold NaN or infinity in {bad.sum()} of {len(array)} rows, first in row {np.argmax(bad)}; "
            f"accepted: finite numbers"
        )
    return array


def rows_for(estimator: BaseEstimator, what: str, X: Any, *, reset: bool = True) -> np.ndarray:
    """Return what scikit-learn takes for rows of numbers, if finite; the estimator notes their width and names.

    With ``reset`` False the width has to be the one that it noted before.
    """
    return finite_rows(what, validate_data(estimator, X, reset=reset, ensure_all_finite=False))


def class_labels(labels: Any, n: int) -> np.ndarray:
    """Return the labels of ``n`` examples if they are whole numbers or text, else raise an error."""
    if labels is None:
        raise ValueError(f"filtering requires y to be passed, but the target y is None; accepted: {n} labels")
    found = np.asarray(labels)
    if found.dtype.kind in "bf" and np.array_equal(found, np.rint(found)):
        found = found.astype(np.int64)
    elif found.dtype.kind == "O" and all(isinstance(one, str) for one in found.flat):
        found = found.astype(str)
    unknown = "" if found.dtype.kind in "iuU" else "Unknown label type: "
    if found.shape != (n,) or unknown:
        raise ValueError(
            f"{unknown}labels have dtype {found.dtype} and shape {found.shape}; accepted: whole numbers or text, ({n},)"
        )
    return found


def every_class_stays(what: str, keep: np.ndarray, data: ImageData) -> None:
    """Raise an ``EmptyClassError`` if a mask leaves no example of a class that the data have."""
    labels = data.train_labels
    if gone := sorted(set(labels) - set(labels[keep])):
        names = ", ".join(data.classes[k] for k in gone)
        raise EmptyClassError(f"{what} drops every example of {names}; keep at least one, or training lacks it")
