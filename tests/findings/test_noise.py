"""What follows from maps and masks: how well a map parts classes, how much is noise, and who agrees."""

import numpy as np
import pytest
import xarray as xr

from dolb import results
from dolb.filtering import baselines
from dolb.findings import noise

EXAMPLES = 400


def made_mask(keep, **changes) -> xr.Dataset:
    """Make the Dataset of one mask, with the names that `maps` writes."""
    named = {"arch": "resnet101", "weights": "trained", "seed": 0, "map_seed": 0, "filter": "dbscan"}
    named |= {"perplexity": 30.0, "iterations": 500, "map_rate": 0.0, "map_start": "pca", "share": 0.0, "within": ""}
    named |= {"min_samples": 5, "eps": 0.5, "network_accuracy": 0.8, "trained_by": "", "size_of": ""} | changes
    named |= {"feature_width": 2048, "seconds": 60.0, "peak_memory_bytes": 10**9} | dict.fromkeys(noise.PARTS, 1.0)
    named["key"] = "-".join(map(str, named.values()))
    coords = {name: ("run", np.array([value])) for name, value in named.items()}
    coords["label"] = ("example", np.arange(EXAMPLES) % 10)
    place = np.arange(EXAMPLES, dtype=np.float32)
    table = {"keep": keep, "x": place, "y": place, "noise_until": np.where(keep, 0.4, 0.9).astype(np.float32)}
    return xr.Dataset({name: ("example", values) for name, values in table.items()}, coords)


def without(*removed: int) -> np.ndarray:
    keep = np.ones(EXAMPLES, dtype=bool)
    keep[list(removed)] = False
    return keep


@pytest.fixture
def ds() -> xr.Dataset:
    return results.merge(
        [
            made_mask(without(*range(20))),
            made_mask(without(*range(5, 25)), map_seed=1),
            made_mask(without(*range(10, 30)), seed=1),
            made_mask(without(*range(10)), arch="resnet18"),
            made_mask(without(*range(10, 20)), weights="imagenet"),
            made_mask(without(*range(15)), perplexity=50.0),
            made_mask(without(*range(40)), filter="hdbscan"),
            made_mask(without(*range(8)), map_rate=200.0, map_start="random", iterations=750),
            made_mask(without(*range(60)), network_accuracy=0.7, trained_by="less"),
            made_mask(without(*range(18, 38)), filter="confident"),
        ]
    )


def test_the_share_of_noise_is_the_mean_over_the_usual_maps_of_an_extractor(ds):
    table = noise.removed(ds).set_index("extractor")
    assert list(table.index) == ["resnet101", "resnet18", "resnet101, ImageNet"]
    assert table.loc["resnet101", "removed"] == pytest.approx(20 / EXAMPLES)
    assert table.loc["resnet101", ["n", "networks"]].tolist() == [3, 2]


def test_noise_by_how_the_map_is_made_is_of_one_network_trained_well_and_less_well(ds):
    table = noise.by_map(ds)
    assert dict(
        zip(zip(table["map"], table["test_accuracy"], strict=True), EXAMPLES * table["removed"], strict=True)
    ) == {
        ("rate by size, pca start, 500 steps", 0.8): pytest.approx(20),
        ("rate 200, random start, 750 steps", 0.8): pytest.approx(8),
        ("rate by size, pca start, 500 steps", 0.7): pytest.approx(60),
    }


def test_one_parameter_changes_at_a_time(ds):
    table = noise.by_parameter(ds).set_index(["parameter", "value"])
    assert (EXAMPLES * table["removed"]).round().to_dict() == {
        ("perplexity", "30"): 20,
        ("perplexity", "50"): 15,
        ("min_samples", "5"): 20,
        ("filter", "dbscan"): 20,
        ("filter", "hdbscan"): 40,
    }
    assert table["default"].sum() == 3


def test_the_share_by_eps_follows_from_the_radii_of_the_points(ds):
    curve = noise.by_eps(ds)
    at = curve[(curve["extractor"] == "resnet101") & curve["eps"].between(0.41, 0.89)]
    assert at["removed"].to_numpy() == pytest.approx(20 / EXAMPLES)


def test_the_mask_in_use_is_the_one_whose_size_others_have_and_by_the_better_network():
    worse, better = (made_mask(without(*range(20)), network_accuracy=accuracy) for accuracy in (0.7, 0.9))
    sized = [made_mask(without(*range(5, 25)), filter="grid", size_of=one["key"].item()) for one in (worse, better)]
    ds = results.merge([worse, *sized, better])
    assert noise.first(ds) == 3
    assert noise.has_map(noise.reference(ds))


def test_noise_sets_are_compared_by_what_their_maps_differ_in(ds):
    table = noise.stability(ds).set_index("differs")
    assert list(table.index) == list(noise.PAIRS)
    assert table.loc["another map", "overlap"] == pytest.approx(15 / 25)
    assert table.loc["another network", "pairs"] == 3


def test_chance_is_a_draw_with_as_many_of_each_class():
    labels, gone = np.repeat([0, 1], 200), np.zeros(400, dtype=bool)
    gone[:40] = gone[200:204] = True
    drawn = (baselines.ByScore("random", ~gone, seed).fit(None, labels).keep_ for seed in range(400))
    shared = np.mean([int((~keep & gone).sum()) for keep in drawn])
    assert pytest.approx(shared, abs=0.5) == 40 * 40 / 200 + 4 * 4 / 200
    overlaps, expected = noise.jaccard(np.stack([~gone, np.ones(400, dtype=bool)]), labels)
    assert overlaps.tolist() == [[1, 0], [0, 1]]
    assert expected[0, 0] == pytest.approx(8.08 / (88 - 8.08))


def test_other_ways_to_choose_are_held_to_what_chance_would_share(ds):
    table = noise.others(ds).set_index("filter")
    assert table.loc["map and noise", "shared"] == 1
    assert table.loc["confident", ["shared", "images"]].tolist() == [2 / 20, 2]
    assert table.loc["confident", "by_chance"] == pytest.approx(20 / EXAMPLES)


def made_map(labels: np.ndarray, place: np.ndarray, **changes) -> xr.Dataset:
    """Make a map of which the last fifth is the test set."""
    ds = made_mask(without(), filter="none", **changes).drop_vars(["keep", "label", "x", "y", "noise_until"])
    coords = {"label": ("example", labels), "of_test_set": ("example", np.arange(len(labels)) >= 0.8 * len(labels))}
    return ds.assign_coords(coords).assign(x=("example", place[:, 0]), y=("example", place[:, 1]))


def test_a_map_with_the_classes_apart_has_neighbours_of_ones_own_class():
    labels = np.arange(300) % 3
    place = np.random.default_rng(0).normal(size=(300, 2))
    apart = noise.parted(results.merge([made_map(labels, place + 100 * labels[:, None])]))
    assert apart["agreement"].tolist() == [1, 1]
    mixed = noise.parted(results.merge([made_map(labels, place)]))
    assert mixed["agreement"].between(0.2, 0.5).all()


def test_points_are_drawn_evenly_of_both_sets_on_the_map_of_the_better_network():
    labels = np.arange(300) % 3
    place = np.random.default_rng(0).normal(size=(300, 2))
    ds = results.merge([made_map(labels, place, network_accuracy=0.5), made_map(labels, place + 9)])
    points = noise.points(ds, ["ant", "bee", "cat"], most=30)
    assert points["set"].value_counts().to_dict() == {"training set": 30, "test set": 30}
    assert points["example"].tolist() == [*range(0, 240, 8), *range(240, 300, 2)]
    assert points["resnet101 x"].to_numpy() == pytest.approx(place[points["example"], 0] + 9)
    assert points["class"].iloc[1] == "cat"
