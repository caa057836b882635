"""Differences at several cells have one spread between seeds, pooled over them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dolb.findings import alike, filtered

SEEDS = {64: (0.01, 0.02, 0.03), 128: (0.00, 0.04, 0.02), 256: (0.05, 0.051)}


def differences(by_size):
    rows = [
        {
            "set": name,
            "batch_size": size,
            "weight_decay": 0.0,
            "seed": seed,
            "accuracy": value if name == "one" else 0.0,
        }
        for size, values in by_size.items()
        for seed, value in enumerate(values)
        for name in ("one", "other")
    ]
    return filtered.differences(pd.DataFrame(rows), "one", "other")


def test_the_spread_is_that_of_all_cells_each_by_its_degrees_of_freedom():
    found = alike.with_one_spread(differences(SEEDS)).set_index("batch_size")
    squares = sum(np.var(values) * len(values) for values in SEEDS.values())
    freedom = 2 + 2 + 1
    for size, values in SEEDS.items():
        error = np.sqrt(squares / freedom / len(values))
        half = stats.t.ppf(0.975, freedom) * error
        assert found.loc[size, "high"] == pytest.approx(np.mean(values) + half)
        assert found.loc[size, "low"] == pytest.approx(np.mean(values) - half)
        assert found.loc[size, "p"] == pytest.approx(2 * stats.t.sf(np.mean(values) / error, freedom))


def test_one_cell_alone_keeps_its_own_interval():
    table = differences({64: SEEDS[64]})
    pd.testing.assert_frame_equal(alike.with_one_spread(table), table, check_dtype=False)


def test_a_cell_of_one_seed_stays_without_an_interval():
    found = alike.with_one_spread(differences({**SEEDS, 512: (0.01,)})).set_index("batch_size")
    assert np.isnan(found.loc[512, ["low", "high", "p"]].astype(float)).all()
    assert np.isfinite(found.loc[64, "low"])
    assert alike.with_one_spread(differences({512: (0.01,)}))["low"].isna().all()
