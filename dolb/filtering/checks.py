"""What every stage of filtering asks of the arrays it is given, with errors that name the first fault."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from dolb.data import ImageData

_PART = 4096  # rows that are looked at together


class MaskError(ValueError):
    """A mask that is not of the data it is to be used with."""


class EmptyClassError(ValueError):
    """A mask would remove every example of a class."""


def finite_rows(what: str, array: np.ndarray, width: int | None = None) -> np.ndarray:
    """Return a 2-D array of at least one row unchanged if all of it is finite, else raise a ``ValueError``."""
    array = np.asarray(array)
    shaped = array.ndim == 2 and array.size > 0 and width in (None, array.shape[1])
    if not shaped or array.dtype.kind not in "fiu":
        shape = f"(n, {width or 'width'})"
        raise ValueError(f"{what} have dtype {array.dtype} and shape {array.shape}; accepted: numbers, {shape}, n > 0")
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


def keep_mask(keep: np.ndarray, n: int) -> np.ndarray:
    """Return a mask unchanged if it is boolean with one entry for each of ``n`` examples, else raise an error."""
    keep = np.asarray(keep)
    if keep.dtype != np.bool_ or keep.shape != (n,):
        raise ValueError(f"keep has dtype {keep.dtype} and shape {keep.shape}; accepted: bool and ({n},)")
    return keep


def every_class_stays(what: str, keep: np.ndarray, data: ImageData) -> None:
    """Raise an ``EmptyClassError`` if a mask leaves no example of a class that the data have."""
    labels = data.train_labels
    if gone := sorted(set(labels) - set(labels[keep])):
        names = ", ".join(data.classes[k] for k in gone)
        raise EmptyClassError(f"{what} drops every example of {names}; keep at least one, or training lacks it")
