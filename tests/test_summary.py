"""From runs to numbers: final accuracies, and intervals by Student and by bootstrap."""

import numpy as np
import pytest
import xarray as xr
from made_landscapes import made_landscape
from made_runs import joined, made_run
from scipy import stats

from dolb import results, summary

CELL = ("arch", "lr", "batch_size")


def seeds(*values, **changes):
    return [made_run((value,) * 5, seed=seed, **changes) for seed, value in enumerate(values)]


def cells(runs, by=CELL):
    return summary.over_seeds(summary.final_accuracy(results.merge(runs)), by)


def bootstrapped(runs, by=CELL):
    return summary.bootstrapped(summary.final_accuracy(results.merge(runs)), by)


def test_the_final_accuracy_is_the_mean_of_the_last_five_epochs():
    frame = summary.final_accuracy(made_run((0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)))
    assert frame["accuracy"].item() == pytest.approx(np.mean([0.3, 0.4, 0.5, 0.6, 0.7]))


def test_a_diverged_run_has_the_accuracy_of_the_epoch_in_which_it_diverged():
    frame = summary.final_accuracy(made_run((0.6, 0.1, np.nan, np.nan), diverged=True))
    assert frame["accuracy"].item() == pytest.approx(0.1)


STEADY = (0.7,) * 20


@pytest.mark.parametrize(
    ("series", "late"),
    [
        (STEADY, False),
        ((*STEADY, 0.54, 0.7, 0.7, 0.7, 0.7, 0.7), True),
        ((*STEADY, 0.56, 0.7, 0.7, 0.7, 0.7, 0.7), False),  # 14 points
        ((*STEADY, 0.1, *STEADY), False),  # long ago
        ((*STEADY, 0.1), True),
        ((*STEADY, *(0.1,) * 20), True),  # it never came back
        ((*(0.1,) * 20, 0.7, 0.7), False),
    ],
    ids=["steady", "dropped", "less", "early", "at the end", "for good", "rose"],
)
def test_a_late_drop_is_an_epoch_of_the_last_ten_far_below_the_best_before_it(series, late):
    assert summary.final_accuracy(made_run(series))["late_drop"].item() is late


def test_late_drops_of_a_cell_are_counted():
    runs = [made_run((0.7, value, 0.7), seed=seed) for seed, value in enumerate((0.7, 0.1, 0.2))]
    assert cells(runs)["late_drops"].item() == 2


def test_updates_count_the_last_partial_batch():
    frame = summary.final_accuracy(made_run((0.5, 0.5), batch_size=20480, bn_workers=8))
    assert frame["updates"].item() == 2 * 3  # 50,000 = 20,480 + 20,480 + 9,040


def test_one_seed_has_the_interval_of_a_share_of_the_test_set():
    row = cells(seeds(0.8)).iloc[0]
    half = 1.959964 * np.sqrt(0.8 * 0.2 / 10_000)
    assert row["high"] - row["accuracy"] == pytest.approx(half, rel=1e-5)
    assert row["interval"] == "of the test set, one seed"


def test_several_seeds_have_students_interval_of_their_mean():
    values = [0.80, 0.82, 0.81]
    row = cells(seeds(*values)).iloc[0]
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (row["low"], row["high"]) == pytest.approx((expected.low, expected.high), rel=1e-5)
    assert row["n"] == 3


def test_the_bootstrap_of_one_seed_is_the_interval_of_the_test_set():
    drawn, expected = bootstrapped(seeds(0.8))[0].iloc[0], cells(seeds(0.8)).iloc[0]
    assert (drawn["low"], drawn["high"]) == pytest.approx((expected["low"], expected["high"]), abs=1e-3)


def test_the_bootstrap_has_the_variance_of_a_mean_of_seeds_and_of_a_test_set():
    values = [0.70, 0.80, 0.90]
    _, draws = bootstrapped(seeds(*values))
    expected = np.var(values, ddof=1) / len(values) + 0.8 * 0.2 / 10_000
    assert draws.var() == pytest.approx(expected, rel=0.15)
    assert draws.mean() == pytest.approx(0.8, abs=0.01)


def test_two_seeds_that_agree_by_luck_are_not_taken_for_certainty():
    row = bootstrapped(seeds(0.8, 0.8))[0].iloc[0]
    assert row["high"] - row["low"] > 0.01
    assert row["interval"] == "over 2 seeds and the test set"


def test_one_seed_takes_the_spread_of_seeds_from_cells_of_its_batch_size_pooled_over_rates():
    several = [*seeds(0.70, 0.74, lr=0.1), *seeds(0.60, 0.61, 0.62, lr=0.01)]
    found, draws = bootstrapped([*several, *seeds(0.5, lr=0.3)])
    pooled = (0.02**2 * 2 + 0.01**2 * 2) / (1 + 2)  # squares about the means, over degrees of freedom
    expected = pooled + 0.5 * 0.5 / 10_000
    assert draws[:, -1].var() == pytest.approx(expected, rel=0.15)
    row = found.iloc[-1]
    assert row["interval"] == summary.ONE_SEED
    assert row["high"] - row["low"] == pytest.approx(2 * 1.96 * np.sqrt(expected), rel=0.1)


def test_a_batch_size_without_several_seeds_takes_the_spread_of_the_nearest_that_has():
    several = [*seeds(0.7, 0.8, batch_size=8192), *seeds(0.80, 0.81, batch_size=256)]
    frame = summary.final_accuracy(results.merge([*several, *seeds(0.6, batch_size=64), *seeds(0.6, batch_size=4096)]))
    spread = summary.seed_spread(frame, CELL)
    assert spread.to_dict() == pytest.approx(
        {256: np.std([0.80, 0.81], ddof=1), 8192: np.std([0.7, 0.8], ddof=1)}, rel=1e-4
    )
    draws = summary.resample(frame, CELL)  # by batch size: 64, 256, 4096, 8192
    of_test_set = 0.6 * 0.4 / 10_000
    assert draws[:, 0].var() == pytest.approx(spread[256] ** 2 + of_test_set, rel=0.15)
    assert draws[:, 2].var() == pytest.approx(spread[8192] ** 2 + of_test_set, rel=0.15)


def test_cells_of_several_seeds_borrow_no_spread():
    one, other = seeds(0.80, 0.81, 0.82, lr=0.1), seeds(0.5, 0.9, lr=0.3)
    assert bootstrapped(one)[0].iloc[0]["low"] == bootstrapped([*one, *other])[0].iloc[0]["low"]


def test_what_is_drawn_is_an_accuracy():
    _, draws = bootstrapped([*seeds(0.1, 0.6, lr=0.1), *seeds(0.1, lr=0.3)])
    assert draws.min() == 0


def test_draws_come_in_the_order_of_the_cells():
    found, draws = bootstrapped([*seeds(0.9, batch_size=64), *seeds(0.5, batch_size=16)])
    assert draws.mean(axis=0) == pytest.approx(found["accuracy"], abs=0.01)


def test_an_interval_can_be_put_where_its_number_is():
    draws = np.linspace(0.2, 0.4, 1001)
    assert summary.interval(draws) == pytest.approx((0.205, 0.395))
    assert summary.interval(draws, 0.1) == pytest.approx((0.005, 0.195))


def test_selecting_passes_over_runs_that_are_not_there_yet_but_not_over_all():
    here, missing = made_run(seed=1), made_run(seed=2)
    assert summary.select(here, [here["key"].item(), missing["key"].item()]).sizes["run"] == 1
    with pytest.raises(ValueError, match="none of these runs"):
        summary.select(here, [missing["key"].item()])


def test_narrowing_keeps_what_no_recipe_lists_and_says_what_is_not_there():
    ds = results.merge([made_run(seed=7, lr=0.3), made_run(seed=0, lr=0.1)])
    assert summary.narrow(ds, lr=None, seed=None).sizes["run"] == 2
    assert summary.narrow(ds, lr=[0.3, 0.01])["seed"].item() == 7
    with pytest.raises(ValueError, match=r"no published run has lr \[0.5\]; published: lr 0.1, 0.3$"):
        summary.narrow(ds, lr=[0.5])


@pytest.mark.parametrize("epochs", [(2, 2, 2), (2, 3, 2)], ids=["equal epochs", "other epochs"])
def test_runs_made_for_tests_are_joined_as_they_are_merged(epochs):
    runs = [made_run((0.5,) * length, seed=seed, arch=f"resnet{18 + 16 * seed}") for seed, length in enumerate(epochs)]
    runs.append(made_run((0.75, 0.75), seed=0, arch="resnet18"))  # the later of two with one key
    xr.testing.assert_identical(joined(runs), results.merge(runs))
    landscapes = [made_landscape(seed=seed) for seed in range(2)]
    xr.testing.assert_identical(joined(landscapes), results.merge(landscapes))


def test_a_span_is_told_by_its_ends_or_as_one_value():
    assert summary.span([2.04, 0.5, float("nan")]) == "0.5 to 2.0"
    assert summary.span([3.0, 3.01]) == "3.0"
    assert summary.span([]) == "not known"
