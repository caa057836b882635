"""How far two masks remove the same examples, and how far they would by chance.

Masks of one size have it class by class, and noise is more frequent in some classes than in others. So chance is a
random draw with as many of each class: of a class of n, of which one mask removes a and another b, both remove ab/n.
"""

from __future__ import annotations

import numpy as np


def by_class(gone: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how many examples each mask of (masks, examples) removes of each class, and how many the classes have."""
    _, place, members = np.unique(labels, return_inverse=True, return_counts=True)
    return np.stack([np.bincount(place[row], minlength=len(members)) for row in gone]), members


def by_chance(gone: np.ndarray, other: np.ndarray, labels: np.ndarray) -> float:
    """Return how many examples two masks would remove in common, if each drew as many of each class at random."""
    (one, two), members = by_class(np.stack([gone, other]), labels)
    return float((one * two / members).sum())


def jaccard(keep: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, for every two masks of (masks, examples), shared over all removed, and that of random sets so large.

    Random sets have as many of each class. The second is the ratio of expectations; masks that remove nothing agree.
    """
    gone = (~keep).astype(np.float32)
    both, size = (gone @ gone.T).astype(float), gone.sum(axis=1, dtype=float)
    total = size[:, None] + size[None]
    counts, members = by_class(~keep, labels)
    expected = counts / members @ counts.T
    with np.errstate(invalid="ignore"):
        return tuple(np.where(total > 0, shared / (total - shared), 1.0) for shared in (both, expected))  # type: ignore[return-value]
