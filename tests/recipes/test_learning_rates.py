"""Warmup and rate scaling: the study's settings at equal updates an epoch."""

import math

import pytest

from dolb import recipes

IMAGENET, CIFAR10 = 1_281_167, 50_000


def test_batch_sizes_leave_as_many_updates_an_epoch_as_the_study_had():
    sizes = sorted({run.batch_size for run in recipes.configs("warmup", "paper", part="batches")})
    theirs = [3840, 7680, 15360, 23040, 30720]
    assert [math.ceil(CIFAR10 / size) for size in sizes] == [math.ceil(IMAGENET / size) for size in theirs]


@pytest.mark.parametrize("slug", ["warmup", "lr-scaling"])
def test_every_worker_has_the_same_share(slug):
    runs = [run for run in recipes.configs(slug, "paper") if run.batch_size <= 1200]
    assert {run.batch_size / run.bn_workers for run in runs} == {30}


def test_a_grid_can_be_narrowed_and_left():
    runs = recipes.configs("warmup", "paper", part="warmups", archs=["resnet18"], warmups=[3], lrs=[0.05], seeds=[0])
    assert {(run.batch_size, run.warmup_epochs, run.lr) for run in runs} == {(300, 3, 0.05), (1200, 3, 0.05)}
    only = recipes.configs("lr-scaling", "paper", batch_sizes=[450], lrs=[0.07], archs=["resnet18"], seeds=[0])
    assert {(run.batch_size, run.lr) for run in only} == {(450, 0.07)}


def test_other_epochs_move_warmup_and_decay_along():
    (run, *_) = recipes.configs("warmup", "paper", warmups=[5], batch_sizes=[300], epochs=45)
    assert (run.warmup_epochs, run.decay) == (2.5, "step:15,30")
