"""Baselines: masks of an exact size, scores as their authors define them, and planted faults that they find."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from dolb.filtering import baselines, noise

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


@pytest.mark.parametrize("size", [0, 1, 333, 999, 1000])
@pytest.mark.parametrize("labels", [None, LABELS], ids=["overall", "by class"])
def test_a_mask_has_exactly_the_size_asked_for(size, labels):
    scores = np.random.default_rng(0).integers(0, 5, size=1000)  # many are equal
    assert baselines.keep_lowest(scores, size, labels).sum() == size


def test_the_lowest_scores_are_kept_and_of_equal_ones_the_first():
    keep = baselines.keep_lowest(np.array([3, 1, 2, 2, 0, 2, np.inf]), 4)
    np.testing.assert_array_equal(keep, [False, True, True, True, True, False, False])


def test_by_class_each_keeps_its_share_to_within_one():
    scores = np.arange(1000.0)  # overall, all of class 3 would go first
    keep = baselines.keep_lowest(scores, 777, LABELS)
    kept = np.bincount(LABELS[keep])
    assert (np.abs(kept - 0.777 * np.bincount(LABELS)) < 1).all()
    for value in range(4):
        members = np.flatnonzero(np.equal(LABELS, value))
        assert keep[members[: kept[value]]].all()
        assert not keep[members[kept[value] :]].any()


def test_a_random_mask_depends_on_its_seed_alone_and_leaves_no_example_out_more_often():
    masks = np.stack([baselines.Random(500, random_state=seed).fit(LABELS, LABELS).keep_ for seed in range(400)])
    np.testing.assert_array_equal(masks[3], baselines.Random(500, random_state=3).fit(LABELS, LABELS).keep_)
    # The share of 400 masks that keep an example has deviation sqrt(0.25 / 400) = 0.025; six of them hold for 1000.
    assert np.abs(masks.mean(axis=0) - 0.5).max() < 6 * 0.025


@pytest.mark.parametrize(
    ("scores", "size", "labels", "message"),
    [
        (np.zeros(1000), 1001, None, "size is 1001; accepted: 0 to 1000"),
        (np.zeros(1000), -1, LABELS, "size is -1"),
        (np.zeros(1000), np.ones(999, dtype=bool), None, r"keep has dtype bool and shape \(999,\)"),
        (np.zeros(1000), np.ones(1000), None, "keep has dtype float64"),
        (np.zeros(999), 10, LABELS, r"labels have .* shape \(1000,\); accepted: whole numbers, \(999,\)"),
        (np.array([0, np.nan]), 1, None, "1 NaN"),
    ],
)
def test_a_size_that_cannot_be_had_is_refused(scores, size, labels, message):
    with pytest.raises(ValueError, match=message):
        baselines.keep_lowest(scores, size, labels)


# Scores


def test_el2n_is_the_norm_of_the_error_vector_averaged_over_checkpoints():
    rng = np.random.default_rng(0)
    probabilities, labels = rng.dirichlet(np.ones(4), size=(3, 50)), rng.integers(4, size=50)
    errors = probabilities - np.eye(4)[labels]
    np.testing.assert_allclose(baselines.el2n(probabilities, labels), np.linalg.norm(errors, axis=2).mean(axis=0))
    np.testing.assert_allclose(baselines.el2n(probabilities[0], labels), np.linalg.norm(errors[0], axis=1))


def test_forgetting_counts_falls_from_right_to_wrong_and_what_was_never_right_most():
    histories = {
        "00111": 0,  # learned late, never forgotten
        "11111": 0,
        "10101": 2,
        "01000": 1,
        "00000": 5,  # never learned: more than any other can be
    }
    correct = np.array([[step == "1" for step in history] for history in histories]).T
    np.testing.assert_array_equal(baselines.forgetting(correct), list(histories.values()))


def test_nearest_neighbours_are_those_of_the_same_class():
    features = np.array([[0.0], [1.0], [2.0], [0.1], [50.0], [51.0], [53.0]])
    labels = np.array([0, 0, 0, 1, 1, 1, 1])
    np.testing.assert_allclose(
        baselines.neighbour_outliers(features, labels, k=2), [1.5, 1, 1.5, (49.9 + 50.9) / 2, 2, 1.5, 2.5]
    )


def found(scores, wrong):
    """Share of the wrong labels among as many of the highest scores."""
    return wrong[~baselines.keep_lowest(scores, int((~wrong).sum()))].mean()


def test_every_baseline_finds_planted_wrong_labels_better_than_chance(mislabelled):
    features, labels, wrong, probabilities = mislabelled
    chance = wrong.mean()
    assert found(baselines.el2n(probabilities, labels), wrong) > 10 * chance
    assert found(baselines.confident_learning(probabilities, labels), wrong) > 10 * chance
    assert found(baselines.neighbour_outliers(features, labels), wrong) > 10 * chance
    assert found(np.random.default_rng(0).random(len(labels)), wrong) < 3 * chance


def test_what_confident_learning_finds_wrong_goes_before_all_else(mislabelled):
    _, labels, wrong, probabilities = mislabelled
    issues = baselines.label_issues(probabilities, labels)
    scores = baselines.confident_learning(probabilities, labels)
    assert issues.dtype == np.bool_
    assert scores[issues].min() >= 1 >= scores[~issues].max()
    assert wrong[issues].mean() > 10 * wrong.mean()


@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        (np.full((4, 2), 0.5), np.array([0, 1, 2, 0]), "labels run from 0 to 2; accepted: 0 to 1"),
        (np.full((4, 2), 0.5), np.array([0, 1, 0]), r"labels have .* accepted: whole numbers, \(4,\)"),
        (np.full((4, 2), 0.7), np.array([0, 1, 0, 0]), "sum to 1 within 0.4"),
        (np.full((4, 2), np.nan), np.array([0, 1, 0, 0]), "NaN or infinity in 4 of 4 rows"),
    ],
)
@pytest.mark.parametrize("score", [baselines.el2n, baselines.confident_learning])
def test_predictions_that_do_not_fit_the_labels_are_refused(score, probabilities, labels, message):
    with pytest.raises(ValueError, match=message):
        score(probabilities, labels)


# The interface of the clusterings

FILTERS = [
    noise.ClassDBSCAN(eps=0.7),
    noise.ClassHDBSCAN(),
    baselines.Random(),
    baselines.EL2N(),
    baselines.Forgetting(),
    baselines.ConfidentLearning(),
    baselines.NeighbourOutliers(),
]


@pytest.fixture(scope="module")
def known(mislabelled):
    """What each filter is given of the digits, by the name of its class."""
    features, labels, _, probabilities = mislabelled
    right = probabilities.argmax(axis=1) == labels
    place = PCA(2, random_state=0).fit_transform(features) * 3
    given = {"Forgetting": np.stack([right, ~right, right]), "NeighbourOutliers": features}
    given |= {"EL2N": probabilities, "ConfidentLearning": probabilities}
    return lambda filter_: given.get(type(filter_).__name__, place), labels


@pytest.mark.parametrize("filter_", FILTERS, ids=lambda one: type(one).__name__)
def test_clusterings_and_baselines_have_one_interface(filter_, known):
    of, labels = known
    filter_ = clone(filter_)
    found = filter_.fit_predict(of(filter_), labels)
    assert found is filter_.labels_
    assert np.array_equal(filter_.keep_, filter_.labels_ >= 0)
    assert np.array_equal(filter_.classes_, np.arange(10))
    assert 0 < filter_.keep_.sum() < len(labels)


@pytest.mark.parametrize("filter_", FILTERS[2:], ids=lambda one: type(one).__name__)
def test_a_baseline_keeps_as_many_as_are_asked_for_by_share_number_or_mask(filter_, known):
    of, labels = known
    mask = np.random.default_rng(0).random(len(labels)) < 0.8
    kept = {
        name: clone(filter_).set_params(size=size).fit(of(filter_), labels).keep_
        for name, size in (("share", 0.9), ("number", 1000), ("mask", mask))
    }
    assert (kept["share"].sum(), kept["number"].sum()) == (round(0.9 * len(labels)), 1000)
    assert np.array_equal(np.bincount(labels[kept["mask"]]), np.bincount(labels[mask]))
