"""Where the time of a step goes: by hand on events of a few microseconds, and as it must add up on real traces."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dolb import results
from dolb.findings.step_timeline import one_step
from dolb.profiling.traces import breakdown, read

TRACES = Path(__file__).resolve().parent / "traces"


def events(*rows):
    """Make a table of (rank, lane, name, start, end)."""
    table = pd.DataFrame(rows, columns=["rank", "lane", "name", "start_us", "end_us"])
    return read.dataset(table.assign(bytes=0), {"source": "simulated"})


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
    (row,) = breakdown.temporal_breakdown(ONE_STEP).to_dict("records")
    # Computing 100-110 and 120-150; communication 140-175, of which 150-175 alone; nothing at 110-120 and 175-200.
    assert (row["rank"], row["step"], row["step_us"]) == (0, 4, 100)
    assert (row["compute_us"], row["exposed_communication_us"], row["idle_us"]) == (40, 25, 35)
    assert row["idle_share"] == 0.35


def test_the_overlap_is_the_share_of_communication_that_computing_hides():
    (row,) = breakdown.comm_comp_overlap(ONE_STEP).to_dict("records")
    assert (row["communication_us"], row["hidden_us"], row["overlap"]) == (35, 10, 10 / 35)


def test_negotiation_of_several_tensors_at_a_time_counts_once():
    (row,) = breakdown.negotiation_time(ONE_STEP).to_dict("records")
    assert (row["negotiation_us"], row["exposed_us"], row["share"]) == (20, 10, 0.2)  # 110-130, computing from 120
    (row,) = breakdown.queue_time(ONE_STEP).to_dict("records")
    assert (row["queue_us"], row["exposed_us"]) == (4, 4)


def test_negotiation_while_something_is_reduced_is_told_apart():
    one = events(
        (0, "step", "step 0", 0, 100),
        (0, "negotiation", "n", 10, 50),
        (0, "communication", "earlier", 20, 40),
        (0, "communication", "later", 60, 70),
    )
    (row,) = breakdown.negotiation_time(one).to_dict("records")
    assert (row["negotiation_us"], row["between_us"]) == (40, 20)  # 10-20 and 40-50


def test_idle_time_is_told_apart_by_what_happens_meanwhile():
    (row,) = breakdown.idle_time_breakdown(ONE_STEP).to_dict("records")
    # 110-120 is all negotiation, so nothing is left for the queue; of 175-200 the copy takes 3.
    assert {name: row[f"{name}_us"] for name in ("idle", "negotiation", "queue", "copy", "other")} == {
        "idle": 35, "negotiation": 10, "queue": 0, "copy": 3, "other": 22
    }  # fmt: skip


TWO_RANKS = events(
    (0, "step", "step 0", 0, 100), (1, "step", "step 0", 0, 100),
    (0, "compute", "backward", 0, 30), (1, "compute", "backward", 0, 70),
    (0, "communication", "a", 30, 90), (1, "communication", "a", 70, 90),
    (0, "compute", "update", 90, 100), (1, "compute", "update", 90, 99),
)  # fmt: skip


def test_the_last_rank_to_end_its_backward_pass_is_the_straggler():
    table = breakdown.potential_stragglers(TWO_RANKS)
    assert table.to_dict("list") == {"rank": [0, 1], "step": [0, 0], "late_us": [0, 40], "last": [False, True]}


def test_stragglers_are_found_without_names_of_torch():
    named = TWO_RANKS.assign(name=("event", np.char.replace(TWO_RANKS["name"].values, "backward", "layer")))
    assert breakdown.potential_stragglers(named).equals(breakdown.potential_stragglers(TWO_RANKS))


def test_a_rank_that_arrives_early_waits_and_then_both_transfer():
    table = breakdown.wait_time(TWO_RANKS).set_index("rank")
    assert table["wait_us"].to_dict() == {0: 40, 1: 0}
    assert table["transfer_us"].to_dict() == {0: 20, 1: 20}


def test_waiting_cannot_be_told_where_one_rank_alone_recorded_collectives():
    with pytest.raises(ValueError, match=r"by rank: \{0: 69\}, of ranks \[0, 1\]"):
        breakdown.wait_time(read.read(read.find(TRACES / "horovod")))


def test_events_without_steps_are_refused():
    with pytest.raises(ValueError, match="no lane 'step'"):
        breakdown.temporal_breakdown(events((0, "compute", "a", 0, 1)))


def test_on_real_traces_the_parts_add_up_to_the_step(recorded):
    table = breakdown.temporal_breakdown(recorded)
    parts = table["compute_us"] + table["exposed_communication_us"].fillna(0) + table["idle_us"]
    np.testing.assert_allclose(parts, table["step_us"], rtol=1e-9)
    assert (table[["compute_us", "idle_us"]] > 0).all(axis=None)
    idle = breakdown.idle_time_breakdown(recorded)
    np.testing.assert_allclose(idle["idle_us"], table["idle_us"], atol=1e-3)
    told = idle[["negotiation_us", "queue_us", "copy_us", "other_us"]].sum(axis=1)
    np.testing.assert_allclose(told, idle["idle_us"], atol=1e-3)
    overlap = breakdown.comm_comp_overlap(recorded)
    exposed = overlap["communication_us"] - overlap["hidden_us"]
    np.testing.assert_allclose(exposed, table["exposed_communication_us"].dropna(), atol=1e-3)


def test_in_the_recorded_steps_of_ddp_one_rank_waits_for_the_straggler():
    recorded = read.read(read.find(TRACES / "ddp"))
    late = breakdown.potential_stragglers(recorded)
    waited = breakdown.wait_time(recorded).groupby("rank")["wait_us"].sum()
    # Who was last in every step is the one that waited least.
    (last,) = late.loc[late["last"], "rank"].unique()
    assert waited.idxmin() == last


def test_the_words_split_ddp_s_all_reduces_into_waiting_and_transfer():
    step = one_step(results.published("step-timeline"), "DDP", "measured")
    mine = breakdown.wait_time(step).query("rank == 0")
    said = breakdown.waits_in_words(step)
    assert f"{mine['wait_us'].sum() / 1000:.0f} ms (" in said
    assert f"{mine['transfer_us'].sum() / 1000:.0f} ms the transfer itself" in said
    assert breakdown.waits_in_words(None) == ""
