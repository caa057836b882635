"""The estimates that decide verdicts, and the verdicts."""

from agreement import agrees

from dolb import claims


def test_effects_and_verdicts():
    table = claims.table(claims.published_verdicts())
    measured = table[table["n"] > 0]
    agrees(
        measured[["claim", "effect", "ours", "low", "high", "n", "part", "verdict"]], "verdicts", ["claim", "effect"]
    )
