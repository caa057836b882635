"""Maps and masks from networks trained here: made once, found again, tied to the data, stopped and taken up."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest

from dolb import data, maps, recipes, results
from dolb.filtering import baselines, masks, noise
from dolb.filtering.config import FilterConfig
from dolb.findings import noise as study
from dolb.training.config import RunConfig

RUN = RunConfig(experiment="extractor", epochs=2, batch_size=64, lr=0.1)
MASK = FilterConfig(experiment="noise", trained_by=RUN.key, filter="knee", iterations=100)
BY_SHARE = replace(MASK, filter="share", share=0.1)
AGAIN = replace(RUN, subset=MASK.subset)
NETWORKS = {RUN.key: RUN, AGAIN.key: AGAIN}
SECOND = replace(MASK, trained_by=AGAIN.key, within=MASK.key)
PLAIN = replace(MASK, experiment="features", filter="none")
LIKE = {"size_of": MASK.key}
OTHERS = [
    replace(MASK, filter="random", seed=3, **LIKE),
    replace(MASK, filter="grid", **LIKE),
    replace(MASK, filter="neighbours", **LIKE),
    replace(MASK, filter="el2n", networks=2, **LIKE),
    replace(MASK, filter="forgetting", **LIKE),
    replace(MASK, filter="confident", networks=2, **LIKE),
]
FLAGS = replace(MASK, filter="flagged", networks=2)


def make(configs, store, **more):
    return maps.make(configs, NETWORKS, store=store, device="cpu", progress=False, **more)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def made(store):
    return make([MASK, *OTHERS], store)


def test_masks_are_one_dataset_that_can_be_published(made, tmp_path):
    again = results.load(results.save(made, tmp_path / "noise.nc"))
    assert again["keep"].dims == ("run", "example")
    assert again["label"].dims == ("example",)
    assert list(again["filter"].values) == ["knee", *(one.filter for one in OTHERS)]


def test_every_other_mask_keeps_as_many_of_each_class_as_the_first(made):
    labels, keep = made["label"].values, made["keep"].values.astype(bool)
    sizes = np.array([np.bincount(labels[row], minlength=10) for row in keep])
    exact = made["filter"].values != "grid"  # which takes an even share of every class
    assert (sizes[exact] == sizes[0]).all()
    assert abs(int(sizes[~exact].sum()) - int(sizes[0].sum())) <= 10


def test_what_confident_learning_flags_is_a_mask_by_the_same_probabilities_without_training_again(made, store):
    (path,) = store.rglob("*-out-of-2.npz")
    before = path.stat().st_mtime_ns
    flagged = make([FLAGS], store)["keep"].values[0]
    with np.load(path) as file:
        found = baselines.label_issues(file["probabilities"], data.load("digits").train_labels)
    assert 0 < found.sum() < len(found) / 2
    assert np.array_equal(~flagged, found)
    assert path.stat().st_mtime_ns == before


def test_the_seconds_of_a_mask_are_those_of_its_parts(made):
    parts = {name: made[name].values for name in maps.PARTS}
    at = {name: place for place, name in enumerate(made["filter"].values)}
    trains = ["knee", "grid", "neighbours", "el2n", "forgetting", "confident"]
    assert all(parts["network_seconds"][at[name]] > 0 for name in trains)
    assert parts["network_seconds"][at["random"]] == 0
    assert [name for name in at if parts["map_seconds"][at[name]] > 0] == ["knee", "grid"]
    assert [name for name in at if parts["feature_seconds"][at[name]] > 0] == ["knee", "grid", "neighbours"]
    assert {name for name in at if parts["score_seconds"][at[name]] > 0} == {"neighbours", *trains[3:]}
    rest = sum(values for name, values in parts.items() if name != "network_seconds")
    assert made["seconds"].values == pytest.approx(rest)


def test_a_mask_in_the_store_is_a_mask_file_tied_to_its_data(made, store):
    digits = data.load("digits")
    path = store / f"{MASK.key}.nc"
    assert np.array_equal(masks.load_keep(path, digits), made["keep"].values[0])
    part = digits.subset(np.arange(len(digits.train_labels)) < 500, "first-500")
    with pytest.raises(masks.MaskError, match="mask of other data"):
        masks.load_keep(path, part)


def test_what_is_in_the_store_is_not_made_again(made, store):
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}
    again = make([MASK, *OTHERS], store, time_limit=1e-9)
    assert again["keep"].equals(made["keep"])
    assert before == {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}


def test_another_map_needs_the_components_and_not_the_weights(made, store, tmp_path):
    """What is moved to another machine may leave the weights behind, which are most of the bytes."""
    moved = shutil.copytree(store, tmp_path / "moved", ignore=shutil.ignore_patterns("weights.pt", "map-*"))
    other = replace(MASK, map_seed=5)
    there, here = (make([MASK, other], folder)["keep"].values for folder in (moved, store))
    assert np.array_equal(there, here)
    assert not list(moved.rglob("weights.pt"))


def test_a_map_alone_has_training_and_test_set(store):
    digits = data.load("digits")
    ds = make([PLAIN], store)
    assert "keep" not in ds
    assert int(ds["of_test_set"].sum()) == len(digits.test_labels)
    # Points lie among their own class far more often than one time in ten.
    assert study.parted(ds)["agreement"].min() > 0.3


def test_the_map_of_a_mask_serves_for_the_map_alone_and_is_not_made_twice(made, store, tmp_path):
    moved = shutil.copytree(store, tmp_path / "moved")
    results.RunStore(moved).path(PLAIN.key).unlink(missing_ok=True)  # another test may have made it
    before = {path.name: path.stat().st_mtime_ns for path in moved.rglob("map-*.npz")}
    assert int(make([PLAIN], moved)["of_test_set"].sum()) > 0
    assert {path.name: path.stat().st_mtime_ns for path in moved.rglob("map-*.npz")} == before


def test_a_mask_of_the_size_of_one_that_is_not_there_says_which(tmp_path):
    with pytest.raises(ValueError, match=f"the mask {MASK.key}, whose size random-.* has, is not made yet"):
        make([OTHERS[0]], tmp_path)


def test_a_damaged_map_is_set_aside_and_made_again(made, store, tmp_path, capsys):
    store = shutil.copytree(store, tmp_path / "store")
    (path,) = store.rglob(f"map-{MASK.map.key}.npz")
    damaged = path.read_bytes()[:100]
    path.write_bytes(damaged)
    ds = make([replace(MASK, filter="dbscan", eps=3.0)], store)
    assert 0 < float(ds["keep"].mean()) < 1
    assert path.with_name(f"{path.name}.aside-1").read_bytes() == damaged
    assert f"{path.name} cannot be read back" in capsys.readouterr().out


def test_maps_of_two_data_sets_are_refused():
    with pytest.raises(ValueError, match=r"of \['cifar10', 'digits'\]; accepted: one data set"):
        maps.make([MASK, replace(MASK, data="cifar10")], NETWORKS)


# -- filter, train again on what is kept, filter again -----------------------------------------------------------------


@pytest.fixture(scope="module")
def second(made, store):
    return make([MASK, SECOND], store)


def test_a_second_round_removes_more_and_takes_nothing_back(second):
    first, both = second["keep"].values
    assert both.sum() < first.sum()
    assert not (both & ~first).any()


def test_a_second_round_looks_through_a_network_that_saw_only_what_the_first_kept(second, store):
    first = second["keep"].values[0]
    kept = data.load("digits").subset(first, MASK.subset)
    (path,) = store.glob(f"networks/*/{AGAIN.key}/run.nc")
    trained = results.load(path)
    assert int(trained["training_examples"].item()) == first.sum()
    assert str(trained["data_fingerprint"].item()) == kept.fingerprint
    (placed,) = path.parents[1].glob("map-*.npz")
    with np.load(placed) as file:
        assert file["train"].shape == (first.sum(), 2)


def test_a_mask_by_share_removes_that_share_by_the_radius_that_it_records(made, store):
    (mask,) = results.split(make([BY_SHARE], store))
    n = mask.sizes["example"]
    assert (~mask["keep"].values).sum() == pytest.approx(0.1 * n, abs=2)  # two may become noise at one radius
    again = noise.ClassDBSCAN(mask["eps"].item()).fit(np.column_stack([mask["x"][0], mask["y"][0]]), mask["label"])
    assert np.mean(again.keep_ == mask["keep"].values) > 0.98  # published places are rounded


def test_a_second_round_after_a_share_filters_by_the_radius_of_the_first(made, store):
    again = replace(AGAIN, subset=BY_SHARE.subset)
    round_two = replace(BY_SHARE, trained_by=again.key, within=BY_SHARE.key)
    networks = {**NETWORKS, again.key: again}
    both = maps.make([BY_SHARE, round_two], networks, store=store, device="cpu", progress=False)
    assert both["eps"].values[1] == pytest.approx(both["eps"].values[0], rel=1e-6)
    assert both["keep"].values.sum(axis=1)[1] < both["keep"].values.sum(axis=1)[0]


def test_a_second_round_that_was_stopped_goes_on_with_the_network_that_is_there(second, store):
    (store / f"{SECOND.key}.nc").unlink()
    made_before = {path: path.stat().st_mtime_ns for path in (store / "networks").rglob("*") if path.is_file()}
    again = make([MASK, SECOND], store)
    assert np.array_equal(again["keep"].values, second["keep"].values)
    assert made_before == {path: path.stat().st_mtime_ns for path in (store / "networks").rglob("*") if path.is_file()}


def test_a_round_within_another_is_by_a_trained_network_on_the_map():
    with pytest.raises(ValueError, match=r"within is '.*' for filter 'none'"):
        replace(SECOND, filter="none")
    with pytest.raises(ValueError, match="weights 'imagenet'"):
        replace(SECOND, arch="resnet18", weights="imagenet")


def test_published_masks_are_those_that_the_recipes_of_today_ask_for():
    published = set(map(str, results.published("noise")["key"].values))
    for slug in ("filtered-small-batch", "filtered-large-batch", "default-radius", "loss-landscape"):
        trained_on = set(" ".join(map(str, results.published(slug)["subset"].values)).split())
        wanted = [mask for mask in recipes.masks_for(slug) if mask.filter != "random" and mask.subset in trained_on]
        assert wanted
        assert {mask.key for mask in wanted} <= published
