"""The numbers of the batch-size study: optima, how suddenly curves fall, how far they lie apart, batch norm's part."""

from itertools import chain

import numpy as np
import pytest
from made_runs import joined, made_curve, made_run

from dolb import findings as summary
from dolb import results
from dolb.findings import batch_size as study

SIZES = [2**k for k in range(7, 15)]  # 128 to 16384: seven doublings


def runs(*curves):
    return summary.final_accuracy(joined(chain(*curves)))


def preferred(accuracies, **changes):
    return study.preferred(runs(made_curve(accuracies, **changes))).iloc[0]


# -- optima ------------------------------------------------------------------------------------------------------------


def test_the_preferred_batch_size_comes_with_the_sizes_that_may_equal_it():
    row = preferred({32: 0.70, 64: 0.80, 128: 0.803, 256: 0.75})
    assert (row["batch_size"], row["smallest"], row["largest"]) == (128, 64, 128)
    assert row["rises"]
    assert row["falls"]


@pytest.mark.parametrize(
    ("accuracies", "words"),
    [
        ({16: 0.5, 64: 0.7, 256: 0.8, 1024: 0.7, 4096: 0.5}, "256 to 256"),
        ({16: 0.8, 64: 0.7, 256: 0.6, 1024: 0.5, 4096: 0.4}, "16 or less"),
        ({16: 0.4, 64: 0.5, 256: 0.6, 1024: 0.7, 4096: 0.8}, "4,096 or more"),
        ({16: 0.8, 64: 0.8, 256: 0.7, 1024: 0.7, 4096: 0.6}, "64 or less"),
        ({16: 0.8, 64: 0.7, 256: 0.6, 1024: 0.7, 4096: 0.8}, "any size"),
    ],
)
def test_the_interval_of_the_preferred_batch_size_is_open_where_it_reaches_an_end_of_what_was_run(accuracies, words):
    assert study.interval_in_words(preferred(accuracies)) == words


def test_seeds_that_disagree_widen_the_interval_of_the_preferred_batch_size():
    one, other = {64: 0.80, 128: 0.84, 256: 0.80}, {64: 0.86, 128: 0.83, 256: 0.76}
    row = study.preferred(runs(made_curve(one, seed=0), made_curve(other, seed=1))).iloc[0]
    assert (row["smallest"], row["largest"]) == (64, 256)
    assert (row["fewest_seeds"], row["most_seeds"]) == (2, 2)
    assert preferred(one)["smallest"] == 128


def test_a_curve_whose_best_is_at_an_end_does_not_rise_there():
    row = preferred({32: 0.8, 64: 0.7, 128: 0.6})
    assert not row["rises"]
    assert row["falls"]


def test_a_rise_within_the_uncertainty_is_no_rise():
    assert not preferred({32: 0.800, 64: 0.801, 128: 0.6})["rises"]


def test_runs_with_other_shares_stay_out_of_the_curve():
    odd = [made_run((0.99,) * 5, batch_size=256, lr=0.1, bn_workers=workers) for workers in (1, 32, 128)]
    cells = study.curve_cells(results.merge([*made_curve({16: 0.6, 256: 0.8}, lr=0.1), *odd]))
    assert cells.loc[cells["batch_size"] == 256, "accuracy"].item() == pytest.approx(0.80)


def test_a_rate_of_few_batch_sizes_is_drawn_and_not_judged():
    full, few = made_curve(dict.fromkeys(SIZES, 0.8), lr=0.1), made_curve(dict.fromkeys(SIZES[:3], 0.4), lr=0.3)
    ds = results.merge([*full, *few])
    assert set(study.curve_cells(ds)["lr"]) == {0.1, 0.3}
    assert set(study.judged_curves(ds)["lr"]) == {0.1}


# -- how suddenly a curve falls ----------------------------------------------------------------------------------------


def slope(sizes=SIZES, lost=0.4):
    return np.linspace(0.8, 0.8 - lost, len(sizes))


@pytest.mark.parametrize("at", range(1, len(SIZES)))
def test_a_cliff_has_suddenness_one_wherever_it_is(at):
    assert study.suddenness(SIZES, np.where(np.arange(len(SIZES)) < at, 0.8, 0.1)) == pytest.approx(1)


@pytest.mark.parametrize("length", range(3, len(SIZES) + 1))
@pytest.mark.parametrize("lost", [0.05, 0.7])
def test_a_straight_slope_has_suddenness_zero_however_long_and_steep(length, lost):
    assert study.suddenness(SIZES[:length], slope(SIZES[:length], lost)) == pytest.approx(0, abs=1e-9)


def test_half_a_cliff_on_a_slope_lies_between():
    curve = slope(lost=0.2) - np.where(np.arange(len(SIZES)) > 3, 0.2, 0)
    share = (0.2 / 7 + 0.2) / 0.4
    assert study.suddenness(SIZES, curve) == pytest.approx((share - 1 / 7) / (1 - 1 / 7))


def test_a_step_of_less_than_a_doubling_is_measured_over_a_whole_one():
    # From 16384 to 20480 is a third of a doubling: the window of one doubling begins before 16384.
    doublings = np.log2(20480 / 128)
    line = 0.8 - 0.4 * np.log2(np.array([*SIZES, 20480]) / 128) / doublings
    assert study.suddenness([*SIZES, 20480], line) == pytest.approx(0, abs=1e-9)


def test_what_comes_before_the_optimum_and_a_turn_at_the_end_do_not_count():
    rising = [0.1, 0.5, 0.7]
    assert study.suddenness([16, 32, 64, *SIZES], [*rising, *slope()]) == pytest.approx(0, abs=1e-9)
    turned = [0.8, 0.8, 0.3, 0.35]
    assert study.suddenness(SIZES[:4], turned) == pytest.approx(1)


def test_no_loss_or_too_short_a_stretch_has_no_suddenness():
    assert np.isnan(study.suddenness(SIZES, [0.8] * len(SIZES)))
    assert np.isnan(study.suddenness(SIZES, np.linspace(0.4, 0.8, len(SIZES))))
    assert np.isnan(study.suddenness([128, 256], [0.8, 0.2]))


def test_falls_tell_a_cliff_from_a_slope_with_intervals():
    cliff = dict(zip(SIZES, [0.8] * 4 + [0.2] * 4, strict=True))
    gradual = dict(zip(SIZES, slope(), strict=True))
    table = runs(made_curve(cliff, arch="resnet50"), made_curve(gradual, arch="resnet18"))
    found = study.falls(table).set_index("arch")
    assert found.loc["resnet50", "low"] > 0.9
    assert found.loc["resnet18", "high"] < 0.2
    assert study.falls(runs(made_curve(dict.fromkeys(SIZES, 0.8)))).empty


# -- how far curves lie apart ------------------------------------------------------------------------------------------


def apart(by_rate, archs=("resnet18", "resnet34", "resnet50"), sizes=SIZES):
    """Curves that are straight lines, so far apart from the first network to the last at each rate."""
    places = np.linspace(0, 1, len(archs))
    return [
        made_curve(dict.fromkeys(sizes, 0.8 - distance * place), lr=lr, arch=arch)
        for lr, distance in by_rate.items()
        for arch, place in zip(archs, places, strict=True)
    ]


def test_the_spread_is_the_range_over_networks_and_its_growth_has_an_interval():
    found = study.spread(runs(*apart({0.01: 0.02, 0.1: 0.2})))
    assert found["spread"].tolist() == pytest.approx([0.02, 0.2], abs=1e-6)
    assert found["growth"].tolist() == pytest.approx([0, 0.18], abs=1e-6)
    assert 0.15 < found["growth_low"].iloc[1] < 0.18 < found["growth_high"].iloc[1] < 0.21


def test_rates_are_compared_over_the_same_networks_and_sizes():
    deep = made_curve(dict.fromkeys(SIZES[2:], 0.3), lr=0.01, arch="resnet152")
    deep_too = made_curve(dict.fromkeys(SIZES[2:], 0.3), lr=0.1, arch="resnet152")
    lowest = apart({0.003: 0.5}, archs=("resnet18", "resnet50"))
    found = study.spread(runs(*apart({0.01: 0.02, 0.1: 0.2}), deep, deep_too, *lowest))
    assert found["lr"].tolist() == [0.01, 0.1]
    assert found["networks"].iloc[0] == ["resnet18", "resnet34", "resnet50", "resnet152"]
    assert found["batch_sizes"].iloc[0] == SIZES[2:]


def test_one_network_or_one_rate_has_no_spread():
    assert study.spread(runs(*apart({0.01: 0.0, 0.1: 0.0}, archs=("resnet18",)))).empty
    assert study.spread(runs(*apart({0.01: 0.1}))).empty


# -- batch norm --------------------------------------------------------------------------------------------------------


def with_workers(accuracies, **changes):
    """Runs by (batch size, workers)."""
    return [
        made_run((value,) * 5, batch_size=size, bn_workers=workers, **changes)
        for (size, workers), value in accuracies.items()
    ]


def test_statistics_and_gradient_are_separated_at_equal_statistics():
    ds = results.merge(with_workers({(256, 1): 0.80, (256, 8): 0.79, (256, 16): 0.77, (16, 1): 0.70, (32, 1): 0.75}))
    found = study.separated(ds).set_index("batch_size")
    assert found.loc[16, ["total", "statistics", "gradient"]].tolist() == pytest.approx([-0.10, -0.03, -0.07], abs=1e-6)
    assert found.loc[32, ["total", "statistics", "gradient"]].tolist() == pytest.approx([-0.05, -0.01, -0.04], abs=1e-6)
    assert found.loc[16, "gradient_low"] < -0.07 < found.loc[16, "gradient_high"] < 0
    assert found.loc[16, "difference_low"] < 0.04 < found.loc[16, "difference_high"]


def test_shares_and_whole_batches_meet_where_the_share_is_the_batch():
    ds = results.merge(with_workers({(256, 1): 0.80, (256, 8): 0.79, (256, 16): 0.77, (16, 1): 0.70}))
    cells = study.share_cells(ds)
    points = {(row.change, row.share): row.accuracy for row in cells.itertuples()}
    assert points == {
        (study.SHARED, 256): pytest.approx(0.80),
        (study.SHARED, 32): pytest.approx(0.79),
        (study.SHARED, 16): pytest.approx(0.77),
        (study.WHOLE, 256): pytest.approx(0.80),
        (study.WHOLE, 16): pytest.approx(0.70),
    }


def test_one_worker_and_eight_are_paired_by_batch_size():
    both = {(512, 1): 0.80, (512, 8): 0.77, (1024, 1): 0.70, (1024, 8): 0.72, (2048, 8): 0.60, (64, 1): 0.5}
    cells = study.worker_cells(results.merge(with_workers(both)))
    assert cells["batch_size"].tolist() == [512, 512, 1024, 1024]
    eight = cells[cells["bn_workers"] == 8]
    assert eight["effect"].tolist() == pytest.approx([-0.03, 0.02], abs=1e-6)
    assert (eight["effect_low"] < eight["effect"]).all()


def test_without_such_runs_the_tables_are_empty():
    ds = results.merge(made_curve(dict.fromkeys(SIZES, 0.8)))
    assert study.share_cells(ds).empty
    assert study.separated(ds).empty
    assert study.worker_cells(ds).empty


def test_a_rest_dealt_to_many_workers_is_told_apart_from_shares_of_whole_batches():
    """Of 50,000 examples a batch of 400 leaves no rest and one of 256 leaves 80, one or two to each of 64 workers."""
    cells = ((400, 1, 0.8), (400, 5, 0.8), (400, 25, 0.7), (256, 1, 0.8), (256, 4, 0.8), (256, 64, 0.3))
    ds = results.merge(
        made_run((accuracy,) * 5, batch_size=size, bn_workers=workers) for size, workers, accuracy in cells
    )
    shared = study.share_cells(ds)
    assert set(shared[shared["change"] == study.SHARED]["batch_size"]) == {400}
    rests = study.dealt_rests(ds)
    assert rests[["bn_workers", "rest", "least"]].to_numpy().tolist() == [[1, 80, 80], [4, 80, 20], [64, 80, 1]]
    assert "(1 worker: 80.0%; 4 workers, 20 each or more: 80.0%; 64 workers, 1 each or more: 30.0%)" in (
        study.dealt_in_words(rests, shared)
    )


def test_shares_of_so_few_examples_that_runs_diverge_are_told_rest_or_not():
    cells = ((400, 1, 0.8), (400, 5, 0.8), (400, 200, 0.1), (256, 1, 0.8), (256, 4, 0.8), (256, 128, 0.1))
    ds = results.merge(
        made_run((accuracy,) * 5, batch_size=size, bn_workers=workers, diverged=accuracy == 0.1)
        for size, workers, accuracy in cells
    )
    told = study.dealt_in_words(study.dealt_rests(ds), study.share_cells(ds))
    assert told.endswith(
        "Diverged have 1 of 1 runs with batch 256, 2 examples to a statistic; "
        "1 of 1 runs with batch 400, 2 examples to a statistic."
    )
    assert "128 workers" not in told


def test_a_batch_that_is_no_multiple_of_a_small_one_is_not_compared_with_it():
    runs = {(400, 1): 0.8, (400, 5): 0.7, (400, 25): 0.6, (16, 1): 0.5, (256, 1): 0.75}
    found = study.separated(results.merge(with_workers(runs)))
    assert found["batch_size"].tolist() == [16]


def test_a_size_beside_the_optimum_at_which_a_run_dropped_late_may_be_the_best():
    whole = {64: 0.5, 128: 0.7, 256: 0.8, 512: 0.7, 1024: 0.6}
    dropped = (*(0.9,) * 8, 0.2, 0.2)
    for size, ends in {128: (128, 256), 64: (256, 256)}.items():  # only one next to the interval is in it
        runs = [
            made_run(dropped if batch == size else (accuracy,) * 10, batch_size=batch, lr=0.1, test_examples=10**8)
            for batch, accuracy in whole.items()
        ]
        row = study.preferred(summary.final_accuracy(joined(runs))).iloc[0]
        assert (row["smallest"], row["largest"]) == ends
        assert not row["open_below"]
