"""Numbers on which figures and verdicts rest, kept in tests/numbers, and how others, and runs, are compared.

``DOLB_WRITE_NUMBERS=1 pytest tests/numbers`` writes them anew, after new results; then look at what moved.
"""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

NUMBERS = Path(__file__).parent / "numbers"
SERIES = ("train_loss", "test_loss", "test_accuracy", "learning_rate")


def same_bits(one: xr.Dataset, other: xr.Dataset) -> bool:
    """Return whether two Datasets of runs have the same numbers after every epoch."""
    return all(np.array_equal(one[name], other[name], equal_nan=True) for name in SERIES)


def agrees(found: pd.DataFrame, name: str, by: list[str]) -> None:
    """Compare the columns that both tables have, row by row of these keys."""
    path = NUMBERS / f"{name}.csv"
    if os.environ.get("DOLB_WRITE_NUMBERS"):
        found.sort_values(by, kind="stable").to_csv(path, index=False, float_format="%.8g")
    known = pd.read_csv(path).replace("network", "filtered")
    both = [column for column in known if column in found]
    assert set(by) <= set(both), f"{name}.csv has no {sorted(set(by) - set(both))}"
    tables = [table[both].sort_values(by, ignore_index=True, kind="stable") for table in (found, known)]
    # Tight enough to see any change of method, and wide enough for another processor's arithmetic.
    pd.testing.assert_frame_equal(*tables, check_dtype=False, rtol=1e-5, atol=1e-6)
