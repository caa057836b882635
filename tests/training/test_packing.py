"""Which runs share a GPU: like with like, the longest first, and never more than its memory holds."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest

from dolb import recipes
from dolb.training import packing
from dolb.training.config import RunConfig

GIB = 2**30


def config(**changes) -> RunConfig:
    return RunConfig(**{"arch": "resnet18", "batch_size": 256, "epochs": 50, "precision": "bf16"} | changes)


# The order


def test_runs_of_like_cost_follow_each_other():
    shuffled = [
        config(batch_size=size, bn_workers=w, lr=lr) for lr in (0.01, 0.1) for w in (1, 8) for size in (64, 256)
    ]
    shapes = [packing.shape(each) for each in packing.in_packs(shuffled)]
    changes = sum(one != other for one, other in itertools.pairwise(shapes))
    assert changes == len(set(shapes)) - 1
    assert sorted(shapes) == sorted(packing.shape(each) for each in shuffled)


def test_networks_keep_the_order_asked_for_and_the_longest_of_each_starts_first():
    asked = [config(arch=arch, batch_size=size) for size in (1024, 16, 256) for arch in ("resnet50", "resnet18")]
    ordered = [(each.arch, each.batch_size) for each in packing.in_packs(asked)]
    assert ordered == [(arch, size) for arch in ("resnet50", "resnet18") for size in (16, 256, 1024)]


def test_more_epochs_are_longer():
    assert [each.epochs for each in packing.in_packs([config(epochs=1), config(epochs=9)])] == [9, 1]


def test_within_a_pack_the_order_asked_for_stays():
    asked = [config(lr=lr, seed=seed) for lr in (0.1, 0.003, 0.03) for seed in (1, 0)]
    assert packing.in_packs(asked) == asked


def test_a_study_keeps_all_its_runs():
    study = recipes.batch_size("paper")
    assert {each.key for each in packing.in_packs(study)} == {each.key for each in study}
    assert len(packing.in_packs(study)) == len(study)


# How many at once


@pytest.mark.parametrize(("size", "at_once"), [(16, 16), (64, 16), (256, 8), (1024, 4), (8192, 2), (20480, 2)])
def test_as_many_share_the_device_as_were_measured_to_be_best(size, at_once):
    assert packing.runs_at_once(config(batch_size=size)) == at_once
    assert packing.runs_at_once(config(batch_size=size, arch="resnet152")) == at_once  # not measured: as ResNet-18
    assert at_once * packing.share(config(batch_size=size)) == 1


def test_larger_batches_never_want_more_company():
    numbers = [packing.runs_at_once(config(batch_size=size)) for size in range(1, 20481)]
    assert numbers == sorted(numbers, reverse=True)


def test_the_user_may_say_how_many():
    assert packing.share(config(batch_size=16384), at_once=6) == Fraction(1, 6)


def test_a_large_run_among_small_ones_has_the_larger_part_of_the_device():
    large, small = config(batch_size=16384), config(batch_size=256)
    active = [large, *[small] * 4]
    # Two like the large one fill the device, or eight like the small one: the large one counts for four of those.
    assert packing.part(large, active) == 1 / 2
    assert packing.part(small, active) == 1 / 8
    assert packing.part(small, [small]) == 1  # alone it has all of it
    assert packing.part(large, active, at_once=5) == 1 / 5  # where the user says how many, all count alike


# Memory


def test_a_run_like_a_measured_one_needs_the_same():
    assert packing.predicted_need(config(seed=7, lr=0.3), {packing.shape(config()): 3 * GIB}) == 3 * GIB


@pytest.mark.parametrize("size", [16, 256, 300, 1024, 4096, 20480])
def test_a_prediction_from_other_batch_sizes_is_never_too_low(size):
    def memory(size: int) -> float:
        return 0.2 * GIB + size * GIB / 4096  # a fixed part and one in proportion

    measured = {packing.shape(config(batch_size=other)): memory(other) for other in (128, 512, 2048)}
    need = packing.predicted_need(config(batch_size=size), measured)
    assert need is not None
    assert need >= memory(size)


def test_the_nearest_measured_batch_size_predicts_best():
    measured = {packing.shape(config(batch_size=size)): need for size, need in ((64, 300.0), (512, 500.0))}
    assert packing.predicted_need(config(batch_size=1024), measured) == 1000.0


def test_shares_of_batch_norm_change_no_prediction():
    measured = {packing.shape(config(bn_workers=1)): 5.0}
    assert packing.predicted_need(config(bn_workers=8), measured) == 5.0


@pytest.mark.parametrize("change", [{"arch": "resnet34"}, {"precision": "fp32"}])
def test_other_networks_and_precisions_predict_nothing(change):
    measured = {packing.shape(config()): 5.0}
    assert packing.predicted_need(config(**change), measured) is None


def test_a_run_starts_beside_others_only_if_it_is_known_to_fit():
    assert packing.fits(need=10, used=80, limit=90)
    assert not packing.fits(need=11, used=80, limit=90)
    assert not packing.fits(need=None, used=0, limit=90)
    assert packing.fits(need=None, used=0, limit=math.inf)  # a CPU: nothing is planned


def test_a_lack_of_memory_is_told_with_network_batch_size_need_and_what_is_free():
    told = packing.lack_of_memory(config(batch_size=16384), 4.3 * GIB, 7 * GIB, 10 * GIB)
    assert told == (
        "resnet18 at batch size 16384 needs 4.30 GiB of device memory, and 3.00 GiB of 10.00 GiB allowed are free"
    )
    assert "needs more than 0.00 GiB" in packing.lack_of_memory(config(), None, 11 * GIB, 10 * GIB)
