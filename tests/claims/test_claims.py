"""Claims are read from the book's list, and a verdict is one of the words that the book explains."""

import numpy as np
import pandas as pd
import pytest

from dolb import claims
from dolb.claims.claim import counted, of_parts, ordered, outcome, sign, signs, so_far
from dolb.findings import alike, filtered


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
    ("holds", "refuted", "lacking", "expected"),
    [
        ([True, True], False, 0, "replicated"),
        ([True, None], False, 0, "mixed"),
        ([True, False], False, 0, "mixed"),
        ([False, None], False, 0, "not replicated"),
        ([True, None], True, 0, "not replicated"),
        ([None, None], False, 0, "mixed"),
        ([False, False], True, 1, "not replicated"),
        ([None], True, 2, "not replicated"),
        ([True, False], False, 1, "mixed"),
        ([True, True], False, 1, "not yet measured"),
        ([True, None], False, 1, "not yet measured"),
    ],
)
def test_a_claim_of_order_is_judged_by_signs_and_by_all_together(holds, refuted, lacking, expected):
    assert ordered(holds, refuted, lacking) == expected


def test_an_interval_around_zero_says_neither():
    assert (sign(0.1, 0.2), sign(-0.2, -0.1), sign(-0.1, 0.1)) == (True, False, None)


@pytest.mark.parametrize(
    ("holds", "expected"),
    [
        ([True, True], "not yet measured"),
        ([None], "not yet measured"),
        ([False, False], "not replicated"),
        ([True, False], "mixed"),
    ],
)
def test_a_claim_that_is_measured_in_part_has_the_outcome_that_the_rest_cannot_mend(holds, expected):
    assert so_far(outcome(*holds), holds, 1) == expected
    assert so_far(outcome(*holds), holds, 0) == outcome(*holds)


def test_what_is_measured_in_part_is_counted_so_far():
    told = counted("batch sizes", [True, None], 1)
    assert told == "So far 2 of 3 batch sizes are run in full: 1 for the claim, 0 against it, 1 that cannot tell."


def made_differences(rng, cells, seeds, gain=0.0):
    """Make the table of differences at some cells, seeds of each around one gain; all cells spread alike."""
    size, seed = (values.ravel() for values in np.meshgrid(np.arange(cells), np.arange(seeds), indexing="ij"))
    runs = pd.DataFrame({"batch_size": size, "weight_decay": 0.0, "seed": seed})
    one = runs.assign(set="network", accuracy=gain + rng.standard_normal(len(runs)))
    return filtered.differences(pd.concat([one, runs.assign(set="full", accuracy=0.0)]), "network", "full")


def test_where_nothing_differs_a_single_difference_seldom_refutes():
    worlds, cells, alone, corrected = 150, 12, 0, 0
    every = made_differences(np.random.default_rng(0), worlds * cells, seeds=3)
    for _, table in every.groupby(every.index // cells):
        own = [sign(row["low"], row["high"]) for row in table.to_dict("records")]
        alone += ordered(own, refuted=False) == "not replicated"
        found = signs(alike.with_one_spread(table).to_dict("records"))
        corrected += ordered(found, refuted=False) == "not replicated"
    # Each of twelve lies below zero in one of forty worlds: uncorrected, in 1 - 0.975**12 = 26% at least one does.
    assert alone / worlds > 0.15
    assert corrected / worlds <= 0.05


def test_a_difference_whose_seeds_hardly_differ_by_luck_does_not_decide():
    table = pd.DataFrame(
        {
            "difference": [-0.39, -0.67, -0.2], "low": [-0.44, -1.84, -1.4], "high": [-0.34, 0.49, 1.0],
            "p": [0.001, 0.13, 0.5], "n": [3, 3, 3],
        }
    )  # fmt: skip
    assert sign(table["low"][0], table["high"][0]) is False
    assert signs(alike.with_one_spread(table).to_dict("records")) == [None, None, None]


def test_a_clear_loss_still_speaks_against_a_claim():
    table = made_differences(np.random.default_rng(1), cells=4, seeds=3, gain=-6.0)
    assert signs(alike.with_one_spread(table).to_dict("records")) == [False] * 4
