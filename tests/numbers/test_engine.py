"""The numbers of page 16 are those that were published before: speeds, ratios, and what the fast path changes."""

from pathlib import Path

import pandas as pd
import pytest

from dolb import results
from dolb.findings import engine as study
from dolb.profiling import steps

NUMBERS = Path(__file__).parent
CELL = ["arch", "batch_size", "program"]


@pytest.fixture(scope="module")
def published():
    return results.published("benchmarks")


def agrees(found: pd.DataFrame, name: str, by: list[str]) -> None:
    """Compare the columns that both tables have, row by row of these keys."""
    known = pd.read_csv(NUMBERS / f"{name}.csv")
    both = [column for column in known if column in found]
    tables = [table[both].sort_values(by, ignore_index=True) for table in (found, known)]
    pd.testing.assert_frame_equal(*tables, check_dtype=False, rtol=1e-5)


def test_speeds_on_a_gpu(published):
    ds = steps.select(published, steps.ON_GPU)
    cells = steps.with_floors(steps.compare(ds, steps.EAGER), ds)
    agrees(study.beside_the_engine(cells, steps.ENGINE), "benchmarks-gpu", CELL)


def test_speeds_on_a_cpu(published):
    agrees(steps.compare(steps.select(published, steps.ON_CPU), steps.STOCK), "benchmarks", CELL)


def test_what_the_fast_path_changes():
    found = study.differences(study.accuracies(results.published("fidelity")))
    agrees(found, "fidelity-differences", study.CELL)
