"""The numbers of the pages on learning rates are those that were published before."""

from agreement import agrees

from dolb import results
from dolb.findings import warmup


def test_accuracy_by_warmup():
    agrees(warmup.cells(results.published("warmup")), "warmup", warmup.CELL)
