"""Which runs share a GPU: like with like, the longest first, and never more than its memory holds."""

import itertools
import math

import pytest

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


# How many at once


@pytest.mark.parametrize(("size", "at_once"), [(16, 16), (64, 16), (256, 8), (1024, 4), (8192, 2), (20480, 2)])
def test_as_many_share_the_device_as_were_measured_to_be_best(size, at_once):
    assert packing.runs_at_once(config(batch_size=size)) == at_once
    assert at_once * packing.share(config(batch_size=size)) == 1


def test_a_large_run_among_small_ones_has_the_larger_part_of_the_device():
    large, small = config(batch_size=16384), config(batch_size=256)
    active = [large, *[small] * 4]
    # Two like the large one fill the device, or eight like the small one: the large one counts for four of those.
    assert packing.part(large, active) == 1 / 2
    assert packing.part(small, active) == 1 / 8
    assert packing.part(small, [small]) == 1  # alone it has all of it
    assert packing.part(large, active, at_once=5) == 1 / 5  # where the user says how many, all count alike


# Memory


@pytest.mark.parametrize("size", [16, 256, 300, 1024, 4096, 20480])
def test_a_prediction_from_other_batch_sizes_is_never_too_low(size):
    def memory(size: int) -> float:
        return 0.2 * GIB + size * GIB / 4096  # a fixed part and one in proportion

    measured = {packing.shape(config(batch_size=other)): memory(other) for other in (128, 512, 2048)}
    need = packing.predicted_need(config(batch_size=size, seed=7, bn_workers=8), measured)
    assert need is not None
    assert need >= memory(size)


@pytest.mark.parametrize("change", [{"arch": "resnet34"}, {"precision": "fp32"}, {"optimizer": "lamb"}])
def test_other_networks_precisions_and_optimizers_predict_nothing(change):
    measured = {packing.shape(config()): 5.0}
    assert packing.predicted_need(config(**change), measured) is None


def test_a_run_starts_beside_others_only_if_it_is_known_to_fit():
    assert packing.fits(need=10, used=80, limit=90)
    assert not packing.fits(need=11, used=80, limit=90)
    assert not packing.fits(need=None, used=0, limit=90)
    assert packing.fits(need=None, used=0, limit=math.inf)  # a CPU: nothing is planned
