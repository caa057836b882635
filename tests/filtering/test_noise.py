"""Noise by class: scikit-learn's words and answers, one radius for every eps, classes that must not vanish."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import DBSCAN

from dolb.filtering import noise
from dolb.filtering.noise import ClassDBSCAN, ClassHDBSCAN

FILTERS = [ClassDBSCAN(), ClassDBSCAN(eps="knee"), ClassHDBSCAN()]


@pytest.fixture
def points():
    """Three classes of 200 points, each in two dense blobs on the same map, and 4 points of each far away."""
    rng = np.random.default_rng(0)
    labels = np.repeat([2, 5, 7], 204)
    centres = rng.uniform(-20, 20, size=(6, 2))
    coordinates = np.concatenate([rng.normal(centres[i], 0.5, size=(100, 2)) for i in range(6)])
    far = np.stack([np.linspace(-900, 900, 12), np.full(12, 500.0)], axis=1)
    coordinates = np.concatenate([np.concatenate([coordinates[200 * i :][:200], far[i::3]]) for i in range(3)])
    order = rng.permutation(len(labels))
    return coordinates[order], labels[order]


def far_from_all(coordinates):
    return coordinates[:, 1] == 500


@pytest.mark.parametrize("method", FILTERS, ids=str)
def test_points_far_from_their_class_are_noise(points, method):
    keep = method.fit(*points).keep_
    assert not keep[far_from_all(points[0])].any()
    assert keep[~far_from_all(points[0])].mean() > 0.7


def test_each_class_is_clustered_by_itself(points):
    coordinates, labels = points
    found = ClassDBSCAN(eps=0.4, min_samples=6).fit_predict(coordinates, labels)
    for value in np.unique(labels):
        mine = found[labels == value]
        alone = DBSCAN(eps=0.4, min_samples=6).fit_predict(coordinates[labels == value])
        np.testing.assert_array_equal(np.where(mine < 0, -1, mine - mine[mine >= 0].min()), alone)


@pytest.mark.parametrize("method", FILTERS, ids=str)
def test_no_cluster_number_is_used_by_two_classes(points, method):
    found = method.fit_predict(*points)
    clusters = [set(found[points[1] == value]) - {-1} for value in np.unique(points[1])]
    assert sum(map(len, clusters)) == len(set.union(*clusters)) == found.max() + 1


# Every eps at once


@pytest.mark.filterwarnings("ignore:.*kept whole:UserWarning")
def test_noise_until_is_the_eps_at_which_a_point_stops_being_noise(points):
    until = noise.noise_until(*points, min_samples=4)
    radii = np.unique(until)[::20]  # there the answer turns
    for eps in [*np.geomspace(0.05, 500, 12), *radii, *(radii * (1 - 1e-9))]:
        removed = ~ClassDBSCAN(eps, min_samples=4).fit(*points).keep_
        empty = [value for value in np.unique(points[1]) if (until[points[1] == value] > eps).all()]
        np.testing.assert_array_equal(removed, (eps < until) & ~np.isin(points[1], empty))
        np.testing.assert_array_equal(~removed, noise.keep_within(until, points[1], eps))


def test_the_radius_of_a_share_leaves_that_share_as_noise_whatever_classes_are_too_small_for_any(points):
    coordinates, labels = np.concatenate([points[0], np.zeros((3, 2))]), np.append(points[1], [9, 9, 9])
    until = noise.noise_until(coordinates, labels)
    assert np.isinf(until[-3:]).all()
    assert (until[:-3] > noise.share_radius(until, 0.1)).sum() == pytest.approx(61, abs=1)
    with pytest.raises(ValueError, match="5 or more in some class"):
        noise.share_radius(until[-3:], 0.1)


def test_a_share_is_the_radius_that_leaves_it_as_noise(points):
    until = noise.noise_until(*points)
    fitted = ClassDBSCAN(share=0.1).fit(*points)
    assert np.unique(fitted.eps_).tolist() == [noise.share_radius(until, 0.1)]
    assert fitted.keep_.mean() == pytest.approx(0.9, abs=0.01)
    with pytest.raises(ValueError, match="share is 5; accepted: above 0 and below 1"):
        ClassDBSCAN(share=5).fit(*points)


# The knee


def test_the_knee_is_where_a_curve_of_two_lines_bends():
    flat, steep = np.linspace(0.4, 0.5, 900), np.linspace(0.5, 9, 100)
    assert noise.knee(np.random.default_rng(0).permutation(np.concatenate([flat, steep]))) == pytest.approx(0.5)


def test_the_knee_follows_the_scale_of_the_map(points):
    here = ClassDBSCAN(eps="knee").fit(*points)
    larger = ClassDBSCAN(eps="knee").fit(points[0] * 8, points[1])
    np.testing.assert_allclose(larger.eps_, 8 * here.eps_)
    np.testing.assert_array_equal(larger.keep_, here.keep_)


def test_a_knee_among_duplicates_is_still_a_radius():
    assert noise.knee(np.array([0.0] * 90 + [0.25] * 5 + [8.0] * 5)) == 0.25


def test_distances_without_a_knee_are_refused():
    with pytest.raises(ValueError, match="have no knee"):
        noise.knee(np.zeros(5))


# Classes that must not vanish


@pytest.mark.parametrize("method", FILTERS, ids=str)
def test_a_class_that_would_vanish_is_kept_whole_with_a_warning(points, method):
    coordinates = np.concatenate([points[0], np.zeros((4, 2))])
    labels = np.concatenate([points[1], np.full(4, 3)])
    with pytest.warns(UserWarning, match=r"class 3 \(4 points\) noise; kept whole"):
        fitted = clone(method).fit(coordinates, labels)
    assert fitted.keep_[labels == 3].all()
    assert len(set(fitted.labels_[labels == 3]) - set(fitted.labels_[labels != 3]) - {-1}) == 1  # a cluster of its own
    np.testing.assert_array_equal(fitted.keep_[labels != 3], clone(method).fit(*points).keep_)


# What is refused


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda xy, y: (xy, y[:-1]),
            r"labels have dtype int64 and shape \(611,\); accepted: whole numbers or text, \(612,\)",
        ),
        (lambda xy, y: (xy, y + 0.5), "labels have dtype float64"),
        (
            lambda xy, y: (np.where(np.arange(612)[:, None] % 300 == 7, np.nan, xy), y),
            "coordinates hold NaN or infinity in 3 of 612 rows, first in row 7",
        ),
    ],
    ids=["labels too short", "labels no classes", "NaN"],
)
def test_coordinates_or_labels_that_do_not_fit_are_refused(points, spoil, message):
    coordinates, labels = spoil(*points)
    for method in FILTERS:
        with pytest.raises(ValueError, match=message):
            method.fit(coordinates, labels)


@pytest.mark.parametrize(("eps", "message"), [("elbow", "accepted: a number above 0, or 'knee'"), (-1, "Got -1")])
def test_a_radius_that_is_none_is_refused(points, eps, message):
    with pytest.raises(ValueError, match=message):
        ClassDBSCAN(eps).fit(*points)


# Stratified grid sampling


@pytest.mark.parametrize("share", [0.25, 0.9, 1.0])
def test_grid_sampling_keeps_the_share_of_each_class_and_cell(points, share, monkeypatch):
    monkeypatch.setattr(noise, "_CELLS", 4)
    coordinates, labels = points
    keep = noise.grid_sample(coordinates, labels, share)
    low, extent = coordinates.min(axis=0), np.ptp(coordinates, axis=0)
    cell = np.minimum(((coordinates - low) / extent * 4).astype(int), 3) @ [4, 1]
    for value in np.unique(labels):
        assert keep[labels == value].sum() == np.floor(share * 204 + 0.5)
        for where in np.unique(cell[labels == value]):
            members = (labels == value) & (cell == where)
            assert abs(keep[members].sum() - share * members.sum()) < 1 + 1e-9


def test_grid_sampling_depends_on_its_seed_alone(points):
    first, again = (noise.grid_sample(*points, 0.5, random_state=1) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert (first != noise.grid_sample(*points, 0.5, random_state=2)).any()
