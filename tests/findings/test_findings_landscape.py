"""What follows from loss landscapes: comparisons over several sets of examples, ratios seed by seed, and contours."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from made_landscapes import made_landscape, made_study
from scipy import stats

from dolb import results
from dolb.findings import landscape as study

# By network and by the examples over which its loss is taken: nine different numbers.
CURVATURE = {
    ("full", "full"): 2.0, ("full", "network"): 3.0, ("full", "random"): 5.0,
    ("network", "full"): 7.0, ("network", "network"): 11.0, ("network", "random"): 13.0,
    ("random", "full"): 17.0, ("random", "network"): 19.0, ("random", "random"): 23.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def exact():
    return study.values(made_study(lambda name, over: CURVATURE[name, over], noise=0.0, seeds=2, sizes=(256,)))


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        ("own", {"full": 2.0, "network": 11.0, "random": 23.0}),
        ("full", {"full": 2.0, "network": 7.0, "random": 17.0}),
        ("network", {"full": 3.0, "network": 11.0, "random": 19.0}),
        ("fixed", {"full": 2.0, "network": 3.0, "random": 5.0}),
    ],
)
def test_a_reading_says_over_which_examples_networks_are_compared(exact, reading, expected):
    rows = exact[(exact["reading"] == reading) & (exact["measure"] == "top_eigenvalue")]
    assert rows.groupby("set")["value"].unique().str[0].to_dict() == expected
    assert set(rows["set"]) == set(expected)


def test_every_reading_and_measure_has_words(exact):
    assert set(exact["reading"]) == set(study.READINGS)
    assert set(exact["measure"]) == set(study.MEASURES)


def test_the_rise_is_the_mean_over_the_inner_half_of_the_surface():
    ds = made_landscape(
        surface=lambda alpha, beta: 1 + np.where(np.maximum(abs(alpha), abs(beta)) > 0.5, 100, alpha**2)
    )
    # Points -1, -0.5, 0, 0.5, 1: the inner nine have alpha squared of 0.25, 0 and 0.25.
    np.testing.assert_allclose(study.rise(ds), [[0.5 / 3] * 3], rtol=1e-5)


def test_cells_have_the_geometric_mean_and_students_interval_of_the_logarithms():
    ds = results.merge([made_landscape(lambda over, v=v: v, seed=seed) for seed, v in enumerate((1.0, 2.0, 4.0))])
    row = study.cells(study.values(ds)).query("reading == 'own' and measure == 'hessian_trace'").iloc[0]
    low, high = stats.ttest_1samp(np.log([1, 2, 4]), 0).confidence_interval(0.95)
    assert row["value"] == pytest.approx(2)
    assert (row["low"], row["high"]) == pytest.approx((np.exp(low), np.exp(high)))
    assert row["n"] == 3


def test_ratios_are_between_networks_of_one_seed():
    values = {"full": (1.0, 10.0, 100.0), "network": (0.5, 4.0, 60.0)}
    parts = [
        made_landscape(lambda over, v=v: v, seed=seed, subset="full" if name == "full" else "network-a-1")
        for name, row in values.items()
        for seed, v in enumerate(row)
    ]
    table = study.ratios(study.values(results.merge(parts)))
    row = table.query("reading == 'full' and measure == 'top_eigenvalue' and other == 'full'").iloc[0]
    test = stats.ttest_1samp(np.log([0.5, 0.4, 0.6]), 0)
    assert row["ratio"] == pytest.approx((0.5 * 0.4 * 0.6) ** (1 / 3))
    assert (row["low"], row["high"]) == pytest.approx(tuple(np.exp(test.confidence_interval(0.95))))
    assert (row["p"], row["n"]) == (pytest.approx(test.pvalue), 3)
    assert "random" not in set(table.loc[table["reading"] == "full", "other"])


def test_where_a_value_is_not_positive_a_ratio_tells_nothing():
    parts = [
        made_landscape(lambda over, v=v: v, seed=seed, subset=subset)
        for subset, row in {"full": (1.0, 1.0, 1.0), "network-a-1": (0.5, 0.5, -0.1)}.items()
        for seed, v in enumerate(row)
    ]
    table = study.values(results.merge(parts))
    row = study.ratios(table).query("reading == 'full' and measure == 'hessian_trace'").iloc[0]
    assert np.isnan(row["low"])
    assert np.isnan(row["ratio"])
    assert "not known" in study.in_words(row.to_dict())
    cell = study.cells(table).query("reading == 'full' and measure == 'hessian_trace' and set == 'network'").iloc[0]
    assert np.isnan(cell["value"])


def test_a_network_that_diverged_is_left_out():
    ds = results.merge([made_landscape(seed=0), made_landscape(seed=1), made_landscape(seed=2, diverged=True)])
    cells = study.cells(study.values(ds))
    assert set(cells["n"]) == {2}


def test_ratios_in_words_have_their_intervals(exact):
    words = study.ratios_in_words(study.ratios(exact), "own")
    assert (
        words == "5.50 (5.50 to 5.50) times that of full and 0.48 (0.48 to 0.48) times that of random data at batch 256"
    )
    assert study.ratios_in_words(study.ratios(exact).iloc[:0], "own") == "not measured yet"


def test_how_well_single_values_are_known_is_relative_to_them():
    ds = results.merge([made_landscape(lambda over: 2.0, seed=0), made_landscape(lambda over: 0.5, seed=1)])
    assert study.converged(ds) == {"eigenvalue": pytest.approx(0.02), "trace": pytest.approx((0.005 + 0.02) / 2)}


def test_surfaces_are_of_one_seed_and_over_the_networks_own_set():
    ds = results.merge(
        [
            made_landscape(lambda over: {"full": 1.0, "network": 2.0, "random": 3.0}[over], seed=seed, subset=subset)
            for seed in (3, 4)
            for subset in ("full", "network-a-1")
        ]
    )
    table = study.surfaces(ds)
    assert set(table["seed"]) == {3}
    corner = table.query("alpha == 1 and beta == 1").set_index("set")["loss"]
    assert corner.to_dict() == pytest.approx({"full": 0.1 + 1.0, "network": 0.1 + 2.0})
    with pytest.raises(ValueError, match="no network has seed 9; accepted: 3, 4"):
        study.surfaces(ds, seed=9)


def bowl(points=21):
    grid = np.linspace(-1, 1, points)
    rows = [
        {"set": "full", "batch_size": 64, "alpha": a, "beta": b, "loss": np.exp(np.hypot(a, b))}
        for a in grid
        for b in grid
    ]
    return pd.DataFrame(rows)


def test_contours_of_a_cone_are_circles():
    found = study.contours(bowl(), [np.exp(0.4), np.exp(0.7)])
    for level, group in found.groupby("level"):
        ends = np.concatenate([group[["x", "y"]].to_numpy(), group[["x2", "y2"]].to_numpy()])
        np.testing.assert_allclose(np.hypot(*ends.T), np.log(level), atol=0.01)
        around = np.hypot(group["x2"] - group["x"], group["y2"] - group["y"]).sum()
        assert around == pytest.approx(2 * np.pi * np.log(level), rel=0.02)


def test_a_level_beyond_the_surface_has_no_contour():
    assert study.contours(bowl(), [0.5, 100.0]).empty


def test_levels_lie_within_the_losses_evenly_by_their_logarithm():
    found = study.levels(pd.DataFrame({"loss": [0.008, 8.0, np.nan, 5.0]}), count=2)
    assert found == [0.08, 0.8]


def test_levels_end_where_colours_do_however_far_a_surface_rises():
    walled = pd.DataFrame({"loss": [0.1, 680.0]})
    assert study.highest(walled) == study.HIGHEST
    assert max(study.levels(walled)) < study.HIGHEST
    assert study.highest(pd.DataFrame({"loss": [0.1, 4.0]})) == 4.0


def test_the_bend_is_what_a_rise_has_beyond_the_slope():
    ds = made_landscape(lambda over: 4.0)  # rises of four, half of which are the gradient's
    assert study.bend(ds).to_numpy() == pytest.approx(2.0)
    assert study.slope_shares(ds) == {"sharpness": 0.5, "normalized_sharpness": 0.5}
    found = study.values(ds)
    assert found.loc[found["measure"] == "normalized_bend", "value"].unique() == pytest.approx([2.0])
