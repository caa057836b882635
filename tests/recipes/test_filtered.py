"""What is run to study filtering: maps, masks that carry their key in their name, and the same recipe for all sets."""

from dataclasses import replace

import numpy as np
import pytest

from dolb import claims, recipes
from dolb.recipes.filtered import equal_updates
from dolb.training.config import RunConfig

SMALL, LARGE, LANDSCAPE = "filtered-small-batch", "filtered-large-batch", "loss-landscape"


def kind(run):
    return run.subset.split("-")[0]


def test_on_every_map_of_the_grid_there_are_two_masks_by_the_default_radius_and_by_the_papers_share():
    masks = recipes.configs("noise", "paper")
    shares = {m.share for m in masks if m.filter == "share"}
    assert shares == {claims.load()["G6"].reported["removed_percent"]["resnet101"] / 100}
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


@pytest.mark.parametrize("sets", [None, ["random"]])
@pytest.mark.parametrize("slug", ["default-radius", "default-of-2020"])
def test_what_the_default_radius_keeps_is_run_with_large_batches_beside_random_sets_of_that_size(slug, sets):
    runs = recipes.configs(slug, "paper", sets=sets)
    first, *others = [mask for mask in recipes.masks_of(runs, "paper") if mask != recipes.masks("paper")["network"]]
    assert (first.filter, first.eps) == ("dbscan", 0.5)
    assert {mask.filter for mask in others} == {"random"}
    assert {mask.size_of for mask in others} == {first.key}
    assert {run.subset for run in runs} == {mask.subset for mask in [first, *others] if not sets or mask != first}
    full = {replace(run, subset="full").key for run in recipes.configs(LARGE, "paper", sets=["full"])}
    assert {replace(run, experiment=LARGE, subset="full").key for run in runs} < full


def test_masks_of_further_trainings_have_the_papers_share_and_are_run_like_the_first():
    runs, known = recipes.configs("other-masks", "paper"), recipes.networks("paper")
    first, *others = recipes.masks_of(runs, "paper")
    assert first == recipes.masks("paper")["network"]
    assert [known[mask.trained_by].seed for mask in others] == list(range(1, 10))
    assert {replace(mask, seed=0, trained_by=first.trained_by, experiment="noise") for mask in others} == {first}
    assert {(run.batch_size, run.subset) for run in runs} == {
        (size, mask.subset) for size in (256, 1024, 6272, 10368) for mask in others
    }
    like = {run.key for run in recipes.configs(LARGE, "paper", sets=["network"])}
    assert {replace(run, experiment=LARGE, subset=first.subset).key for run in runs} < like


def test_every_share_is_removed_in_every_way_at_equal_epochs_and_updates_and_no_run_is_made_twice():
    runs = recipes.configs("removal-share", "paper")
    needed = recipes.masks_of(runs, "paper")
    at = {mask.key: place for place, mask in enumerate(needed)}
    assert all(at[mask.size_of] < at[mask.key] for mask in needed if mask.size_of)
    shares = {mask.key: mask.share for mask in needed if mask.filter == "share"}
    assert sorted(shares.values()) == [0.02, 0.0512, 0.1, 0.2, 0.4, 0.6]
    removed = {mask.subset: mask.share or shares[mask.size_of] for mask in needed}
    ways = {share: {kind(run) for run in runs if removed[run.subset] == share} for share in shares.values()}
    every = {"network", "random", "neighbours", "el2n", "forgetting", "confident"}
    assert ways.pop(0.0512) == every - {"network", "random", "confident"}  # which the experiment on large batches has
    assert all(names == every for names in ways.values())
    epochs = {run.epochs for run in runs if removed[run.subset] == 0.6 and run.batch_size == 6272}
    assert epochs == {50, 100}  # four updates an epoch instead of eight
    masks = recipes.configs("masks", "paper")
    assert {mask.key for mask in masks} >= {mask.key for mask in needed if mask.experiment == "masks" != mask.filter}


def test_about_the_border_epochs_have_all_their_data_or_end_with_the_last_full_batch():
    runs = recipes.configs("crossover", "paper", kept=(47_440, 50_000))
    assert len({run.batch_size for run in runs}) == 12
    whole, dropped = ([run for run in runs if run.drop_last == kind] for kind in (False, True))
    assert {replace(run, drop_last=False).key for run in dropped} == {run.key for run in whole if run.epochs == 50}
    assert {run.batch_size for run in whole if run.epochs > 50} == {5500, 6000, 7000, 8000, 12000}  # one update fewer


def test_every_map_and_mask_names_a_network_that_is_trained():
    for slug in ("features", "noise", "masks"):
        for scale in ("demo", "paper"):
            wanted = {m.trained_by for m in recipes.configs(slug, scale) if m.weights == "trained"}
            assert wanted <= set(recipes.networks(scale))


def test_each_seed_has_a_random_set_of_its_own_and_shares_all_others():
    zero, one = recipes.masks("paper", 0), recipes.masks("paper", 1)
    assert {name for name in zero if zero[name] != one[name]} == {"random"}


def test_sets_differ_in_nothing_but_the_subset():
    for slug in (SMALL, LARGE):
        runs = recipes.configs(slug, "paper")
        full = {run.key for run in runs if run.subset == "full"}
        assert {replace(run, subset="full").key for run in runs} == full


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


def test_what_is_published_has_no_set_of_ones_own():
    assert recipes.of_the_study("full")
    assert all(
        recipes.of_the_study(mask.subset) for slug in ("features", "noise") for mask in recipes.configs(slug, "paper")
    )
    assert not recipes.of_the_study("mine-0a1b2c3d")
    with pytest.raises(ValueError, match="scale 'published' trains nothing; accepted: demo, paper"):
        recipes.data_of("published")


# Loss landscapes


@pytest.mark.parametrize("scale", ["demo", "paper"])
def test_training_is_that_of_the_experiments_on_filtering(scale):
    for run in recipes.configs(LANDSCAPE, scale):
        slug = "filtered-large-batch" if run.bn_workers > 1 else "filtered-small-batch"
        asked = {"batch_sizes": [run.batch_size], "seeds": [run.seed], "sets": [kind(run)]}
        theirs = recipes.configs(slug, scale, **asked)
        trained = replace(RunConfig.from_dict(run.as_dict()), experiment=slug)
        assert trained.key in {one.key for one in theirs}


def test_the_masks_that_networks_are_judged_over_are_made_for_full_data_too():
    runs = recipes.configs(LANDSCAPE, "demo", sets=["full"], seeds=[1])
    assert {run.subset for run in runs} == {"full"}
    assert {mask.subset for mask in recipes.masks_of(runs, "demo")} == set(runs[0].judged) - {"full"}
