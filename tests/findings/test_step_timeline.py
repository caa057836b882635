"""Tables, downloads and narrowing of one step, from the published traces."""

from dolb import results
from dolb.findings import step_timeline as study
from dolb.findings.ddp_vs_horovod import narrow


def test_what_is_told_of_a_step_has_a_column_for_each_library_and_what_is_drawn_can_be_had():
    ds = results.published("step-timeline")
    table = study.table(ds, "measured")
    assert list(table) == ["DDP", "Horovod"]
    assert table.loc["same order in every step"].tolist() == ["yes", "no"]
    assert "same order in every step" not in study.table(ds, "simulated").index
    exported = study.exports(ds)
    assert exported["ddp-measured"].attrs["ranks"] == "4"
    assert set(exported["horovod-0.20-simulated"].dims) == {"event"}
    kept = study.events(narrow(ds, library=["ddp"]))
    assert set(kept["source"]) == {"measured", "simulated"}
    assert "Horovod" not in set(kept["variant"])
