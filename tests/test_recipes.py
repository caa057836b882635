"""What each experiment runs: the study's own grid, a small one on digits, and changes by name."""

from __future__ import annotations

import pytest

from dolb import recipes

SLUGS = sorted(recipes.RECIPES)
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
def test_a_demo_needs_no_download_and_its_batches_fit_the_digits(slug):
    from dolb.data import load

    runs = recipes.configs(slug, "demo")
    assert {run.data for run in runs} == {"digits"}
    assert {run.precision for run in runs} == {"fp32"}
    assert max(run.batch_size for run in runs) <= len(load("digits").train_labels)


@pytest.mark.parametrize("slug", SLUGS)
def test_published_means_the_runs_of_the_paper(slug):
    assert recipes.configs(slug, "published") == recipes.configs(slug, "paper")


def test_the_paper_grid_has_every_batch_size_of_the_study_at_every_rate():
    runs = recipes.configs("batch-size", "paper", part="curve")
    assert {run.data for run in runs} == {"cifar10"}
    rates = {run.lr for run in runs}
    assert len(rates) >= 3
    for lr in rates:
        assert {run.batch_size for run in runs if run.lr == lr} == STUDIED


def test_eight_workers_share_the_batch_from_256_on():
    for run in recipes.configs("batch-size", "paper", part="curve"):
        assert run.bn_workers == (8 if run.batch_size >= 256 else 1)


def test_the_shares_differ_in_batch_norm_alone():
    runs = recipes.configs("batch-size", "paper", part="shares", seeds=[0])
    assert {run.batch_size for run in runs} == {256}
    assert sorted(run.bn_workers for run in runs) == [2**k for k in range(8)]
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


def test_an_unknown_change_is_refused_by_name():
    with pytest.raises(TypeError, match="batchsizes"):
        recipes.configs("batch-size", "demo", batchsizes=[8])


def test_an_unknown_network_among_the_changes_is_refused():
    with pytest.raises(ValueError, match="did you mean 'resnet18'"):
        recipes.configs("batch-size", "paper", archs=["resnet-18"])
