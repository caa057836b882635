"""What is run to study loss landscapes: the runs of the experiments on filtering, each judged over the same sets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dolb import recipes
from dolb.training.config import RunConfig

SLUG = "loss-landscape"


def kind(run):
    return run.subset.split("-")[0]


def test_there_is_a_network_for_every_set_batch_size_and_seed():
    runs = recipes.configs(SLUG, "paper")
    assert {run.batch_size for run in runs} == {256, 6272}
    seeds = {run.seed for run in runs}
    assert len(seeds) >= 3
    cells = {(kind(run), run.batch_size, run.seed) for run in runs}
    assert cells == {(s, b, k) for s in ("full", "network", "random") for b in (256, 6272) for k in seeds}


@pytest.mark.parametrize("scale", ["demo", "paper"])
def test_training_is_that_of_the_experiments_on_filtering(scale):
    for run in recipes.configs(SLUG, scale):
        slug = "filtered-large-batch" if run.bn_workers > 1 else "filtered-small-batch"
        asked = {"batch_sizes": [run.batch_size], "seeds": [run.seed], "sets": [kind(run)]}
        theirs = recipes.configs(slug, scale, **asked)
        trained = replace(RunConfig.from_dict(run.as_dict()), experiment=slug)
        assert trained.key in {one.key for one in theirs}


def test_large_batches_are_the_work_of_eight_workers_and_small_ones_of_one():
    assert {(run.batch_size, run.bn_workers) for run in recipes.configs(SLUG, "paper")} == {(256, 1), (6272, 8)}


@pytest.mark.parametrize("scale", ["demo", "paper"])
def test_networks_of_one_seed_are_judged_over_the_same_sets(scale):
    runs = recipes.configs(SLUG, scale)
    for seed in {run.seed for run in runs}:
        (judged,) = {run.judged for run in runs if run.seed == seed}
        masks = recipes.masks(scale, seed)
        assert judged == ("full", masks["network"].subset, masks["random"].subset)


def test_the_masks_that_networks_are_judged_over_are_made_for_full_data_too():
    runs = recipes.configs(SLUG, "demo", sets=["full"], seeds=[1])
    assert {run.subset for run in runs} == {"full"}
    assert {mask.subset for mask in recipes.masks_of(runs, "demo")} == set(runs[0].judged) - {"full"}


def test_a_narrower_grid_is_part_of_the_whole():
    every = {run.key for run in recipes.configs(SLUG, "paper")}
    assert {run.key for run in recipes.configs(SLUG, "paper", sets=["full"], batch_sizes=[256], seeds=[0])} < every
