"""What of the study was run is said: which cells have one seed, and which have none."""

from itertools import chain

import xarray as xr
from made_runs import made_curve, made_run, made_study

from dolb import findings as summary
from dolb import recipes, results
from dolb.findings import coverage

SIZES = {64: 0.7, 256: 0.8, 1024: 0.7}


def said(*curves):
    return coverage.one_seed_in_words(summary.final_accuracy(results.merge(chain(*curves))))


def test_networks_of_one_seed_are_named_and_their_intervals_said_to_hold_no_other():
    found = said(*(made_curve(SIZES, arch=arch) for arch in ("resnet152", "resnet34")))
    assert found.startswith("Intervals hold the test set's noise and not that between seeds")
    assert found.endswith("one seed: all cells of resnet34 and resnet152.")


def test_cells_of_one_seed_are_counted_where_a_network_has_others_too():
    more = made_curve({256: 0.8, 1024: 0.7}, arch="resnet18", seed=1)
    found = said(made_curve(SIZES, arch="resnet18"), more, made_curve(SIZES, arch="resnet50"))
    assert found.endswith("one seed: all cells of resnet50 and 1 of 3 of resnet18.")


def test_whose_spread_stands_in_for_that_of_another_seed_is_said():
    more = made_curve({256: 0.82, 1024: 0.74}, arch="resnet18", seed=1)
    found = said(made_curve(SIZES, arch="resnet18"), more, made_curve(SIZES, arch="resnet50"))
    pooled = 100 * ((0.02**2 + 0.04**2) / 2 / 2) ** 0.5  # two cells, a degree of freedom each, all that there are
    assert "from the nearest cells that have several, in rate and batch size, of resnet18" in found
    assert f"from {pooled:.1f} points at batch 64" in found


def test_cells_in_which_a_run_dropped_late_are_not_named_among_those_that_lend():
    runs = [made_curve(SIZES, arch=arch) for arch in ("resnet18", "resnet50")]
    runs += [made_curve({64: 0.71, 256: 0.82}, arch="resnet18", seed=1)]
    fell = [made_run((0.7, 0.7, 0.7, 0.2, 0.2), arch="resnet50", batch_size=64, seed=1)]
    assert "of resnet18, without those in which a run dropped late, or from" in said(*runs, fell)


def test_networks_that_could_lend_and_are_not_asked_are_not_named():
    far = [made_curve({1024: value}, arch="resnet152", lr=0.3, seed=seed) for seed, value in enumerate((0.5, 0.6))]
    near = [made_run((0.8 + 0.01 * seed,) * 5, arch="resnet18", batch_size=64, seed=seed) for seed in range(6)]
    assert "of resnet18, or from" in said(made_curve(SIZES, arch="resnet50"), near, *far)


def test_who_dropped_late_is_told_by_network_and_whether_other_seeds_did():
    fell = [made_run((0.7, 0.7, 0.7, 0.2, 0.2), arch="resnet50", batch_size=64, seed=seed) for seed in (0, 1)]
    fell += [made_run((0.7, 0.7, 0.7, 0.2, 0.2), arch="resnet152", batch_size=128)]
    found = coverage.dropped_in_words(results.merge([*fell, *made_curve(SIZES, arch="resnet18")]))
    assert found.startswith("Late drops are 0 of 3 of resnet18, 2 of 2 of resnet50 and 1 of 1 of resnet152.")
    assert "Of 2 cells with such a run 1 have other seeds, and in 1 of them another dropped too" in found
    assert coverage.dropped_in_words(results.merge(made_curve(SIZES))) == ""


def test_nothing_is_said_of_seeds_where_every_cell_has_several():
    assert said(made_curve(SIZES, seed=0), made_curve(SIZES, seed=1)) == ""


GRID = recipes.configs("batch-size", "demo", archs=["smallnet-4"], lrs=[0.1, 0.5], seeds=[0, 1], epochs=5)


def lacking(without):
    return coverage.lacking_in_words(GRID, made_study(lambda _: 0.5, [run for run in GRID if not without(run)]))


def test_a_grid_whose_runs_are_all_there_lacks_nothing():
    assert lacking(lambda run: False) == f"All {len(GRID)} runs of the grid are here."


def test_a_cell_without_any_run_is_named():
    found = lacking(lambda run: run.lr == 0.5 and run.batch_size in (16, 64))
    assert f"Of the grid's {len(GRID)} runs 4 are not here yet." in found
    assert found.endswith("Without any run: smallnet-4 with batch 16 and 64 at rate 0.5, one worker.")


def test_a_further_seed_of_a_cell_that_has_a_run_is_no_cell_that_lacks():
    found = lacking(lambda run: run.seed == 1 and run.lr == 0.5 and run.bn_workers == 1)
    assert "Without any run" not in found
    assert found.endswith("Further seeds of cells that have a run: 2 of smallnet-4.")


def test_a_cell_is_told_from_one_with_other_statistics():
    """At rate 0.1 batch 256 is run with eight workers' statistics, with one worker's, and in other shares."""
    found = lacking(lambda run: (run.batch_size, run.lr, run.bn_workers) == (256, 0.1, 8))
    assert found.endswith("Without any run: smallnet-4 with batch 256 at rate 0.1, 8 workers.")


def test_runs_that_no_recipe_lists_are_passed_over():
    more = recipes.configs("batch-size", "demo", archs=["smallnet-4"], seeds=[7], epochs=5)
    assert coverage.lacking_in_words(GRID, made_study(lambda _: 0.5, [*GRID, *more])).startswith("All ")


def test_of_a_grid_over_sets_batch_sizes_and_sets_that_lack_are_named():
    grid = recipes.configs("filtered-small-batch", "demo")
    size = max(run.batch_size for run in grid)

    def found(without):
        there = xr.Dataset({"key": ("run", [run.key for run in grid if not without(run)])})
        return coverage.sets_lacking_in_words(grid, there)

    assert found(lambda run: False) == f"All {len(grid)} runs of the grid are here."
    assert found(lambda run: run.batch_size == size).endswith(f"with batch {size} (all of them).")
    other = found(lambda run: run.batch_size == size and run.subset.startswith("confident"))
    assert other.endswith(f"with batch {size} (on confident data).")
