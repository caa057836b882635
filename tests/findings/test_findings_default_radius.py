"""What the default radius keeps is told with the network it is by, and runs on it with those on full data."""

from __future__ import annotations

import pytest
from made_runs import joined
from test_summary_filtered import EXAMPLES, KEPT, run
from test_summary_noise import EXAMPLES as MAPPED
from test_summary_noise import made_mask, without

from dolb import results
from dolb.findings import default_radius as study


@pytest.fixture
def full():
    return joined([run("full", 0.8 + seed / 100, seed=seed) for seed in range(3)])


def test_runs_of_another_experiment_stand_beside_those_on_full_data_at_their_batch_sizes(full):
    both = study.beside_full(full, joined([run("network-b-2", 0.5, seed=seed) for seed in (0, 1)]))
    assert set(both["subset"].to_numpy()) == {"full", "network-b-2"}
    assert study.beside_full(full, joined([run("network-b-2", 0.5, batch_size=700)])) is None
    assert study.beside_full(full, joined([run("random-b-3", 0.5)])) is None


def test_what_is_kept_is_told_with_the_network_whose_map_it_is_of(full):
    both = study.beside_full(full, joined([run("network-b-2", 0.5, seed=seed) for seed in (0, 1)]))
    weak, good = made_mask(without(*range(60)), network_accuracy=0.71), made_mask(without(0, 1), network_accuracy=0.87)
    masks = results.merge([weak, good])
    told = study.kept_in_words(both, masks, str(weak["key"].item()))
    assert f"reach 87.0% on the test set, it calls {200 / MAPPED:.1f}% of a map noise (1 maps)" in told
    assert f"that network reaches 71.0%, {60 / MAPPED:.1%} of its map is noise" in told
    assert f"{KEPT} of {EXAMPLES:,} images are left" in told
    assert "recipe of this page" in study.kept_in_words(both, None, "")
    assert study.kept_in_words(None, masks, "") == "Runs on what it leaves are not among these."


def test_the_main_result_is_told_at_equal_epochs_and_updates(full):
    parts = []
    for seed in range(3):
        for epochs, network in ((8, 0.6), (10, 0.65)):
            parts.append(run("network-b-2", network + seed / 1000, seed=seed, epochs=epochs))
            parts.append(run(f"random-b-{seed}", 0.62, seed=seed, epochs=epochs))
    told = study.main_in_words(study.beside_full(full, joined(parts)))
    assert "at equal epochs network filtered data lose to random data, -1.90 (" in told  # 2.0, 1.9 and 1.8
    assert "at equal updates network filtered data beat random data, +3.10 (" in told
    assert study.main_in_words(None) == ""
