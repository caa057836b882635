"""What of the study was run is said: which cells have one seed, and which have none."""

from itertools import chain

from made_runs import made_curve

from dolb import results, summary
from dolb.summary import coverage

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


def test_nothing_is_said_of_seeds_where_every_cell_has_several():
    assert said(made_curve(SIZES, seed=0), made_curve(SIZES, seed=1)) == ""
