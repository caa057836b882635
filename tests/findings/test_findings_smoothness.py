"""What loss landscapes say of the filter in words: which half of it is smoother, and where training ends."""

from __future__ import annotations

import pandas as pd
import pytest
from made_landscapes import made_landscape, made_study

from dolb import results
from dolb.findings import landscape as study
from dolb.findings import smoothness


def ratios(curvature, **more):
    return study.ratios(study.values(made_study(curvature, **more)))


@pytest.mark.parametrize(
    ("of_network", "says"),
    [
        (0.5, "filtered data are flatter: "),
        (2.0, "filtered data are sharper: "),
        (1.0, "filtered data are not flatter: "),
    ],
)
def test_over_common_images_the_weights_are_judged(of_network, says):
    told = smoothness.meaning_in_words(ratios(lambda name, over: of_network if name == "network" else 1.0))
    assert says in told
    # The network of full data has the same curvature over every set, whatever others have.
    assert "filtered images is not less curved: " in told


def test_intervals_are_counted_by_the_side_of_one_that_they_lie_on():
    rows = pd.DataFrame({"low": [0.5, 1.1, 0.9, float("nan")], "high": [0.9, 1.3, 1.2, float("nan")]})
    assert smoothness.tally(rows) == (1, 1, 2)
    assert smoothness.tally_in_words(rows) == "smoother in 1, rougher in 1, cannot tell in 2 of 4"


def test_of_one_seed_nothing_is_said():
    told = smoothness.meaning_in_words(ratios(lambda name, over: 1.0, seeds=1))
    assert told == "Two seeds of networks on two sets are not there yet."


def test_lengths_differ_between_all_networks_and_within_a_batch_size():
    parts = []
    for size, lengths in {256: (2.0, 2.2), 6272: (4.0, 4.0)}.items():
        for seed, length in enumerate(lengths):
            one = made_landscape(batch_size=size, seed=seed)
            one["weight_norm"][:] = length
            parts.append(one)
    told = smoothness.lengths_in_words(results.merge(parts))
    assert told.startswith(
        "up to 2.00 over all networks, but within a batch size by no more than 1.10 at batch 256 and"
    )


def test_where_training_ends_is_a_row_for_each_batch_size_and_set():
    table = smoothness.weights_table(made_study(lambda name, over: 0.5 if over == "network" else 1.0, noise=0.0))
    assert list(table.index)[:3] == ["full, batch 256", "network, batch 256", "random, batch 256"]
    assert list(table["loss over its own set"])[:3] == ["1.000", "0.500", "1.000"]
    assert set(table["test accuracy"]) == {"80.0%"}
    assert set(table["length of the filters"]) == {"2.0"}
