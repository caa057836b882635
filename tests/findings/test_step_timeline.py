"""Numbers of one step, from the published traces and from steps that are made."""

import pytest

from dolb import results
from dolb.findings import step_timeline as study


@pytest.fixture(scope="module")
def ds():
    return results.published("step-timeline")


def test_shares_have_intervals_over_runs_and_a_simulated_step_has_none(ds):
    shares = study.shares(ds)
    several = shares["n"] > 1
    assert set(shares[several]["source"]) == {"measured"}
    assert (shares[several]["low"] <= shares[several]["value"]).all()
    assert shares[~several]["low"].isna().all()


def test_a_table_has_a_column_for_each_library_and_says_of_measured_steps_whether_their_order_is_one(ds):
    table = study.table(ds, "measured")
    assert list(table) == ["DDP", "Horovod"]
    assert table.loc["same order in every step"].tolist() == ["yes", "no"]
    assert "same order in every step" not in study.table(ds, "simulated").index


def test_one_run_of_each_library_is_drawn_within_its_step(ds):
    events = study.events(ds)
    assert set(zip(events["variant"], events["source"], strict=True)) == {
        (str(variant), str(source)) for variant, source in zip(ds["variant"].values, ds["source"].values, strict=True)
    }
    assert events.groupby(["variant", "source"])["run_number"].nunique().eq(1).all()
    assert (events["duration_ms"] > 0).all()


def test_the_steps_that_are_drawn_are_exported_with_what_they_are_of(ds):
    exported = study.exports(ds)
    assert exported["ddp-measured"].attrs["ranks"] == "4"
    assert set(exported["horovod-0.20-simulated"].dims) == {"event"}


def test_narrowing_keeps_the_simulated_steps_and_their_events(ds):
    kept = study.narrow(ds, ranks=[4])
    assert set(study.events(kept)["source"]) == {"measured", "simulated"}
