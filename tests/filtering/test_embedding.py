"""The map: one for each seed, neighbours stay neighbours, further points land among their like, faults are refused."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier

from dolb.filtering.embedding import TSNEMap, principal_components

QUICK = TSNEMap(perplexity=15, early_exaggeration_iter=100, n_iter=100, n_jobs=1, progress=False)


@pytest.fixture(scope="module")
def digits():
    bunch = load_digits()
    return bunch.data.astype(np.float32)[:600], bunch.target[:600]


@pytest.fixture(scope="module")
def fitted(digits):
    return clone(QUICK).fit(digits[0][:500])


def test_classes_stay_together_on_the_map_and_where_the_test_set_is_placed(digits, fitted):
    features, labels = digits
    assert fitted.coordinates_.shape == (500, 2)
    on_map = KNeighborsClassifier(5).fit(fitted.coordinates_, labels[:500])
    in_features = KNeighborsClassifier(5).fit(features[:500], labels[:500])
    expected = in_features.score(features[500:], labels[500:])
    assert on_map.score(fitted.transform(features[500:]), labels[500:]) > 0.9 * expected


def test_the_map_stays_as_it_is_and_takes_its_own_points_back_to_their_places(digits, fitted):
    before = fitted.coordinates_.copy()
    placed = fitted.transform(digits[0][:500])
    np.testing.assert_array_equal(fitted.coordinates_, before)
    apart = np.hypot(*(placed - before).T)
    assert np.median(apart) < 0.05 * np.ptp(before)


def test_one_seed_gives_one_map_with_several_cores_too(digits):
    one, again = (
        clone(QUICK).set_params(n_jobs=2, early_exaggeration_iter=20, n_iter=20).fit(digits[0][:100]) for _ in range(2)
    )
    np.testing.assert_array_equal(again.coordinates_, one.coordinates_)
    np.testing.assert_array_equal(again.transform(digits[0][500:]), one.transform(digits[0][500:]))


def test_a_map_can_be_kept_and_used_later(digits, fitted):
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.transform(digits[0][500:]), fitted.transform(digits[0][500:]))


@pytest.mark.parametrize("n", [40, 600])
def test_components_are_those_of_a_full_decomposition(digits, n):
    features = digits[0][:n].astype(np.float64)
    ours = principal_components(features, 5).transform(features)
    theirs = PCA(5, svd_solver="full").fit_transform(features)
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-6)


def test_too_few_points_for_the_perplexity_are_refused_and_enough_are_not(digits):
    with pytest.raises(ValueError, match=r"46 samples for perplexity 15; accepted: at least 47, or .* up to 14\.7"):
        clone(QUICK).fit(digits[0][:46])
    assert clone(QUICK).fit_transform(digits[0][:47]).shape == (47, 2)
