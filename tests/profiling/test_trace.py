"""Real traces of two ranks as one table: what is in it, on which clock, and what damaged files are answered with."""

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dolb import models, results
from dolb.profiling.traces import read
from dolb.profiling.traces.read import TraceError

TRACES = Path(__file__).resolve().parent / "traces"

STEPS, BUCKETED = 3, "smallnet-8"  # as traces/record.py has them
TENSORS = [parameter.numel() for parameter in models.build(BUCKETED, 10).parameters()]


def frame(events):
    table = events.to_dataframe()
    return table.assign(us=table["end_us"] - table["start_us"])


def damage(path, change):
    path.write_text(change(path.read_text()))
    return path


# What is in the table


def test_events_follow_the_schema_and_are_kept_in_a_file(recorded, tmp_path):
    back = results.load(results.save(recorded, tmp_path / "events.nc"))
    assert back.sizes == recorded.sizes
    assert back.attrs["source"] == "measured"


def test_times_start_at_zero_and_no_event_ends_before_it_starts(recorded):
    table = frame(recorded)
    assert table["start_us"].iloc[0] == 0
    assert table["start_us"].is_monotonic_increasing
    assert (table["us"] >= 0).all()


def test_both_ranks_have_every_step_in_order(recorded):
    steps = frame(recorded).query("lane == 'step'").sort_values(["rank", "start_us"])
    assert list(steps["rank"]) == [0] * STEPS + [1] * STEPS
    assert list(steps["name"]) == [f"step {number}" for number in range(STEPS)] * 2


def test_a_step_reduces_four_bytes_for_every_weight(recorded):
    reduced = frame(recorded).query("lane == 'communication' and rank == 0")
    assert reduced["bytes"].sum() == STEPS * 4 * sum(TENSORS)


def test_ddp_reduces_in_buckets_on_both_ranks_alike():
    reduced = frame(read.read(read.find(TRACES / "ddp"))).query("lane == 'communication'").sort_values("start_us")
    sizes = [list(part["bytes"]) for _, part in reduced.groupby("rank")]
    assert sizes[0] == sizes[1]
    buckets = len(sizes[0]) // STEPS
    assert 1 < buckets < len(TENSORS)


def test_horovod_negotiates_every_tensor_at_every_step_before_it_reduces_it():
    table = frame(read.read(read.find(TRACES / "horovod")))
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
    table = frame(read.read([path]))
    spans = {lane: part[["start_us", "end_us"]].to_numpy().tolist() for lane, part in table.groupby("lane")}
    assert spans == {"communication": [[0, 50], [50, 80], [90, 95]], "queue": [[20, 50]]}
    assert list(table.loc[table["lane"] == "communication", "bytes"]) == [40, 40, 40]


# The clock


def test_torch_and_horovod_agree_on_the_time_of_day():
    table = frame(read.read(read.find(TRACES / "horovod")))
    steps = table.query("lane == 'step' and rank == 0")
    for _, event in table.query("lane == 'communication'").iterrows():  # Horovod's, within a step, which is torch's
        assert ((steps["start_us"] < event["start_us"]) & (event["end_us"] < steps["end_us"])).sum() == 1


@pytest.mark.parametrize("library", ["ddp", "horovod"])
def test_a_rank_whose_clock_is_seconds_off_is_moved_back(unpacked, library):
    before = read.read(read.find(TRACES / library))
    late = unpacked(library, "torch-1")
    moved = json.loads(late.read_text())
    moved["baseTimeNanoseconds"] += 5_000_000_000
    late.write_text(json.dumps(moved))
    others = [path for path in read.find(TRACES / library) if path.name != "torch-1.json.gz"]
    after = read.read([*others, late])
    assert after.attrs["clock"].endswith("moved back by that")
    assert before.attrs["clock"].endswith("left where it is")

    def ends(events):
        return (
            frame(events)
            .query("lane == 'barrier' and rank == 1 and name == 'barrier'")["end_us"]
            .sort_values()
            .to_numpy()
        )

    # The barriers that the clock is set by end within some milliseconds of each other on two busy cores.
    assert np.abs(ends(after) - ends(before)).max() < 5_000


# Damaged files


@pytest.mark.parametrize("lacking", [2, 300], ids=["its closing bracket", "its last events"])
def test_a_cut_timeline_is_an_error_that_says_how_to_read_what_is_there(unpacked, lacking):
    path = unpacked("horovod", "horovod-0")
    path.write_text(path.read_text()[:-lacking])
    with pytest.raises(TraceError, match=r"horovod-0.json is cut: .*; measure again, or read .* partial=True"):
        read.read([path])


def test_a_timeline_without_its_closing_bracket_is_read_whole_if_asked_to(unpacked):
    path = unpacked("horovod", "horovod-0")
    whole = read.read([path])
    cut = read.read([damage(path, lambda text: text.rstrip().removesuffix("]"))], partial=True)
    assert cut.equals(whole)
    assert cut.attrs["repaired"] == "horovod-0.json lacks its closing bracket"


def test_a_timeline_that_ends_anywhere_is_read_as_far_as_it_goes_if_asked_to(unpacked):
    path = unpacked("horovod", "horovod-0")
    text = path.read_text()
    whole = frame(read.read([path]))
    seen = []
    for length in np.linspace(len(text) // 10, len(text) - 2, 60).astype(int):
        path.write_text(text[:length])
        part = read.read([path], partial=True)
        assert part.attrs["repaired"]
        seen.append(part.sizes["event"])
    assert seen == sorted(seen)
    assert seen[-1] >= len(whole) - 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"torch-0.json is empty"),
        (" \n", r"torch-0.json is empty"),
        ("{}", r"no trace of torch.profiler"),
        ('{"traceEvents": []}', r"holds no events"),
        ('{"traceEvents": [{"ph": "X"', r"ends too early: .* at offset 27 of 27"),
        ('{"traceEvents": [}', r"is not JSON: .* at offset 17"),
        ('{"traceEvents": [{"ph": "X", "name": "a", "ts": 1}]}', r"event 0 of 1 is malformed \(KeyError\('dur'\)\)"),
        ("[]", r"holds no events"),
        ('[{"ph": "B", "ts": 1}]', r"event 0 of 1 is malformed \(KeyError\('name'\)\)"),
        ('[{"ph": "i", "name": "a", "ts": "soon"}]', r"event 0 of 1 is malformed \(ValueError"),
        ('[{"ph": "i", "name": "a" "ts": 1}]', r"is not JSON: .* at offset 25 of 34"),
        ("[1, 2]", r"what stands at offset 1 is no event"),
        ('[{"ph": "i", "name": "a", "ts": 1}] and more', r"goes on after its end at offset 35"),
    ],
)
def test_what_is_no_trace_is_answered_with_the_file_and_the_place(tmp_path, text, said):
    path = tmp_path / "torch-0.json"
    path.write_text(text)
    with pytest.raises(TraceError, match=said):
        read.read([path])


SPAN = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1, "dur": 2}
NCCL = SPAN | {"name": "ncclAllReduce"}
COPY = SPAN | {"cat": "gpu_memcpy"}
BEGIN, END = {"ph": "B", "name": "QUEUE", "ts": 5, "pid": 1}, {"ph": "E", "ts": 7, "pid": 1}


@pytest.mark.parametrize(
    ("trace_of", "said"),
    [
        ({"traceEvents": [SPAN, 7]}, "item 1 of `traceEvents` is 7, no event"),
        ({"traceEvents": [None]}, "item 0 of `traceEvents` is None, no event"),
        ({"traceEvents": [SPAN], "distributedInfo": None}, "distributedInfo is None; accepted: an object with a rank"),
        ({"traceEvents": [SPAN], "distributedInfo": {"rank": "first"}}, "rank is 'first'; accepted: a whole number"),
        ({"traceEvents": [SPAN], "distributedInfo": {"rank": -1}}, "rank is -1; accepted: a whole number"),
        ({"traceEvents": [SPAN], "baseTimeNanoseconds": "noon"}, "baseTimeNanoseconds is 'noon'; accepted: a whole"),
        ({"traceEvents": [SPAN], "baseTimeNanoseconds": None}, "baseTimeNanoseconds is None; accepted: a whole"),
        ({"traceEvents": [COPY | {"args": {"bytes": "many"}}]}, "event 0 of 1 .*bytes is 'many'"),
        ({"traceEvents": [COPY | {"args": None}]}, "event 0 of 1 .*args is None, not an object"),
        ({"traceEvents": [NCCL | {"args": None}]}, "event 0 of 1 .*args is None, not an object"),
        ({"traceEvents": [NCCL | {"args": {"In msg nelems": "x"}}]}, "event 0 of 1 .*In msg nelems is 'x'"),
        ({"traceEvents": [NCCL | {"args": {"Input Dims": 3}}]}, "event 0 of 1 is malformed"),
        ({"traceEvents": [SPAN | {"dur": float("nan")}]}, "event 0 of 1 .*starts at 1 us and takes nan us"),
        ({"traceEvents": [SPAN | {"ts": float("inf")}]}, "event 0 of 1 .*starts at inf us"),
        ({"traceEvents": [SPAN, SPAN | {"dur": -2}]}, "event 1 of 2 .*starts at 1 us and takes -2 us"),
        ({"traceEvents": [SPAN, SPAN | {"cat": "cpu_op", "pid": []}]}, "event 1 of 2 is malformed"),
        ({"traceEvents": [SPAN | {"cat": "python_function"}]}, "no step, operator, kernel or collective among its 1"),
        ([BEGIN, BEGIN, END | {"args": None}], "event 2 of 3 .*args is None, not an object"),
        ([{"ph": "M", "args": {"start_time_since_epoch_in_micros": "noon"}}], "event 0 of 1 .*is 'noon'"),
        ([BEGIN, BEGIN | {"ts": float("nan")}], "event 1 of 2 .*its time is nan us"),
        ([BEGIN, END | {"ts": 3}], "event 1 of 2 .*QUEUE starts at 5 us and ends at 3 us"),
    ],
)
def test_a_trace_that_is_wrong_inside_is_answered_with_the_file_and_what_is_wrong(tmp_path, trace_of, said):
    path = tmp_path / "torch-0.json"
    path.write_text(json.dumps(trace_of))
    with pytest.raises(TraceError, match=rf"torch-0\.json.*{said}"):
        read.read([path])


@pytest.mark.parametrize(
    ("name", "whose"), [("torch-1", "torch's trace of rank 1"), ("horovod-0", "Horovod's timeline")]
)
def test_two_files_of_one_rank_are_refused(unpacked, name, whose):
    again = unpacked("horovod", name)
    with pytest.raises(TraceError, match=rf"{name}\.json\.gz and .*{name}\.json are both {whose}"):
        read.read([*read.find(TRACES / "horovod"), again])


def test_a_trace_of_torch_that_ends_too_early_is_refused(unpacked):
    path = unpacked("ddp", "torch-0")
    damage(path, lambda text: text[: len(text) // 2])
    with pytest.raises(TraceError, match=r"torch-0.json ends too early: .* at offset \d+"):
        read.read([path])


def test_a_packed_file_that_is_cut_and_a_file_of_bytes_are_refused(tmp_path):
    packed = tmp_path / "torch-0.json.gz"
    packed.write_bytes((TRACES / "ddp" / "torch-0.json.gz").read_bytes()[:1000])
    with pytest.raises(TraceError, match=r"torch-0.json.gz is damaged"):
        read.read([packed])
    packed.write_bytes(gzip.compress(b"[\xff\xfe"))
    with pytest.raises(TraceError, match=r"at offset 1 it is not text"):
        read.read([packed])


def test_a_trace_that_does_not_say_its_rank_is_refused(unpacked, tmp_path):
    nameless = unpacked("horovod", "torch-0").rename(tmp_path / "profile.json")
    with pytest.raises(TraceError, match=r"profile.json does not say its rank; accepted: a name that ends with it"):
        read.read([nameless])


def test_a_folder_without_traces_says_what_writes_them(tmp_path):
    with pytest.raises(TraceError, match="trace_steps > 0"):
        read.find(tmp_path)


# Perfetto


def test_perfetto_gets_every_event_once_on_tracks_that_nest(recorded, tmp_path):
    written = json.loads(read.to_perfetto(recorded, tmp_path / "perfetto.json").read_text())["traceEvents"]
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
