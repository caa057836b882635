"""From images to a mask: features, map, noise. Planted wrong labels are found, more often than by chance."""

import numpy as np
import pytest

from dolb import data, models
from dolb.filtering import baselines, features, masks, noise
from dolb.filtering.embedding import TSNEMap

PLANTED = 0.05


@pytest.fixture(scope="module")
def mapped():
    """Digits of which some have a wrong label, and their map: of raw pixels, which need no training."""
    digits = data.load("digits")
    rng = np.random.default_rng(0)
    wrong = rng.random(len(digits.train_labels)) < PLANTED
    labels = np.where(wrong, (digits.train_labels + rng.integers(1, 10, size=len(wrong))) % 10, digits.train_labels)
    pixels = digits.train_images.reshape(len(labels), -1) / np.float32(255)
    return digits, labels, wrong, TSNEMap(n_iter=250, progress=False).fit_transform(pixels)


@pytest.mark.parametrize(
    "method", [noise.ClassDBSCAN(eps=1.5), noise.ClassDBSCAN(eps="knee"), noise.ClassHDBSCAN()], ids=str
)
def test_a_wrong_label_is_noise_more_often_than_by_chance(mapped, method):
    _, labels, wrong, coordinates = mapped
    keep = method.fit(coordinates, labels).keep_
    at_random = baselines.ByScore("random", keep).fit(None, labels).keep_
    assert wrong[~keep].mean() > 3 * wrong.mean()
    assert wrong[~keep].mean() > 2 * wrong[~at_random].mean()


def test_the_mask_of_a_network_goes_to_disk_and_back_into_the_data(mapped, tmp_path):
    digits, *_ = mapped
    network = models.initialize("smallnet-4", 10, 1, 1, seed=0)
    got = features.extract(network, "smallnet-4", digits.train_images, digits.mean, digits.std, progress=False)
    coordinates = TSNEMap(early_exaggeration_iter=50, n_iter=50, progress=False).fit_transform(got)
    keep = noise.ClassDBSCAN(eps="knee").fit(coordinates, digits.train_labels).keep_
    path = masks.save_keep(tmp_path / "keep.nc", keep, digits, "network", coordinates=coordinates)
    filtered = digits.subset(masks.load_keep(path, digits), "network")
    assert 0 < len(filtered.train_labels) < len(digits.train_labels)
    assert set(filtered.train_labels) == set(digits.train_labels)
