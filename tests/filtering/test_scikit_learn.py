"""Filters and the map among scikit-learn's: its own checks, pipelines, clones, labels in words, tables."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from dolb.filtering.baselines import ByScore
from dolb.filtering.embedding import TSNEMap
from dolb.filtering.noise import ClassDBSCAN, ClassHDBSCAN

QUICK = TSNEMap(early_exaggeration_iter=50, n_iter=50, n_jobs=1, progress=False)
FILTERS = [ClassDBSCAN("knee"), ClassHDBSCAN(), ByScore("neighbours"), ByScore("random"), ClassDBSCAN(share=0.05)]
PLACED_ANEW = "t-SNE makes a map of all points together; to place points on it later gives other coordinates"


def not_for_a_map(estimator):
    checks = ("check_transformer_general", "check_transformer_data_not_an_array")
    return dict.fromkeys(checks, PLACED_ANEW) if isinstance(estimator, TSNEMap) else {}


# The other scores and the random draw take no rows of features: there the checks do not apply.
@pytest.mark.filterwarnings("ignore:.*kept whole:UserWarning")
@parametrize_with_checks(
    [*FILTERS[:3], FILTERS[-1], clone(QUICK).set_params(perplexity=1, early_exaggeration_iter=5, n_iter=5)],
    expected_failed_checks=not_for_a_map,
)
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    bunch = load_digits()
    return bunch.data[:400], bunch.target[:400]


@pytest.mark.parametrize("filter_", FILTERS, ids=str)
def test_a_pipeline_goes_from_features_to_the_mask(digits, filter_):
    pipeline = clone(make_pipeline(QUICK, filter_))
    found = pipeline.fit_predict(*digits)
    assert np.array_equal(found, clone(filter_).fit_predict(clone(QUICK).fit_transform(digits[0]), digits[1]))
    assert np.array_equal(pipeline[-1].keep_, found >= 0)


@pytest.mark.parametrize("filter_", FILTERS, ids=str)
@pytest.mark.parametrize("words", [np.array, pd.Series], ids=["array", "Series"])
def test_labels_may_be_words(digits, filter_, words):
    X, y = digits
    names = words([f"digit {label}" for label in y])
    assert np.array_equal(clone(filter_).fit(X, names).keep_, clone(filter_).fit(X, y).keep_)


@pytest.mark.parametrize("score", ["el2n", "confident"])
def test_probabilities_belong_to_words_in_sorted_order(digits, score):
    y = digits[1]
    probabilities = np.random.default_rng(0).dirichlet(np.ones(10), size=len(y))
    known = probabilities[None] if score == "el2n" else probabilities
    as_words = ByScore(score).fit(known, [f"digit {label}" for label in y]).keep_
    assert np.array_equal(as_words, ByScore(score).fit(known, y).keep_)


def test_the_map_of_a_table_names_its_columns(digits):
    table = pd.DataFrame(digits[0]).add_prefix("pixel ")
    placed = clone(QUICK).set_output(transform="pandas").fit_transform(table)
    assert list(placed.columns) == ["tsnemap0", "tsnemap1"]


@pytest.mark.parametrize("score", ["el2n", "forgetting", "confident"])
def test_what_is_no_score_of_these_examples_is_refused_with_the_shape_that_is(digits, score):
    X, y = digits
    with pytest.raises(ValueError, match=rf"what {score} goes by has shape \(.*; accepted: \(.*n.*\) with n 400"):
        ByScore(score).fit(X[:-1], y)


def test_a_score_that_is_not_known_is_refused(digits):
    with pytest.raises(ValueError, match="by is 'luck'; accepted: random, el2n, forgetting, confident, neighbours"):
        ByScore("luck").fit(*digits)
