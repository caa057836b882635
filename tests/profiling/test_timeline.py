"""Steps as tables: what a row says of its events, which step is kept, and how several are kept in one file."""

import numpy as np
import pytest
from made_scaling import made_measurement

from dolb import results
from dolb.profiling.config import ScalingConfig
from dolb.profiling.simulator import curves
from dolb.profiling.simulator.step import simulate
from dolb.profiling.traces import breakdown, read, timeline

TRACED = {"experiment": "step-timeline", "ranks": 2, "arch": "smallnet-8", "trace_steps": 3}


@pytest.fixture
def step(recorded, request):
    library = request.node.callspec.params["recorded"]
    return timeline.with_events(curves.named(made_measurement(library=library, **TRACED)), recorded)


def test_a_row_says_where_the_time_of_rank_0_went(step, recorded):
    time = breakdown.temporal_breakdown(recorded).query("rank == 0")
    assert step["idle_seconds"].item() == pytest.approx(time["idle_us"].mean() / 1e6)
    assert step["step_seconds"].item() == pytest.approx(time["step_us"].mean() / 1e6)
    assert 0 <= step["overlap"].item() <= 1


def test_one_step_of_every_rank_is_kept_from_zero_on(step):
    events = step.drop_dims("run").to_dataframe()
    steps = events[events["lane"] == "step"]
    assert sorted(steps["rank"]) == [0, 1]
    assert steps["name"].nunique() == 1
    assert events["start_us"].min() == 0
    ends = events["rank"].map(steps.set_index("rank")["end_us"])
    assert (events["end_us"] <= ends).all()


def test_ddp_reduces_its_buckets_in_one_order_and_horovod_in_several(step, recorded):
    if step["library"].item() == "ddp":
        assert step["messages"].item() == 3  # the trace was recorded with buckets of 0.02 MiB, and has three of them
        assert step["same_order"].item()
        assert step["negotiation_seconds"].item() == 0
    else:
        assert step["messages"].item() > 1
        assert not step["same_order"].item()
        assert step["negotiation_seconds"].item() > 0
    queue = breakdown.queue_time(recorded).query("rank == 0")
    assert step["queue_seconds"].item() == pytest.approx(queue["queue_us"].mean() / 1e6)
    assert 0 <= step["late_seconds"].item() < step["step_seconds"].item()


def test_a_simulated_step_has_the_simulators_time_and_says_what_it_is():
    scenario = curves.on_summit(curves.POLICIES[1])
    ds = timeline.simulated(scenario, 96, "resnet50")
    assert ds["source"].item() == "simulated"
    steps = ds.drop_dims("run").to_dataframe().query("lane == 'step'")
    assert sorted(steps["rank"]) == [0, 48, 95]
    # The shown phase of Horovod's clock is the one nearest to the mean: within a cycle of it.
    cycle = scenario.policy.cycle_seconds
    assert ds["step_seconds"].item() == pytest.approx(simulate(scenario, 96).step_seconds, abs=cycle)


def test_steps_merged_into_one_file_keep_their_events(tmp_path):
    ds = timeline.simulated_steps()
    again = results.load(results.save(ds, tmp_path / "steps.nc"))
    assert again.sizes["run"] == 3
    alone = timeline.simulated(curves.on_summit(curves.POLICIES[2]), curves.STUDIED_GPUS, curves.ARCH)
    last = results.split(again)[-1]
    assert last["variant"].item() == alone["variant"].item()
    assert np.array_equal(last["end_us"].values, alone["end_us"].values)


def test_a_run_without_events_may_be_merged_with_one_that_has_them(step):
    other = curves.named(made_measurement(library=step["library"].item(), repeat=1, **TRACED))
    ds = results.merge([other, step])
    assert set(ds["run_number"].values.tolist()) == {1}


def test_a_perfetto_trace_has_every_event(step):
    events = step.drop_dims("run")
    assert read.perfetto_json(events).count('"ph": "X"') == events.sizes["event"]


def test_a_timeline_needs_a_traced_step():
    with pytest.raises(ValueError, match="trace_steps is 0; at least 1"):
        timeline.traced(ScalingConfig())


@pytest.mark.parametrize("lacking", [1, 300], ids=["its closing bracket", "its last events"])
def test_a_measurement_whose_timeline_is_cut_is_refused(unpacked, tmp_path, lacking):
    for name in ("torch-0", "torch-1", "horovod-0"):
        path = unpacked("horovod", name)
    assert read.read(read.find(tmp_path)).attrs["repaired"] == ""
    path.write_text(path.read_text()[:-lacking])
    with pytest.raises(read.TraceError, match=r"is cut: horovod-0.json .*; measure again"):
        read.read(read.find(tmp_path))


def test_horovod_ends_its_timeline_before_its_measurement_does(horovod):
    config = ScalingConfig(
        library="horovod", ranks=2, arch="smallnet-4", data="digits", steps=1, warmup_steps=1, trace_steps=1
    )
    assert "negotiation" in set(timeline.traced(config, oversubscribe=True)["lane"].values.tolist())


def test_a_traced_measurement_has_the_events_of_two_real_ranks():
    config = ScalingConfig(
        library="ddp", ranks=2, arch="smallnet-4", data="digits", steps=1, warmup_steps=1, trace_steps=1
    )
    ds = timeline.traced(config, oversubscribe=True)
    assert ds["source"].item() == "measured"
    assert set(ds["rank"].values.tolist()) == {0, 1}
    assert "communication" in set(ds["lane"].values.tolist())


def test_runs_that_are_split_and_joined_again_keep_their_events():
    ds = timeline.simulated_steps()
    again = results.merge(results.split(ds))
    assert again.sizes["event"] == ds.sizes["event"] > 0
    np.testing.assert_array_equal(again["run_number"], ds["run_number"])
