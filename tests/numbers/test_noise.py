"""The numbers of pages 02 and 03 are those that the code before made of the same published results."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from agreement import agrees

from dolb import claims, results
from dolb.findings import noise

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def ds():
    return results.published("noise")


def test_maps_part_the_classes_as_before():
    table = noise.parted(results.published("features"))
    agrees(table[["key", "split", "agreement", "network_accuracy"]], "features", ["key", "split"])


def test_masks_remove_what_they_did(ds):
    agrees(noise.rows(ds)[["key", "removed", "network_accuracy", "map_rate", "share"]], "noise", ["key"])


def test_shares_of_noise_by_extractor_radius_and_parameter_are_those_of_before(ds):
    maps = claims.load()["G6"].setting["maps"]
    agrees(noise.removed(ds, maps), "noise-removed", ["made", "extractor"])
    agrees(noise.by_eps(ds), "noise-by-eps", ["extractor", "eps"])
    agrees(noise.by_parameter(ds), "noise-by-parameter", ["parameter", "value"])
    agrees(noise.by_map(ds), "noise-by-map", ["test_accuracy", "map"])


def test_noise_sets_agree_as_before(ds):
    agrees(noise.agreement(ds), "noise-agreement", ["networks", "overlap"])


def test_other_ways_to_choose_find_what_they_did_at_the_same_cost(ds):
    found = noise.others(ds).rename(columns={"seconds": "total"})
    found = found[found["filter"] != "map and noise"]
    old = pd.read_csv(HERE / "noise-others.csv").drop_duplicates("filter").dropna(subset=["shared"])
    found, old = found.set_index("filter").sort_index(), old.set_index("filter").sort_index()
    assert list(found.index) == list(old.index)
    for column in ("shared", "images", "by_chance"):
        np.testing.assert_allclose(found[column], old[column], rtol=1e-5)
    known = old["total"].dropna().index
    np.testing.assert_allclose(found.loc[known, "total"], old.loc[known, "total"], rtol=1e-5)
