"""Planted faults: precision and recall by hand-made counts, over seeds, and the order of methods."""

import pytest
from made_planted import made_planted

from dolb import results
from dolb.findings import own_data as study


@pytest.fixture
def ds():
    parts = [
        made_planted({"random": (50, 3 + seed), "paper": (50, 40 + 2 * seed), "knee": (0, 0)}, seed, kind, share)
        for seed in (0, 1)
        for kind in ("flipped", "garbage")
        for share in (0.05, 0.1)
    ]
    return results.merge(parts)


def test_precision_is_of_the_removed_and_recall_of_the_planted(ds):
    cells = study.cells(ds)
    paper = cells.query("kind == 'flipped' and removed_share == 0.05 and method == 'paper'").set_index("measure")
    assert paper.loc["precision", "value"] == pytest.approx((40 / 50 + 42 / 50) / 2)
    assert paper.loc["recall", "value"] == pytest.approx((40 / 60 + 42 / 60) / 2)
    assert (paper["low"] < paper["value"]).all()
    assert (paper["n"] == 2).all()
    assert paper.loc["recall", "removed"] == 0.05
    assert (cells.query("method == 'knee'")["value"] == 0).all()  # who removes nothing is right in nothing
    assert cells["low"].min() >= 0
    assert cells["high"].max() <= 1


def test_methods_are_in_the_order_of_what_they_find(ds):
    assert list(study.table(ds)["method"]) == ["paper", "random", "knee"]
    assert list(study.by_fault_table(ds)["method"]) == ["paper", "random", "knee"]


def test_each_kind_of_garbage_is_counted_for_itself(ds):
    recall = study.by_fault(ds).set_index(["method", "fault"])["value"]
    assert recall["random", "noise"] == pytest.approx(3.5 / 20)
    assert recall["random", "blank"] == 0
