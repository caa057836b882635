"""Every interval of the book, each against its textbook definition or against draws whose truth is known."""

import numpy as np
import pandas as pd
import pytest
from made_runs import made_run
from scipy import stats

from dolb import results
from dolb.findings import intervals
from dolb.findings.intervals import Estimate, between_seeds
from dolb.findings.runs import final_accuracy

CELL = ("arch", "lr", "batch_size")


def bounds(found):
    return found.value, found.low, found.high


def test_means_and_differences_have_the_intervals_of_the_t_tests_and_one_repetition_has_none():
    values, other = [0.3, 0.5, 0.1, 0.4], [0.0, 5.0, 1.0]
    single, both = stats.ttest_1samp(values, 0), stats.ttest_ind(values, other, equal_var=False)
    assert bounds(intervals.student(values)) == pytest.approx((0.325, *single.confidence_interval(0.95)))
    assert bounds(intervals.welch(values, other)) == pytest.approx((0.325 - 2, *both.confidence_interval(0.95)))
    less = intervals.student([-value for value in other])  # a sum of two is Welch's difference
    assert bounds(intervals.added(intervals.student(values), less)) == pytest.approx(
        bounds(intervals.welch(values, other))
    )
    assert intervals.student([0.3]) == Estimate(0.3, -np.inf, np.inf, 1)
    assert (intervals.student([0.3]).written(".1f"), intervals.student([]).n) == ("0.3", 0)
    one, inverse = (bounds(intervals.geometric(ratios)) for ratios in (values, 1 / np.array(values)))
    assert one == pytest.approx((1 / inverse[0], 1 / inverse[2], 1 / inverse[1]))


def test_the_ratio_of_deviations_covers_the_true_one():
    rng, covered = np.random.default_rng(0), 0
    index = pd.MultiIndex.from_product([range(6), range(5)], names=["cell", "seed"])
    for _ in range(200):
        one, other = (pd.Series(rng.normal(0, deviation, 30), index) for deviation in (2.0, 1.0))
        found = intervals.deviation_ratio(one, other, ["cell"])
        covered += found.low < 2 < found.high
    assert found.n == 6 * 4
    assert covered / 200 == pytest.approx(0.95, abs=0.04)


def seeds(*values, **changes):
    return [made_run((value,) * 5, seed=seed, **changes) for seed, value in enumerate(values)]


def bootstrapped(runs):
    return intervals.bootstrapped(final_accuracy(results.merge(runs)), CELL)


def test_one_seed_that_no_others_lie_near_has_no_interval():
    row = bootstrapped(seeds(0.8))[0].iloc[0]
    assert np.isnan([row["low"], row["high"], row["deviation"]]).all()


def test_the_bootstrap_has_the_variance_of_a_mean_of_seeds_and_of_a_test_set():
    values = [0.77, 0.79, 0.80, 0.81, 0.83, 0.80, 0.78, 0.82]
    _, draws = bootstrapped(seeds(*values))
    student = 7 / 5  # the variance of Student's deviate with 7 degrees of freedom
    expected = student * np.var(values, ddof=1) / len(values) + 0.8 * 0.2 / 10_000
    assert draws.var() == pytest.approx(expected, rel=0.15)
    assert draws.mean() == pytest.approx(0.8, abs=0.01)


def test_a_cell_of_many_seeds_has_one_interval_whichever_others_are_shown():
    cell, beside = seeds(*np.linspace(0.7, 0.8, 8), batch_size=256), seeds(0.5, 0.6, 0.4, batch_size=64)
    (alone,) = bootstrapped(cell)[0][["low", "high"]].to_numpy()
    together = bootstrapped([*beside, *cell])[0].set_index("batch_size")
    assert together.loc[256, ["low", "high"]].tolist() == alone.tolist()


def test_two_seeds_that_agree_by_luck_are_not_taken_for_certainty():
    beside = [*seeds(0.80, 0.84, batch_size=512), *seeds(0.80, 0.83, 0.81, 0.84, batch_size=128)]
    row = bootstrapped([*seeds(0.8, 0.8, batch_size=256), *beside])[0].set_index("batch_size").loc[256]
    assert row["high"] - row["low"] > 0.04


def spread(runs):
    frame = final_accuracy(results.merge(runs))
    return dict(zip(frame.groupby(["lr", "batch_size"]).groups, between_seeds(frame, CELL), strict=True))


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


def test_the_nearest_warmup_of_the_same_network_comes_before_another_network():
    quiet, loud = np.linspace(0.70, 0.75, 6), np.linspace(0.3, 0.8, 6)
    few = {"arch": "resnet18", "warmup_epochs": 5.0}
    runs = [
        *seeds(0.7, **few),
        *seeds(*quiet, **few | {"warmup_epochs": 2.0}),
        *seeds(*loud, **few | {"warmup_epochs": 0.0}),
        *seeds(*loud, **few | {"arch": "resnet50"}),
    ]
    frame = final_accuracy(results.merge(runs))
    by = [*CELL, "warmup_epochs"]
    found = dict(zip(frame.groupby(by).groups, between_seeds(frame, by), strict=True))
    (lonely,) = (noise for (arch, *_, length), noise in found.items() if arch == "resnet18" and length == 5)
    assert lonely == pytest.approx((np.std(quiet, ddof=1), 5), rel=1e-4)


def test_a_cell_in_which_a_run_collapsed_or_none_learned_lends_its_spread_to_no_other():
    fell = [made_run((0.7, 0.3, 0.3), seed=0, batch_size=512), made_run((0.7, 0.7, 0.7), seed=1, batch_size=512)]
    quiet = seeds(0.70, 0.71, 0.72, 0.73, 0.74, 0.75, batch_size=2048)
    lost = seeds(0.1, 0.1, 0.11, 0.1, 0.1, 0.1, batch_size=128)
    runs = [*seeds(0.7, batch_size=256), *fell, *lost, *quiet]
    found = {size: noise for (_, size), noise in spread(runs).items()}
    own = bootstrapped(fell)[0]["deviation"].item()
    assert found[256] == found[2048] == pytest.approx((np.std(np.arange(6) / 100, ddof=1), 5), rel=1e-4)
    assert found[512][1] == 1 + 5
    assert found[512][0] > 0.3 * own  # itself it keeps, beside others'


def test_a_cell_of_one_seed_is_no_more_certain_than_its_own_last_epochs():
    quiet = [made_run((0.8 + 0.001 * seed,) * 10, batch_size=128, seed=seed) for seed in range(6)]
    restless = made_run((0.7, 0.8) * 5, batch_size=256)  # epochs that differ by ten points from their neighbours
    found = spread([*quiet, restless])
    # A deviation of 0.1 / sqrt(2) for an epoch, and of a root of five less for the mean of five.
    assert found[0.1, 256][0] == pytest.approx(0.1 / 2**0.5 / 5**0.5)
    assert found[0.1, 128][0] == pytest.approx(0.001 * np.std(range(6), ddof=1), rel=1e-4)


@pytest.mark.parametrize("deviation", [0.003, 0.03])
def test_intervals_of_two_seeds_cover_what_they_say(deviation):
    """Nine cells along a curve, two seeds each, drawn again and again around accuracies that are known."""
    rng, covered, asked = np.random.default_rng(3), 0, 60
    sizes = 2 ** np.arange(6, 15)
    of_test_set = np.sqrt(0.6 * 0.4 / 10_000)
    frame = pd.DataFrame({"batch_size": np.repeat(sizes, 2), "lr": 0.1, "test_examples": 10_000})
    frame = frame.assign(diverged=False, late_drop=False, jitter=0.0, updates=1, device_seconds=1.0)
    for _ in range(asked):
        noise = np.repeat(rng.normal(0, of_test_set, len(sizes)), 2) + rng.normal(0, deviation, len(frame))
        found = intervals.bootstrapped(frame.assign(accuracy=0.6 + noise), ["lr", "batch_size"])[0]
        covered += int(((found["low"] < 0.6) & (found["high"] > 0.6)).sum())
    assert covered / (asked * len(sizes)) == pytest.approx(0.95, abs=0.03)


def test_draws_come_in_the_order_of_the_cells():
    found, draws = bootstrapped([*seeds(0.9, batch_size=64), *seeds(0.5, batch_size=16)])
    assert draws.mean(axis=0) == pytest.approx(found["accuracy"], abs=0.01)


def test_an_interval_can_be_put_where_its_number_is():
    draws = np.linspace(0.2, 0.4, 1001)
    assert intervals.quantiles(draws) == pytest.approx((0.205, 0.395))
    assert intervals.quantiles(draws, 0.1) == pytest.approx((0.005, 0.195))


def test_cells_of_few_repetitions_share_the_spread_of_those_that_are_alike():
    cells = {("a", "x"): [1.0, 1.1], ("a", "y"): [2.0, 2.1, 2.3], ("b", "x"): [5.0, 9.0], ("b", "y"): [7.0]}
    index = [(*cell, repeat) for cell, values in cells.items() for repeat in range(len(values))]
    names = pd.MultiIndex.from_tuples(index, names=["arch", "library", "repeat"])
    values = pd.Series(np.concatenate(list(cells.values())), index=names)
    found = intervals.pooled_geometric(values, ["arch"])
    logs = [np.log(cells["a", name]) for name in "xy"]
    squares = sum(((one - one.mean()) ** 2).sum() for one in logs)
    half = stats.t.ppf(0.975, 3) * np.sqrt(squares / 3 / 2)
    assert found.loc[("a", "x"), "value"] == pytest.approx(np.sqrt(1.1))
    assert np.log(found.loc[("a", "x"), "high"]) == pytest.approx(logs[0].mean() + half)
    assert found.loc[("b", "y"), "high"] > 9  # measured once, and as uncertain as its like
    assert intervals.pooled_geometric(values.drop(index=["a"]).iloc[-1:])["low"].isna().all()


def test_the_jackknife_of_means_of_groups_is_students_interval():
    """Of a mean over equal groups, leaving each out gives back the spread between the groups."""
    groups = np.random.default_rng(0).normal(size=8)
    without = (groups.sum() - groups) / 7
    found = intervals.jackknife(np.array([groups.mean()]), without[np.newaxis])
    expected = intervals.student(groups)
    assert (found.value, found.low, found.high) == pytest.approx((expected.value, expected.low, expected.high))
