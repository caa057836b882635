"""The simulated half as results: marked simulated in every row; a band, an ablation, settings, and a counted ring."""

import numpy as np
import pandas as pd
import pytest
from made_scaling import made_measurement, small_simulation

from dolb import results
from dolb.profiling.simulator import curves, network
from dolb.profiling.simulator.libraries import DDP
from dolb.profiling.simulator.step import MECHANISMS, simulate


@pytest.fixture(scope="module")
def rows():
    ds = small_simulation()
    return pd.DataFrame({str(name): ds[name].to_numpy() for name in ds.variables})


def test_every_row_says_that_it_is_simulated(rows):
    assert set(rows["source"]) == {"simulated"}
    assert set(rows["device"]) == {"none: simulated"}


def test_no_two_rows_have_one_key(rows):
    assert rows["key"].is_unique


def test_the_rows_follow_the_schema_and_come_back_from_a_file(tmp_path):
    ds = small_simulation()
    assert results.load(results.save(ds, tmp_path / "simulated.nc")).sizes == ds.sizes


def test_a_curve_holds_what_the_simulator_says(rows):
    row = rows[(rows["variant"] == "DDP") & (rows["ranks"] == curves.STUDIED_GPUS)].iloc[0]
    step = simulate(curves.on_summit(DDP()), curves.STUDIED_GPUS)
    assert row["efficiency"] == step.efficiency
    assert row["efficiency_low"] <= row["efficiency_high"]
    assert row["batch_size"] == curves.STUDIED_GPUS * curves.BATCH_PER_RANK


@pytest.mark.parametrize("policy", curves.POLICIES, ids=lambda policy: policy.name)
def test_published_curves_are_those_of_the_simulator_as_it_is(policy):
    """`dolb publish ddp-vs-horovod` renews them."""
    ds = results.published("ddp-vs-horovod")
    table = pd.DataFrame({name: ds[name].to_numpy() for name in ("variant", "switched_off", "ranks", "efficiency")})
    table = table[(table["variant"] == policy.name) & (table["switched_off"] == "none")].set_index("ranks")
    for ranks in (curves.TUNED_GPUS, curves.STUDIED_GPUS):
        expected = simulate(curves.on_summit(policy), ranks).efficiency
        assert table.loc[ranks, "efficiency"] == pytest.approx(expected, rel=1e-6)


def test_curves_reach_all_of_summit_and_stop_at_the_study(rows):
    counts = set(rows.loc[rows["variant"] == "Horovod 0.20", "ranks"])
    assert {1, curves.TUNED_GPUS, curves.STUDIED_GPUS, curves.MOST_GPUS} <= counts


def test_every_mechanism_is_switched_off_once(rows):
    assert set(rows["switched_off"]) == {"none", *MECHANISMS}
    assert set(rows.loc[rows["switched_off"] != "none", "variant"]) == {curves.BENT}


def test_settings_are_tuned_where_the_study_tuned_them(rows):
    tuned = rows[rows["variant"] == curves.TUNED]
    assert set(tuned["ranks"]) == {curves.TUNED_GPUS}
    assert len(tuned) == len(curves.FUSIONS_MB) * len(curves.CYCLES_MS)


@pytest.mark.parametrize("ranks", [2, 3, 7, 32])
def test_a_ring_that_is_carried_out_takes_the_steps_that_the_cost_model_counts(ranks):
    assert curves.ring_message_steps(ranks) == network.ring_steps(ranks)


def test_a_ring_has_no_throughput(rows):
    ring = rows[rows["library"] == "ring"]
    assert np.isnan(ring["images_per_second"]).all()
    assert len(ring) == len(curves.RING_RANKS)


@pytest.mark.parametrize("library", ["ddp", "horovod"])
@pytest.mark.parametrize(
    ("where", "network"),
    [({}, "loopback"), ({"ranks": 2, "hosts": 2}, "links"), ({"device_kind": "cuda"}, "NCCL")],
    ids=["on one machine", "on hosts", "on GPUs"],
)
def test_a_measured_row_says_what_ranks_communicated_over(library, where, network):
    assert curves.named(made_measurement(library=library, **where))["network"].item() == network
