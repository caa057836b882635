"""Planted faults: known, the same by the same seed, only in training data, and found by what is to find them."""

from dataclasses import replace

import numpy as np
import pytest

from dolb import data as datasets
from dolb import planted
from dolb.filtering.config import METHODS, PlantedConfig

pytestmark = pytest.mark.usefixtures("on_one_core")
FLIPPED = PlantedConfig(drawn_examples=1000, flipped_share=0.05, removed_share=0.05)
GARBAGE = replace(FLIPPED, flipped_share=0.0, garbage_share=0.06)


@pytest.fixture(scope="module")
def digits():
    return datasets.load("digits")


def test_the_same_seed_plants_the_same_and_another_does_not(digits):
    one, again, other = (planted.plant(digits, replace(FLIPPED, seed=seed)) for seed in (3, 3, 4))
    assert one.data.fingerprint == again.data.fingerprint != other.data.fingerprint
    assert np.array_equal(one.faults, again.faults)


def test_flipped_labels_are_of_another_class_and_nothing_else_is_changed(digits):
    clean = planted.plant(digits, replace(FLIPPED, flipped_share=0.0, garbage_share=0.001)).data  # one image
    found = planted.plant(digits, FLIPPED)
    assert (found.faults >= 0).sum() == 50
    assert np.array_equal(found.data.train_labels != clean.train_labels, found.faults == 0)
    assert (found.data.train_images != clean.train_images).any(axis=(1, 2, 3)).sum() <= 1
    assert np.array_equal(found.data.test_labels, clean.test_labels)


def test_garbage_is_a_third_each_noise_blank_and_scrambled_and_keeps_its_label(digits):
    clean, found = planted.plant(digits, FLIPPED).data, planted.plant(digits, GARBAGE)
    kinds = {name: found.faults == planted.FAULTS.index(name) for name in planted.GARBAGE}
    assert [one.sum() for one in kinds.values()] == [20, 20, 20]
    images, before = (one.train_images.reshape(1000, -1) for one in (found.data, clean))
    assert (np.ptp(images[kinds["blank"]], axis=1) == 0).all()
    assert np.array_equal(np.sort(images[kinds["scrambled"]]), np.sort(before[kinds["scrambled"]]))
    assert (images[kinds["scrambled"]] != before[kinds["scrambled"]]).any(axis=1).all()
    assert np.array_equal(images[found.faults < 0], before[found.faults < 0])
    assert np.array_equal(found.data.test_images, clean.test_images)


def test_more_images_than_there_are_cannot_be_drawn(digits):
    with pytest.raises(ValueError, match="drawn_examples is 5000; accepted: up to 1437, the training"):
        planted.plant(digits, replace(FLIPPED, drawn_examples=5000))


@pytest.fixture(scope="module")
def both():
    shares = {"flipped_share": 0.05, "garbage_share": 0.05, "removed_share": 0.1}
    return PlantedConfig(drawn_examples=800, arch="smallnet-4", **shares)


@pytest.fixture(scope="module")
def measured(both, store, on_one_core):
    return planted.measure_all([both], store=store, device="cpu", progress=False)


def shares(ds, method):
    """Precision of a method, and its recall of flipped labels and of garbage."""
    one = ds.isel(run=0).sel({"method": method})  # by a dict, as sel has a keyword of that name
    flipped = one["fault"] == "flipped"
    found, there = one["found_examples"], one["planted_examples"]
    recall = [float(found[kind].sum() / there[kind].sum()) for kind in (flipped, ~flipped)]
    return float(found.sum() / one["removed_examples"]), *recall


def test_methods_find_both_kinds_of_fault_and_a_random_choice_is_right_as_often_as_faults_are(measured):
    for method in ("paper", "knee", "neighbours", "confident"):
        assert min(shares(measured, method)) > 3 * 0.1
    # One in ten has a fault and one in ten is removed: of 80 drawn and of 40 planted; four deviations.
    precision, *recall = shares(measured, "random")
    assert precision == pytest.approx(0.1, abs=4 * (0.1 * 0.9 / 80) ** 0.5)
    assert recall == pytest.approx([0.1, 0.1], abs=4 * (0.1 * 0.9 / 40) ** 0.5)


def test_every_method_is_counted_and_what_is_in_the_store_is_not_made_again(both, measured, store):
    assert list(measured["method"].to_numpy()) == list(METHODS)
    assert (measured["found_examples"].sum("fault") <= measured["removed_examples"]).all()
    again = planted.measure_all([both], store=store, device="cpu", progress=False)
    assert again.drop_attrs().identical(measured.drop_attrs())
