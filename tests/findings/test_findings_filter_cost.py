"""What a mask costs, part by part, whatever of it was found in the store."""

from __future__ import annotations

import pytest
from test_summary_noise import made_mask, without

from dolb import results
from dolb.findings import filter_cost as study


def timed(network=0.0, features=0.0, mapping=0.0, score=0.0, choice=1.0, within="", **changes):
    seconds = dict(zip(study.PARTS, (network, features, mapping, score, choice), strict=True))
    named = {name: ("run", [value]) for name, value in {**seconds, "within": within}.items()}
    return made_mask(without(1), **changes).assign_coords(named)


@pytest.fixture(scope="module")
def ds():
    used = timed(100.0, 10.0, 40.0)
    again = timed(210.0, 19.0, 78.0, choice=2.0, within=used["key"].item(), network_accuracy=0.7)
    others = [
        timed(100.0, 10.0, 41.0, map_seed=1),
        timed(100.0, 10.0, 39.0, filter="hdbscan"),
        timed(filter="random"),
        timed(500.0, score=3.0, filter="confident"),
        timed(500.0, score=2.0, filter="flagged"),
    ]
    return results.merge([used, again, *others])


def test_each_method_has_its_parts_dearest_first(ds):
    table = study.costs(ds)
    totals = table.drop_duplicates("method").set_index("method")["total"]
    assert totals.to_dict() == {"confident": 504, "recursive": 309, "map and noise": 151, "random": 1}
    assert list(totals) == sorted(totals, reverse=True)
    assert table.groupby("method")["seconds"].sum().to_dict() == totals.to_dict()
    ours = table[table["method"] == "map and noise"].set_index("part")["seconds"]
    assert ours.to_dict() == {"training": 100, "features": 10, "map": 40, "scores": 0, "choice": 1}


def test_the_words_have_every_method_and_how_much_is_training(ds):
    told = study.costs_in_words(study.costs(ds))
    assert "map and noise 151 s, 66% of it training" in told  # 100 of 151
    assert "random 1 s" in told


def test_a_mask_that_was_not_timed_is_left_out(ds):
    untimed = ds.assign_coords(map_seconds=ds["map_seconds"].where(ds["filter"] != "random"))
    assert "random" not in set(study.costs(untimed)["method"])
    bare = ds.drop_vars(list(study.PARTS))
    assert study.costs(bare).empty
    assert study.costs_in_words(study.costs(bare)) == "What these masks cost was not recorded."


def test_the_parts_of_one_mask_are_told_with_their_sum(ds):
    told = study.parts_in_words(ds.isel(run=0))
    assert told.startswith("training 100.0 s, features 10.0 s, map 40.0 s, choice 1.0 s: 151 seconds in all")
    assert "not recorded" in study.parts_in_words(ds.isel(run=0).drop_vars(list(study.PARTS)))


def test_beside_the_mask_in_use_the_cost_is_told_of_the_sets_that_runs_have(ds):
    told = study.of_sets_in_words(ds, {"full", "network", "random", "confident"})
    assert told.startswith("Seconds of the device and its host for a mask: confident 504 s")
    assert "map and noise 151 s" in told
    assert "random" not in told
    assert study.of_sets_in_words(ds, {"full", "network", "random"}) == ""
    assert study.of_sets_in_words(None, {"confident"}) == ""
