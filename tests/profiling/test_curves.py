"""The simulated half as results: a curve, its band, settings and a counted ring, all marked simulated."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from made_scaling import made_measurement, small_simulation

from dolb import results
from dolb.profiling.simulator import curves, network
from dolb.profiling.simulator.libraries import DDP
from dolb.profiling.simulator.step import simulate

SCENARIOS = {policy.name: curves.on_summit(policy) for policy in curves.POLICIES}
UNCACHED = SCENARIOS["Horovod 0.20, no cache"]


@pytest.fixture(scope="module")
def rows():
    ds = small_simulation()
    return pd.DataFrame({str(name): ds[name].to_numpy() for name in ds.variables})


def test_every_row_says_that_it_is_simulated_and_has_a_key_of_its_own(rows):
    assert set(rows["source"]) == {"simulated"}
    assert set(rows["device"]) == {"none: simulated"}
    assert rows["key"].is_unique


def test_a_curve_holds_what_the_simulator_says_up_to_all_of_summit(rows):
    row = rows[(rows["variant"] == "DDP") & (rows["ranks"] == curves.STUDIED_GPUS)].iloc[0]
    assert row["efficiency"] == simulate(curves.on_summit(DDP()), curves.STUDIED_GPUS).efficiency
    assert row["efficiency_low"] <= row["efficiency_high"]
    assert row["batch_size"] == curves.STUDIED_GPUS * curves.BATCH_PER_RANK
    counts = set(rows.loc[rows["variant"] == "Horovod 0.20", "ranks"])
    assert {1, curves.TUNED_GPUS, curves.STUDIED_GPUS, curves.MOST_GPUS} <= counts


@pytest.mark.parametrize("policy", curves.POLICIES, ids=lambda policy: policy.name)
def test_published_curves_are_those_of_the_simulator_as_it_is(policy):
    """`dolb publish ddp-vs-horovod` renews them."""
    ds = results.published("ddp-vs-horovod")
    table = pd.DataFrame({name: ds[name].to_numpy() for name in ("variant", "switched_off", "ranks", "efficiency")})
    table = table[(table["variant"] == policy.name) & (table["switched_off"] == "none")].set_index("ranks")
    for ranks in (curves.TUNED_GPUS, curves.STUDIED_GPUS):
        expected = simulate(curves.on_summit(policy), ranks).efficiency
        assert table.loc[ranks, "efficiency"] == pytest.approx(expected, rel=1e-6)


def test_if_agreeing_cost_nothing_horovod_would_not_bend(rows):
    """Claim G18 says that Horovod deteriorates near 1000 GPUs; without its response cache it does so here."""
    bent = rows[(rows["variant"] == UNCACHED.policy.name) & (rows["ranks"] == curves.STUDIED_GPUS)]
    efficiency = bent.set_index("switched_off")["efficiency"]
    assert set(efficiency.index) == {"none", "negotiation"}
    cached = simulate(SCENARIOS["Horovod 0.20"], curves.STUDIED_GPUS).efficiency
    assert efficiency["none"] < cached <= efficiency["negotiation"]


@pytest.mark.parametrize("ranks", [2, 3, 7, 32])
def test_a_ring_that_is_carried_out_takes_the_steps_that_the_cost_model_counts(ranks):
    assert curves.ring_message_steps(ranks) == network.ring_steps(ranks)


@pytest.mark.parametrize(
    ("where", "over"),
    [({}, "loopback"), ({"ranks": 2, "hosts": 2}, "links"), ({"device_kind": "cuda"}, "NCCL")],
    ids=["on one machine", "on hosts", "on GPUs"],
)
def test_a_measured_row_says_what_ranks_communicated_over(where, over):
    assert curves.named(made_measurement(library="horovod", **where))["network"].item() == over


# What is not known


@pytest.mark.parametrize(
    ("knob", "better", "worse"),
    [("bandwidth", 1.2, 0.3), ("latency", 0.5, 4), ("request_seconds", 0.3, 3), ("message_seconds", 0.1, 10),
     ("host", 0, 2), ("interference", 0, 2), ("contention", 0, 2), ("jitter", 0, 5), ("compute", 2.0, 1.0)],
)  # fmt: skip
def test_every_knob_moves_the_efficiency_the_way_it_should(knob, better, worse):
    good, bad = (simulate(curves.turn(UNCACHED, {knob: value}), 3072).efficiency for value in (better, worse))
    assert good > bad


@pytest.fixture(scope="module")
def drawn():
    return curves.draw(SCENARIOS, [96, 1536], draws=16)


def test_a_line_lies_within_its_own_band(drawn):
    for library, scenario in SCENARIOS.items():
        low, high = np.quantile(drawn[library][:, 1], curves.MIDDLE)
        assert low < simulate(scenario, 1536).efficiency < high


def test_what_a_link_was_seen_to_achieve_is_kept_when_a_band_is_drawn():
    """A knob multiplies it; before, it was put in its place."""
    seen = replace(UNCACHED, network=replace(UNCACHED.network, achieved=0.3))
    assert curves.turn(seen, {"latency": 2.0}).network.achieved == 0.3
    assert curves.turn(seen, {"bandwidth": 0.5}).network.achieved == pytest.approx(0.15)
    assert curves.turn(seen, {"bandwidth": 9.0}).network.achieved == 1.0


def test_ddp_beats_horovod_of_its_time_at_every_value_of_what_is_unknown(drawn):
    """The order of claim G18, with the defaults that Horovod had then; with the later ones the two are nearly level."""
    assert (drawn["DDP"] > drawn["Horovod 0.20"]).all()
    assert (drawn["DDP"] > drawn["Horovod 0.20, no cache"]).all()
    assert np.median(drawn["DDP"] / drawn["Horovod 0.21"], axis=0) == pytest.approx([1, 1], abs=0.02)


def test_a_lead_is_that_within_a_draw(rows):
    """Efficiencies differ much from draw to draw, and the lead of DDP in each differs less."""
    row = rows[(rows["variant"] == "Horovod 0.20") & (rows["ranks"] == curves.STUDIED_GPUS)].iloc[0]
    apart = row["efficiency_high"] / row["efficiency_low"]
    assert 1 < row["ddp_lead_low"] <= row["ddp_lead_high"] < row["ddp_lead_low"] * apart
