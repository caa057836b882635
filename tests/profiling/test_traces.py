"""Real traces of two ranks: one table on one clock, and where the time went."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_scaling import made_measurement

from dolb import models, results
from dolb.profiling.simulator import curves
from dolb.profiling.traces import breakdown, timeline
from dolb.profiling.traces.read import dataset, find, perfetto_json, read

TRACES = Path(__file__).resolve().parent / "traces"

STEPS, BUCKETED = 3, "smallnet-8"  # as traces/record.py has them
TENSORS = [parameter.numel() for parameter in models.build(BUCKETED, 10).parameters()]


def frame(events):
    table = events.to_dataframe()
    return table.assign(us=table["end_us"] - table["start_us"])


# What is in the table


def test_both_ranks_have_every_step_and_each_reduces_four_bytes_for_every_weight(recorded):
    table = frame(recorded)
    steps = table.query("lane == 'step'").sort_values(["rank", "start_us"])
    assert list(steps["rank"]) == [0] * STEPS + [1] * STEPS
    assert list(steps["name"]) == [f"step {number}" for number in range(STEPS)] * 2
    assert table.query("lane == 'communication' and rank == 0")["bytes"].sum() == STEPS * 4 * sum(TENSORS)


def test_horovod_negotiates_every_tensor_at_every_step_before_it_reduces_it():
    table = frame(read(find(TRACES / "horovod")))
    negotiated, reduced = (table[table["lane"] == lane] for lane in ("negotiation", "communication"))
    assert len(negotiated) == len(reduced) == STEPS * len(TENSORS)
    for tensor in ("fc.bias", "stem.0.weight"):
        ends = negotiated.loc[negotiated["name"] == f"NEGOTIATE_ALLREDUCE {tensor}", "end_us"].to_numpy()
        starts = reduced.loc[reduced["name"] == f"GLOO_ALLREDUCE {tensor}", "start_us"].to_numpy()
        assert (ends <= starts).all()
        assert (starts[:-1] < ends[1:]).all()


def test_computing_on_a_rank_is_one_thing_at_a_time(recorded):
    for _, part in frame(recorded).query("lane == 'compute'").groupby("rank"):
        ordered = part.sort_values("start_us")
        assert (ordered["start_us"].to_numpy()[1:] >= ordered["end_us"].to_numpy()[:-1]).all()


def test_a_collective_given_to_a_busy_thread_is_queued_until_the_one_before_ends(tmp_path):
    def annotation(start, end):
        return {"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", "pid": 1, "tid": 2, "ts": start,
                "dur": end - start, "args": {"Input Dims": [[10]], "Input type": ["float"]}}  # fmt: skip

    path = tmp_path / "torch-0.json"
    path.write_text(json.dumps({"traceEvents": [annotation(0, 50), annotation(20, 80), annotation(90, 95)]}))
    table = frame(read([path]))
    spans = {lane: part[["start_us", "end_us"]].to_numpy().tolist() for lane, part in table.groupby("lane")}
    assert spans == {"communication": [[0, 50], [50, 80], [90, 95]], "queue": [[20, 50]]}
    assert list(table.loc[table["lane"] == "communication", "bytes"]) == [40, 40, 40]


# The clock


def test_torch_and_horovod_agree_on_the_time_of_day():
    table = frame(read(find(TRACES / "horovod")))
    steps = table.query("lane == 'step' and rank == 0")
    for _, event in table.query("lane == 'communication'").iterrows():  # Horovod's, within a step, which is torch's
        assert ((steps["start_us"] < event["start_us"]) & (event["end_us"] < steps["end_us"])).sum() == 1


# Perfetto


def test_perfetto_gets_every_event_once_on_tracks_that_nest(recorded):
    written = json.loads(perfetto_json(recorded))["traceEvents"]
    spans = pd.DataFrame([event for event in written if event["ph"] == "X"])
    assert len(spans) == recorded.sizes["event"]
    assert spans["dur"].sum() == pytest.approx(frame(recorded)["us"].sum())
    named = {(event["pid"], event["tid"]): event["args"]["name"] for event in written if event["name"] == "thread_name"}
    for track, part in spans.groupby(["pid", "tid"]):
        assert named[track].split()[0] == part["cat"].unique().item()
        open_ends = []
        for event in part.itertuples():
            while open_ends and open_ends[-1] <= event.ts:
                open_ends.pop()
            assert not open_ends or event.ts + event.dur <= open_ends[-1] + 1e-6
            open_ends.append(event.ts + event.dur)


# Where the time of a step goes: by hand on events of a few microseconds, and as it must add up on real traces


def events(*rows):
    """Make a table of (rank, lane, name, start, end)."""
    table = pd.DataFrame(rows, columns=["rank", "lane", "name", "start_us", "end_us"])
    return dataset(table.assign(bytes=0), "simulated")


ONE_STEP = events(
    (0, "step", "step 4", 100, 200),
    (0, "compute", "before the step", 90, 110),  # of which 10 lie in the step
    (0, "compute", "b", 120, 150),
    (0, "communication", "one", 140, 170),  # 10 of 30 hidden
    (0, "communication", "at the same time", 160, 175),
    (0, "negotiation", "n", 110, 115),
    (0, "negotiation", "n", 113, 130),
    (0, "queue", "q", 112, 116),
    (0, "copy", "c", 175, 178),
    (0, "communication", "after the step", 205, 300),
)


def test_a_step_divides_into_computing_exposed_communication_and_idle_time():
    (row,) = breakdown.step_times(ONE_STEP).to_dict("records")
    assert (row["rank"], row["step"], row["step_us"]) == (0, 4, 100)
    # Computing 100-110 and 120-150; communication 140-175, of which 150-175 alone; nothing at 110-120 and 175-200.
    assert (row["compute_us"], row["exposed_us"], row["idle_us"]) == (40, 25, 35)
    assert (row["communication_us"], row["hidden_us"]) == (35, 10)
    # Negotiation of several tensors at a time counts once.
    assert (row["negotiation_us"], row["queue_us"]) == (20, 4)


def test_negotiation_while_something_is_reduced_is_not_between():
    one = events(
        (0, "step", "step 0", 0, 100),
        (0, "negotiation", "n", 10, 50),
        (0, "communication", "earlier", 20, 40),
        (0, "communication", "later", 60, 70),
    )
    (row,) = breakdown.step_times(one).to_dict("records")
    assert (row["negotiation_us"], row["between_us"]) == (40, 20)  # 10-20 and 40-50


TWO_RANKS = events(
    (0, "step", "step 0", 0, 100), (1, "step", "step 0", 0, 100),
    (0, "compute", "backward", 0, 30), (1, "compute", "backward", 0, 70),
    (0, "communication", "a", 30, 90), (1, "communication", "a", 70, 90),
    (0, "compute", "update", 90, 100), (1, "compute", "update", 90, 99),
)  # fmt: skip


@pytest.mark.parametrize("name", ["backward", "layer"])  # as torch names it, and as nobody does
def test_the_last_rank_to_end_its_backward_pass_is_late(name):
    named = TWO_RANKS.assign(name=("event", np.char.replace(TWO_RANKS["name"].values, "backward", name)))
    assert breakdown.lateness(named).to_dict("list") == {"rank": [0, 1], "step": [0, 0], "late_us": [0, 40]}


def test_on_real_traces_the_parts_add_up_to_the_step(recorded):
    table = breakdown.step_times(recorded)
    parts = table["compute_us"] + table["exposed_us"].fillna(0) + table["idle_us"]
    np.testing.assert_allclose(parts, table["step_us"], rtol=1e-9)
    assert (table[["compute_us", "idle_us"]] > 0).all(axis=None)
    np.testing.assert_allclose(table["hidden_us"] + table["exposed_us"], table["communication_us"], atol=1e-3)


# Steps as rows

TRACED = {"experiment": "step-timeline", "ranks": 2, "arch": "smallnet-8", "trace_steps": 3}


@pytest.fixture
def step(recorded, request):
    library = request.node.callspec.params["recorded"]
    return timeline.with_events(curves.named(made_measurement(library=library, **TRACED)), recorded)


def test_a_row_says_where_the_time_of_rank_0_went_and_one_step_of_every_rank_is_kept_from_zero_on(step, recorded):
    times = breakdown.step_times(recorded).query("rank == 0")
    for name in ("idle", "step", "queue"):
        assert step[f"{name}_seconds"].item() == pytest.approx(times[f"{name}_us"].mean() / 1e6)
    assert 0 <= step["overlap"].item() <= 1
    assert 0 <= step["late_seconds"].item() < step["step_seconds"].item()
    events = step.drop_dims("run").to_dataframe()
    steps = events[events["lane"] == "step"]
    assert sorted(steps["rank"]) == [0, 1]
    assert len(set(steps["name"])) == 1
    assert events["start_us"].min() == 0
    ends = events["rank"].map(steps.set_index("rank")["end_us"])
    assert (events["end_us"] <= ends).all()


def test_ddp_reduces_its_buckets_in_one_order_and_horovod_in_several(step):
    if step["library"].item() == "ddp":
        assert step["messages"].item() == 3  # the trace was recorded with buckets of 0.02 MiB, and has three of them
        assert step["same_order"].item()
        assert step["negotiation_seconds"].item() == 0
    else:
        assert step["messages"].item() > 1
        assert not step["same_order"].item()
        assert step["negotiation_seconds"].item() > 0


def test_steps_merged_into_one_file_keep_their_events(tmp_path):
    ds = timeline.simulated_steps()
    again = results.load(results.save(ds, tmp_path / "steps.nc"))
    assert again.sizes["run"] == 3
    alone = timeline.simulated(curves.on_summit(curves.POLICIES[2]), curves.STUDIED_GPUS)
    last = results.split(again)[-1]
    assert last["variant"].item() == alone["variant"].item()
    assert np.array_equal(last["end_us"].values, alone["end_us"].values)


def test_a_run_without_events_may_be_merged_with_one_that_has_them(step):
    other = curves.named(made_measurement(library=step["library"].item(), repeat=1, **TRACED))
    ds = results.merge([other, step])
    assert set(ds["run_number"].to_numpy()) == {1}
