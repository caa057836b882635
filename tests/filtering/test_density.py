"""DBSCAN of the map: scikit-learn's answer to the letter, and noise at every eps at once."""

import numpy as np
import pytest
from sklearn.cluster import DBSCAN
from sklearn.neighbors import KDTree

from dolb.filtering import density

EXACT_EPS = [0.25, 0.5, 1.0, np.sqrt(2), 2.0, np.sqrt(5), np.sqrt(13), 5.0, 100.0]  # distances that lattices have


def blobs(rng, n):
    centres = rng.normal(size=(3, 2))
    return rng.normal(centres[rng.integers(3, size=n)], rng.uniform(0.01, 0.3))


def lattice(rng, n):
    """Whole numbers: many duplicates, and many points at exactly the distance eps."""
    return rng.integers(0, rng.integers(2, 30), size=(n, 2)).astype(float)


def line(rng, n):
    return np.column_stack([rng.integers(0, 100, size=n) / 2, np.zeros(n)])


def far_away(rng, n):
    return rng.integers(0, 40, size=(n, 2)) / 4 + 1000


KINDS = [blobs, lattice, line, far_away]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("seed", range(3))
def test_labels_are_those_of_scikit_learn(kind, seed):
    rng = np.random.default_rng(seed)
    for eps in [*EXACT_EPS, *rng.uniform(0.01, 1.5, size=3)]:
        points, min_samples = kind(rng, rng.integers(1, 300)), int(rng.integers(1, 12))
        expected = DBSCAN(eps=eps, min_samples=min_samples).fit_predict(points)
        np.testing.assert_array_equal(density.dbscan(points, eps, min_samples), expected)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("min_samples", [1, 2, 5, 9])
def test_one_radius_per_point_tells_noise_at_every_eps(kind, min_samples):
    points = kind(np.random.default_rng(min_samples), 250)
    until = density.noise_radius(points, min_samples)
    # Each radius is itself an eps, and so is the number just below it: there the answer turns.
    radii = np.unique(until[until > 0])[:15]
    for eps in [*EXACT_EPS, *radii, *np.nextafter(radii, 0)]:
        expected = DBSCAN(eps=eps, min_samples=min_samples).fit_predict(points) == -1
        np.testing.assert_array_equal(eps < until, expected)


def test_a_core_radius_is_the_distance_to_the_nearest_points_duplicates_counted():
    points = blobs(np.random.default_rng(0), 200)
    points = np.concatenate([points, points[:50], points[:20]])
    distances, _ = KDTree(points).query(points, k=6)
    np.testing.assert_allclose(density.core_radius(points, 6), distances[:, -1], rtol=1e-12)


def test_too_few_points_are_noise_at_every_eps():
    points = np.random.default_rng(0).normal(size=(4, 2))
    assert np.isinf(density.noise_radius(points, 5)).all()
    assert (density.dbscan(points, 1e6, 5) == -1).all()


@pytest.mark.parametrize(
    ("eps", "min_samples", "message"),
    [
        (0, 5, "eps is 0; accepted: a finite number above 0"),
        (np.inf, 5, "eps is inf"),
        (np.nan, 5, "eps is nan"),
        (-1, 5, "eps is -1"),
    ],
)
def test_parameters_that_mean_nothing_are_refused(eps, min_samples, message):
    with pytest.raises(ValueError, match=message):
        density.dbscan(np.random.default_rng(0).normal(size=(20, 2)), eps, min_samples)
