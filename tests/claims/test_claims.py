"""Claims are read from the book's list, judged by their judges, and told as rows of a table."""

import math

import pytest
from made_runs import made_curve

from dolb import claims, results
from dolb.claims.rule import Verdict
from dolb.findings.intervals import Estimate


@pytest.fixture(scope="module")
def every_claim():
    return claims.load()


def test_every_claim_says_what_it_reports_and_why_its_smallest_effect_is_that_and_every_judge_has_one(every_claim):
    assert len(every_claim) == 41
    assert set(claims.JUDGES) <= set(every_claim)
    for claim in every_claim.values():
        assert len(claim.statement) > 20
        assert claim.quoted
        assert claim.effects or claim.kind == "fact" or claim.not_testable, claim.id
        assert claim.why or not claim.effects, f"{claim.id} does not say why its smallest effect is that"
        assert claim.decided in ("before", "after")


def test_without_results_a_claim_is_not_yet_measured_or_not_testable(every_claim):
    outcomes = {name: verdict.outcome for name, verdict in claims.judge(every_claim, {}).items()}
    assert {name for name, outcome in outcomes.items() if outcome == "not testable here"} == {"G18", "J4"}
    assert set(outcomes.values()) == {"not yet measured", "not testable here"}


def test_too_few_runs_are_no_verdict(every_claim):
    judged = claims.judge(every_claim, {"batch-size": results.merge(made_curve({64: 0.5}))})
    assert {judged[name].outcome for name in ("G1", "G2", "G3", "G4")} == {"not yet measured"}


def test_reported_points_are_those_of_the_claims(every_claim):
    points = {row["batch_size"]: row["accuracy"] for row in claims.reported_accuracies(every_claim)}
    assert points == {256: pytest.approx(0.826), 6272: pytest.approx(0.752)}


def test_the_table_has_a_row_for_each_effect_and_one_for_a_claim_without(every_claim):
    one = every_claim["G1"]
    estimates = (Estimate(2.0, 1.0, 3.0, 5), Estimate(0.1, -3.0, 3.0, 5))
    verdicts = {"G1": Verdict(one, "inconclusive", estimates, ("replicated", "inconclusive"))}
    verdicts["J4"] = claims.judge(every_claim, {})["J4"]
    table = claims.table(verdicts)
    assert table["claim"].tolist() == ["G1", "G1", "J4"]
    assert table["part"].tolist() == ["replicated", "inconclusive", "not testable here"]
    assert table["ours"].tolist()[:2] == [2.0, 0.1]
    assert math.isnan(table["ours"][2])
