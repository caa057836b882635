"""What two masks share, and what they would share by chance, class by class."""

from __future__ import annotations

import numpy as np
import pytest

from dolb.filtering import baselines, masks
from dolb.findings import overlap


def test_within_one_class_overlap_and_chance_are_those_of_the_filters_own_measure():
    rng = np.random.default_rng(0)
    keep = rng.random((3, 5000)) > np.array([0.05, 0.1, 0.2])[:, None]
    overlaps, chance = overlap.jaccard(keep, np.zeros(5000, dtype=int))
    for one in range(3):
        for other in range(one):
            exact = masks.overlap(keep[one], keep[other])
            assert overlaps[one, other] == pytest.approx(exact.jaccard)
            assert chance[one, other] == pytest.approx(exact.by_chance, rel=0.02)


def test_masks_that_remove_nothing_agree():
    assert (overlap.jaccard(np.ones((2, 10), dtype=bool), np.arange(10) % 2)[0] == 1).all()


def test_chance_is_what_random_masks_of_the_same_sizes_class_by_class_share():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [100, 300, 600])
    gone = rng.random(1000) < np.array([0.5, 0.1, 0.02])[labels]  # a class that is noisy, and two that are less so
    shared = [int((~baselines.random_keep(labels, ~gone, random_state=seed) & gone).sum()) for seed in range(400)]
    error = np.std(shared, ddof=1) / np.sqrt(len(shared))
    taken, members = np.bincount(labels[gone]), np.bincount(labels)
    assert overlap.by_chance(gone, gone, labels) == pytest.approx((taken**2 / members).sum())
    assert abs(overlap.by_chance(gone, gone, labels) - np.mean(shared)) < 4 * error
    # Without regard to class it would be far less.
    assert gone.sum() ** 2 / 1000 < 0.6 * np.mean(shared)
