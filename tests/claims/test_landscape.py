"""The verdict on the loss landscape, from curvature made so that the answer is known."""

import pytest
from made_landscapes import made_study

from dolb import claims


def verdict(curvature, **changes):
    claim = claims.load()["G16"]
    return claims.judge({"G16": claim}, {"loss-landscape": made_study(curvature, **changes)})["G16"]


@pytest.mark.parametrize(
    ("others", "outcome"), [(1.5, "replicated"), (1.1, "smaller than claimed"), (0.9, "not replicated")]
)
def test_curvature_of_other_sets_over_that_of_filtered_data_decides(others, outcome):
    found = verdict(lambda name, over: 1.0 if name == "network" else others)
    assert found.outcome == outcome
    assert (found.estimates[0].value, found.estimates[0].n) == (pytest.approx(others, rel=0.05), 5)


def test_images_at_the_same_weights_decide_nothing():
    found = verdict(lambda name, over: {"full": 2.0, "network": 1.0, "random": 2.0}[over], noise=0.0)
    # Over its own set a network of filtered data has half of the curvature; over full data all have the same.
    assert found.estimates[0].value == pytest.approx(2**0.5)


def test_one_batch_size_or_one_seed_is_not_enough():
    for less in ({"sizes": (256,)}, {"seeds": 1}):
        assert verdict(lambda name, over: 1.0, **less).outcome == "not yet measured"
