"""Whether the weight decays that were run hold the best one is said by batch size."""

from __future__ import annotations

from made_runs import joined, made_run

from dolb.findings import decays
from dolb.findings import filtered as study


def cells(by_decay, at_128=None, subset="full"):
    runs = [
        made_run((accuracy,) * 5, subset=subset, batch_size=size, weight_decay=decay, seed=seed)
        for size, row in ((256, by_decay), (128, at_128 or {}))
        for decay, accuracy in row.items()
        for seed in (0, 1)
    ]
    table = study.cells(joined(runs))
    return table[table["equal"] == "epochs"]


def test_accuracies_that_rise_to_the_largest_decay_are_said_to_end_at_the_edge():
    said = [{"set": "full", "batch_size": 256, "accuracy": 0.826}, {"set": "full", "batch_size": 64, "accuracy": 0.8}]
    told = decays.in_words(cells({0.005: 0.81, 0.01: 0.83, 0.0135: 0.85}), said)
    assert "rises with the weight decay on full data (81.0% at 0.005, 85.0% at 0.0135)" in told
    assert "at the edge of the grid" in told
    assert "The best are 85.0% on full data (in the paper 82.6%)." in told


def test_a_best_decay_inside_the_grid_is_no_edge():
    told = decays.in_words(cells({0.005: 0.81, 0.01: 0.85, 0.0135: 0.83}), [])
    assert told == "At batch 256 0 of 1 sets do best at the largest weight decay, 0.0135."
    assert "no set was run with two weight decays" in decays.in_words(cells({0.005: 0.81}), [])


def test_no_edge_is_claimed_where_some_decays_of_the_grid_were_not_run():
    part = cells({0.005: 0.81, 0.01: 0.85, 0.0135: 0.83}, {0.005: 0.8, 0.01: 0.9})
    told = decays.in_words(part, [{"set": "full", "batch_size": 128, "accuracy": 0.8}])
    assert "At batch 128 no set was run with all 3 weight decays yet (full at 0.005 and 0.01)." in told
    assert "edge" not in told
    assert "The best are" not in told
