"""The runs of the batch-size study: its grid, its parts, and how arguments narrow it or go beyond it."""

from collections import Counter
from dataclasses import fields, replace

from dolb import recipes, results
from dolb.findings import batch_size
from dolb.training.config import RunConfig

# G1: batch sizes 16 to 16384 in powers of two, and 20480.
STUDIED = {2**k for k in range(4, 15)} | {20480}
NETWORKS = ["resnet18", "resnet50", "resnet152", "resnet34", "resnet101"]


def paper(**asked):
    return recipes.configs("batch-size", "paper", **asked)


def test_the_grid_has_every_depth_in_the_order_in_which_they_are_made():
    order = [NETWORKS.index(run.arch) for run in paper()]
    assert order == sorted(order)
    assert set(order) == set(range(len(NETWORKS)))
    assert {(run.data, run.epochs) for run in paper()} == {("cifar10", 50)}


def test_a_depth_has_its_rates_and_sizes():
    cells = {(run.arch, run.lr, run.batch_size) for run in paper(part="curve")}
    assert cells == {
        (arch, lr, size)
        for arch in NETWORKS
        for lr in (0.01, 0.03, 0.1, *((0.003, 0.3) if arch in ("resnet18", "resnet50") else ()))
        for size in STUDIED
        if size >= 128 or arch not in ("resnet101", "resnet152")
    }


def test_resnet18_has_two_seeds_or_more_where_the_batch_is_distributed():
    seeds = Counter((run.arch, run.lr, run.batch_size) for run in paper(part="curve"))
    assert all(n >= 2 for (arch, _, size), n in seeds.items() if arch == "resnet18" and size >= 256)


def test_eight_workers_share_the_batch_from_256_on():
    assert all(run.bn_workers == (8 if run.batch_size >= 256 else 1) for run in paper(part="curve"))


def test_the_grid_has_every_published_run_and_each_keeps_its_key():
    ds = results.published("batch-size")
    names = [field.name for field in fields(RunConfig) if field.name in ds]  # others are newer, and at their defaults
    found = {str(one.key.item()): one for one in (ds.isel(run=run) for run in range(ds.sizes["run"]))}
    assert all(RunConfig(**{name: one[name].item() for name in names}).key == key for key, one in found.items())
    assert set(found) <= {run.key for run in paper()}


def test_the_statistics_are_the_curves_own_runs_with_one_worker():
    ours = paper(part="statistics")
    assert {run.bn_workers for run in ours} == {1}
    assert {run.arch for run in ours} == {"resnet18", "resnet50", "resnet152"}
    assert {replace(run, bn_workers=8).key for run in ours} < {run.key for run in paper(part="curve")}


def test_the_shares_differ_in_batch_norm_alone_and_are_of_a_batch_that_divides_the_data():
    runs = paper(part="shares", seeds=[0])
    (size,) = {run.batch_size for run in runs}
    assert 50_000 % size == 0
    assert size // 16 in {run.bn_workers for run in runs}  # as few examples as the smallest batch of the curve has
    assert all(size % run.bn_workers == 0 for run in runs)
    assert len({replace(run, bn_workers=1) for run in runs}) == 1
    assert {50_000 % run.batch_size > 0 for run in paper(part="rests")} == {True}


def test_even_batches_are_near_a_size_of_the_study_and_leave_nearly_a_whole_batch_or_none():
    study = {(run.arch, run.lr, run.batch_size) for run in paper(part="curve")}
    for run in recipes.configs("even-batches", "paper"):
        near = [size for arch, lr, size in study if (arch, lr) == (run.arch, run.lr)]
        assert min(abs(size / run.batch_size - 1) for size in near) < 0.1
        partial = 50_000 % run.batch_size
        assert partial == 0 or partial > 0.9 * run.batch_size


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


def test_both_paths_are_compared_at_cells_of_the_study_past_the_best_size_of_their_rate():
    fast = recipes.configs("fidelity", "paper", part="fast", seeds=[0])
    assert {replace(run, experiment="batch-size") for run in fast} <= set(paper(part="curve", archs=["resnet18"]))
    runs = batch_size.curve_runs(results.published("batch-size"))
    largest = batch_size.preferred(runs[runs["arch"] == "resnet18"]).set_index("lr")["largest"]
    assert all(run.batch_size > largest[run.lr] and run.bn_workers == 8 for run in fast)


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
