"""A config names its result by what differs from the defaults, and refuses what cannot be run."""

import hashlib
import json
from dataclasses import dataclass

import numpy as np
import pytest

from dolb.training.config import LandscapeConfig, RunConfig

CHANGES = {"arch": "smallnet-8", "lr": 0.5, "batch_size": 32, "seed": 3}


def test_the_key_is_the_hash_of_the_fields_that_differ_from_their_defaults():
    assert RunConfig(**CHANGES).key == hashlib.sha256(json.dumps(CHANGES, sort_keys=True).encode()).hexdigest()[:16]
    assert RunConfig().key == hashlib.sha256(b"{}").hexdigest()[:16]


def test_a_new_field_with_a_default_moves_no_key():
    @dataclass(frozen=True, kw_only=True)
    class LaterConfig(RunConfig):
        clip_norm: float = 0.0

    assert LaterConfig(**CHANGES).key == RunConfig(**CHANGES).key
    assert LaterConfig(**CHANGES, clip_norm=1.0).key != RunConfig(**CHANGES).key


def test_a_whole_number_and_numbers_of_numpy_give_the_key_of_pythons_own():
    whole, point = RunConfig(lr=1, warmup_epochs=2), RunConfig(lr=1.0, warmup_epochs=2.0)
    assert whole == point
    assert isinstance(whole.lr, float)
    assert RunConfig(lr=np.float64(0.3), seed=np.int64(4)).key == RunConfig(lr=0.3, seed=4).key


def test_a_config_comes_back_from_its_dictionary_and_ignores_other_names():
    config = RunConfig(**CHANGES)
    assert RunConfig.from_dict(config.as_dict() | {"test_accuracy": 0.5, "key": "other"}) == config


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"lr_scaling": "cubic"}, "lr_scaling 'cubic' is not known; accepted: none, linear, sqrt"),
        ({"augment": "cutout"}, "augment 'cutout' is not known; accepted: default, none, crop, crop-flip"),
        ({"optimizer": "adam"}, "optimizer 'adam' is not known; accepted: sgd, nesterov, lars, lamb"),
        ({"weight_decay_on": "norms"}, "weight_decay_on 'norms' is not known; accepted: all, filters"),
        ({"trust": 0.1}, "trust is no option of optimizer 'sgd'; accepted: momentum, weight_decay, weight_decay_on$"),
        ({"optimizer": "lamb", "trust": 0.1}, "trust is no option of .*weight_decay_on, max_gradient_norm"),
        ({"optimizer": "lars", "trust": 0.0}, "trust must be positive, got 0.0"),
        ({"optimizer": "lamb", "max_gradient_norm": -1.0}, "max_gradient_norm must not be negative, got -1.0"),
        ({"optimizer": "lamb", "momentum": 1.0}, "momentum of optimizer 'lamb' must be below 1, got 1.0"),
        ({"optimizer": "nesterov", "momentum": 0.0}, "momentum of optimizer 'nesterov' must be positive, got 0.0"),
        ({"label_smoothing": 1.1}, "label_smoothing must not exceed 1, got 1.1"),
        ({"bn_workers": 65}, r"bn_workers \(65\) must not exceed batch_size \(64\)"),
    ],
)
def test_a_value_that_cannot_be_run_is_refused_by_name(change, says):
    with pytest.raises(ValueError, match=says):
        RunConfig(**change)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"batch_size": 64.0}, r"batch_size must be int, got 64.0 \(float\)"),
        ({"lr": "0.1"}, r"lr must be float, got '0.1' \(str\)"),
        ({"seed": True}, r"seed must be int, got True \(bool\)"),
    ],
)
def test_a_value_of_another_type_is_refused_by_name(change, says):
    with pytest.raises(TypeError, match=says):
        RunConfig(**change)


# Landscapes


def test_a_run_whose_landscape_is_measured_needs_the_sets_it_is_judged_over():
    assert RunConfig(subset="network-a-1").subsets == ("network-a-1",)
    one = LandscapeConfig(subset="network-a-1", judged_on="full,network-a-1,random-a-2")
    assert one.subsets == ("network-a-1", "full", "network-a-1", "random-a-2")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"judged_on": "network-a-1"}, "judged_on is 'network-a-1'; accepted: full and one of each other kind"),
        ({"judged_on": "full,random-a-1,random-a-2"}, "one of each other kind"),
        ({"judged_examples": 0}, "judged_examples must be at least 1, got 0"),
        ({"trace_probes": 1}, "trace_probes must be at least 2, got 1"),
        ({"sharpness_radius": 0.0}, "sharpness_radius must be positive, got 0.0"),
        ({"surface_points": 8}, "surface_points must be odd, .* got 8"),
    ],
)
def test_a_landscape_that_cannot_be_measured_is_refused(changes, says):
    with pytest.raises(ValueError, match=says):
        LandscapeConfig(**changes)
