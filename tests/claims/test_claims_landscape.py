"""The verdict on the loss landscape, from networks made so that the answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from made_landscapes import made_study

from dolb import claims


@pytest.fixture(scope="module")
def every_claim():
    return claims.load()[1]


@pytest.fixture(scope="module")
def verdict(every_claim):
    return lambda ds: claims.judge({"G16": every_claim["G16"]}, {"loss-landscape": ds})["G16"]


def test_less_curvature_over_every_set_replicates_the_claim(verdict):
    found = verdict(made_study(lambda name, over: 0.5 if name == "network" else 1.0))
    assert found.outcome == "replicated"
    # Each measure beside the one that decides has two batch sizes and two other sets; here none differs from it.
    for words in ("normalized trace", "normalized bend", "rise of the surface"):
        assert found.ours.count(f"{words} smoother in 4, rougher in 0, cannot tell in 0 of 4") == 2  # in both readings
    assert "at batch 6,272" in found.ours


def test_the_top_eigenvalue_decides_and_the_other_measures_do_not(verdict):
    ds = made_study(lambda name, over: 0.5 if name == "network" else 1.0)
    for name in ("normalized_trace", "normalized_sharpness"):
        ds[name] = 1 / ds[name]
    ds["normalized_sharpness_slope"] = ds["normalized_sharpness"] / 2
    found = verdict(ds)
    assert found.outcome == "replicated"
    assert "normalized trace smoother in 0, rougher in 4, cannot tell in 0 of 4" in found.ours
    assert "rise of the surface smoother in 4, rougher in 0, cannot tell in 0 of 4" in found.ours
    ds["normalized_eigenvalue"] = 1 / ds["normalized_eigenvalue"]
    assert verdict(ds).outcome == "not replicated"


def test_more_curvature_over_every_set_does_not(verdict):
    assert verdict(made_study(lambda name, over: 2.0 if name == "network" else 1.0)).outcome == "not replicated"


def test_more_curvature_in_some_comparisons_and_less_in_none_does_not(verdict):
    found = verdict(made_study(lambda name, over: 1.2 if name == "network" else 1.0, noise=0.12))
    assert "normalized trace smoother in 0" in found.ours
    assert found.outcome == "not replicated"


def test_what_is_not_normalized_is_not_judged(verdict):
    ds = made_study(lambda name, over: 0.5 if name == "network" else 1.0)
    for name in ("top_eigenvalue", "hessian_trace", "sharpness"):
        ds[name] = 1 / ds[name]
    assert verdict(ds).outcome == "replicated"


def test_smoother_over_its_own_set_alone_is_mixed(verdict):
    found = verdict(made_study(lambda name, over: 0.5 if (name, over) == ("network", "network") else 1.0))
    assert found.outcome == "mixed"
    own, full = found.ours.split("Each judged over full data")
    assert "normalized trace smoother in 4" in own
    assert "normalized trace smoother in 4" not in full


def test_smoother_than_random_data_alone_is_mixed(verdict):
    assert verdict(made_study(lambda name, over: 1.0 if name == "random" else 0.5)).outcome == "mixed"


def test_no_difference_and_none_of_a_fifth_does_not_replicate_it(verdict):
    found = verdict(made_study(lambda name, over: 1.0, noise=0.02))
    assert found.outcome == "not replicated"
    assert "lies above 0.8, 20% less" in found.reason


def test_networks_that_differ_too_much_between_seeds_leave_it_open(verdict):
    assert verdict(made_study(lambda name, over: 1.0, noise=0.6)).outcome == "mixed"


def test_smoother_at_every_size_that_is_there_waits_while_a_small_or_a_large_batch_lacks(verdict):
    def smoother(name, over):
        return 0.5 if name == "network" else 1.0

    assert verdict(made_study(smoother, sizes=(256,))).outcome == "not yet measured"
    whole = made_study(smoother)
    once = ((whole["batch_size"] == 256) | (whole["seed"] == 0)).to_numpy()
    assert verdict(whole.isel(run=np.flatnonzero(once))).outcome == "not yet measured"


def test_without_two_seeds_or_without_random_data_nothing_is_judged(verdict):
    whole = made_study(lambda name, over: 1.0, seeds=2, sizes=(256,))
    assert verdict(whole.isel(run=slice(0, 3))).outcome == "not yet measured"
    no_random = [not str(name).startswith("random") for name in whole["subset"].values]
    found = verdict(whole.isel(run=np.flatnonzero(no_random)))
    assert found.outcome == "not yet measured"
    assert "Two seeds on full, network filtered and random data" in found.reason


def test_a_loss_that_is_less_curved_at_the_same_weights_is_told_and_does_not_decide(verdict):
    # Whatever it was trained on, a network has less curvature over filtered images.
    found = verdict(made_study(lambda name, over: 0.9 if over == "network" else 1.0))
    assert "weights that training finds on network filtered data are not flatter" in found.ours
    assert (
        "the loss over network filtered images is less curved: its normalized top eigenvalue is 0.90 to 0.90 times"
        in found.ours
    )
    assert "the interval lies below one in 4 and above one in 0 of 4 such comparisons" in found.ours
    assert found.outcome != "replicated"
    assert "in them nothing was trained on filtered data" in found.reason


def test_what_the_trace_does_over_the_own_set_is_told_as_it_is_and_normalized(verdict):
    found = verdict(made_study(lambda name, over: 0.5 if name == "network" else 1.0, noise=0.0))
    below = (
        "0.50 to 0.50 times that of networks of other sets (the interval lies below one in 4 and above one in 0 of 4"
    )
    assert found.ours.split("the trace of networks of network filtered data is ")[1].count(below) == 2
