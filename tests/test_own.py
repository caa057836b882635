"""Data of one's own: a folder of images becomes masks, a table of methods, a list of files to drop, a page."""

from __future__ import annotations

import re
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from typer.testing import CliRunner

from dolb import data as datasets
from dolb import own, progress
from dolb.cli import app
from dolb.filtering import masks

RANDOM_STATE = 0
EPOCHS = 8  # by default there are more


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Digits of four classes as PNGs; one in twenty of the training images lies in the folder of another class."""
    root, digits, rng = tmp_path_factory.mktemp("images"), datasets.load("digits"), np.random.default_rng(RANDOM_STATE)
    for split, images, labels in (
        ("train", digits.train_images, digits.train_labels),
        ("test", digits.test_images, digits.test_labels),
    ):
        for k in np.flatnonzero(labels < 4):
            wrong = split == "train" and rng.random() < 0.05
            label = (labels[k] + rng.integers(1, 4)) % 4 if wrong else labels[k]
            path = root / split / f"digit {label}" / f"{'wrong' if wrong else 'right'}-{k}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(images[k, ..., 0]).save(path)
    return root


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def name(folder):
    return f"imagefolder:{folder}"


@pytest.fixture(scope="module")
def found(name, store):
    data = datasets.load(name, progress=False)
    return own.choose(data, own.METHODS, share=0.06, epochs=EPOCHS, store=store, device="cpu", progress=False)


@pytest.fixture(scope="module")
def wrong(name):
    return np.array(["wrong" in Path(file).name for file in datasets.train_files(name)])


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "200"})


def test_every_method_makes_a_mask_that_keeps_every_class(found):
    assert tuple(found.chosen) == own.METHODS
    for one in found.chosen.values():
        assert set(found.data.train_labels[one.keep]) == {0, 1, 2, 3}
        assert 0 < (~one.keep).sum() < 0.5 * len(one.keep)


@pytest.mark.parametrize("method", ["paper", "neighbours", "el2n", "forgetting", "confident"])
def test_wrong_labels_are_found_far_more_often_than_by_chance(found, wrong, method):
    assert wrong[~found.chosen[method].keep].mean() > 4 * wrong.mean()


@pytest.mark.parametrize("method", [name for name in own.METHODS if name not in ("paper", "knee", "hdbscan")])
def test_the_share_is_that_of_every_class(found, method):
    table = own.by_class(found, method)
    assert (table["removed"] - 0.06 * table["images"]).abs().max() <= 1


def test_the_share_of_the_papers_method_is_that_of_the_whole(found):
    assert (~found.chosen["paper"].keep).mean() == pytest.approx(0.06, abs=0.01)


def test_the_table_of_methods_counts_what_they_have_in_common(found):
    table = own.compared(found).set_index("method")
    for one in own.METHODS:
        assert table.loc[one, "removed"] == table.loc[one, f"also by {one}"] == (~found.chosen[one].keep).sum()
        for other in own.METHODS:
            assert table.loc[one, f"also by {other}"] == table.loc[other, f"also by {one}"]
    assert (table["minutes"] > 0).all()
    assert table["minutes"].idxmin() == "random"


def test_the_command_writes_mask_files_to_drop_and_page_and_touches_no_image(name, store, found, wrong, tmp_path):
    out = tmp_path / "made" / "mask.nc"
    result = call(
        "filter", name, "--share", 0.06, "--out", out, "--store", store, "--device", "cpu", "--epochs", EPOCHS
    )
    assert result.exit_code == 0, result.output
    keep = masks.load_keep(out, found.data)
    assert np.array_equal(keep, found.chosen["paper"].keep)  # out of the store: nothing was trained again
    dropped = pd.read_csv(out.with_name("mask-drop.csv"))
    files = np.array(datasets.train_files(name))
    assert sorted(dropped["file"]) == sorted(files[~keep])
    assert dropped["score"].is_monotonic_decreasing
    assert all(Path(file).is_file() for file in files)
    page = out.with_name("mask-page") / "index.html"
    assert "digit 3" in page.read_text()
    assert call("view", out, "--no-open", "--output", tmp_path / "again").exit_code == 0


def test_features_of_ones_own_need_no_network(name, tmp_path):
    data = datasets.load(name, progress=False)
    np.save(tmp_path / "features.npy", data.train_images.reshape(len(data.train_images), -1).astype(np.float32))
    options = ["--features", tmp_path / "features.npy", "--out", tmp_path / "mask.nc", "--store", tmp_path / "store"]
    for method in ("paper", "neighbours"):
        result = call("filter", name, *options, "--method", method, "--device", "cpu")
        assert result.exit_code == 0, result.output
        assert 0.9 < masks.load_keep(tmp_path / "mask.nc", data).mean() < 1
    assert not list((tmp_path / "store").rglob("weights.pt"))


def test_all_methods_make_a_mask_each_and_one_table(name, store, found, tmp_path):
    how = ["--share", 0.06, "--out", tmp_path / "m.nc", "--store", store, "--device", "cpu", "--epochs", EPOCHS]
    result = call("filter", name, "--method", "all", *how)
    assert result.exit_code == 0, result.output
    assert list(pd.read_csv(tmp_path / "m-methods.csv")["method"]) == list(own.METHODS)
    for method in own.METHODS:
        assert np.array_equal(masks.load_keep(tmp_path / f"m-{method}.nc", found.data), found.chosen[method].keep)


@pytest.mark.faults
def test_the_network_of_an_interrupted_filter_goes_on_from_there(name, tmp_path, monkeypatch, capfd):
    data, epochs, real = datasets.load(name, progress=False), [], progress.Lines.update

    def interrupt(bar, amount=1):
        real(bar, amount)
        if bar.unit == "epoch":
            epochs.append(amount)
            if len(epochs) == 3:
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(progress.Lines, "update", interrupt)
    how = {"features": None, "epochs": 5, "store": tmp_path, "device": "cpu"}
    with pytest.raises(KeyboardInterrupt):
        own.choose(data, ["paper"], **how)
    assert f"the network so far is kept in {tmp_path}; the same command goes on" in capfd.readouterr().err
    assert len(list(tmp_path.rglob("paused/*.pt"))) == 1
    made = own.choose(data, ["paper"], **how)
    assert len(epochs) == 5  # three of them before
    assert not list(tmp_path.rglob("paused/*.pt"))
    assert made.accuracy > 0.5


@pytest.mark.parametrize("classes", [1, 300])
def test_one_class_or_many_small_ones_can_be_filtered(tmp_path, classes):
    rng = np.random.default_rng(RANDOM_STATE)
    for split, n in (("train", max(3, 40 // classes)), ("test", 1)):
        for k in range(classes):
            for i in range(n):
                path = tmp_path / split / f"{k:03}" / f"{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path)
    data = datasets.load(f"imagefolder:{tmp_path}", progress=False)
    features = data.train_images.reshape(len(data.train_images), -1)
    methods = ("neighbours", "random") if classes > 1 else ("paper", "knee", "neighbours")
    made = own.choose(
        data, methods, features=features, share=0.3, store=tmp_path / "store", device="cpu", progress=False
    )
    assert not made.passed_over
    for one in made.chosen.values():
        assert len(set(data.train_labels[one.keep])) == classes
        assert not one.keep.all()


# Training on what is left


@pytest.fixture(scope="module")
def mask(found, tmp_path_factory):
    return own.save(found, "confident", tmp_path_factory.mktemp("mask") / "mask.nc")


def test_full_filtered_and_random_data_are_compared_with_an_interval_and_not_trained_again(name, mask, found, tmp_path):
    page = tmp_path / "pages" / "results.html"
    options = ["--keep", mask, "--seeds", 2, "--epochs", 1, "--store", tmp_path, "--device", "cpu", "--out", page]
    first = call("train", name, *options)
    assert first.exit_code == 0, first.output
    assert "filtered less full: " in first.output
    assert "filtered less random: " in first.output
    runs = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.nc")}
    assert len(runs) == 2 * 3
    assert call("train", name, *options).exit_code == 0
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.nc")} == runs
    text, rows = page.read_text(), pd.read_csv(page.with_suffix(".csv"))
    assert not re.findall(r'<(?:script|link)[^>]+(?:src|href)="(?!data:)', text)  # it fetches nothing
    assert found.data.fingerprint in text
    assert f"dolb train {name} --keep {mask} --epochs 1 --seeds 2" in text
    assert sorted(rows["set"]) == sorted(["full", "filtered", "random"] * 2)


def test_a_random_set_has_as_many_of_each_class_and_is_another_for_each_seed(found, tmp_path):
    keep = found.chosen["confident"].keep
    ds = own.compare(found.data, keep, seeds=2, epochs=1, store=tmp_path, device="cpu", progress=False)
    table = own.accuracies(ds).set_index("set")
    assert table.loc["filtered", "images"] == table.loc["random", "images"] == keep.sum()
    assert table.loc["full", "images"] == len(keep)
    assert (table["seeds"] == 2).all()
    assert len({str(name) for name in ds["subset"].to_numpy() if str(name).startswith("random")}) == 2
    by_hand = 100 * (ds["test_accuracy"].to_numpy()[:, -1])
    kinds = np.array([str(name).split("-")[0] for name in ds["subset"].to_numpy()])
    gain = own.gains(ds).set_index("other").loc["full", "points"]
    assert gain == pytest.approx(by_hand[kinds == "network"].mean() - by_hand[kinds == "full"].mean())


def test_an_extractor_with_weights_is_not_trained(found, tmp_path):
    few = np.zeros(len(found.data.train_labels), dtype=bool)
    for label in range(4):
        few[np.flatnonzero(found.data.train_labels == label)[:9]] = True
    how = {"arch": "efficientnet-lite0", "share": 0.1, "store": tmp_path, "device": "cpu", "progress": False}
    data = found.data.subset(few, "few")
    data = replace(data, test_images=data.test_images[:4], test_labels=data.test_labels[:4])
    chosen = own.choose(data, ["paper", "neighbours"], **how)
    assert chosen.extractor is None
    assert not list(tmp_path.rglob("weights.pt"))
    assert (~chosen.chosen["neighbours"].keep).sum() == 4
    assert 0 < (~chosen.chosen["paper"].keep).sum() < 9
