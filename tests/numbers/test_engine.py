"""The numbers of page 16 are those that were published before: speeds, ratios, and what the fast path changes."""

from pathlib import Path

import pytest
from agreement import agrees

from dolb import results
from dolb.findings import engine as study
from dolb.findings.runs import narrow
from dolb.profiling import steps

NUMBERS = Path(__file__).parent
CELL = ["arch", "batch_size", "program"]


@pytest.fixture(scope="module")
def published():
    return results.published("benchmarks")


def test_speeds_on_a_gpu(published):
    ds = narrow(published, benchmark=steps.ON_GPU)
    cells = study.with_floors(study.compare(ds, steps.EAGER), ds)
    agrees(study.beside_the_engine(cells, steps.ENGINE), "benchmarks-gpu", CELL)


def test_speeds_on_a_cpu(published):
    agrees(study.compare(narrow(published, benchmark=steps.ON_CPU), steps.STOCK), "benchmarks", CELL)


def test_what_the_fast_path_changes():
    found = study.differences(study.accuracies(results.published("fidelity")))
    agrees(found, "fidelity-differences", study.CELL)
