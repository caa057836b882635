"""What strong and weak scaling are, as runs."""

import pytest

from dolb import recipes


@pytest.fixture(scope="module")
def volumes():
    return recipes.configs("strong-weak", "paper", part="volumes", seeds=[0])


def test_strong_scaling_keeps_batch_and_rate_and_weak_scaling_the_batch_of_a_worker(volumes):
    strong = [run for run in volumes if run.batch_size == run.base_batch_size]
    assert [run.bn_workers for run in strong] == [1, 2, 4, 8, 16, 32]
    assert {(run.lr, run.lr_scaling) for run in strong} == {(strong[0].lr, "none")}
    weak = [run for run in volumes if run not in strong]
    assert {run.batch_size for run in weak} == {64, 128, 256, 512, 888}  # the last is all there are
    assert len(weak) == 5 * 3


def test_weak_runs_have_no_more_updates_than_one_worker(volumes):
    alone = volumes[0]
    for run in volumes:
        assert run.epochs / run.batch_size <= alone.epochs / alone.batch_size
        assert run.epochs <= 4 * alone.epochs


def test_more_workers_than_a_batch_has_examples_are_refused():
    with pytest.raises(ValueError, match="cannot be shared equally by 64 ranks"):
        recipes.configs("strong-weak-steps", "paper", ranks=[64])


def test_a_part_can_be_narrowed():
    few = recipes.configs("strong-weak", "paper", part="images", workers=[1, 8], seeds=[4])
    assert {run.subset for run in few} == {"share-0.02"}
    assert len(few) == 1 + 4


def test_steps_are_timed_at_every_share_of_a_batch_and_on_real_ranks():
    steps = recipes.configs("strong-weak-steps", "paper", repeats=1)
    alone = {run.batch_size_per_rank for run in steps if run.ranks == 1 and run.data == "nodules-16"}
    assert alone == {1, 2, 4, 8, 16, 32}
    assert {run.ranks for run in steps} == {1, 2, 4, 8}
    on_gpu = recipes.configs("strong-weak-steps", "paper", part="cuda", repeats=1)
    assert {(run.ranks, run.device_kind) for run in on_gpu} == {(1, "cuda")}


def test_real_scans_take_the_place_of_the_volumes_of_their_side():
    runs = recipes.configs("strong-weak", "paper", data="luna16-32")
    made = recipes.configs("strong-weak", "paper", part="volumes")
    assert {run.data for run in runs} == {"luna16-32"}
    assert len(runs) == len(made)
    assert max(run.batch_size for run in runs) == 800  # all that train
    with pytest.raises(ValueError, match="accepted: luna16-32, luna16-16"):
        recipes.configs("strong-weak", "paper", data="cifar10")
