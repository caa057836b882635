"""Time to a target loss by rule and workers, on runs and steps whose answer is known."""

import numpy as np
import pandas as pd
import pytest
from made_strong_weak import made, made_steps

from dolb.findings import strong_weak as study


def like_one_worker(rule, workers):
    """Strong runs take 6 epochs like one worker; weak ones as many updates; with a linear rate as many epochs."""
    return 6 if rule == "strong" else 6 * workers if rule == "weak" else 6


@pytest.fixture(scope="module")
def ds():
    return made(like_one_worker, noise=0.0)


@pytest.fixture(scope="module")
def steps():
    return study.step_times(made_steps())


@pytest.fixture(scope="module")
def table(ds, steps):
    return study.cells(study.times(study.runs(ds), steps))


def cell(table, rule, workers):
    (row,) = table[(table["rule"] == rule) & (table["workers"] == workers)].to_dict("records")
    return row


def test_rules_are_told_apart_by_batch_rate_and_warmup(ds):
    counts = study.runs(ds).groupby("rule").size().to_dict()
    assert counts == {study.STRONG: 6 * 3, study.WEAK: 5 * 3, study.LINEAR: 5 * 3, study.WARMUP: 5 * 3}


def test_seconds_are_updates_times_the_seconds_of_a_step(table):
    alone = cell(table, study.STRONG, 1)
    assert alone["updates"] == pytest.approx(6 * 28)  # 888 volumes are 27 batches of 32 and a rest
    assert alone["seconds"] == pytest.approx(6 * 28 * 0.33)
    assert cell(table, study.WEAK, 1)["seconds"] == alone["seconds"]


def test_steps_of_real_ranks_are_measured_and_those_of_more_simulated(table):
    assert cell(table, study.STRONG, 2)["source"] == "measured"
    assert cell(table, study.STRONG, 2)["step_seconds"] == pytest.approx(0.17)
    many = cell(table, study.STRONG, 32)
    assert many["source"] == "simulated"
    assert 0.02 < many["step_seconds"] < 0.03  # one volume's 0.02 s of computing, and what sending takes


def test_a_run_that_misses_its_target_counts_with_its_whole_length(table):
    missed = cell(table, study.WEAK, 32)  # needs 192 epochs and has 48
    assert (missed["reached"], missed["n"]) == (0, 3)
    assert missed["updates"] == pytest.approx(48)
    assert cell(table, study.WEAK, 4)["reached"] == 3


def test_the_share_of_a_batch_that_is_all_the_data_lies_between_two_that_were_timed(table):
    capped = cell(table, study.LINEAR, 32)
    assert capped["share"] == pytest.approx(888 / 32)
    assert capped["step_seconds"] < cell(table, study.LINEAR, 16)["step_seconds"]


def test_the_table_of_the_fastest_names_rules_that_all_runs_reach_the_target_by(table):
    rule, _, speed = study.fastest(table).iloc[0]["8 workers"].rpartition(": ")
    assert rule in (study.LINEAR, study.WARMUP, study.STRONG)
    assert float(speed) > 4


def test_outcomes_count_every_run_of_several_workers_once(ds):
    outcomes = study.outcomes(study.runs(ds)).droplevel("workload")
    assert list(outcomes.index) == list(study.RULES)
    assert outcomes.loc[study.WEAK, ["8 workers", "16 workers", "32 workers"]].tolist() == [
        "3 of 3",
        "0 of 3",
        "0 of 3",
    ]
    assert set(outcomes["diverge"]) == {"0 of 15"}


def test_curves_have_a_point_for_every_epoch_that_was_trained(ds, steps):
    timed = study.times(study.runs(ds), steps)
    curves = study.curves(ds, timed)
    own = curves[(curves["rule"] == study.STRONG) & (curves["workers"] == 8)]
    assert len(own) == 6
    assert own["updates"].tolist() == [28 * epoch for epoch in range(1, 7)]
    assert np.isfinite(curves[["loss", "seconds"]]).all().all()


def test_of_volumes_of_several_sides_the_largest_are_judged(ds):
    frame = study.runs(ds)
    larger = frame.assign(data="nodules-32", batch_size=7)
    both = pd.concat([frame, larger, frame.assign(data="cifar10")])
    assert set(study.volumes(both)["batch_size"]) == {7}
