"""Maps and masks from networks trained here: made once, found again, tied to the data, stopped and taken up."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from dolb import data, maps, recipes, results
from dolb.filtering import baselines, masks, noise
from dolb.filtering.config import FilterConfig
from dolb.findings import noise as study
from dolb.training.config import RunConfig

pytestmark = pytest.mark.usefixtures("on_one_core")
RUN = RunConfig(experiment="extractor", epochs=2, batch_size=64, lr=0.1)
MASK = FilterConfig(experiment="noise", trained_by=RUN.key, filter="share", share=0.1, iterations=100)
AGAIN = replace(RUN, subset=MASK.subset)
SECOND = replace(MASK, trained_by=AGAIN.key, within=MASK.key)
PLAIN = replace(MASK, experiment="features", filter="none", share=0.0)
KNEE = replace(MASK, filter="knee", share=0.0)
LIKE = replace(MASK, share=0.0, size_of=MASK.key)
OTHERS = [
    replace(LIKE, filter="random", seed=3),
    replace(LIKE, filter="grid"),
    replace(LIKE, filter="neighbours"),
    replace(LIKE, filter="el2n", networks=2),
    replace(LIKE, filter="forgetting"),
    replace(LIKE, filter="confident", networks=2),
]
FLAGS = replace(MASK, filter="flagged", share=0.0, networks=2)


def make(configs, store, **more):
    return maps.make(configs, {RUN.key: RUN, AGAIN.key: AGAIN}, store=store, device="cpu", progress=False, **more)


def written(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def made(store, on_one_core):
    return make([MASK, *OTHERS, KNEE], store)


def test_masks_are_one_dataset_that_can_be_published(made, tmp_path):
    again = results.load(results.save(made, tmp_path / "noise.nc"))
    assert again["keep"].dims == ("run", "example")
    assert again["label"].dims == ("example",)
    assert list(again["filter"].values) == ["share", *(one.filter for one in OTHERS), "knee"]


def test_a_mask_by_share_removes_that_share_by_the_radius_that_it_records(made):
    mask = made.isel(run=0)
    assert (~mask["keep"].values).mean() == pytest.approx(0.1, abs=0.002)  # two may become noise at one radius
    again = noise.ClassDBSCAN(mask["eps"].item()).fit(np.column_stack([mask["x"], mask["y"]]), mask["label"])
    assert np.mean(again.keep_ == mask["keep"].values) > 0.98  # published places are rounded


def test_every_other_mask_keeps_as_many_of_each_class_as_the_first(made):
    labels, keep = made["label"].values, made["keep"].values.astype(bool)[:-1]
    sizes = np.array([np.bincount(labels[row], minlength=10) for row in keep])
    exact = made["filter"].values[:-1] != "grid"  # which takes an even share of every class
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
    trains = ["share", "grid", "neighbours", "el2n", "forgetting", "confident"]
    assert all(parts["network_seconds"][at[name]] > 0 for name in trains)
    assert parts["network_seconds"][at["random"]] == 0
    assert [name for name in at if parts["map_seconds"][at[name]] > 0] == ["share", "grid", "knee"]
    assert [name for name in at if parts["feature_seconds"][at[name]] > 0] == ["share", "grid", "neighbours", "knee"]
    assert {name for name in at if parts["score_seconds"][at[name]] > 0} == {"neighbours", *trains[3:]}
    rest = sum(values for name, values in parts.items() if name != "network_seconds")
    assert made["seconds"].values == pytest.approx(rest)


def test_a_mask_in_the_store_is_a_mask_file_tied_to_its_data_and_is_not_made_again(made, store):
    before = written(store)
    assert np.array_equal(masks.load_keep(store / f"{MASK.key}.nc", data.load("digits")), made["keep"].values[0])
    again = make([MASK, *OTHERS, KNEE], store, time_limit=1e-9)
    assert again["keep"].equals(made["keep"])
    assert written(store) == before


def test_a_damaged_map_is_set_aside_and_made_again_of_the_components_without_the_weights(made, store, tmp_path, capsys):
    """What is moved to another machine may leave the weights behind, which are most of the bytes."""
    store = shutil.copytree(store, tmp_path / "moved", ignore=shutil.ignore_patterns("weights.pt"))
    (path,) = store.rglob(f"map-{MASK.map.key}.npz")
    damaged = path.read_bytes()[:100]
    path.write_bytes(damaged)
    ds = make([replace(KNEE, filter="hdbscan")], store)
    assert 0 < float(ds["keep"].mean()) < 1
    assert path.with_name(f"{path.name}.aside-1").read_bytes() == damaged
    assert f"{path.name} cannot be read back" in capsys.readouterr().out
    assert not list(store.rglob("weights.pt"))


def test_the_map_of_a_mask_serves_for_the_map_alone_which_has_the_test_set_too(made, store):
    before = written(store / "networks")
    ds = make([PLAIN], store)
    assert written(store / "networks") == before
    assert "keep" not in ds
    assert int(ds["of_test_set"].sum()) == len(data.load("digits").test_labels)
    # Points lie among their own class far more often than one time in ten.
    assert study.parted(ds)["agreement"].min() > 0.3


def test_what_cannot_be_made_says_why(tmp_path):
    with pytest.raises(ValueError, match=f"the mask {MASK.key}, whose size random-.* has, is not made yet"):
        make([OTHERS[0]], tmp_path)
    with pytest.raises(ValueError, match=r"of \['cifar10', 'digits'\]; accepted: one data set"):
        make([MASK, replace(MASK, data="cifar10")], tmp_path)


def test_a_second_round_filters_what_the_first_keeps_by_its_radius_and_a_network_that_saw_only_that(made, store):
    both = make([MASK, SECOND], store)
    first, second = both["keep"].values
    assert second.sum() < first.sum()
    assert not (second & ~first).any()
    assert both["eps"].values[1] == pytest.approx(both["eps"].values[0], rel=1e-6)
    (path,) = store.glob(f"networks/*/{AGAIN.key}/run.nc")
    trained = results.load(path)
    assert int(trained["training_examples"].item()) == first.sum()
    assert str(trained["data_fingerprint"].item()) == data.load("digits").subset(first, MASK.subset).fingerprint
    # One that was stopped before its mask was saved goes on with the network and the map that are there.
    (store / f"{SECOND.key}.nc").unlink()
    before = written(store / "networks")
    assert np.array_equal(make([MASK, SECOND], store)["keep"].values[1], second)
    assert written(store / "networks") == before


def test_another_share_of_a_map_follows_from_its_mask_without_the_network_or_the_map(made, store, tmp_path):
    more = replace(MASK, experiment="masks", share=0.3)
    direct = make([more], tmp_path / "alone")
    shutil.copytree(store, tmp_path / "published", ignore=shutil.ignore_patterns("networks"))
    alike = [more, replace(more, filter="random", share=0.0, size_of=more.key)]
    derived = make(alike, tmp_path / "published", scored=[MASK])
    assert not list((tmp_path / "published").rglob("weights.pt"))
    np.testing.assert_array_equal(derived["keep"].values[0], direct["keep"].values[0])
    assert derived["eps"].values[0] == pytest.approx(direct["eps"].values[0], rel=1e-6)
    assert derived["network_accuracy"].values[0] == direct["network_accuracy"].values[0]
    assert derived["keep"].values[1].sum() == derived["keep"].values[0].sum()


def test_published_masks_are_those_that_the_recipes_of_today_ask_for():
    published = set(map(str, results.published("noise")["key"].values))
    for slug in ("filtered-small-batch", "filtered-large-batch", "default-radius", "loss-landscape"):
        trained_on = set(" ".join(map(str, results.published(slug)["subset"].values)).split())
        wanted = [mask for mask in recipes.masks_for(slug) if mask.filter != "random" and mask.subset in trained_on]
        assert wanted
        assert {mask.key for mask in wanted} <= published
