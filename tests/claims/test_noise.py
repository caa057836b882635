"""What our maps say of features and noise, by effects that are made here and found again."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

from dolb import claims

SHARES = {"resnet18": 0.02, "resnet34": 0.03, "resnet50": 0.04, "resnet101": 0.05, "resnet152": 0.12}
CLAIM = claims.load()["G6"]
THEN = {"map_rate": 200.0, "map_start": "pca", "iterations": 750}


def masks(shares=SHARES, trainings=2, **more):
    """Make masks of 10,000 examples that remove these shares, the second training a tenth more."""
    rows = [
        {"arch": arch, "seed": seed, "removed": share * (1 + 0.1 * seed)}
        for arch, share in shares.items()
        for seed in range(trainings)
    ]
    frame = pd.DataFrame(rows)
    same = {
        "key": "",
        "weights": "trained",
        "map_seed": 0,
        "filter": "dbscan",
        "perplexity": 30.0,
        "min_samples": 5,
        "seconds": 1.0,
        "eps": 0.5,
        "network_accuracy": 0.9,
        "feature_width": 512,
        "peak_memory_bytes": 1,
        **{"trained_by": "", "size_of": "", "within": "", "share": 0.0},
        **THEN,
        **more,
    }
    keep = np.arange(10_000)[None] >= (10_000 * frame.pop("removed").to_numpy()[:, None]).round()
    coords = {name: ("run", values.to_numpy()) for name, values in frame.assign(**same).items()}
    return xr.Dataset({"keep": (("run", "example"), keep)}, coords)


def effect(ds):
    (found,) = claims.JUDGES["G6"]({"noise": ds}, CLAIM)
    return found


def test_extractors_that_differ_sixfold_replicate_the_claim():
    found = effect(masks())
    assert found.value == pytest.approx(6, rel=0.01)
    assert claims.rule.verdict(CLAIM, [found]).outcome == "replicated"
    assert found.n == 2 * len(SHARES)


def test_the_interval_is_tukeys_which_knows_that_largest_and_smallest_were_chosen():
    found = effect(masks())
    logs = [np.log([share, share * 1.1]) for share in SHARES.values()]
    bounds = stats.tukey_hsd(*logs).confidence_interval(0.95)
    assert np.log([found.low, found.high]) == pytest.approx([bounds.low[4, 0], bounds.high[4, 0]], abs=0.02)


def test_extractors_that_hardly_differ_do_not():
    found = effect(masks(dict.fromkeys(SHARES, 0.05) | {"resnet152": 0.051}))
    assert claims.rule.verdict(CLAIM, [found]).outcome == "not replicated"


@pytest.mark.parametrize(
    "ds",
    [masks(map_rate=0.0), masks(trainings=1), masks({"resnet18": 0.02, "resnet50": 0.1}), masks(eps=1.0)],
    ids=["maps of today", "one training", "two networks", "another radius"],
)
def test_without_all_extractors_trained_twice_on_maps_of_2020_it_is_not_yet_measured(ds):
    assert effect(ds) is None


def test_the_width_of_features_is_a_fact_about_the_networks_that_the_claim_names():
    assert claims.published_verdicts(["G5"])["G5"].outcome == "replicated"
