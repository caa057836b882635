"""The figure of planted faults: every share can be chosen, both kinds are drawn, one seed is enough."""

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
    spec = figures.found_faults(study.cells(results.merge(parts)), study.USUAL).to_dict()
    options = next(one["bind"]["options"] for one in spec["params"] if one["name"] == "share")
    assert options == ["2.5%", "5%", "10%"]
    (drawn,) = spec["datasets"].values()
    assert {row["planted"] for row in drawn} == set(study.KINDS.values())


def test_one_seed_is_drawn_with_an_interval_that_says_nothing():
    cells = study.cells(made_planted({"paper": (50, 40)}))
    (drawn,) = figures.found_faults(cells, study.USUAL).to_dict()["datasets"].values()
    assert {(row["low"], row["high"]) for row in drawn} == {(0, 1)}
