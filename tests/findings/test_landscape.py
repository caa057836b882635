"""What follows from loss landscapes: comparisons over several sets of examples, ratios seed by seed, and contours."""

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
        ("own", {"full": 2.0, "filtered": 11.0, "random": 23.0}),
        ("full", {"full": 2.0, "filtered": 7.0, "random": 17.0}),
        ("filtered", {"full": 3.0, "filtered": 11.0, "random": 19.0}),
        ("fixed", {"full": 2.0, "filtered": 3.0, "random": 5.0}),
    ],
)
def test_a_reading_says_over_which_examples_networks_are_compared(exact, reading, expected):
    rows = exact[(exact["reading"] == reading) & (exact["measure"] == "normalized_eigenvalue")]
    assert rows.groupby("set")["value"].unique().str[0].to_dict() == expected
    assert set(exact["reading"]) == set(study.READINGS)


def test_the_rise_is_the_mean_over_the_inner_half_of_the_surface():
    ds = made_landscape(
        surface=lambda alpha, beta: 1 + np.where(np.maximum(abs(alpha), abs(beta)) > 0.5, 100, alpha**2)
    )
    # Points -1, -0.5, 0, 0.5, 1: the inner nine have alpha squared of 0.25, 0 and 0.25.
    np.testing.assert_allclose(study.rise(ds), [[0.5 / 3] * 3], rtol=1e-5)


def two_sets(full, network):
    parts = [
        made_landscape(lambda over, v=v: v, seed=seed, subset=subset)
        for subset, row in {"full": full, "network-a-1": network}.items()
        for seed, v in enumerate(row)
    ]
    return study.values(results.merge(parts))


def test_ratios_are_of_the_other_set_over_filtered_data_between_networks_of_one_seed():
    table = study.ratios(two_sets((1.0, 10.0, 100.0), (0.5, 4.0, 60.0)))
    (row,) = table.query("reading == 'full' and measure == 'normalized_trace'").to_dict("records")
    test = stats.ttest_1samp(np.log([2, 2.5, 5 / 3]), 0)
    assert row["ratio"] == pytest.approx((2 * 2.5 * 5 / 3) ** (1 / 3))
    assert (row["low"], row["high"]) == pytest.approx(tuple(np.exp(test.confidence_interval(0.95))))
    assert (row["other"], row["n"]) == ("full", 3)


def test_a_value_that_is_not_positive_has_no_ratio():
    row = study.ratios(two_sets((1.0, 1.0, 1.0), (0.5, 0.5, -0.1))).query("measure == 'normalized_trace'").iloc[0]
    assert (row["ratio"], row["n"]) == (pytest.approx(2.0), 2)


def test_without_networks_of_filtered_data_only_images_at_the_same_weights_are_compared():
    ds = results.merge([made_landscape(seed=0), made_landscape(seed=1), made_landscape(seed=2, diverged=True)])
    found = study.ratios(study.values(ds))
    assert set(found["reading"]) == {"fixed"}
    assert set(found["n"]) == {2}  # without the one that diverged


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
    assert corner.to_dict() == pytest.approx({"full": 0.1 + 1.0, "filtered": 0.1 + 2.0})
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
    assert study.contours(bowl(), [0.5, 100.0]).empty  # beyond the surface


def test_levels_lie_evenly_by_their_logarithm_and_end_where_colours_do():
    assert study.levels(pd.DataFrame({"loss": [0.008, 8.0, np.nan, 5.0]}), count=2) == [0.08, 0.8]
    walled = pd.DataFrame({"loss": [0.1, 680.0]})
    assert study.highest(walled) == study.HIGHEST
    assert max(study.levels(walled)) < study.HIGHEST
