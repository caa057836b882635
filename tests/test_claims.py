"""Claims are read from the book's list, and a verdict is one of the words that the book explains."""

import pytest

from dolb import claims
from dolb.claims.claim import of_parts, ordered, outcome, sign


@pytest.fixture(scope="module")
def every_claim(repo_root):
    return claims.load(repo_root / "book" / "claims.yml")[1]


def test_every_claim_has_what_the_book_shows(every_claim, repo_root):
    sources, _ = claims.load(repo_root / "book" / "claims.yml")
    for claim in every_claim.values():
        assert claim.source in sources
        assert claim.kind in ("value", "order", "trend", "fact")
        assert len(claim.statement) > 20


def test_every_judge_has_a_claim(every_claim):
    assert set(claims.JUDGES) <= set(every_claim)


def test_a_claim_without_results_is_not_yet_measured(every_claim):
    assert {v.outcome for v in claims.judge(every_claim, {}).values()} == {"not yet measured"}


def test_reported_points_are_those_of_the_claims(every_claim):
    points = {row["batch_size"]: row["accuracy"] for row in claims.reported_accuracies(every_claim)}
    assert points == {256: pytest.approx(0.826), 6272: pytest.approx(0.752)}


def test_a_figure_can_show_what_a_claim_says(every_claim):
    (line,) = claims.statements(every_claim, "G3")
    assert every_claim["G3"].statement in line
    assert "Fig 5" in line


def test_an_unknown_outcome_is_refused(every_claim):
    with pytest.raises(ValueError, match="accepted: replicated"):
        claims.Verdict(every_claim["G1"], "proven")


@pytest.mark.parametrize(
    ("holds", "expected"),
    [
        ([True, True], "replicated"),
        ([False, False], "not replicated"),
        ([True, False], "mixed"),
        ([None], "mixed"),
        ([False, None], "mixed"),
    ],
)
def test_the_outcome_of_parts(holds, expected):
    assert outcome(*holds) == expected


@pytest.mark.parametrize(
    ("holds", "expected"),
    [
        ((True, True, True), "replicated"),
        ((None, False, None), "not replicated"),
        ((True, False, None), "mixed"),
        ((True, None, None), "mixed"),
        ((None, None, None), "mixed"),
    ],
)
def test_of_a_claim_that_says_several_things_one_that_fails_refutes_it_unless_another_holds(holds, expected):
    assert of_parts(*holds) == expected


@pytest.mark.parametrize(
    ("signs", "refuted", "lacking", "expected"),
    [
        ([True, True], False, 0, "replicated"),
        ([True, None], False, 0, "mixed"),
        ([True, False], False, 0, "mixed"),
        ([False, None], False, 0, "not replicated"),
        ([True, None], True, 0, "not replicated"),
        ([None, None], False, 0, "mixed"),
        ([False, False], True, 1, "mixed"),
        ([True, True], False, 1, "mixed"),
    ],
)
def test_a_claim_of_order_is_judged_by_signs_and_by_all_together(signs, refuted, lacking, expected):
    assert ordered(signs, refuted, lacking) == expected


def test_an_interval_around_zero_says_neither():
    assert (sign(0.1, 0.2), sign(-0.2, -0.1), sign(-0.1, 0.1)) == (True, False, None)
