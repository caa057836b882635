"""The numbers of page 18 are those that were published before: precision and recall of every way to filter."""

import pytest
from agreement import agrees

from dolb import results
from dolb.findings import own_data as study
from dolb.findings.runs import narrow


@pytest.fixture(scope="module")
def ds():
    return narrow(results.published("own-data"), drawn_examples=1000)


def test_precision_and_recall(ds):
    agrees(study.cells(ds), "own-data", ["kind", "removed_share", "method", "measure"])


def test_recall_by_fault(ds):
    agrees(study.by_fault(ds), "own-data-faults", ["method", "fault"])
