"""Verdicts on the batch-size study follow from runs: made curves get the verdict that their shape deserves."""

from itertools import chain

import numpy as np
import pytest
from made_runs import joined, made_curve, made_run, made_study

from dolb import claims, recipes

PEAK = {16: 0.60, 64: 0.70, 256: 0.80, 1024: 0.75, 8192: 0.60, 20480: 0.50}
FALL = {16: 0.80, 64: 0.75, 256: 0.70, 1024: 0.65, 8192: 0.50, 20480: 0.40}
SHALLOW, DEEP = ("resnet18", "resnet34"), ("resnet50", "resnet101", "resnet152")
SIZES = [2**k for k in range(7, 15)]


@pytest.fixture(scope="module")
def every_claim(repo_root):
    return claims.load(repo_root / "book" / "claims.yml")[1]


def verdict(every_claim, name, *curves):
    return claims.judge(every_claim, {"batch-size": joined(chain(*curves))})[name]


# -- G1: an optimum ----------------------------------------------------------------------------------------------------


def test_g1_is_replicated_where_every_curve_has_an_optimum_inside(every_claim):
    found = verdict(every_claim, "G1", made_curve(PEAK, lr=0.1), made_curve(PEAK, lr=0.01))
    assert found.outcome == "replicated"
    assert "256 (256 to 256) at rate 0.1" in found.ours


def test_g1_is_mixed_where_one_curve_only_falls(every_claim):
    found = verdict(every_claim, "G1", made_curve(PEAK, lr=0.1), made_curve(FALL, lr=0.01))
    assert found.outcome == "mixed"
    assert "1 of 2 curves" in found.ours
    assert "no rise before it" in found.ours


def test_g1_is_not_replicated_where_no_curve_rises(every_claim):
    assert verdict(every_claim, "G1", made_curve(FALL, lr=0.1)).outcome == "not replicated"


def test_g1_stays_open_where_the_sizes_do_not_reach_the_papers(every_claim):
    from_64 = {size: value for size, value in FALL.items() if size > 16}
    found = verdict(every_claim, "G1", made_curve(from_64, lr=0.1))
    assert found.outcome == "mixed"
    assert "no rise before it in what was run" in found.ours


def test_a_curve_with_few_batch_sizes_is_not_judged(every_claim):
    few = made_curve({16: 0.5, 256: 0.6}, lr=0.1)
    assert verdict(every_claim, "G1", few).outcome == "not yet measured"
    assert verdict(every_claim, "G1", made_curve(PEAK, lr=0.1), made_curve({16: 0.5}, lr=3.0)).outcome == "replicated"


def dropped(size, accuracy, **changes):
    """A run of that accuracy, the mean of its last five epochs, that was 20 points higher in the epoch before them."""
    return made_run((accuracy + 0.2,) + (accuracy,) * 5, batch_size=size, bn_workers=8 if size >= 256 else 1, **changes)


def test_g1_says_which_curves_rise_from_a_run_that_dropped_late(every_claim):
    rest = {size: value for size, value in PEAK.items() if size > 16}
    found = verdict(every_claim, "G1", made_curve(rest, lr=0.1, epochs=6), [dropped(16, 0.60, lr=0.1)])
    assert "; a run dropped late at batch 16) at rate 0.1" in found.ours
    assert ", 1 of them from or to a batch at which a run dropped late (smallnet-4 at rate 0.1)." in found.ours
    assert "dropped" not in verdict(every_claim, "G1", made_curve(PEAK, lr=0.1)).ours


# -- G2: depths together at low rates ----------------------------------------------------------------------------------


def depths(lr, apart, shift=0, archs=SHALLOW + DEEP):
    """A curve per network with its peak at 1024, ever lower by ``apart`` and, by ``shift``, ever later."""
    for place, arch in enumerate(archs):
        x = np.arange(len(SIZES)) - 3 - shift * place
        yield made_curve(dict(zip(SIZES, 0.8 - apart * place - 0.03 * np.abs(x), strict=True)), lr=lr, arch=arch)


def test_g2_is_replicated_where_depths_peak_together_and_spread_with_the_rate(every_claim):
    found = verdict(every_claim, "G2", *depths(0.01, 0.002), *depths(0.1, 0.05))
    assert found.outcome == "replicated"
    assert "From the lowest to the highest rate that is +19." in found.ours  # 4 steps of 0.048


def test_g2_is_not_replicated_where_depths_peak_apart_and_do_not_spread(every_claim):
    assert verdict(every_claim, "G2", *depths(0.01, 0.05, 1), *depths(0.1, 0.002)).outcome == "not replicated"


def test_g2_is_mixed_where_only_one_half_holds(every_claim):
    assert verdict(every_claim, "G2", *depths(0.01, 0.05), *depths(0.1, 0.002)).outcome == "mixed"


def begun_late(lr, apart, peak):
    """The shallow peak at a size; the deep were run only from 1,024 up, and fall from there."""
    for place, arch in enumerate(SHALLOW + DEEP):
        x = np.abs(np.arange(len(SIZES)) - SIZES.index(peak if arch in SHALLOW else 1024))
        curve = dict(zip(SIZES, 0.8 - apart * place - 0.03 * x, strict=True))
        yield made_curve({size: curve[size] for size in curve if arch in SHALLOW or size >= 1024}, lr=lr, arch=arch)


def test_g2_leaves_open_an_optimum_below_the_smallest_size_that_was_run(every_claim):
    found = verdict(every_claim, "G2", *begun_late(0.01, 0.002, peak=256), *begun_late(0.1, 0.05, peak=256))
    assert found.outcome == "mixed"
    assert "resnet34 256 (256 to 256), resnet50 1,024 (1,024 or less)" in found.ours
    assert "resnet50, resnet101 and resnet152 may lie beyond what was run" in found.ours
    assert "all may have a size in common (256) or none" in found.ours


def test_g2_finds_no_size_in_common_above_one_that_is_open_to_below(every_claim):
    found = verdict(every_claim, "G2", *begun_late(0.01, 0.05, peak=4096), *begun_late(0.1, 0.002, peak=4096))
    assert found.outcome == "not replicated"
    assert "their intervals have no size in common, open ends or not" in found.ours


def test_g2_leaves_it_open_where_every_network_does_best_at_the_smallest_size(every_claim):
    curves = [made_curve(FALL, lr=lr, arch=arch) for lr in (0.01, 0.1) for arch in SHALLOW + DEEP]
    found = verdict(every_claim, "G2", *curves)
    assert "resnet152 16 (16 or less)" in found.ours
    assert "may have a size in common (16 or less) or none" in found.ours


def test_g2_says_where_a_run_dropped_late_beside_the_optimum_that_it_may_have_moved(every_claim):
    low = [[run for run in curve if run["batch_size"].item() != 128] for curve in depths(0.01, 0.002)]
    fell = [dropped(128, 0.6, lr=0.01, arch=arch) for arch in SHALLOW + DEEP]
    found = verdict(every_claim, "G2", *low, fell, *depths(0.1, 0.05))
    assert "resnet152 1,024 (1,024 to 1,024; a run dropped late at batch 128)" in found.ours


def test_g2_is_no_more_than_mixed_while_depths_lack_and_says_which(every_claim):
    archs = ("resnet18", "resnet50", "resnet152")
    found = verdict(every_claim, "G2", *depths(0.01, 0.002, archs=archs), *depths(0.1, 0.05, archs=archs))
    assert found.outcome == "mixed"
    assert "no curves of resnet34 and resnet101 yet" in found.reason


def test_g2_is_not_yet_measured_with_one_network(every_claim):
    found = verdict(every_claim, "G2", made_curve(PEAK, lr=0.1, arch="resnet18"))
    assert found.outcome == "not yet measured"
    assert "resnet34, resnet50, resnet101 and resnet152" in found.reason


# -- G3: gradually or suddenly -----------------------------------------------------------------------------------------

CLIFF = dict(zip(SIZES, [0.8, 0.79, 0.78, 0.77, 0.2, 0.2, 0.2, 0.2], strict=True))
SLOPE = dict(zip(SIZES, np.linspace(0.8, 0.4, len(SIZES)), strict=True))


def falling(shallow, deep):
    return [
        made_curve(shape, lr=0.1, arch=arch) for archs, shape in ((SHALLOW, shallow), (DEEP, deep)) for arch in archs
    ]


def test_g3_is_replicated_where_deep_networks_fall_off_a_cliff_and_shallow_ones_slope(every_claim):
    found = verdict(every_claim, "G3", *falling(SLOPE, CLIFF))
    assert found.outcome == "replicated"
    assert "resnet152 0.9" in found.ours


def test_g3_is_not_replicated_the_other_way_round(every_claim):
    assert verdict(every_claim, "G3", *falling(CLIFF, SLOPE)).outcome == "not replicated"


def test_g3_is_mixed_where_both_fall_alike(every_claim):
    assert verdict(every_claim, "G3", *falling(SLOPE, SLOPE)).outcome == "mixed"


def test_g3_counts_only_rates_that_all_networks_have(every_claim):
    # At 0.3 two networks say the opposite of what all five say at 0.1.
    apart = [made_curve(CLIFF, lr=0.3, arch="resnet18"), made_curve(SLOPE, lr=0.3, arch="resnet50")]
    found, alone = (verdict(every_claim, "G3", *falling(SLOPE, CLIFF), *more) for more in (apart, []))
    assert alone.outcome == "replicated"
    assert "mean over the 1 rate that all have" in found.ours
    same = [one.ours.split("the difference is ")[1].split(")")[0] for one in (found, alone)]
    assert same[0] == same[1]
    assert found.outcome == "mixed"  # what the two say beside it is told, and is enough for doubt
    assert "Over every rate that a shallow and a deep network have it is " in found.ours


def test_g3_is_mixed_where_one_curve_decides_it_and_says_which(every_claim):
    curves = falling(SLOPE, SLOPE)
    one_cliff = [*curves[:-1], made_curve(CLIFF, lr=0.1, arch="resnet152")]
    found = verdict(every_claim, "G3", *one_cliff)
    assert found.outcome == "mixed"
    assert "By all curves that is replicated, but a single curve decides it" in found.ours
    assert "it is otherwise without resnet152 at rate 0.1 (mixed: " in found.ours
    assert "without resnet50" not in found.ours


def test_g3_says_so_where_no_single_curve_decides_it(every_claim):
    assert "the outcome stays whichever is left out" in verdict(every_claim, "G3", *falling(SLOPE, CLIFF)).ours


def test_g3_needs_both_kinds_at_one_rate_and_all_depths(every_claim):
    shallow, deep = made_curve(SLOPE, lr=0.1, arch="resnet18"), made_curve(CLIFF, lr=0.1, arch="resnet50")
    elsewhere = made_curve(CLIFF, lr=0.01, arch="resnet50")
    assert verdict(every_claim, "G3", shallow).outcome == "not yet measured"
    assert verdict(every_claim, "G3", shallow, elsewhere).outcome == "not yet measured"
    found = verdict(every_claim, "G3", shallow, deep)
    assert found.outcome == "mixed"
    assert "resnet34, resnet101 and resnet152" in found.reason


def test_g3_counts_no_curve_that_ends_before_the_largest_batch_and_says_so(every_claim):
    begun = made_curve(dict(list(CLIFF.items())[:6]), lr=0.1, arch="resnet34")
    whole = [made_curve(SLOPE, lr=0.1, arch="resnet18"), *falling({16: 0.5}, CLIFF)[2:]]
    found = verdict(every_claim, "G3", *whole, begun)
    assert found.outcome == "mixed"
    assert "resnet34" not in found.ours
    assert "Those of resnet34 do not suffice to be compared." in found.reason


def test_g3_says_where_a_curve_is_steepest_and_what_the_statistics_do_at_the_seam(every_claim):
    early = dict(zip(SIZES, [0.8, 0.5, 0.49, 0.48, 0.47, 0.46, 0.45, 0.44], strict=True))
    found = verdict(every_claim, "G3", *falling(SLOPE, early))
    assert " 3 of the 5 curves (resnet101 at rate 0.1, resnet152 at rate 0.1 and resnet50 at rate 0.1)" in found.ours
    assert (
        "fall most on the way to batch 256, where one worker's batch norm becomes that of eight; what of this"
        in found.ours
    )
    one_worker = [made_run((0.78,) * 5, batch_size=256, lr=0.1, arch="resnet50", bn_workers=1)]
    found = verdict(every_claim, "G3", *falling(SLOPE, early), one_worker)
    assert "changes the accuracy of resnet50 at batch 256 and rate 0.1 by -28.0 points" in found.ours
    assert found.ours.endswith("; with resnet101 and resnet152 it was not measured.")
    assert "dropped" not in found.ours
    # The run of eight workers falls instead of the statistics.
    early_but_256 = [run for run in falling(SLOPE, early)[2] if run["batch_size"].item() != 256]
    fell = [dropped(256, 0.5, lr=0.1, arch="resnet50")]
    curves = [*falling(SLOPE, early)[:2], early_but_256, *falling(SLOPE, early)[3:]]
    found = verdict(every_claim, "G3", *curves, fell, one_worker)
    assert "resnet50 at rate 0.1, with a run there that dropped late" in found.ours
    assert "(1 of 2 runs dropped late)" in found.ours
    others = [made_run((0.78,) * 5, batch_size=256, lr=0.1, arch=arch, bn_workers=1) for arch in DEEP[1:]]
    assert "not measured" not in verdict(every_claim, "G3", *falling(SLOPE, early), one_worker, others).ours


def test_g3_passes_over_draws_in_which_a_curve_has_no_fall_to_measure(every_claim, recwarn):
    # In about half of the draws the best size is the second to last, which leaves one doubling.
    plateau = dict(zip(SIZES, [0.8, 0.79, 0.79, 0.79, 0.79, 0.79, 0.8, 0.5], strict=True))
    found = verdict(every_claim, "G3", made_curve(SLOPE, lr=0.1, arch="resnet18"), *falling({16: 0.5}, plateau)[2:])
    share = 0.29 / 0.30  # of the loss, in the last of seven doublings
    assert f"resnet50 {(share - 1 / 7) / (1 - 1 / 7):.2f}" in found.ours
    assert not [warning for warning in recwarn if warning.category is RuntimeWarning]


# -- G4: noisy statistics ----------------------------------------------------------------------------------------------


def shares(**accuracy_by_workers):
    return [
        made_run((value,) * 5, batch_size=256, lr=0.1, bn_workers=int(workers[1:]))
        for workers, value in accuracy_by_workers.items()
    ]


def test_g4_is_no_more_than_mixed_before_the_shares_are_measured(every_claim):
    found = verdict(every_claim, "G4", made_curve(PEAK, lr=0.1), made_curve(FALL, lr=0.01))
    assert found.outcome == "mixed"
    assert "not published yet" in found.reason


def test_g4_is_replicated_where_the_statistics_alone_lose_what_the_small_batch_loses(every_claim):
    # Batch 16 of PEAK has 0.60; statistics over 16 of 256 examples are those of 16 workers.
    found = verdict(every_claim, "G4", made_curve(PEAK, lr=0.1), shares(w1=0.80, w16=0.61))
    assert found.outcome == "replicated"
    assert "over 16 examples alone, the gradient's batch held, change it by -19.0 points" in found.ours


def test_g4_is_not_replicated_where_the_gradient_loses_it(every_claim):
    found = verdict(every_claim, "G4", made_curve(PEAK, lr=0.1), shares(w1=0.80, w16=0.80))
    assert found.outcome == "not replicated"
    assert "the statistics of training held, by -20.0 points" in found.ours


def test_g4_is_mixed_where_statistics_over_fewer_examples_than_the_batch_lose(every_claim):
    few = [made_run((0.5,) * 5, batch_size=256, lr=0.1, bn_workers=64, seed=seed) for seed in (0, 1)]
    found = verdict(every_claim, "G4", made_curve(PEAK, lr=0.1), shares(w1=0.80, w16=0.80), few)
    assert found.outcome == "mixed"
    assert "the smallest share at which no loss is told has 16 examples; 4 examples: -30.0 points" in found.ours


def test_g4_is_mixed_where_both_lose(every_claim):
    assert verdict(every_claim, "G4", made_curve(PEAK, lr=0.1), shares(w1=0.80, w16=0.75)).outcome == "mixed"


def test_g4_says_what_eight_workers_statistics_change(every_claim):
    one_worker = [made_run((0.77,) * 5, batch_size=1024, lr=0.1, bn_workers=1)]
    found = verdict(every_claim, "G4", made_curve(PEAK, lr=0.1), one_worker)
    assert "change the accuracy of smallnet-4 by -2.0 (batch 1,024)" in found.ours


@pytest.mark.parametrize("name", ["G1", "G2", "G3"])
def test_a_verdict_says_which_networks_have_one_seed(every_claim, name):
    again = made_curve(SLOPE, lr=0.1, arch="resnet18", seed=1)
    low = [made_curve(SLOPE, lr=0.01, arch=arch) for arch in SHALLOW + DEEP]
    found = verdict(every_claim, name, *falling(SLOPE, CLIFF), *low, again)
    assert "one seed: all cells of resnet34, resnet50, resnet101 and resnet152 and 8 of 16 of resnet18." in found.reason


# -- all of it ---------------------------------------------------------------------------------------------------------


def test_a_study_of_the_full_shape_is_judged_whole(every_claim):
    """Five depths, twelve sizes, four rates, two seeds in places, the deepest from 128 up: as the recipe has them."""

    def accuracy(config):
        past = np.log2(config.batch_size) - np.log2(config.lr / 0.003) - 6
        lost = 0.03 * past if config.arch in SHALLOW or past < 2 else 0.5
        return float(0.8 - (0.02 * -past if past < 0 else lost)) + 0.003 * config.seed

    runs = recipes.configs("batch-size", "paper", epochs=5)
    judged = claims.judge(every_claim, {"batch-size": made_study(accuracy, runs)})
    assert judged["G3"].outcome == "replicated"
    assert all(judged[name].outcome != "not yet measured" for name in ("G1", "G2", "G4"))
    assert not any("no curves of" in judged[name].reason for name in ("G2", "G3"))
