"""The numbers of page 18 are those that were published before: precision and recall of every way to filter."""

import pytest
from agreement import agrees

from dolb import results
from dolb.findings import own_data as study
from dolb.findings.runs import narrow
from dolb.profiling import steps


@pytest.fixture(scope="module")
def ds():
    return narrow(results.published("own-data"), drawn_examples=1000)


def test_precision_and_recall(ds):
    agrees(study.cells(ds), "own-data", ["kind", "removed_share", "method", "measure"])


def test_recall_by_fault(ds):
    agrees(study.by_fault(ds), "own-data-faults", ["method", "fault"])


def test_a_folder_of_fifty_thousand_images_is_filtered_within_three_minutes_on_the_gpu():
    measured = results.published("benchmarks")
    whole = measured.isel(run=measured["benchmark"].values == steps.FILTERED_FOLDER)
    assert whole["device"].values.tolist() == ["NVIDIA H200"]
    assert float(whole["step_seconds"].item()) == pytest.approx(73.2, abs=0.1)
    assert float((whole["step_seconds"] * whole["images_per_second"]).item()) == pytest.approx(50_000)
