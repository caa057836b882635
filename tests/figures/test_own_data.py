"""The figure of planted faults: every share can be chosen, both kinds are drawn, one seed is enough."""

from drawn import offered, rows
from made_planted import made_planted

from dolb import results
from dolb.figures import own_data as figures
from dolb.findings import own_data as study


def test_every_share_can_be_chosen_and_both_kinds_are_drawn():
    parts = [
        made_planted({"paper": (50, 40 + seed)}, seed, kind, share)
        for seed in (0, 1)
        for kind in ("flipped", "garbage")
        for share in (0.025, 0.05, 0.1)
    ]
    chart = figures.found_faults(study.cells(results.merge(parts)), study.USUAL)
    assert offered(chart, "share") == ["2.5%", "5%", "10%"]
    assert {row["planted"] for row in rows(chart)} == set(study.KINDS.values())
    one_seed = figures.found_faults(study.cells(made_planted({"paper": (50, 40)})), study.USUAL)
    assert {(row["low"], row["high"]) for row in rows(one_seed)} == {(0, 1)}  # an interval that says nothing
