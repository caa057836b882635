"""How far accuracies differ between seeds: on both sides of a batch size, and as an error bar."""

from __future__ import annotations

import numpy as np
import pytest
from made_runs import joined
from scipy import stats
from test_summary_filtered import run

from dolb.findings import filtered
from dolb.findings.variation import beside_bars, variation

NEAR, FAR = [0.80, 0.81, 0.82, 0.83], [0.60, 0.64, 0.68, 0.72]  # four times as far apart


def seeds(values, **more):
    return [run("full", value, seed=seed, **more) for seed, value in enumerate(values)]


def test_variation_is_the_ratio_of_variances_over_seeds():
    found = variation(joined([*seeds(NEAR, batch_size=100), *seeds(FAR, batch_size=500)]), 500)
    assert found.ratio == pytest.approx(16, rel=1e-3)
    assert found.low == pytest.approx(16 / stats.f.ppf(0.975, 3, 3), rel=1e-3)
    assert found.freedom == (3, 3)
    assert found.by_size == pytest.approx({100: np.std(NEAR, ddof=1), 500: np.std(FAR, ddof=1)}, rel=1e-3)


def test_runs_of_other_lengths_are_cells_of_their_own_and_count_too():
    # Runs of ten epochs lie ten points higher, which is no variation between seeds.
    longer = seeds([value + 0.1 for value in NEAR], batch_size=100, epochs=10)
    found = variation(joined([*seeds(NEAR, batch_size=100), *longer, *seeds(FAR, batch_size=500)]), 500)
    assert found.ratio == pytest.approx(16, rel=1e-3)
    assert found.freedom == (3, 6)


def test_without_large_batches_there_is_no_variation_to_compare():
    assert variation(joined(seeds(NEAR, batch_size=100)), 500) is None


def test_an_error_bar_is_the_deviation_of_the_other_sets_runs():
    network = [run("network-a-1", value + 0.01, seed=seed) for seed, value in enumerate(NEAR)]
    (row,) = beside_bars(filtered.runs(joined([*seeds(NEAR), *network])), "network", "full").to_dict("records")
    assert row["difference"] == pytest.approx(0.01)
    assert row["bar"] == pytest.approx(np.std(NEAR, ddof=1), rel=1e-3)
    draws = np.random.default_rng(0).normal(size=(20_000, 2, 4))
    outside = np.abs(draws[:, 1].mean(1) - draws[:, 0].mean(1)) > draws[:, 0].std(1, ddof=1)
    assert row["by_chance"] == pytest.approx(outside.mean(), abs=0.01)
    assert beside_bars(filtered.runs(joined([*seeds(NEAR[:1]), *network])), "network", "full").empty
