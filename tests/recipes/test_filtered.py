"""What is run to study filtering: maps, masks that carry their key in their name, and the same recipe for all sets."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from dolb import claims, recipes, results
from dolb.recipes.filtered import equal_updates
from dolb.recipes.study import STUDIES, rate
from dolb.training.config import RunConfig

NETWORKS = {"resnet18", "resnet34", "resnet50", "resnet101", "resnet152"}
SMALL, LARGE, LANDSCAPE = "filtered-small-batch", "filtered-large-batch", "loss-landscape"


def kind(run):
    return run.subset.split("-")[0]


@pytest.fixture(scope="module")
def every_claim():
    return claims.load()


def test_every_network_of_table_one_makes_masks_over_seeds_of_training_and_of_the_map(every_claim):
    assert set(every_claim["G6"].reported["removed_percent"]) == NETWORKS
    masks = [m for m in recipes.configs("noise", "paper") if m.weights == "trained" and m.filter == "dbscan"]
    for arch in NETWORKS:
        own = {(m.seed, m.map_seed) for m in masks if m.arch == arch}
        assert own == {(seed, map_seed) for seed in (0, 1) for map_seed in (0, 1, 2)}


def test_the_masks_have_the_librarys_default_parameters():
    first = recipes.configs("noise", "paper")[0]
    assert (first.eps, first.min_samples, first.perplexity) == (0.5, 5, 30)  # scikit-learn's DBSCAN and TSNE
    assert first.arch == "resnet101"  # the paper's extractor for training on what is left


def test_on_every_map_of_the_grid_there_are_two_masks_by_the_default_radius_and_by_the_papers_share(every_claim):
    masks = recipes.configs("noise", "paper")
    shares = {m.share for m in masks if m.filter == "share"}
    assert shares == {every_claim["G6"].reported["removed_percent"]["resnet101"] / 100}
    on = {
        kind: {(m.arch, m.weights, m.seed, m.map_seed) for m in masks if m.filter == kind}
        for kind in ("dbscan", "share")
    }
    assert on["share"] == on["dbscan"]


def test_runs_are_trained_on_the_mask_with_the_papers_share():
    for slug in (SMALL, LARGE, "loss-landscape"):
        used = {name for run in recipes.configs(slug, "paper") for name in run.subsets if name.startswith("network-")}
        assert used == {recipes.masks("paper")["network"].subset}
    assert recipes.masks("paper")["network"].filter == "share"


def test_at_a_better_rate_the_three_sets_are_run_with_eight_seeds_where_the_finding_lies():
    runs = recipes.configs("better-rate", "paper", kept=(47_441, 50_000))
    asked = {"sets": ["full", "network", "random"], "batch_sizes": [6272], "kept": (47_441, 50_000), "seeds": range(8)}
    usual = recipes.configs("filtered-large-batch", "paper", **asked)
    rates = {run.lr for run in runs}
    assert rates == {0.1, 0.2}
    same = [replace(run, lr=usual[0].lr, experiment=usual[0].experiment).key for run in runs]
    assert sorted(same) == sorted(2 * [run.key for run in usual])
    assert rates < {run.lr for run in recipes.configs("tuning", "paper", batch_sizes=[6272])}
    assert {run.lr for run in recipes.configs("better-rate", "paper", lrs=[0.2])} == {0.2}


@pytest.mark.parametrize("sets", [None, ["random"]])
def test_what_the_default_radius_keeps_is_run_with_large_batches_beside_random_sets_of_that_size(sets):
    runs = recipes.configs("default-radius", "paper", sets=sets)
    first, *others = recipes.masks_of(runs, "paper")
    assert (first.filter, first.eps) == ("dbscan", 0.5)
    assert {mask.filter for mask in others} == {"random"}
    assert {mask.size_of for mask in others} == {first.key}
    assert {run.subset for run in runs} == {mask.subset for mask in [first, *others] if not sets or mask != first}
    full = {replace(run, subset="full").key for run in recipes.configs(LARGE, "paper", sets=["full"])}
    assert {replace(run, experiment=LARGE, subset="full").key for run in runs} < full


def test_every_map_and_mask_names_a_network_that_is_trained():
    for slug in ("features", "noise"):
        for scale in ("demo", "paper"):
            wanted = {m.trained_by for m in recipes.configs(slug, scale) if m.weights == "trained"}
            assert wanted <= set(recipes.networks(scale))


def test_a_subset_carries_the_key_of_its_mask():
    mask = recipes.masks("paper")["network"]
    assert mask.subset == f"network-resnet101-{mask.key[:8]}"
    assert replace(mask, map_seed=1).subset != mask.subset
    assert replace(mask, trained_by="another").subset != mask.subset
    assert mask.subset in {run.subset for run in recipes.configs(SMALL, "paper")}  # and so another one makes other runs


def test_each_seed_has_a_random_set_of_its_own_and_shares_all_others():
    zero, one = recipes.masks("paper", 0), recipes.masks("paper", 1)
    assert {name for name in zero if zero[name] != one[name]} == {"random"}


def test_the_small_batches_are_those_of_figure_6(every_claim):
    runs = recipes.configs(SMALL, "paper", sets=["full", "network", "random"])
    assert {run.batch_size for run in runs} == set(map(int, every_claim["G7"].reported))
    assert {run.weight_decay for run in runs} == {0.005, 0.01, 0.012, 0.0135, 0.02}  # the last is beyond the figure's
    assert {run.seed for run in runs} == set(range(10))
    assert {run.bn_workers for run in runs} == {1}
    assert len(runs) == 3 * 3 * 5 * 10


def test_with_small_batches_the_other_sets_have_three_seeds_and_the_papers_weight_decays_alone():
    runs = [run for run in recipes.configs(SMALL, "paper") if not run.subset.startswith(("full", "network", "random"))]
    cells = Counter((run.subset, run.weight_decay) for run in runs)
    assert {decay for _, decay in cells} == {0.005, 0.01, 0.012, 0.0135}
    assert set(cells.values()) == {3}
    assert {run.seed for run in runs} == {0, 1, 2}


def test_with_small_batches_the_first_three_seeds_have_runs_of_equal_updates_at_every_weight_decay():
    plain = {run.key for run in recipes.configs(SMALL, "paper")}
    more = [run for run in recipes.configs(SMALL, "paper", kept=(47_441, 50_000)) if run.key not in plain]
    cells = {(kind(run), run.batch_size, run.weight_decay, run.seed) for run in more}
    decays = (0.005, 0.01, 0.012, 0.0135, 0.02)
    assert cells == {(s, 256, decay, seed) for s in ("network", "random") for decay in decays for seed in (0, 1, 2)}
    assert len(more) == len(cells)


@pytest.mark.parametrize("slug", [SMALL, LARGE])
def test_every_published_run_is_of_the_grid(slug):
    grid = {run.key for run in recipes.configs(slug, "paper", kept=(47_441, 50_000))}
    assert set(map(str, results.published(slug)["key"].values)) <= grid


def test_every_other_way_to_choose_is_run_at_the_largest_small_batch():
    runs = recipes.configs(SMALL, "paper")
    kinds = {kind(run): {one.batch_size for one in runs if kind(one) == kind(run)} for run in runs}
    assert kinds.pop("full") == kinds.pop("network") == kinds.pop("random") == {64, 128, 256}
    assert set(kinds) == {"recursive", "grid", "neighbours", "el2n", "forgetting", "confident"}
    assert all(sizes == {256} for sizes in kinds.values())


def test_the_large_batches_are_the_papers_shares_of_eight_workers(every_claim):
    runs = recipes.configs(LARGE, "paper")
    sizes = sorted({run.batch_size for run in runs})
    assert (sizes[0], sizes[-1]) == (32 * 8, 1310 * 8)
    assert {*every_claim["G11"].setting["batch_size"], every_claim["G12"].setting["batch_size"]} <= set(sizes)
    assert {run.bn_workers for run in runs} == {8}
    assert {kind(run) for run in runs} == {"full", "network", "random", "confident"}
    for size in sizes:
        seeds = Counter((kind(run), run.seed) for run in runs if run.batch_size == size)
        assert set(seeds.values()) == {1}
        assert {seed for kind, seed in seeds if kind == "confident"} == set(range(8 if size >= 6272 else 4))
        for main in ("full", "network", "random"):
            assert {seed for kind, seed in seeds if kind == main} == set(range(10))


def test_sets_differ_in_nothing_but_the_subset():
    for slug in (SMALL, LARGE):
        runs = recipes.configs(slug, "paper")
        full = {run.key for run in runs if run.subset == "full"}
        assert {replace(run, subset="full").key for run in runs} == full


def test_the_rate_is_a_power_of_the_batch_size_through_two_that_were_tuned():
    assert rate("paper", 256) == 0.003
    assert rate("paper", 6272) == 0.05
    middle = rate("paper", round(math.sqrt(256 * 6272)))
    assert middle == pytest.approx(math.sqrt(0.003 * 0.05), rel=0.01)


def test_equal_updates_take_the_nearest_whole_number_of_epochs():
    # 50,000 examples in batches of 256 are 196 updates an epoch; 47,438 are 186.
    assert equal_updates(50, 256, 47_438, 50_000) == round(50 * 196 / 186) == 53
    assert equal_updates(50, 10_480, 47_438, 50_000) == 50  # five updates an epoch, either way


def test_with_the_size_of_the_masks_there_are_runs_of_equal_updates():
    plain = {run.key for run in recipes.configs(LARGE, "paper")}
    more = [r for r in recipes.configs(LARGE, "paper", kept=(47_438, 50_000)) if r.key not in plain]
    assert more
    assert all(run.subset != "full" and run.epochs > 50 for run in more)
    stretched = next(run for run in more if run.batch_size == 256)
    assert (stretched.epochs, stretched.decay) == (53, "step:31.8,47.7")  # 30 and 45 of 50


def test_the_masks_of_runs_come_after_the_one_that_they_follow_from():
    runs = recipes.configs(SMALL, "demo")
    needed = recipes.masks_of(runs, "demo")
    assert needed[0].subset.startswith("network-")
    assert {mask.subset for mask in needed} == {run.subset for run in runs} - {"full"}
    assert all(needed[0].key in (mask.size_of, mask.within) for mask in needed[1:])


@pytest.mark.parametrize("scale", ["demo", "paper"])
def test_the_recursive_set_is_a_second_round_of_the_same_filter_by_the_same_network_on_what_the_first_kept(scale):
    known = recipes.masks(scale)
    first, second = known["network"], known["recursive"]
    assert replace(second, trained_by=first.trained_by, within="") == first
    assert second.within == first.key
    networks = recipes.networks(scale)
    assert networks[second.trained_by] == replace(networks[first.trained_by], subset=first.subset)
    assert second in recipes.configs("noise", scale)


def test_an_unknown_set_is_refused():
    with pytest.raises(ValueError, match="set 'filtered' is not known; accepted: network, recursive, random"):
        recipes.configs(SMALL, "paper", sets=["filtered"])
    with pytest.raises(ValueError, match="set 'recursive' is not known; accepted: network, random, full"):
        recipes.configs("default-radius", "paper", sets=["recursive"])


def test_a_set_of_ones_own_is_run_beside_the_others_and_like_the_network_filtered_one():
    own = {"mine-0a1b2c3d": np.arange(1437) >= 137}  # keeps 1,300
    for slug in (SMALL, LARGE):
        with_own = recipes.configs(slug, "demo", own=own, kept=(1300, 1437))
        without = recipes.configs(slug, "demo", kept=(1300, 1437))
        more = {run.key for run in with_own} - {run.key for run in without}
        mine = [run for run in with_own if run.key in more]
        assert {run.subset for run in mine} == set(own)
        network = recipes.masks("demo")["network"].subset
        assert {replace(run, subset=network).key for run in mine} == {r.key for r in without if r.subset == network}


def test_a_set_of_ones_own_has_equal_updates_by_its_own_size():
    own = {"mine-0a1b2c3d": np.arange(1437) >= 700}
    runs = recipes.configs(LARGE, "demo", sets=["mine"], batch_sizes=[256], seeds=[0], epochs=6, own=own)
    assert {run.epochs for run in runs} == {6, equal_updates(6, 256, 737, 1437)} == {6, 12}


def test_a_set_of_ones_own_cannot_take_the_name_of_the_studys():
    with pytest.raises(ValueError, match="the study has a set 'network' already"):
        recipes.configs(SMALL, "demo", own={"network-0a1b2c3d": np.ones(1437, dtype=bool)})


def test_what_is_published_has_no_set_of_ones_own():
    assert recipes.of_the_study("full")
    assert all(
        recipes.of_the_study(mask.subset) for slug in ("features", "noise") for mask in recipes.configs(slug, "paper")
    )
    assert not recipes.of_the_study("mine-0a1b2c3d")
    with pytest.raises(ValueError, match="scale 'published' trains nothing; accepted: demo, paper"):
        recipes.data_of("published")


# How the recipes were tuned


def test_the_rate_of_extractors_is_among_those_tried_at_their_batch():
    for scale in ("demo", "paper"):
        cells = {(run.batch_size, run.lr) for run in recipes.configs("extractor-tuning", scale)}
        assert (STUDIES[scale].extractor_batch_size, STUDIES[scale].extractor_rate) in cells


def test_the_rates_that_were_taken_are_among_those_tried_and_all_else_is_the_recipes():
    for scale in ("demo", "paper"):
        runs = recipes.configs("tuning", scale)
        assert {run.subset for run in runs} == {"full"}
        for size, lr in recipes.tuned(scale).items():
            assert lr in {run.lr for run in runs if run.batch_size == size}
            assert lr == rate(scale, size)
    study = {run.batch_size: run for run in recipes.configs("filtered-large-batch", "paper", sets=["full"], seeds=[0])}
    ours = next(run for run in recipes.configs("tuning", "paper") if (run.batch_size, run.lr) == (6272, 0.05))
    assert ours.as_dict() | {"experiment": ""} == study[6272].as_dict() | {"experiment": ""}


# Loss landscapes


def test_there_is_a_network_for_every_set_batch_size_and_seed():
    runs = recipes.configs(LANDSCAPE, "paper")
    assert {(run.batch_size, run.bn_workers) for run in runs} == {(256, 1), (6272, 8)}
    seeds = {run.seed for run in runs}
    assert len(seeds) >= 3
    cells = {(kind(run), run.batch_size, run.seed) for run in runs}
    assert cells == {(s, b, k) for s in ("full", "network", "random") for b in (256, 6272) for k in seeds}


@pytest.mark.parametrize("scale", ["demo", "paper"])
def test_training_is_that_of_the_experiments_on_filtering(scale):
    for run in recipes.configs(LANDSCAPE, scale):
        slug = "filtered-large-batch" if run.bn_workers > 1 else "filtered-small-batch"
        asked = {"batch_sizes": [run.batch_size], "seeds": [run.seed], "sets": [kind(run)]}
        theirs = recipes.configs(slug, scale, **asked)
        trained = replace(RunConfig.from_dict(run.as_dict()), experiment=slug)
        assert trained.key in {one.key for one in theirs}


@pytest.mark.parametrize("scale", ["demo", "paper"])
def test_networks_of_one_seed_are_judged_over_the_same_sets(scale):
    runs = recipes.configs(LANDSCAPE, scale)
    for seed in {run.seed for run in runs}:
        (judged,) = {run.judged for run in runs if run.seed == seed}
        masks = recipes.masks(scale, seed)
        assert judged == ("full", masks["network"].subset, masks["random"].subset)


def test_the_masks_that_networks_are_judged_over_are_made_for_full_data_too():
    runs = recipes.configs(LANDSCAPE, "demo", sets=["full"], seeds=[1])
    assert {run.subset for run in runs} == {"full"}
    assert {mask.subset for mask in recipes.masks_of(runs, "demo")} == set(runs[0].judged) - {"full"}


def test_a_narrower_grid_is_part_of_the_whole():
    every = {run.key for run in recipes.configs(LANDSCAPE, "paper")}
    assert {run.key for run in recipes.configs(LANDSCAPE, "paper", sets=["full"], batch_sizes=[256], seeds=[0])} < every
