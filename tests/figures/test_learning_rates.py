"""Figures of warmup and rate scaling show what was run, what was reported, and offer their choices."""

import pandas as pd
from drawn import offered, rows, svg

from dolb.figures import learning_rates as figures

CELL = {"low": 0.7, "high": 0.9, "n": 3, "updates": 100, "diverged": 0, "late_drops": 0, "accuracy": 0.8}
CELLS = pd.DataFrame(
    [
        {"arch": arch, "lr": lr, "batch_size": size, "warmup_epochs": length, **CELL}
        for arch in ("resnet18", "resnet50")
        for lr in (0.00125, 0.0125)
        for size in (300, 1200)
        for length in (0.0, 5.0)
    ]
)
BEST = CELLS.groupby(["arch", "batch_size"], as_index=False).first().assign(best=0.005, low=0.003, high=0.008)


def test_accuracy_by_warmup_shows_the_best_of_the_document_and_offers_network_and_rate():
    said = pd.DataFrame({"batch_size": [300], "warmup_epochs": [5.0], "what": "Fig. 6"})
    chart = figures.accuracy_by_warmup(CELLS, said)
    assert "reported: Fig. 6" in svg(chart)
    assert offered(chart, "chosen_arch") == ["resnet18", "resnet50"]
    assert offered(chart, "chosen_lr") == [0.00125, 0.0125]
    one = CELLS[(CELLS["arch"] == "resnet50") & (CELLS["lr"] == 0.0125)]
    assert not offered(figures.accuracy_by_warmup(one, said[:0]), "chosen_arch")


def test_the_map_of_rates_has_the_best_rates_of_the_chosen_network():
    chart = figures.accuracy_by_rate_and_batch(CELLS[CELLS["warmup_epochs"] == 5], BEST, BEST["arch"])
    assert offered(chart, "chosen_arch") == ["resnet18", "resnet50"]
    assert "batch size: 1200; best: 0.005" in svg(chart)


def test_losses_by_rule_leave_out_rates_beyond_the_ladder():
    table = pd.DataFrame(
        {"arch": "resnet18", "batch_size": [150, 300], "rule": "linear", "lr": [0.1, 9.0], "accuracy": [0.8, None],
         "lost": [0.0, None]}
    )  # fmt: skip
    drawn = svg(figures.accuracy_by_rule(table))
    assert "batch size: 150" in drawn
    assert "batch size: 300" not in drawn


REMEDIES = pd.DataFrame(
    [
        {"batch_size": size, "method": method, "remedies": method, "accuracy": 0.8, "low": 0.79, "high": 0.81, "n": 5,
         "gain": gain, "gain_low": gain - 1, "gain_high": gain + 1, "target": target, "updates": 100.0,
         "seconds": None if (method, target) == ("plain", 0.85) else 2.0}
        for method, gain in (("LARS", 1.5), ("plain", 0.0))
        for size in (1024, 16384)
        for target in (0.8, 0.85)
    ]
)  # fmt: skip


def test_gains_are_over_the_plain_recipe_and_times_of_targets_that_are_reached():
    gains = svg(figures.gain_by_remedy(REMEDIES[REMEDIES["target"] == 0.8]))
    assert "points over plain: +1.50" in gains
    assert "method: plain" not in gains
    times = figures.time_by_remedy(REMEDIES)
    assert offered(times, "chosen_target") == [0.8, 0.85]
    assert "method: plain" in svg(times)
    assert {row["target"] for row in rows(times) if row["method"] == "plain"} == {0.8}
