"""The effects of C1 to C3, on runs whose answer is known."""

import pytest
from made_strong_weak import made, made_steps

from dolb import claims


def verdicts(epochs_to_target, **more):
    ds = made(epochs_to_target, **more)
    return claims.published_verdicts(["C1", "C2", "C3"], strong_weak=ds, strong_weak_steps=made_steps())


def test_where_weak_runs_take_as_many_updates_and_miss_the_document_is_replicated():
    found = verdicts(lambda rule, workers: 6 if rule == "strong" else 7 * workers)
    assert {name: one.outcome for name, one in found.items()} == dict.fromkeys(("C1", "C2", "C3"), "replicated")
    follows, missed = found["C2"].estimates
    assert follows.low < 1 < follows.high
    assert missed.value == pytest.approx(3 * 3 / 15)


def test_where_weak_runs_need_far_fewer_epochs_they_are_first():
    found = verdicts(lambda rule, workers: 11 if rule == "strong" and workers > 1 else 4, noise=0.001)
    assert found["C1"].outcome == "not replicated"
    assert all(estimate.high < 1 for estimate in found["C1"].estimates)
    assert found["C2"].outcome == "not replicated"
    assert found["C3"].outcome == "replicated"


def test_without_steps_or_with_one_seed_nothing_is_judged():
    ds = made(lambda rule, workers: 10)
    assert claims.published_verdicts(["C1"], strong_weak=ds)["C1"].outcome == "not yet measured"
    one = made(lambda rule, workers: 10, seeds=(0,))
    found = claims.published_verdicts(["C1", "C2"], strong_weak=one, strong_weak_steps=made_steps())
    assert {verdict.outcome for verdict in found.values()} == {"not yet measured"}
