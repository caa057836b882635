"""Baselines: masks of an exact size, scores as their authors define them, and planted faults that they find."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from dolb.filtering import baselines
from dolb.filtering.config import BASELINES, FILTERS

LABELS = np.repeat([0, 1, 2, 3], [400, 300, 200, 100])


@pytest.fixture(scope="module")
def mislabelled():
    """Digits of which 5% have a wrong label: features, labels, which are wrong, out-of-sample probabilities."""
    bunch = load_digits()
    rng = np.random.default_rng(0)
    wrong = np.zeros(len(bunch.target), dtype=bool)
    wrong[rng.choice(len(wrong), size=len(wrong) // 20, replace=False)] = True
    labels = np.where(wrong, (bunch.target + rng.integers(1, 10, size=len(wrong))) % 10, bunch.target)
    features = bunch.data / 16
    probabilities = cross_val_predict(LogisticRegression(max_iter=300), features, labels, cv=3, method="predict_proba")
    return features, labels, wrong, probabilities


# Masks of an exact size


def test_the_lowest_scores_of_each_class_are_kept_and_of_equal_ones_the_first():
    scores, labels = np.array([3, 1, 2, 2, 0, 2, np.inf, 5]), np.array([0, 0, 0, 0, 0, 0, 1, 1])
    keep = baselines.keep_lowest(scores, 0.5, labels)
    np.testing.assert_array_equal(keep, [False, True, True, False, True, False, False, True])


@pytest.mark.parametrize("share", [0.001, 0.777, 0.999])
def test_each_class_keeps_the_share_asked_for(share):
    kept = LABELS[baselines.keep_lowest(np.arange(1000.0), share, LABELS)]
    assert np.bincount(kept, minlength=4).tolist() == [max(1, round(share * n)) for n in (400, 300, 200, 100)]


def test_a_random_mask_depends_on_its_seed_alone_and_leaves_no_example_out_more_often():
    masks = np.stack([baselines.ByScore("random", 0.5, seed).fit(None, LABELS).keep_ for seed in range(400)])
    np.testing.assert_array_equal(masks[3], baselines.ByScore("random", 0.5, 3).fit(None, LABELS).keep_)
    # The share of 400 masks that keep an example has deviation sqrt(0.25 / 400) = 0.025; six of them hold for 1000.
    assert np.abs(masks.mean(axis=0) - 0.5).max() < 6 * 0.025


def test_scores_that_are_none_are_refused():
    with pytest.raises(ValueError, match="100 of 1000 scores are NaN"):
        baselines.keep_lowest(np.where(LABELS == 3, np.nan, 0), 0.5, LABELS)


# Scores


def test_el2n_is_the_norm_of_the_error_vector_averaged_over_networks():
    rng = np.random.default_rng(0)
    probabilities, labels = rng.dirichlet(np.ones(4), size=(3, 50)), rng.integers(4, size=50)
    errors = probabilities - np.eye(4)[labels]
    np.testing.assert_allclose(baselines.el2n(probabilities, labels), np.linalg.norm(errors, axis=2).mean(axis=0))


def test_forgetting_counts_falls_from_right_to_wrong_and_what_was_never_right_most():
    histories = {
        "00111": 0,  # learned late, never forgotten
        "11111": 0,
        "10101": 2,
        "01000": 1,
        "00000": 5,  # never learned: more than any other can be
    }
    correct = np.array([[step == "1" for step in history] for history in histories]).T
    np.testing.assert_array_equal(baselines.forgetting(correct, np.zeros(5, dtype=int)), list(histories.values()))


def test_nearest_neighbours_are_those_of_the_same_class():
    features = np.array([[0.0], [1.0], [2.0], [0.1], [50.0], [51.0], [53.0]])
    labels = np.array([0, 0, 0, 1, 1, 1, 1])
    np.testing.assert_allclose(
        baselines.neighbour_outliers(features, labels, k=2), [1.5, 1, 1.5, (49.9 + 50.9) / 2, 2, 1.5, 2.5]
    )
    few = np.array([[0.0], [1.0], [5.0], [9.0]])  # a class of few examples has all others for neighbours
    np.testing.assert_allclose(baselines.neighbour_outliers(few, np.array([0, 0, 0, 1])), [3, 2.5, 4.5, 0])


def test_every_baseline_finds_planted_wrong_labels_better_than_chance(mislabelled):
    features, labels, wrong, probabilities = mislabelled

    def found(scores):
        """Share of the wrong labels among as many of the highest scores."""
        return wrong[np.argsort(-scores, kind="stable")[: wrong.sum()]].mean()

    chance = wrong.mean()
    assert found(baselines.el2n(probabilities[None], labels)) > 10 * chance
    assert found(baselines.confident_learning(probabilities, labels)) > 10 * chance
    assert found(baselines.neighbour_outliers(features, labels)) > 10 * chance
    assert found(np.random.default_rng(0).random(len(labels))) < 3 * chance


def test_what_confident_learning_finds_wrong_goes_before_all_else(mislabelled):
    _, labels, wrong, probabilities = mislabelled
    issues = baselines.label_issues(probabilities, labels)
    scores = baselines.confident_learning(probabilities, labels)
    assert issues.dtype == np.bool_
    assert scores[issues].min() >= 1 >= scores[~issues].max()
    assert wrong[issues].mean() > 10 * wrong.mean()


@pytest.mark.parametrize("score", ["random", *baselines.SCORES])
def test_a_baseline_keeps_as_many_of_each_class_as_a_mask_does(score, mislabelled):
    features, labels, _, probabilities = mislabelled
    right = probabilities.argmax(axis=1) == labels
    known = {"forgetting": np.stack([right, ~right, right]), "neighbours": features, "el2n": probabilities[None]}
    mask = np.random.default_rng(0).random(len(labels)) < 0.8
    fitted = baselines.ByScore(score, mask).fit(known.get(score, probabilities), labels)
    assert np.array_equal(np.bincount(labels[fitted.keep_]), np.bincount(labels[mask]))
    assert np.array_equal(fitted.keep_, fitted.labels_ >= 0)


def test_every_score_says_what_it_goes_by_and_its_name_ends_where_that_of_a_set_does():
    assert set(baselines.SCORES) == {name for name, by in BASELINES.items() if by not in ("nothing", "map")}
    assert not [name for name in FILTERS if "-" in name]  # sets are called FILTER-NETWORK-KEY
