"""From runs to numbers: final accuracies, intervals, and the preferred batch size."""

import numpy as np
import pytest
from made_runs import made_curve, made_run
from scipy import stats

from dolb import results, summary


def cells(runs, by=("arch", "lr", "batch_size")):
    return summary.over_seeds(summary.final_accuracy(results.merge(runs)), by)


def test_the_final_accuracy_is_the_mean_of_the_last_five_epochs():
    frame = summary.final_accuracy(made_run((0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)))
    assert frame["accuracy"].item() == pytest.approx(np.mean([0.3, 0.4, 0.5, 0.6, 0.7]))


def test_a_diverged_run_has_the_accuracy_of_the_epoch_in_which_it_diverged():
    frame = summary.final_accuracy(made_run((0.6, 0.1, np.nan, np.nan), diverged=True))
    assert frame["accuracy"].item() == pytest.approx(0.1)


def test_updates_count_the_last_partial_batch():
    frame = summary.final_accuracy(made_run((0.5, 0.5), batch_size=20480, bn_workers=8))
    assert frame["updates"].item() == 2 * 3  # 50,000 = 20,480 + 20,480 + 9,040


def test_one_seed_has_the_interval_of_a_share_of_the_test_set():
    row = cells([made_run((0.8,) * 5)]).iloc[0]
    half = 1.959964 * np.sqrt(0.8 * 0.2 / 10_000)
    assert row["high"] - row["accuracy"] == pytest.approx(half, rel=1e-5)
    assert row["interval"] == "of the test set, one seed"


def test_several_seeds_have_students_interval_of_their_mean():
    values = [0.80, 0.82, 0.81]
    row = cells([made_run((value,) * 5, seed=seed) for seed, value in enumerate(values)]).iloc[0]
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (row["low"], row["high"]) == pytest.approx((expected.low, expected.high), rel=1e-5)
    assert row["n"] == 3


def test_the_preferred_batch_size_comes_with_the_sizes_that_may_equal_it():
    curve = cells(made_curve({32: 0.70, 64: 0.80, 128: 0.803, 256: 0.75}, lr=0.1))
    row = summary.preferred_batch_size(curve).iloc[0]
    assert (row["batch_size"], row["smallest"], row["largest"]) == (128, 64, 128)
    assert row["rises"]
    assert row["falls"]


def test_a_curve_whose_best_is_at_an_end_does_not_rise_there():
    row = summary.preferred_batch_size(cells(made_curve({32: 0.8, 64: 0.7, 128: 0.6}))).iloc[0]
    assert not row["rises"]
    assert row["falls"]


def test_a_rise_within_the_uncertainty_is_no_rise():
    row = summary.preferred_batch_size(cells(made_curve({32: 0.800, 64: 0.801, 128: 0.6}))).iloc[0]
    assert not row["rises"]


def test_selecting_passes_over_runs_that_are_not_there_yet_but_not_over_all():
    here, missing = made_run(seed=1), made_run(seed=2)
    assert summary.select(here, [here["key"].item(), missing["key"].item()]).sizes["run"] == 1
    with pytest.raises(ValueError, match="none of these runs"):
        summary.select(here, [missing["key"].item()])
