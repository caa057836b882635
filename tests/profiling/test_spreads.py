"""What it changes to spread a V100's time as measured, and which way agrees better with what is published."""

import numpy as np
import pandas as pd
import pytest
from made_layers import made_times

from dolb import claims
from dolb.profiling.simulator import calibrate, curves, spreads, tensors
from dolb.profiling.simulator.step import simulate


@pytest.fixture(scope="module")
def times():
    return made_times(["resnet50", "resnet101"])


def test_both_ways_are_simulated_where_the_study_tuned_and_where_it_ended(times):
    table = spreads.compare(times)
    assert sorted(set(table["ranks"])) == [curves.TUNED_GPUS, curves.STUDIED_GPUS]
    assert set(table["variant"]) == {policy.name for policy in curves.POLICIES}
    first = table.iloc[0]
    assert first["by_multiplications"] == simulate(curves.on_summit(curves.POLICIES[0]), int(first["ranks"])).efficiency
    assert not np.allclose(table["by_multiplications"], table["as_measured"])


def test_a_profile_that_is_spread_by_multiplications_changes_nothing():
    rows = claims.scaling_measurements()
    profiles = {arch: tensors.spread(tensors.work(arch), 1.0) for arch in ("resnet50", "resnet101")}
    found = calibrate.calibrate_published(rows, profiles=profiles)
    assert found.worst("judge") == pytest.approx(calibrate.calibrate_published(rows).worst("judge"))


def test_the_words_hold_the_numbers(times):
    rows = claims.scaling_measurements()
    table, worst, said = spreads.compare(times), spreads.errors(times, rows), spreads.in_words(times, rows)
    for row in table[table["variant"].isin(["DDP", "Horovod 0.20"])].itertuples():
        assert f"{row.as_measured:.1%} at {row.ranks:,} GPUs (by multiplications {row.by_multiplications:.1%})" in said
    assert f"off by {worst['as_measured']:.1%} at most (by multiplications {worst['by_multiplications']:.1%})" in said


@pytest.mark.parametrize(
    ("as_measured", "said"),
    [(0.05, "the measured spread is the better one"), (0.15, "multiplications are the better"), (0.101, "neither is")],
)
def test_the_way_with_the_smaller_error_is_the_better_one_unless_they_lie_too_close(as_measured, said):
    assert said in spreads._judged(pd.Series({"as_measured": as_measured, "by_multiplications": 0.1, "points": 2}))
