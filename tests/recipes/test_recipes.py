"""What each experiment runs: the study's own grid, a small one on digits, and changes by name."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import fields, replace

import pytest

from dolb import recipes, results
from dolb.findings import batch_size
from dolb.training.config import RunConfig

SLUGS = sorted(recipes.RECIPES)
TRAINING = [slug for slug in SLUGS if slug not in ("features", "noise")]  # the others are maps and masks
# G1: batch sizes 16 to 16384 in powers of two, and 20480.
STUDIED = {2**k for k in range(4, 15)} | {20480}


@pytest.mark.parametrize("scale", ["demo", "paper"])
@pytest.mark.parametrize("slug", SLUGS)
def test_no_run_is_listed_twice(slug, scale):
    keys = [run.key for run in recipes.configs(slug, scale)]
    assert len(set(keys)) == len(keys) > 0


@pytest.mark.parametrize("scale", ["demo", "paper"])
@pytest.mark.parametrize("slug", SLUGS)
def test_runs_carry_the_slug_of_their_experiment(slug, scale):
    assert {run.experiment for run in recipes.configs(slug, scale)} == {slug}


@pytest.mark.parametrize("slug", SLUGS)
def test_a_demo_needs_no_download(slug):
    assert {run.data for run in recipes.configs(slug, "demo")} == {"digits"}


@pytest.mark.parametrize("slug", TRAINING)
def test_the_batches_of_a_demo_fit_the_digits(slug):
    from dolb.data import load

    runs = recipes.configs(slug, "demo")
    assert {getattr(run, "precision", "fp32") for run in runs} == {"fp32"}
    assert max(run.batch_size for run in runs) <= len(load("digits").train_labels)


@pytest.mark.parametrize("slug", SLUGS)
def test_published_means_the_runs_of_the_paper(slug):
    assert recipes.configs(slug, "published") == recipes.configs(slug, "paper")


def test_a_change_that_an_experiment_does_not_know_is_refused_with_those_it_does():
    with pytest.raises(
        ValueError, match=r"batch-size has no weight_decays that could be changed; accepted: part, archs"
    ):
        recipes.configs("batch-size", "demo", weight_decays=[0.1])
    assert recipes.configs("batch-size", "demo", weight_decays=None)


def test_the_paper_grid_has_every_batch_size_of_the_study_at_every_rate():
    runs = recipes.configs("batch-size", "paper", part="curve")
    assert {run.data for run in runs} == {"cifar10"}
    rates = {run.lr for run in runs}
    assert len(rates) >= 3
    for lr in rates:
        assert {run.batch_size for run in runs if run.lr == lr} == STUDIED


NETWORKS = ["resnet18", "resnet50", "resnet152", "resnet34", "resnet101"]


def test_the_paper_grid_has_every_depth_in_the_order_in_which_they_are_made():
    runs = recipes.configs("batch-size", "paper")
    assert list(dict.fromkeys(run.arch for run in runs)) == NETWORKS
    assert [run.arch for run in runs] == sorted((run.arch for run in runs), key=NETWORKS.index)
    assert {run.epochs for run in runs} == {50}
    assert len(runs) > 200


@pytest.mark.parametrize("arch", NETWORKS)
def test_a_depth_has_its_rates_and_sizes(arch):
    runs = [run for run in recipes.configs("batch-size", "paper", part="curve") if run.arch == arch]
    rates = {run.lr for run in runs}
    assert rates == {0.01, 0.03, 0.1} | ({0.003, 0.3} if arch in ("resnet18", "resnet50") else set())
    deepest = arch in ("resnet101", "resnet152")
    for lr in rates:
        sizes = {run.batch_size for run in runs if run.lr == lr}
        assert sizes == {size for size in STUDIED if size >= 128 or not deepest}


def test_resnet18_has_two_seeds_where_the_batch_is_distributed_and_others_one_in_most_cells():
    cells = Counter((run.arch, run.lr, run.batch_size) for run in recipes.configs("batch-size", "paper", part="curve"))
    deep = [count for (arch, _, _), count in cells.items() if arch != "resnet18"]
    assert set(deep) == {1, 2}
    assert deep.count(1) > 5 * deep.count(2)
    for lr in (0.03, 0.1):
        runs = recipes.configs("batch-size", "paper", part="curve", archs=["resnet18"], lrs=[lr])
        seeds = [run.seed for run in runs]
        assert (seeds.count(0), seeds.count(1)) == (12, 8 + (lr == 0.1))  # of batch 16 too, which dropped late


def test_the_cells_with_the_widest_intervals_have_more_seeds():
    runs = recipes.configs("batch-size", "paper", part="curve", lrs=[0.1])
    assert {(run.arch, run.batch_size) for run in runs if run.seed > 1} == {
        ("resnet18", size) for size in (8192, 16384, 20480)
    }
    assert {run.seed for run in runs} == set(range(8))


def test_the_grid_has_every_published_run(repo_root):
    published = set(results.load(repo_root / "results" / "batch-size.nc")["key"].to_numpy().astype(str))
    assert published <= {run.key for run in recipes.configs("batch-size", "paper")}


def test_rests_are_of_a_batch_that_does_not_divide_the_data():
    runs = recipes.configs("batch-size", "paper", part="rests")
    assert {50_000 % run.batch_size > 0 for run in runs} == {True}
    assert {run.bn_workers for run in runs} == {2**power for power in range(8)}


def test_the_statistics_are_the_curves_own_runs_with_one_worker():
    ours = recipes.configs("batch-size", "paper", part="statistics")
    curve = {run.key for run in recipes.configs("batch-size", "paper", part="curve")}
    assert {run.bn_workers for run in ours} == {1}
    sizes = {arch: {run.batch_size for run in ours if run.arch == arch} for arch in {run.arch for run in ours}}
    assert sizes.pop("resnet18") == {size for size in STUDIED if size >= 256}
    assert sizes == {"resnet50": {256, 512}, "resnet152": {256, 512}}
    assert {replace(run, bn_workers=8).key for run in ours} < curve


def test_every_published_run_keeps_its_key(repo_root):
    ds = results.load(repo_root / "results" / "batch-size.nc")
    names = [field.name for field in fields(RunConfig)]
    for run in range(ds.sizes["run"]):
        one = ds.isel(run=run)
        assert RunConfig(**{name: one[name].item() for name in names}).key == str(one["key"].item())


def test_eight_workers_share_the_batch_from_256_on():
    for run in recipes.configs("batch-size", "paper", part="curve"):
        assert run.bn_workers == (8 if run.batch_size >= 256 else 1)


def test_the_shares_differ_in_batch_norm_alone():
    runs = recipes.configs("batch-size", "paper", part="shares", seeds=[0])
    (size,) = {run.batch_size for run in runs}
    assert 50_000 % size == 0  # CIFAR-10 leaves no rest, which would be dealt to the same workers
    assert size // 16 in {run.bn_workers for run in runs}  # as few examples as the smallest batch of the curve has
    assert all(size % run.bn_workers == 0 for run in runs)
    others = {tuple((name, v) for name, v in run.as_dict().items() if name != "bn_workers") for run in runs}
    assert len(others) == 1


def test_changes_narrow_the_grid():
    runs = recipes.configs("batch-size", "paper", part="curve", batch_sizes=[64, 512], lrs=[0.1], seeds=[0, 1, 2])
    assert {(run.batch_size, run.lr, run.seed) for run in runs} == {
        (size, 0.1, seed) for size in (64, 512) for seed in (0, 1, 2)
    }
    everything = {run.key for run in recipes.configs("batch-size", "paper")}
    narrowed = recipes.configs("batch-size", "paper", batch_sizes=[64], lrs=[0.1])
    assert {run.key for run in narrowed} < everything


def test_a_size_of_the_study_is_run_with_the_networks_that_have_it_there():
    assert {run.arch for run in recipes.configs("batch-size", "paper", batch_sizes=[64])} == {
        "resnet18", "resnet34", "resnet50"
    }  # fmt: skip
    assert {run.arch for run in recipes.configs("batch-size", "paper", lrs=[0.003])} == {"resnet18", "resnet50"}
    named = recipes.configs("batch-size", "paper", batch_sizes=[64], archs=["resnet152"])
    assert {(run.arch, run.batch_size) for run in named} == {("resnet152", 64)}


def test_a_rate_that_the_study_does_not_have_is_run_with_every_network():
    assert {run.arch for run in recipes.configs("batch-size", "paper", lrs=[0.5])} == set(NETWORKS)


def test_changes_may_go_beyond_the_grid():
    runs = recipes.configs("batch-size", "paper", archs=["resnet50"], epochs=2)
    assert {(run.arch, run.epochs) for run in runs} == {("resnet50", 2)}


def test_a_change_of_none_is_no_change():
    assert recipes.configs("batch-size", "demo", seeds=None, archs=None) == recipes.configs("batch-size", "demo")


def test_an_unknown_experiment_is_answered_with_the_closest():
    with pytest.raises(
        ValueError, match=r"'batchsize' is not known \(did you mean 'batch-size'\?\); accepted: .*batch-s"
    ):
        recipes.configs("batchsize", "demo")


def test_an_unknown_scale_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="'huge' is not known; accepted: published, demo, paper"):
        recipes.configs("batch-size", "huge")


def test_an_unknown_network_among_the_changes_is_refused():
    with pytest.raises(ValueError, match="did you mean 'resnet18'"):
        recipes.configs("batch-size", "paper", archs=["resnet-18"])


def test_both_paths_are_compared_at_cells_of_the_study_past_the_best_size_of_their_rate(repo_root):
    study = recipes.configs("batch-size", "paper", part="curve", archs=["resnet18"])
    fast = recipes.configs("fidelity", "paper", part="fast", seeds=[0])
    assert {replace(run, experiment="batch-size") for run in fast} <= set(study)
    runs = batch_size.curve_runs(results.load(repo_root / "results" / "batch-size.nc"))
    largest = batch_size.preferred(runs[runs["arch"] == "resnet18"]).set_index("lr")["largest"]
    assert all(run.batch_size > largest[run.lr] and run.bn_workers == 8 for run in fast)


@pytest.mark.parametrize("part", ["weak", "strong"])
def test_both_libraries_are_measured_alike(part):
    runs = recipes.configs("ddp-vs-horovod", "paper", part=part)
    cells = {
        library: {(run.arch, run.ranks, run.batch_size, run.repeat) for run in runs if run.library == library}
        for library in ("ddp", "horovod")
    }
    assert cells["ddp"] == cells["horovod"]
    assert {run.ranks for run in runs} == {1, 2, 4, 8, 16}
    assert {run.arch for run in runs} == {"smallnet-8", "resnet18", "resnet50", "vgg11"}


def test_every_repetition_of_a_measurement_has_its_one_rank():
    runs = recipes.configs("ddp-vs-horovod", "paper")
    alone = {(run.arch, run.library, run.scaling, run.repeat) for run in runs if run.ranks == 1}
    assert {(run.arch, run.library, run.scaling, run.repeat) for run in runs} == alone


def test_a_repetition_is_whole_before_the_next():
    repeats = [run.repeat for run in recipes.configs("ddp-vs-horovod", "paper")]
    assert repeats == sorted(repeats)


def test_where_weak_and_strong_scaling_meet_one_run_is_for_both():
    runs = recipes.configs("ddp-vs-horovod", "paper", repeats=1)
    points = [(run.arch, run.library, run.ranks, run.batch_size_per_rank, *run.launch) for run in runs]
    tuned = [run for run in runs if run.bucket_mb != 25.0]
    assert len(points) - len(set(points)) == len(tuned)  # DDP's bucket size is no matter of the launch
    both = [
        {run.key for run in recipes.configs("ddp-vs-horovod", "paper", part=part, archs=["resnet18"])}
        for part in ("weak", "strong")
    ]
    assert len(both[0] & both[1]) == 2 * 3  # libraries, repetitions


def test_every_measurement_of_scaling_has_its_rank_without_a_library_and_a_core_for_each_rank():
    for part in ("all", "links"):
        runs = recipes.configs("ddp-vs-horovod", "paper", part=part)
        assert all(run.alone_steps > 0 and run.pinned for run in runs)


def test_strong_scaling_keeps_the_global_batch():
    runs = recipes.configs("ddp-vs-horovod", "paper", part="strong")
    assert len({run.batch_size for run in runs}) == 1
    assert {run.ranks for run in runs} == {1, 2, 4, 8, 16}


def test_what_g21_tunes_is_tuned_on_one_number_of_ranks():
    assert {run.ranks for run in recipes.configs("ddp-vs-horovod", "paper", part="tuning")} == {8}
    runs = recipes.configs("ddp-vs-horovod", "paper", part="tuning", ranks=[1, 2])
    assert {run.ranks for run in runs} == {2}
    assert len({run.cycle_time_ms for run in runs}) > 1
    assert len({run.fusion_threshold_mb for run in runs}) > 1
    assert len({run.bucket_mb for run in runs}) > 1


def test_over_links_both_libraries_run_at_every_rate_beside_one_rank_alone():
    runs = recipes.configs("ddp-vs-horovod", "paper", part="links", archs=["resnet18"])
    alone = {(run.library, run.repeat) for run in runs if run.ranks == 1}
    cells = {(run.library, run.hosts, run.link_mbit, run.repeat) for run in runs if run.hosts > 1}
    rates = {rate for _, _, rate, _ in cells}
    assert {100.0, 1000.0, math.inf} <= rates
    assert cells == {(library, n, rate, k) for library, k in alone for n in (2, 4, 8) for rate in rates}
    assert all(run.ranks == run.hosts for run in runs)


def test_links_are_measured_only_where_they_are_asked_for_as_they_need_root():
    assert all(run.hosts == 1 for run in recipes.configs("ddp-vs-horovod", "paper"))
    assert {run.hosts for run in recipes.configs("ddp-vs-horovod", "demo", part="links", ranks=[1, 4])} == {1, 4}


def test_one_rank_alone_is_one_measurement_for_links_and_for_loopback():
    every, linked = ({run.key for run in recipes.configs("ddp-vs-horovod", "paper", part=p)} for p in ("all", "links"))
    assert every & linked


def test_an_unknown_part_of_the_measurements_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="part 'huge' is not known; accepted: all, weak, strong, tuning"):
        recipes.configs("ddp-vs-horovod", "demo", part="huge")


def test_the_steps_of_both_libraries_are_traced():
    for scale in ("demo", "paper"):
        runs = recipes.configs("step-timeline", scale)
        assert {run.library for run in runs} == {"ddp", "horovod"}
        assert all(run.trace_steps > 0 for run in runs)
