"""The numbers of page 01 are those that were published before: curves, optima, equal updates, depth, batch norm."""

from pathlib import Path

import pytest
from agreement import agrees

from dolb import results
from dolb.findings import batch_size as study

NUMBERS = Path(__file__).parent


@pytest.fixture(scope="module")
def ds():
    return results.published("batch-size")


@pytest.fixture(scope="module")
def judged(ds):
    return study.judged_runs(ds)


def test_cells(ds):
    agrees(study.curve_cells(ds), "batch-size", list(study.CELL))


def test_best_batch_sizes(judged):
    agrees(study.preferred(judged), "preferred", list(study.CURVE))


def test_suddenness(judged):
    agrees(study.falls(judged), "suddenness", list(study.CURVE))


def test_the_range_over_depths(judged):
    found = study.ranges(judged).mean().rename("spread").rename_axis("lr").reset_index()
    agrees(found, "depth", ["lr"])


def test_accuracy_by_epoch_and_at_equal_updates(ds):
    every = study.by_epoch(ds)
    agrees(every[every["drawn"]], "progress", [*study.CELL, "epoch"])
    agrees(study.at_equal_updates(every), "equal-updates", list(study.CELL))


def test_batch_norm_taken_apart(ds):
    agrees(study.share_cells(ds), "shares", ["change", "share"])
    agrees(study.separated(ds), "separated", ["batch_size"])


def test_batches_that_divide_the_data(ds):
    agrees(study.even_division(ds, results.published("even-batches")), "even-batches", list(study.CELL))
