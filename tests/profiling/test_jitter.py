"""What the fitted spread costs by itself, what it stands for, and what a normal one of the same size would cost."""

import numpy as np
import pytest
from scipy import integrate, stats

from dolb import claims
from dolb.profiling.simulator import calibrate, curves, jitter
from dolb.profiling.simulator.scaling import FITTED_JITTER


@pytest.fixture(scope="module")
def table():
    return jitter.cost().set_index("ranks")


@pytest.mark.parametrize("ranks", [2, 64, curves.STUDIED_GPUS, curves.MOST_GPUS])
def test_the_slowest_of_normal_draws_is_the_mean_of_the_density_of_the_maximum(ranks):
    expected, _ = integrate.quad(
        lambda x: x * ranks * stats.norm.pdf(x) * stats.norm.cdf(x) ** (ranks - 1), -8, 12, limit=400
    )
    assert jitter.slowest_of_normal(ranks, 1.0) - 1 == pytest.approx(expected, rel=1e-3)


def test_without_the_spread_ddp_loses_next_to_nothing_and_with_it_most_of_what_it_loses(table):
    lost, other = 1 - table["efficiency"], 1 - table["alike"]
    assert (other < 0.02).all()
    assert (other < 0.15 * lost).all()


def test_heavier_tails_cost_more_and_the_simulated_line_stays_below_what_they_leave(table):
    assert (table["logistic"] < table["normal"]).all()
    assert (table["efficiency"] < table["logistic"]).all()


def test_the_words_tell_the_cost_what_it_stands_for_and_the_shape(table):
    points = calibrate.calibrate_published(claims.scaling_measurements()).points
    short, said = jitter.in_short(), jitter.in_words(points)
    for ranks, row in table.iterrows():
        assert f"{row['efficiency']:.1%} at {ranks:,} GPUs ({row['alike']:.1%} without)" in short
        assert f"{row['logistic']:.1%} ({row['normal']:.1%}) at {ranks:,}" in said
    assert f"{FITTED_JITTER:.1%}" in short
    assert f"asks for {np.max(points['asked']):.1%} alone" in said
    assert "every loss of the fitted points that the model lacks" in said
