"""Verdicts on one step, G19 and G20, and the tables behind them, from rows whose answer is known."""

from functools import cache

import numpy as np
import pytest
from made_scaling import made_measurement

from dolb import claims, results
from dolb.findings import step_timeline as study
from dolb.profiling.simulator import curves
from dolb.profiling.traces import timeline


@pytest.fixture(scope="module")
def every_claim(repo_root):
    return claims.load(repo_root / "book" / "claims.yml")[1]


simulated_steps = cache(timeline.simulated_steps)  # it takes most of a second


def made_step(library, repeat, **values):
    """Make the row of traced steps without their events."""
    config = {"experiment": "step-timeline", "ranks": 2, "trace_steps": 3, "library": library, "repeat": repeat}
    numbers = {
        "step_seconds": 0.1, "communication_seconds": 0.02, "exposed_seconds": 0.01, "overlap": 0.5,
        "negotiation_seconds": 0.0, "idle_seconds": 0.01, "messages": 3.0, "same_order": True,
    } | values  # fmt: skip
    row = curves.named(made_measurement(**config))
    return row.assign({name: ("run", np.array([value])) for name, value in numbers.items()})


def made_steps(negotiation=0.05, messages=4.0, overlap=0.5, same_order=True, repeats=3):
    spread = [1 + 0.02 * repeat for repeat in range(repeats)]
    return results.merge(
        [
            *(made_step("ddp", k, overlap=overlap * spread[k], same_order=same_order) for k in range(repeats)),
            *(
                made_step("horovod", k, negotiation_seconds=negotiation * spread[k], messages=messages)
                for k in range(repeats)
            ),
            simulated_steps(),
        ]
    )


def outcome(every_claim, name, **changes):
    return claims.judge(every_claim, {"step-timeline": made_steps(**changes)})[name].outcome


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "replicated"),
        ({"negotiation": 0.005}, "mixed"),
        ({"negotiation": 0.005, "messages": 1.0}, "not replicated"),
        ({"repeats": 1}, "mixed"),
    ],
)
def test_negotiation_is_long_if_it_takes_longer_than_the_all_reduces(every_claim, changes, expected):
    assert outcome(every_claim, "G19", **changes) == expected


def test_negotiation_beside_all_reduces_does_not_make_it_long(every_claim):
    """Half of the step is negotiation, a fifth all-reduces; little of the first passes while nothing is reduced."""
    measured = [
        made_step("horovod", k, negotiation_seconds=0.05, negotiation_between_seconds=0.005 * (1 + 0.02 * k))
        for k in range(3)
    ]
    found = claims.judge(every_claim, {"step-timeline": results.merge([*measured, simulated_steps()])})["G19"]
    assert found.outcome == "mixed"  # several all-reduces, and no long negotiation
    assert "is 0.25 times as long as the all-reduces" in found.ours


def test_what_of_negotiation_runs_beside_all_reduces_is_within_limits_where_nobody_recorded_it(every_claim):
    """Of a step of 0.1 s, 0.06 are reduced and 0.05 negotiated: outside lie 0 to 0.04 s."""
    measured = [made_step("horovod", k, negotiation_seconds=0.05, communication_seconds=0.06) for k in range(3)]
    least, most = study.negotiation_ratios(results.merge(measured))
    assert least["ratio"] == -np.inf
    assert most["ratio"] == pytest.approx(np.log(0.04 / 0.06))
    whole = results.merge([*measured, simulated_steps()])
    assert "between 0.00 and 0.67 times" in claims.judge(every_claim, {"step-timeline": whole})["G19"].ours


def test_g19_is_told_with_what_the_drawn_step_has_and_is_mixed_by_the_published_steps(every_claim):
    """Spans of rank 0 of the published step: what both lanes cover is less than what each does."""
    published = results.published("step-timeline")
    found = study.drawn(published)
    assert 0 < found["both"] < min(found["negotiation"], found["communication"]) < found["step"]
    verdict = claims.judge(every_claim, {"step-timeline": published})["G19"]
    assert f"{found['negotiation'] / found['step']:.0%} negotiation and" in verdict.ours
    assert verdict.outcome == "mixed"


@pytest.mark.parametrize(
    ("changes", "expected"), [({}, "replicated"), ({"same_order": False}, "mixed"), ({"repeats": 1}, "mixed")]
)
def test_ddp_has_one_order_and_overlaps(every_claim, changes, expected):
    assert outcome(every_claim, "G20", **changes) == expected


def test_overlap_on_one_core_is_taking_turns_and_does_not_replicate(every_claim):
    ds = made_steps()
    held = ds.assign(pinned=("run", (ds["source"] == "measured").to_numpy()))
    found = claims.judge(every_claim, {"step-timeline": held})["G20"]
    assert found.outcome == "mixed"
    assert "held to one core, where the two take turns" in found.ours
    assert "need not have saved time" in found.reason
    assert "take turns" not in claims.judge(every_claim, {"step-timeline": ds})["G20"].ours


def test_g20_is_no_more_than_mixed_by_the_published_steps(every_claim):
    published = results.published("step-timeline")
    assert claims.judge(every_claim, {"step-timeline": published})["G20"].outcome == "mixed"


def test_what_is_simulated_is_said_to_be(every_claim):
    judged = claims.judge(every_claim, {"step-timeline": made_steps()})
    for name in ("G19", "G20"):
        assert judged[name].ours.startswith("Measured on 2 processes")
        assert "In simulation, " in judged[name].ours


def test_shares_are_of_the_step_with_intervals_over_repetitions():
    table = study.breakdowns(made_steps()).set_index("variant")
    assert table.loc["Horovod", "negotiation"] == pytest.approx(0.05 / 0.1 * 1.02)
    assert table.loc["Horovod", "negotiation_low"] < table.loc["Horovod", "negotiation"]
    assert np.isnan(table.loc["Horovod 0.20", "idle_low"])


def test_the_table_to_read_has_a_row_for_each_library_and_its_source():
    shown = study.in_words(study.breakdowns(made_steps()))
    assert "DDP, measured" in shown.index
    assert "Horovod 0.20, no cache, simulated" in shown.index
    assert shown.loc["DDP, measured", "same order in every step"] == "yes"


def test_one_simulated_step_is_not_said_to_repeat_its_order():
    shown = study.in_words(study.breakdowns(made_steps(same_order=False)))["same order in every step"]
    assert shown["DDP, measured"] == "no"
    assert set(shown[shown.index.str.endswith("simulated")]) == {"one step"}


def test_the_longest_of_the_library_s_parts_is_named_with_the_others():
    table = study.breakdowns(made_steps(negotiation=0.05, repeats=1))  # of 0.1 seconds, 0.02 in all-reduces
    said = study.longest_in_words(table, "Horovod", "measured")
    assert said == "negotiation is the longest of the library's parts, 50% of the step (communication 20%)"
    shorter = study.breakdowns(made_steps(negotiation=0.01, repeats=1))
    assert study.longest_in_words(shorter, "Horovod", "measured").startswith("communication is the longest")
    with pytest.raises(ValueError, match="no step of 'MPI', measured; accepted: DDP, measured; DDP, simulated"):
        study.longest_in_words(table, "MPI", "measured")


def test_in_short_each_library_has_its_shares():
    table = study.breakdowns(made_steps(repeats=1))
    assert study.agreement_in_words(table) == (
        "Ranks negotiate during 50% of a step and reduce during 20%, mean over 1 runs."
    )
    assert study.overlap_in_words(table) == (
        "3 buckets are reduced in the same order at every step, 50% of the time beside computing."
    )


def test_a_time_that_was_not_recorded_is_said_not_to_be():
    ds = made_steps()
    old = study.in_words(study.breakdowns(results.merge([made_step("ddp", 0)])))
    assert old.loc["DDP, measured", "queue"] == "not recorded"
    assert study.in_words(study.breakdowns(ds)).loc["DDP, simulated", "late"].endswith("%")


def test_an_exported_step_says_what_it_is():
    one = study.one_step(simulated_steps(), "Horovod 0.20", "simulated")
    assert one.attrs["source"] == "simulated"
    assert one.sizes["event"] > 100


@pytest.mark.parametrize(("variant", "source"), [("MPI", "simulated"), ("DDP", "measured")])
def test_a_step_without_events_is_answered_with_those_there_are(variant, source):
    with pytest.raises(ValueError, match=r"there are no events of .*; runs are of: DDP, simulated; Horovod 0.20"):
        study.one_step(simulated_steps(), variant, source)


def test_every_published_step_can_be_exported_measured_and_simulated_apart(repo_root):
    ds = results.load(repo_root / "results" / "step-timeline.nc")
    made = study.exports(ds, study.breakdowns(ds))
    assert {"ddp-measured", "ddp-simulated", "horovod-measured", "horovod-0.20-no-cache-simulated"} <= made.keys()
    assert all(step.sizes["event"] > 100 for step in made.values())


def test_the_size_of_ddp_s_buckets_is_told_with_why_they_are_so_small():
    small = made_step("ddp", 0).assign_coords(bucket_mb=("run", [0.02]))  # 1000 parameters of four bytes
    said = study.buckets_in_words(small)
    assert "on 2 ranks with buckets of 0.02 MiB instead of the usual 25" in said
    assert "are 0.0038 MiB in all" in said
    assert study.buckets_in_words(made_step("ddp", 0)) == "DDP ran on 2 ranks with buckets of 25 MiB."


def test_narrowing_keeps_the_events_of_what_was_asked_for_and_of_every_simulated_step(repo_root):
    published = results.load(repo_root / "results" / "step-timeline.nc")
    arch = str(published["arch"].values[published["source"] == "measured"][0])
    other = results.merge(
        run.assign_coords(arch=("run", ["other"]), key=("run", [f"other{number}"]))
        for number, run in enumerate(results.split(published))
        if run["source"].item() == "measured"
    )
    both = results.merge([other, published])
    assert set(study.events(both)["arch"]) > {arch, "other"}
    assert study.events(study.narrow(both, arch=[arch])).equals(study.events(published))
    ranks = int(published["ranks"].values[published["source"] == "measured"][0])
    with pytest.raises(ValueError, match=rf"no published run has ranks \[3\]; published: ranks {ranks}"):
        study.narrow(both, ranks=[3])


def test_the_run_that_is_drawn_is_the_one_nearest_the_mean_of_its_library(repo_root):
    published = results.load(repo_root / "results" / "step-timeline.nc")
    one = next(run for run in results.split(published) if run["variant"].item() == "Horovod" and run.sizes["event"])
    runs = [
        one.assign_coords(repeat=("run", [repeat]), key=("run", [f"copy{repeat}"])).assign(
            negotiation_seconds=one["negotiation_seconds"] * times
        )
        for repeat, times in enumerate((1.0, 0.1, 0.5))
    ]
    ds = results.merge(runs)
    (drawn,) = set(study.events(ds)["run_number"])
    assert ds["repeat"].values[drawn] == 2
