"""A config names its result by what differs from the defaults, and refuses what cannot be run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import FrozenInstanceError, dataclass, fields

import numpy as np
import pytest

from dolb.training.config import LandscapeConfig, RunConfig

CHANGES = {"arch": "smallnet-8", "lr": 0.5, "batch_size": 32, "seed": 3}


def test_the_key_is_the_hash_of_the_fields_that_differ_from_their_defaults():
    assert RunConfig(**CHANGES).key == hashlib.sha256(json.dumps(CHANGES, sort_keys=True).encode()).hexdigest()[:16]
    assert RunConfig().key == hashlib.sha256(b"{}").hexdigest()[:16]


def test_naming_a_default_changes_no_key():
    assert RunConfig(**CHANGES).key == RunConfig(**(RunConfig().as_dict() | CHANGES)).key


def test_the_order_of_the_fields_does_not_matter():
    assert RunConfig(**CHANGES).key == RunConfig(**dict(reversed(CHANGES.items()))).key


def test_a_new_field_with_a_default_moves_no_key():
    @dataclass(frozen=True, kw_only=True)
    class LaterConfig(RunConfig):
        clip_norm: float = 0.0

    assert LaterConfig(**CHANGES).key == RunConfig(**CHANGES).key
    assert LaterConfig(**CHANGES, clip_norm=1.0).key != RunConfig(**CHANGES).key


OTHER = {
    "experiment": "warmup", "data": "cifar10", "subset": "filtered", "arch": "smallnet-8", "batch_size": 65, "lr": 0.2,
    "lr_scaling": "sqrt", "base_batch_size": 128, "warmup_epochs": 1.0, "decay": "cosine", "momentum": 0.5,
    "weight_decay": 0.1, "label_smoothing": 0.1, "epochs": 11, "bn_workers": 2, "augment": "none", "precision": "bf16",
    "seed": 1,
}  # fmt: skip


def test_every_field_counts():
    assert set(OTHER) == {field.name for field in fields(RunConfig)} - {"optimizer"}  # of which there is one so far
    keys = {RunConfig(**{name: value}).key for name, value in OTHER.items()} | {RunConfig().key}
    assert len(keys) == len(OTHER) + 1


def test_a_whole_number_is_taken_for_a_float_with_the_same_key():
    whole, point = RunConfig(lr=1, warmup_epochs=2), RunConfig(lr=1.0, warmup_epochs=2.0)
    assert whole == point
    assert whole.key == point.key
    assert isinstance(whole.lr, float)


def test_numbers_of_numpy_give_the_key_of_pythons_own():
    assert RunConfig(lr=np.float64(0.3), seed=np.int64(4)).key == RunConfig(lr=0.3, seed=4).key


def test_a_config_comes_back_from_its_dictionary_and_ignores_other_names():
    config = RunConfig(**CHANGES)
    assert RunConfig.from_dict(config.as_dict() | {"test_accuracy": 0.5, "key": "other"}) == config


def test_a_config_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        RunConfig().lr = 0.2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"lr_scaling": "cubic"}, "lr_scaling 'cubic' is not known; accepted: none, linear, sqrt"),
        ({"augment": "cutout"}, "augment 'cutout' is not known; accepted: default, none, crop, crop-flip"),
        ({"precision": "fp8"}, "precision 'fp8' is not known; accepted: fp32, bf16"),
        ({"optimizer": "adam"}, "optimizer 'adam' is not known; accepted: sgd"),
        ({"decay": "step"}, "decay 'step' is not known; accepted: constant, cosine, step:E1"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"batch_size": -4, "lr_scaling": "sqrt"}, "batch_size must be at least 1, got -4"),
        ({"base_batch_size": 0, "lr_scaling": "linear"}, "base_batch_size must be at least 1, got 0"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"bn_workers": 0}, "bn_workers must be at least 1, got 0"),
        ({"warmup_epochs": -1.0}, "warmup_epochs must not be negative, got -1.0"),
        ({"momentum": -0.1}, "momentum must not be negative, got -0.1"),
        ({"weight_decay": -0.1}, "weight_decay must not be negative, got -0.1"),
        ({"label_smoothing": -0.1}, "label_smoothing must not be negative, got -0.1"),
        ({"label_smoothing": 1.1}, "label_smoothing must not exceed 1, got 1.1"),
        ({"seed": -1}, "seed must not be negative, got -1"),
        ({"lr": 0.0}, "lr must be positive, got 0.0"),
        ({"lr": float("nan")}, "lr must be a finite number, got nan"),
        ({"weight_decay": float("nan")}, "weight_decay must be a finite number, got nan"),
        ({"momentum": float("inf")}, "momentum must be a finite number, got inf"),
        ({"warmup_epochs": 11.0}, r"warmup_epochs \(11\) must not exceed epochs \(10\)"),
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
        ({"batch_size": "64"}, r"batch_size must be int, got '64' \(str\)"),
        ({"lr": "0.1"}, r"lr must be float, got '0.1' \(str\)"),
        ({"seed": True}, r"seed must be int, got True \(bool\)"),
        ({"arch": 18}, r"arch must be str, got 18 \(int\)"),
    ],
)
def test_a_value_of_another_type_is_refused_by_name(change, says):
    with pytest.raises(TypeError, match=says):
        RunConfig(**change)


def test_a_name_that_no_config_has_is_refused():
    with pytest.raises(TypeError, match="learning_rate"):
        RunConfig(learning_rate=0.1)


def test_an_unknown_network_is_answered_with_the_closest():
    with pytest.raises(
        ValueError, match=r"'resnet-18' is not known \(did you mean 'resnet18'\?\); accepted: smallnet-4"
    ):
        RunConfig(arch="resnet-18")


# Landscapes


def test_a_run_whose_landscape_is_measured_needs_the_sets_it_is_judged_over():
    assert RunConfig(subset="network-a-1").subsets == ("network-a-1",)
    one = LandscapeConfig(subset="network-a-1", judged_on="full,network-a-1,random-a-2")
    assert one.subsets == ("network-a-1", "full", "network-a-1", "random-a-2")


def test_how_a_landscape_is_measured_is_part_of_the_key():
    assert LandscapeConfig(**CHANGES).key == RunConfig(**CHANGES).key
    assert LandscapeConfig(**CHANGES, trace_probes=9).key != LandscapeConfig(**CHANGES).key


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"judged_on": "network-a-1"}, "judged_on is 'network-a-1'; accepted: .* full and one of each other kind"),
        ({"judged_on": "full,random-a-1,random-a-2"}, "one of each other kind"),
        ({"judged_examples": 0}, "judged_examples must be at least 1, got 0"),
        ({"trace_probes": 1}, "trace_probes must be at least 2, got 1"),
        ({"sharpness_radius": 0.0}, "sharpness_radius must be positive, got 0.0"),
        ({"normalized_radius": -0.5}, "normalized_radius must be positive, got -0.5"),
        ({"surface_points": 8}, "surface_points must be odd, .* got 8"),
        ({"surface_points": 1}, "3 or more, got 1"),
        ({"lr": -1.0}, "lr must be positive"),
    ],
)
def test_a_landscape_that_cannot_be_measured_is_refused(changes, says):
    with pytest.raises(ValueError, match=says):
        LandscapeConfig(**changes)
