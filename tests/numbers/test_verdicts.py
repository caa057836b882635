"""The estimates that decide verdicts, and the verdicts."""

from agreement import agrees

from dolb import claims


def test_effects_and_verdicts():
    table = claims.table(claims.published_verdicts())
    assert table["n"].dtype == int  # a float would be written so in every row
    measured = table[table["n"] > 0]
    agrees(
        measured[["claim", "effect", "ours", "low", "high", "n", "part", "verdict"]], "verdicts", ["claim", "effect"]
    )
