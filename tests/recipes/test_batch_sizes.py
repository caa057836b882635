"""The runs of the batch-size study: its grid, its parts, and how arguments narrow it or go beyond it."""

from dataclasses import replace

from dolb import recipes

# G1: batch sizes 16 to 16384 in powers of two, and 20480.
NETWORKS = ["resnet18", "resnet50", "resnet152", "resnet34", "resnet101"]


def paper(**asked):
    return recipes.configs("batch-size", "paper", **asked)


def test_the_shares_differ_in_batch_norm_alone_and_are_of_a_batch_that_divides_the_data():
    runs = paper(part="shares", seeds=[0])
    (size,) = {run.batch_size for run in runs}
    assert 50_000 % size == 0
    assert size // 16 in {run.bn_workers for run in runs}  # as few examples as the smallest batch of the curve has
    assert all(size % run.bn_workers == 0 for run in runs)
    assert len({replace(run, bn_workers=1) for run in runs}) == 1
    assert {50_000 % run.batch_size > 0 for run in paper(part="rests")} == {True}


def test_changes_narrow_the_grid():
    runs = paper(part="curve", batch_sizes=[64, 512], lrs=[0.1], seeds=[0, 1, 2])
    assert {(run.batch_size, run.lr, run.seed) for run in runs} == {
        (size, 0.1, seed) for size in (64, 512) for seed in (0, 1, 2)
    }
    assert {run.key for run in paper(batch_sizes=[64], lrs=[0.1])} < {run.key for run in paper()}


def test_a_size_of_the_study_is_run_with_the_networks_that_have_it_there():
    assert {run.arch for run in paper(batch_sizes=[64])} == {"resnet18", "resnet34", "resnet50"}
    assert {run.arch for run in paper(lrs=[0.003])} == {"resnet18", "resnet50"}
    named = paper(batch_sizes=[64], archs=["resnet152"])
    assert {(run.arch, run.batch_size) for run in named} == {("resnet152", 64)}


def test_changes_may_go_beyond_the_grid():
    assert {run.arch for run in paper(lrs=[0.5])} == set(NETWORKS)
    assert {(run.arch, run.epochs) for run in paper(archs=["resnet50"], epochs=2)} == {("resnet50", 2)}


def test_the_noise_of_the_gradient_is_measured_in_runs_of_the_study_three_times_each():
    runs = recipes.configs("critical-batch", "paper")
    assert {run.arch for run in runs} == set(NETWORKS)
    study = {(run.arch, run.lr, run.batch_size, run.bn_workers) for run in paper(part="curve")}
    assert {(run.arch, run.lr, run.batch_size, run.bn_workers) for run in runs} <= study
    assert {run.measured_after for run in runs} == {"2,15,50"}
    shorter = recipes.configs("critical-batch", "paper", epochs=20, batch_sizes=[256], archs=["resnet152"], seeds=[1])
    assert [(run.measured_after, run.batch_size // run.bn_workers, run.small_batch) for run in shorter] == [
        ("1,6,20", 128, 128)
    ]
