"""The numbers of the pages on learning rates are those that were published before."""

from agreement import agrees

from dolb import results
from dolb.findings import large_batch_remedies, lr_scaling, warmup


def test_accuracy_by_warmup():
    agrees(warmup.cells(results.published("warmup")), "warmup", warmup.CELL)


def test_accuracy_by_rate_and_what_rules_lose():
    ds = results.published("lr-scaling")
    agrees(lr_scaling.cells(ds), "rates", lr_scaling.CELL)
    agrees(lr_scaling.by_rule(ds), "rules", ["arch", "batch_size", "rule"])


def test_gains_of_remedies():
    runs = large_batch_remedies.runs(results.published("large-batch-remedies"), results.published("benchmarks"))
    agrees(large_batch_remedies.cells(runs).drop(columns="remedies"), "remedies", large_batch_remedies.CELL)
