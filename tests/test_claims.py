"""Verdicts follow from runs: made curves with a known shape get the verdict that the shape deserves."""

from itertools import chain

import pytest
from made_runs import made_curve, made_run

from dolb import claims, results

PEAK = {16: 0.60, 64: 0.70, 256: 0.80, 1024: 0.75, 8192: 0.60}
FALL = {16: 0.80, 64: 0.75, 256: 0.70, 1024: 0.65, 8192: 0.50}


@pytest.fixture(scope="module")
def every_claim(repo_root):
    return claims.load(repo_root / "book" / "claims.yml")[1]


def verdict(every_claim, name, *curves):
    return claims.judge(every_claim, {"batch-size": results.merge(chain(*curves))})[name]


def shares(**accuracy_by_workers):
    return [
        made_run((value,) * 5, batch_size=256, lr=0.1, bn_workers=int(workers[1:]))
        for workers, value in accuracy_by_workers.items()
    ]


def test_every_claim_has_what_the_book_shows(every_claim, repo_root):
    sources, _ = claims.load(repo_root / "book" / "claims.yml")
    for claim in every_claim.values():
        assert claim.source in sources
        assert claim.kind in ("value", "order", "trend", "fact")
        assert len(claim.statement) > 20


def test_a_claim_without_results_is_not_yet_measured(every_claim):
    assert {v.outcome for v in claims.judge(every_claim, {}).values()} == {"not yet measured"}


def test_g1_is_replicated_where_every_curve_has_an_optimum_inside(every_claim):
    found = verdict(every_claim, "G1", made_curve(PEAK, lr=0.1), made_curve(PEAK, lr=0.01))
    assert found.outcome == "replicated"
    assert "rate 0.1: 256" in found.ours


def test_g1_is_mixed_where_one_curve_only_falls(every_claim):
    found = verdict(every_claim, "G1", made_curve(PEAK, lr=0.1), made_curve(FALL, lr=0.01))
    assert found.outcome == "mixed"
    assert "1 of 2 curves" in found.ours
    assert "no rise" in found.ours


def test_g1_is_not_replicated_where_no_curve_rises(every_claim):
    assert verdict(every_claim, "G1", made_curve(FALL, lr=0.1)).outcome == "not replicated"


def test_a_curve_with_few_batch_sizes_is_not_judged(every_claim):
    few = made_curve({16: 0.5, 256: 0.6}, lr=0.1)
    assert verdict(every_claim, "G1", few).outcome == "not yet measured"
    assert verdict(every_claim, "G1", made_curve(PEAK, lr=0.1), made_curve({16: 0.5}, lr=3.0)).outcome == "replicated"


def test_g4_is_no_more_than_mixed_before_the_shares_are_measured(every_claim):
    found = verdict(every_claim, "G4", made_curve(PEAK, lr=0.1), made_curve(FALL, lr=0.01))
    assert found.outcome == "mixed"
    assert "not published yet" in found.reason


def test_g4_needs_a_loss_from_smaller_shares_too(every_claim):
    worse, same = shares(w1=0.80, w32=0.75, w128=0.60), shares(w1=0.80, w32=0.80, w128=0.80)
    assert verdict(every_claim, "G4", made_curve(PEAK, lr=0.1), worse).outcome == "replicated"
    assert verdict(every_claim, "G4", made_curve(PEAK, lr=0.1), same).outcome == "mixed"
    mended = verdict(every_claim, "G4", made_curve(FALL, lr=0.01), made_curve(PEAK, lr=0.1), same)
    assert mended.outcome == "not replicated"


def test_runs_with_other_shares_stay_out_of_the_curve():
    ds = results.merge([*made_curve(PEAK, lr=0.1), *shares(w1=0.99, w32=0.99, w128=0.99)])
    cells = claims.curve_cells(ds)
    assert cells.loc[cells["batch_size"] == 256, "accuracy"].item() == pytest.approx(0.80)


def test_reported_points_are_those_of_the_claims(every_claim):
    points = {row["batch_size"]: row["accuracy"] for row in claims.reported_accuracies(every_claim)}
    assert points == {256: pytest.approx(0.826), 6272: pytest.approx(0.752)}


def test_an_unknown_outcome_is_refused(every_claim):
    with pytest.raises(ValueError, match="accepted: replicated"):
        claims.Verdict(every_claim["G1"], "proven")
