"""From runs to numbers: final accuracies, and intervals by Student and by bootstrap."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from made_landscapes import made_landscape
from made_runs import joined, made_run
from scipy import stats

from dolb import findings as summary
from dolb import results
from dolb.findings.intervals import between_seeds

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


def test_several_seeds_have_students_interval_of_their_mean_and_that_of_the_test_set():
    values = [0.80, 0.82, 0.81]
    row = cells(seeds(*values)).iloc[0]
    student = stats.ttest_1samp(values, 0).confidence_interval(0.95).high - 0.81
    half = np.hypot(student, 1.959964 * np.sqrt(0.81 * 0.19 / 10_000))
    assert (row["low"], row["high"]) == pytest.approx((0.81 - half, 0.81 + half), rel=1e-5)
    assert (row["n"], row["interval"]) == (3, "of the test set and 3 seeds")


def test_the_bootstrap_of_one_seed_is_the_interval_of_the_test_set():
    drawn, expected = bootstrapped(seeds(0.8))[0].iloc[0], cells(seeds(0.8)).iloc[0]
    assert (drawn["low"], drawn["high"]) == pytest.approx((expected["low"], expected["high"]), abs=1e-3)


def test_the_bootstrap_has_the_variance_of_a_mean_of_seeds_and_of_a_test_set():
    values = [0.77, 0.79, 0.80, 0.81, 0.83, 0.80, 0.78, 0.82]
    _, draws = bootstrapped(seeds(*values))
    student = 7 / 5  # the variance of Student's deviate with 7 degrees of freedom
    expected = student * np.var(values, ddof=1) / len(values) + 0.8 * 0.2 / 10_000
    assert draws.var() == pytest.approx(expected, rel=0.15)
    assert draws.mean() == pytest.approx(0.8, abs=0.01)


def test_two_seeds_that_agree_by_luck_are_not_taken_for_certainty():
    beside = [*seeds(0.80, 0.84, batch_size=512), *seeds(0.80, 0.83, 0.81, 0.84, batch_size=128)]
    row = bootstrapped([*seeds(0.8, 0.8, batch_size=256), *beside])[0].set_index("batch_size").loc[256]
    assert row["high"] - row["low"] > 0.04
    assert row["interval"] == "of the test set and 2 seeds, spread pooled with the nearest cells'"


def spread(runs):
    frame = summary.final_accuracy(results.merge(runs))
    return dict(
        zip(frame.groupby(["lr", "batch_size"]).groups, (n[:2] for n in between_seeds(frame, CELL)), strict=True)
    )


def test_few_seeds_take_their_spread_from_the_nearest_cells_of_their_rate_first():
    quiet, loud = (0.70, 0.71, 0.72, 0.73), (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    found = spread(
        [
            *seeds(0.70, 0.74, batch_size=1024, lr=0.1),
            *seeds(*quiet, batch_size=256, lr=0.1),
            *seeds(*quiet, batch_size=64, lr=0.1),
            *seeds(*loud, batch_size=1024, lr=0.3),
        ]
    )
    squares, free = 0.02**2 * 2 + np.var(quiet) * 4 * 2, 1 + 3 + 3  # 4 degrees after the next cell are not enough
    assert found[0.1, 1024] == pytest.approx(((squares / free) ** 0.5, free), rel=1e-4)
    assert found[0.3, 1024] == pytest.approx((np.std(loud, ddof=1), 5), rel=1e-4)  # enough of its own


def test_a_cell_in_which_a_run_dropped_late_lends_its_spread_to_no_other():
    fell = [made_run((0.7, 0.3, 0.3), seed=0, batch_size=512), made_run((0.7, 0.7, 0.7), seed=1, batch_size=512)]
    quiet = seeds(0.70, 0.71, 0.72, 0.73, 0.74, 0.75, batch_size=2048)
    found = {size: noise for (_, size), noise in spread([*seeds(0.7, batch_size=256), *fell, *quiet]).items()}
    own = cells(fell)["deviation"].item()
    assert found[256] == found[2048] == pytest.approx((np.std(np.arange(6) / 100, ddof=1), 5), rel=1e-4)
    assert found[512][1] == 1 + 5
    assert found[512][0] > 0.3 * own  # itself it keeps, beside others'


def test_a_cell_that_learned_nothing_lends_its_spread_to_no_other():
    quiet, lost = (0.70, 0.71, 0.72, 0.73, 0.74, 0.75), (0.1, 0.1, 0.11, 0.1, 0.1, 0.1)
    runs = [*seeds(0.7, batch_size=256), *seeds(*lost, batch_size=512), *seeds(*quiet, batch_size=2048)]
    found = spread(runs)
    assert found[0.1, 256] == found[0.1, 2048] == pytest.approx((np.std(quiet, ddof=1), 5), rel=1e-4)
    frame = summary.final_accuracy(results.merge(runs))
    assert [noise.lenders for noise in between_seeds(frame, CELL)] == [(2,), (), ()]


def test_one_seed_takes_the_spread_of_others():
    runs = [*seeds(0.5, batch_size=256), *seeds(0.70, 0.71, 0.72, 0.73, 0.74, 0.75, batch_size=512)]
    found, draws = bootstrapped(runs)
    own = next(iter(spread(runs).values()))[0]
    assert own == pytest.approx(np.std([0.70, 0.71, 0.72, 0.73, 0.74, 0.75], ddof=1), rel=1e-4)
    assert draws[:, 0].std() > own
    assert found["interval"].iloc[0] == "of the test set and one seed, spread pooled with the nearest cells'"


def test_without_any_cell_of_several_seeds_there_is_no_spread():
    assert set(spread([*seeds(0.8, batch_size=256), *seeds(0.7, batch_size=512)]).values()) == {(0.0, 0)}
    assert cells(seeds(0.8))["deviation"].isna().all()


@pytest.mark.parametrize("deviation", [0.003, 0.03])
def test_intervals_of_two_seeds_cover_what_they_say(deviation):
    """Nine cells along a curve, two seeds each, drawn again and again around accuracies that are known."""
    rng, covered, asked = np.random.default_rng(3), 0, 60
    sizes = 2 ** np.arange(6, 15)
    of_test_set = np.sqrt(0.6 * 0.4 / 10_000)
    frame = pd.DataFrame({"batch_size": np.repeat(sizes, 2), "lr": 0.1, "test_examples": 10_000})
    frame = frame.assign(diverged=False, late_drop=False, updates=1, device_seconds=1.0)
    for _ in range(asked):
        noise = np.repeat(rng.normal(0, of_test_set, len(sizes)), 2) + rng.normal(0, deviation, len(frame))
        found = summary.over_seeds(frame.assign(accuracy=0.6 + noise), ["lr", "batch_size"])
        covered += int(((found["low"] < 0.6) & (found["high"] > 0.6)).sum())
    assert covered / (asked * len(sizes)) == pytest.approx(0.95, abs=0.03)


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


def test_a_cell_of_one_seed_is_no_more_certain_than_its_own_last_epochs():
    quiet = [made_run((0.8 + 0.001 * seed,) * 10, batch_size=128, seed=seed) for seed in range(6)]
    restless = made_run((0.7, 0.8) * 5, batch_size=256)  # epochs that differ by ten points from their neighbours
    found = spread([*quiet, restless])
    # A deviation of 0.1 / sqrt(2) for an epoch, and of a root of five less for the mean of five.
    assert found[0.1, 256][0] == pytest.approx(0.1 / 2**0.5 / 5**0.5)
    assert found[0.1, 128][0] == pytest.approx(0.001 * np.std(range(6), ddof=1), rel=1e-4)
