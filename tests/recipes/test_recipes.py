"""What each experiment runs: the study's own grid, a small one on digits, and changes by name."""

import importlib
import math
import pkgutil
from functools import cache

import pytest

from dolb import recipes, results
from dolb.findings.runs import reached
from dolb.recipes.asked import recipe

configs = cache(recipes.configs)
SLUGS = sorted(recipes.RECIPES)
# Of the others some results are of a GPU, of nodes, or of links, which their recipe lists only where it is asked.
GRIDS = [
    "batch-size", "even-batches", "critical-batch", "tuning", "extractor-tuning", "filtered-small-batch",
    "filtered-large-batch", "better-rate", "loss-landscape", "fidelity", "warmup", "warmup-start", "lr-scaling",
    "large-batch-remedies", "step-timeline", "data-pipeline", "strong-weak", "own-data",
]  # fmt: skip
TRAINING = [slug for slug in SLUGS if slug not in ("features", "noise", "masks", "own-data")]


@pytest.mark.parametrize("scale", ["demo", "paper"])
@pytest.mark.parametrize("slug", SLUGS)
def test_no_run_is_listed_twice_and_all_carry_the_slug_of_their_experiment(slug, scale):
    keys = [run.key for run in configs(slug, scale)]
    assert len(set(keys)) == len(keys) > 0
    assert {run.experiment for run in configs(slug, scale)} == {slug}


def test_every_recipe_is_listed_and_says_in_a_line_what_it_is():
    modules = [importlib.import_module(f"dolb.recipes.{one.name}") for one in pkgutil.iter_modules(recipes.__path__)]
    written = {made for module in modules for made in vars(module).values() if hasattr(made, "takes")}
    assert {made.__name__ for made in written - set(recipes.RECIPES.values())} == {"trade_off"}  # a part
    assert all((made.__doc__ or "").splitlines()[:1] for made in recipes.RECIPES.values())


@pytest.mark.parametrize("slug", SLUGS)
def test_a_demo_needs_no_download(slug):
    assert {run.data for run in configs(slug, "demo")} <= set(recipes.DEMO_DATA)


@pytest.mark.parametrize("slug", TRAINING)
def test_the_batches_of_a_demo_fit_the_digits(slug):
    from dolb.data import load

    runs = configs(slug, "demo")
    assert {getattr(run, "precision", "fp32") for run in runs} == {"fp32"}
    assert max(run.batch_size for run in runs) <= len(load("digits").train_labels)


@pytest.mark.parametrize("slug", GRIDS)
def test_every_published_run_is_of_the_grid_and_keeps_its_key(slug):
    found = results.published(slug)
    more = {"kept": (47_441, 50_000)} if recipes.takes(slug, "kept") else {}
    more |= {"tried": reached(found)} if recipes.takes(slug, "tried") else {}
    where = [{"device": device} for device in ("cpu", "cuda")] if recipes.takes(slug, "device") else [{}]
    measured = found["source"].to_numpy() == "measured"
    assert set(map(str, found["key"].to_numpy()[measured])) <= {
        run.key for here in where for run in recipes.configs(slug, "paper", **more, **here)
    }


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


def test_on_gpus_ranks_have_larger_batches_and_are_not_pinned():
    runs = recipes.configs("ddp-vs-horovod", "paper", device="cuda:0", repeats=1)
    assert {run.device_kind for run in runs} == {"cuda"}
    assert {run.library for run in runs} == {"ddp", "horovod"}
    assert not any(run.pinned for run in runs)
    assert max(run.ranks * run.batch_size_per_rank for run in runs if run.scaling == "strong") == 512
    with pytest.raises(ValueError, match="device_kind 'cpu'"):
        recipes.configs("ddp-vs-horovod", "paper", part="links", device="cuda")


def test_every_form_of_storage_is_measured_alike_and_a_seed_is_whole_before_the_next():
    runs = recipes.configs("data-pipeline", "paper")
    cells = {
        form: [
            (run.task, run.data, run.access, run.cache, run.loader_workers, run.seed)
            for run in runs
            if run.storage == form
        ]
        for form in {run.storage for run in runs}
    }
    assert len(cells) == 6
    assert len({tuple(cell) for cell in cells.values()}) == 1
    assert [run.seed for run in runs] == sorted(run.seed for run in runs)
    assert {run.loader_workers for run in runs if run.task == "reading"} == {1, 2, 8}


def test_a_recipe_that_may_be_asked_for_what_nobody_can_ask_is_refused_where_it_is_written():
    with pytest.raises(TypeError, match="momentum takes momentums, which is no field of Asked"):

        @recipe("seeds", "momentums")
        def momentum(scale, ask):
            return []
