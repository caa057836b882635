"""One rule for every verdict: an interval, the smallest effect that counts, and what follows."""

import math

import pytest

from dolb.claims.rule import Claim, Effect, verdict
from dolb.findings.intervals import Estimate

POINTS = Effect("filtered less full", "points", 1.0)
SAME = Effect("linear less none", "points", 1.0, no_difference=True)
RATIO = Effect("one over the other", "ratio", 1.25)
SAME_RATIO = Effect("one over the other", "ratio", 1.25, no_difference=True)


@pytest.mark.parametrize(
    ("effect", "low", "high", "outcome"),
    [
        (POINTS, 0.1, 1.0, "replicated"),
        (POINTS, 1.5, 2.0, "replicated"),
        (POINTS, 0.1, 0.9, "smaller than claimed"),
        (POINTS, 0.0, 0.9, "not replicated"),
        (POINTS, -3.0, -2.0, "not replicated"),
        (POINTS, -0.1, 1.0, "inconclusive"),
        (POINTS, -math.inf, math.inf, "inconclusive"),
        (SAME, -1.0, 0.9, "replicated"),
        (SAME, 0.1, 0.9, "replicated"),
        (SAME, 0.1, 1.1, "inconclusive"),
        (SAME, 1.1, 2.0, "not replicated"),
        (SAME, -3.0, -1.1, "not replicated"),
        (RATIO, 1.01, 1.3, "replicated"),
        (RATIO, 1.01, 1.2, "smaller than claimed"),
        (RATIO, 0.7, 1.2, "not replicated"),
        (RATIO, 0.7, 1.3, "inconclusive"),
        (SAME_RATIO, 0.81, 1.24, "replicated"),
        (SAME_RATIO, 0.79, 1.1, "inconclusive"),
        (SAME_RATIO, 0.5, 0.7, "not replicated"),
    ],
)
def test_an_outcome_follows_from_the_interval_and_the_smallest_effect(effect, low, high, outcome):
    assert effect.outcome(Estimate((low + high) / 2, low, high, 5)) == outcome


def claim(*effects, **more):
    return Claim("X1", "someone2020", "Fig 1", "batch-size", "it grows", "a lot", "before", effects=effects, **more)


def test_of_several_parts_the_worst_outcome_counts():
    good, small, wide = Estimate(2, 1, 3, 5), Estimate(0.5, 0.1, 0.9, 5), Estimate(0, -2, 2, 5)
    assert verdict(claim(POINTS, POINTS), [good, small]).outcome == "smaller than claimed"
    assert verdict(claim(POINTS, POINTS, POINTS), [good, wide, small]).outcome == "inconclusive"
    assert verdict(claim(POINTS, POINTS), [wide, Estimate(-2, -3, -1, 5)]).outcome == "not replicated"


def test_a_part_that_was_not_measured_waits_and_one_that_cannot_be_had_is_not_testable():
    assert verdict(claim(POINTS, POINTS), [Estimate(2, 1, 3, 5), None]).outcome == "not yet measured"
    assert verdict(claim(POINTS), [Estimate(2, 1, 3, 1)]).outcome == "not yet measured"  # of one repetition
    assert verdict(claim(POINTS), None).outcome == "not yet measured"
    assert verdict(claim(not_testable="no such machine"), None).outcome == "not testable here"
    beyond = verdict(claim(POINTS, kind="beyond", not_testable="1,536 GPUs"), [Estimate(2, 1, 3, 5)])
    assert (beyond.outcome, beyond.outcomes) == ("not testable here", ("replicated",))


def test_a_fact_holds_or_does_not():
    assert [verdict(claim(kind="fact"), found).outcome for found in (True, False, None)] == [
        "replicated", "not replicated", "not yet measured"
    ]  # fmt: skip
