"""The numbers of pages 04 to 06 are those that were published before, by the seeds and weight decays of then."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from agreement import agrees

from dolb import results
from dolb.findings import filtered as study
from dolb.findings import landscape
from dolb.findings.runs import narrow

NUMBERS = Path(__file__).parent
BORDER = 6272
GAIN = {"difference": "points"}


@pytest.fixture(scope="module")
def small():
    ds = results.published("filtered-small-batch")
    return narrow(ds, seed=[0, 1, 2], weight_decay=[0.005, 0.01, 0.012, 0.0135])


@pytest.fixture(scope="module")
def large():
    ds = results.published("filtered-large-batch")
    return ds.isel(run=np.flatnonzero(ds["seed"] < np.where(ds["batch_size"] < BORDER, 4, 8)))


def test_cells(small, large):
    agrees(study.cells(small), "filtered-small-batch", ["equal", *study.CELL])
    agrees(study.cells(large), "filtered-large-batch", ["equal", *study.CELL])


def test_gains(small, large):
    for ds, name in ((small, "filtered-small-gains"), (large, "filtered-large-gains")):
        agrees(study.gains(ds), name, ["equal", "batch_size", "other"], **GAIN)


def test_gains_over_several_batch_sizes_together(large):
    agrees(study.together(large, BORDER), "filtered-large-together", ["equal", "large", "one", "other"], **GAIN)


def test_the_default_radius(large):
    ds = study.beside_full(large, results.published("default-radius"))
    agrees(study.cells(ds), "default-radius", ["equal", *study.CELL])
    agrees(study.together(ds, BORDER), "default-radius-together", ["equal", "one", "other"], **GAIN)


def test_batch_sizes_about_the_crossover():
    ds = results.published("crossover")
    agrees(study.crossover(ds), "crossover", ["equal", "batch_size", "one"])
    agrees(study.per_update(ds), "per-update", ["equal", "set", "updates"])


def test_the_default_radius_of_2020(large):
    ds = study.beside_full(large, results.published("default-of-2020"))
    agrees(study.together(ds, BORDER), "default-of-2020-together", ["equal", "one", "other"])


def test_rates():
    agrees(study.tried(results.published("tuning")), "tuning", ["batch_size", "lr"])


def test_curvature():
    """Ratios were those of filtered data over others; now they are the other way round."""
    known = pd.read_csv(NUMBERS / "loss-landscape-ratios.csv").replace("network", "filtered")
    known = known[known["measure"].isin(landscape.MEASURES)]
    known = known.assign(ratio=1 / known["ratio"], low=1 / known["high"], high=1 / known["low"]).drop(columns="one")
    found = landscape.ratios(landscape.values(results.published("loss-landscape")))
    keys = ["reading", "measure", "batch_size", "other"]
    tables = [table[list(known)].sort_values(keys, ignore_index=True) for table in (found, known)]
    pd.testing.assert_frame_equal(*tables, check_dtype=False, rtol=1e-5)
