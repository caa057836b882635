"""Data of one's own: a folder of images becomes masks, a table of methods, a list of files to drop, a page."""

import re
import signal
import sys
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
from dolb.filtering.config import METHODS

pytestmark = pytest.mark.usefixtures("on_one_core")
RANDOM_STATE = 0
EPOCHS = 8  # by default there are more, of a larger network
SMALL = ["--extractor", "smallnet-4", "--epochs", EPOCHS, "--device", "cpu"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Digits of four classes as PNGs; one in twenty of the training images lies in the folder of another class."""
    root, digits, rng = tmp_path_factory.mktemp("images"), datasets.load("digits"), np.random.default_rng(RANDOM_STATE)
    for split, images, labels in (
        ("train", digits.train_images, digits.train_labels),
        ("test", digits.test_images, digits.test_labels),
    ):
        for k in np.flatnonzero(labels < 4)[::2]:
            wrong = split == "train" and rng.random() < 0.05
            label = (labels[k] + rng.integers(1, 4)) % 4 if wrong else labels[k]
            path = root / split / f"digit {label}" / f"{'wrong' if wrong else 'right'}-{k}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(images[k, ..., 0]).save(path)
    return root


@pytest.fixture(scope="module")
def name(folder):
    return f"imagefolder:{folder}"


@pytest.fixture(scope="module")
def found(name, store, on_one_core):
    data = datasets.load(name, progress=False)
    how = {"share": 0.06, "arch": "smallnet-4", "epochs": EPOCHS, "store": store, "device": "cpu", "progress": False}
    return own.choose(data, METHODS, **how)


@pytest.fixture(scope="module")
def wrong(name):
    return np.array(["wrong" in Path(file).name for file in datasets.train_files(name)])


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "200"})


def few_of(data, n):
    """The first images of each class."""
    keep = np.zeros(len(data.train_labels), dtype=bool)
    for label in range(4):
        keep[np.flatnonzero(data.train_labels == label)[:n]] = True
    return data.subset(keep, "few")


def test_every_method_makes_a_mask_that_keeps_every_class_by_the_share_where_it_takes_one(found):
    assert tuple(found.chosen) == METHODS
    for method, one in found.chosen.items():
        table = own.by_class(found, method)
        assert (table["removed"] < table["images"]).all()
        assert 0 < table["removed"].sum() == (~one.keep).sum() < 0.5 * len(one.keep)
        if method == "paper":
            assert (~one.keep).mean() == pytest.approx(0.06, abs=0.01)
        elif method not in ("knee", "hdbscan"):
            assert (table["removed"] - 0.06 * table["images"]).abs().max() <= 1


@pytest.mark.parametrize("method", ["paper", "neighbours", "el2n", "forgetting", "confident"])
def test_wrong_labels_are_found_far_more_often_than_by_chance(found, wrong, method):
    assert wrong[~found.chosen[method].keep].mean() > 4 * wrong.mean()


def test_the_table_of_methods_counts_what_they_have_in_common(found):
    table = own.compared(found).set_index("method")
    common = table[[f"also by {one}" for one in METHODS]].to_numpy()
    assert np.array_equal(common, common.T)
    assert np.diag(common).tolist() == [(~found.chosen[one].keep).sum() for one in METHODS]
    assert (table["minutes"] > 0).all()
    assert table["minutes"].idxmin() == "random"


def test_the_command_writes_mask_files_to_drop_and_page_and_touches_no_image(name, store, found, wrong, tmp_path):
    out = tmp_path / "made" / "mask.nc"
    result = call("filter", name, "--share", 0.06, "--out", out, "--store", store, *SMALL)
    assert result.exit_code == 0, result.output
    n = len(found.data.test_labels)
    assert f"searched are the {len(wrong)} training images; the {n} test images are not" in result.output
    keep = masks.load_keep(out, found.data)
    assert np.array_equal(keep, found.chosen["paper"].keep)  # out of the store: nothing was trained again
    dropped = pd.read_csv(out.with_name("mask-drop.csv"))
    files = np.array(datasets.train_files(name))
    assert sorted(dropped["file"]) == sorted(files[~keep])
    assert dropped["score"].is_monotonic_decreasing
    assert files[dropped["example"]].tolist() == dropped["file"].tolist()  # the page has the number
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
    result = call(
        "filter", name, "--method", "all", "--share", 0.06, "--out", tmp_path / "m.nc", "--store", store, *SMALL
    )
    assert result.exit_code == 0, result.output
    assert list(pd.read_csv(tmp_path / "m-methods.csv")["method"]) == list(METHODS)
    for method in METHODS:
        assert np.array_equal(masks.load_keep(tmp_path / f"m-{method}.nc", found.data), found.chosen[method].keep)


def test_a_method_that_is_mistyped_is_refused_before_torch_is_imported(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "dolb.own", None)  # to import it is an error
    result = call("filter", name, "--method", "papre")
    assert result.exit_code == 2
    assert "method 'papre' is not known (did you mean 'paper'?); accepted: paper, " in result.output


@pytest.mark.faults
def test_the_network_of_an_interrupted_filter_goes_on_from_there(name, tmp_path, monkeypatch, capfd):
    data, epochs, real = few_of(datasets.load(name, progress=False), 20), [], progress.Lines.update

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
    assert made.accuracy > 0


@pytest.mark.parametrize("classes", [1, 50])
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


def test_a_line_of_progress_says_about_how_long_the_rest_takes(capsys):
    lines = progress.Lines(10, "runs", "epoch")
    lines._begun -= 20
    lines.update(2)
    assert "runs: 2 of 10 (epoch), 20 s, about 80 s left" in capsys.readouterr().err
    lines._next, lines._first = 0.0, (lines._first[0] - 6, 2)  # starting took most of the 20 seconds
    lines.update(2)
    assert "runs: 4 of 10 (epoch), 20 s, about 18 s left" in capsys.readouterr().err


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
    text, rows = page.read_text(), pd.read_csv(page.with_suffix(".csv"))
    assert not re.findall(r'<(?:script|link)[^>]+(?:src|href)="(?!data:)', text)  # it fetches nothing
    assert found.data.fingerprint in text
    assert f"dolb train {name} --keep {mask} --epochs 1 --seeds 2" in text
    assert sorted(rows["set"]) == sorted(["full", "filtered", "random"] * 2)
    runs = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.nc")}
    assert len(runs) == 2 * 3
    keep = masks.load_keep(mask, found.data)
    ds = own.compare(found.data, keep, seeds=2, epochs=1, store=tmp_path, device="cpu", progress=False)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.nc")} == runs
    # A random set has as many of each class, and is another for each seed.
    table = own.accuracies(ds).set_index("set")
    assert table.loc["filtered", "images"] == table.loc["random", "images"] == keep.sum()
    assert table.loc["full", "images"] == len(keep)
    kinds = pd.Series(ds["subset"].to_numpy()).astype(str)
    assert kinds[kinds.str.startswith("random")].nunique() == 2
    by_hand = pd.Series(100 * ds["test_accuracy"].to_numpy()[:, -1]).groupby(kinds.str.split("-").str[0]).mean()
    assert own.gains(ds).set_index("other").loc["full", "points"] == pytest.approx(by_hand["network"] - by_hand["full"])


@pytest.mark.parametrize(("most", "counts"), [(60, [482]), (64, [386, 482]), (64, [1437]), (250, [50_000, 47_440])])
def test_no_set_is_left_a_small_last_batch(most, counts):
    size = own.even(most, counts)
    assert most // 2 < size <= most
    assert all(count % size <= 1 or count % size >= size / 4 for count in counts)


def test_a_batch_size_that_leaves_a_small_last_batch_is_noted_with_one_that_does_not():
    with pytest.warns(UserWarning, match=r"leave 2 of 482 images .* batches of 58 do not"):
        own.check_even(60, [500, 482])


def test_an_extractor_with_weights_is_not_trained(found, tmp_path):
    how = {"arch": "efficientnet-lite0", "share": 0.1, "store": tmp_path, "device": "cpu", "progress": False}
    data = few_of(found.data, 9)
    data = replace(data, test_images=data.test_images[:4], test_labels=data.test_labels[:4])
    chosen = own.choose(data, ["paper", "neighbours"], **how)
    assert chosen.extractor is None
    assert not list(tmp_path.rglob("weights.pt"))
    assert (~chosen.chosen["neighbours"].keep).sum() == 4
    assert 0 < (~chosen.chosen["paper"].keep).sum() < 9


def test_a_class_that_loses_far_more_than_the_others_is_named():
    table = pd.DataFrame({"class": ["a", "b", "c"], "images": [300, 300, 40], "removed": [8, 6, 18]})
    table["share"] = table["removed"] / table["images"]
    assert own.emptied(table)["class"].tolist() == ["c"]
    assert own.emptied(table.assign(removed=[8, 6, 2], share=[0.02, 0.02, 0.2])).empty  # two images may be chance
