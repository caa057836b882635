"""The numbers of pages 02 and 03 are those that the code before made of the same published results."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dolb import results
from dolb.findings import noise

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def ds():
    return results.published("noise")


def same(now: pd.DataFrame, name: str, by: list[str], columns: list[str]) -> None:
    before = pd.read_csv(HERE / f"{name}.csv", dtype=dict.fromkeys(["key", "value"], str))
    before, now = (frame.set_index(by)[columns].sort_index() for frame in (before.drop_duplicates(by), now))
    assert list(now.index) == list(before.index)
    for column in columns:
        np.testing.assert_allclose(now[column].astype(float), before[column].astype(float), rtol=1e-5, err_msg=column)


def test_maps_part_the_classes_as_before():
    same(noise.parted(results.published("features")), "features", ["key", "split"], ["agreement", "network_accuracy"])


def test_masks_remove_what_they_did(ds):
    same(noise.rows(ds), "noise", ["key"], ["removed", "network_accuracy", "map_rate", "share"])


def test_shares_of_noise_by_extractor_radius_and_parameter_are_those_of_before(ds):
    same(noise.removed(ds), "noise-removed", ["extractor"], ["removed", "least", "most", "n", "networks"])
    curve = noise.by_eps(ds)
    before = pd.read_csv(HERE / "noise-by-eps.csv")
    assert list(curve["extractor"]) == list(before["extractor"])
    np.testing.assert_allclose(curve[["eps", "removed"]], before[["eps", "removed"]], rtol=1e-5)
    table, found = pd.read_csv(HERE / "noise-by-parameter.csv", dtype={"value": str}), noise.by_parameter(ds)
    for parameter in ("perplexity", "min_samples", "filter"):
        old, new = (one.loc[one["parameter"] == parameter, "removed"].sort_values() for one in (table, found))
        np.testing.assert_allclose(new, old, rtol=1e-5)


def test_noise_by_how_the_map_is_made_is_as_before(ds):
    found, old = noise.by_map(ds), pd.read_csv(HERE / "noise-by-parameter.csv")
    best = found[found["test_accuracy"] == found["test_accuracy"].max()]
    np.testing.assert_allclose(
        best["removed"].sort_values(), old.loc[old["parameter"] == "map", "removed"].sort_values(), rtol=1e-5
    )


def test_noise_sets_agree_as_before(ds):
    now, before = noise.agreement(ds), pd.read_csv(HERE / "noise-agreement.csv")
    assert list(now["networks"]) == list(before["networks"])
    np.testing.assert_allclose(now[["overlap", "by_chance"]], before[["overlap", "by_chance"]], rtol=1e-5)


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
