"""Which batch size and rate suit a data set: real runs on small images, judged by what is held out of training."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from dolb import data as datasets
from dolb import own_batch, results
from dolb.cli import app
from dolb.training.engine import subset_of

OPTIONS = ["--arch", "smallnet-4", "--epochs", 1, "--seeds", 2, "--device", "cpu"]


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def found(store):
    return own_batch.recommend(
        datasets.load("digits"), arch="smallnet-4", epochs=1, seeds=2, store=store, device="cpu", progress=False
    )


def test_what_is_held_out_is_a_share_of_every_class_and_no_test_image():
    digits = datasets.load("digits")
    data = subset_of(digits, "held-out-0.2", {})
    assert len(data.train_labels) + len(data.test_labels) == len(digits.train_labels)
    held, all_of = (np.bincount(labels) for labels in (data.test_labels, digits.train_labels))
    assert np.abs(held - 0.2 * all_of).max() <= 1
    both = np.concatenate([data.train_images, data.test_images]).reshape(len(digits.train_labels), -1)
    ours = np.unique(both, axis=0, return_counts=True)
    theirs = np.unique(digits.train_images.reshape(len(both), -1), axis=0, return_counts=True)
    assert all(np.array_equal(one, other) for one, other in zip(ours, theirs, strict=True))


def test_no_run_is_judged_by_the_test_images(found, store):
    runs = results.RunStore(store)
    assert {str(runs.get(key)["subset"].item()) for key in runs.keys()} == {"held-out-0.2"}  # noqa: SIM118
    assert {int(runs.get(key)["test_examples"].item()) for key in runs.keys()} == {287}  # noqa: SIM118


def test_the_batch_to_take_is_the_largest_within_the_margin(found):
    table, taken = found.checked, found.taken
    assert list(table["batch_size"]) == sorted(set(table["batch_size"]))
    assert found.best["accuracy"] == table["accuracy"].max()
    assert taken["below"] <= own_batch.MARGIN
    larger = table[table["batch_size"] > taken["batch_size"]]
    assert (larger["below"] > own_batch.MARGIN).all()
    assert found.above is None if larger.empty else found.above["batch_size"] == larger["batch_size"].iloc[0]


def test_accuracies_are_those_of_other_seeds_than_the_search_had(found, store):
    runs = results.RunStore(store)
    size, rate = found.taken["batch_size"], found.taken["lr"]
    frame = pd.DataFrame(
        [
            (int(ds["batch_size"].item()), float(ds["lr"].item()), int(ds["seed"].item()), ds["test_accuracy"].item())
            for ds in map(runs.get, runs.keys())
        ],
        columns=["size", "rate", "seed", "accuracy"],
    )
    own = frame[(frame["size"] == size) & (frame["rate"] == rate) & (frame["seed"] > 1)]
    assert sorted(own["seed"]) == [2, 3]
    assert found.taken["accuracy"] == pytest.approx(100 * own["accuracy"].mean())
    assert (frame[frame["seed"] < 2].groupby("size")["rate"].nunique() >= 3).all()


def test_the_command_prints_the_table_and_trains_nothing_again(found, store):
    before = {path.name: path.stat().st_mtime_ns for path in store.glob("*.nc")}
    result = call("recommend", "digits", *OPTIONS, "--store", store)
    assert result.exit_code == 0, result.output
    assert {path.name: path.stat().st_mtime_ns for path in store.glob("*.nc")} == before
    taken = found.taken
    assert f"--batch-size {taken['batch_size']} --lr {taken['lr']:g}" in result.output


def test_a_search_goes_on_where_minutes_were_too_few(tmp_path):
    how = ["recommend", "digits", *OPTIONS, "--batch-sizes", "64,256", "--store", tmp_path]
    first = call(*how, "--minutes", 0)
    assert first.exit_code == 3, first.output
    assert call(*how).exit_code == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--batch-sizes", "100000"], "batch size 100000 cannot be checked; accepted: 2 to 1150"),
        (["--batch-sizes", "many"], "--batch-sizes 'many' is not a list of int with commas"),
        (["--batch-sizes", "0,64"], "batch size 0 cannot be checked"),
        (["--arch", "resnet19"], "resnet19"),
        (["--arch", "volumenet"], "volumenet is a network for volumes"),
    ],
)
def test_what_cannot_be_checked_is_said_in_one_line_before_anything_is_trained(tmp_path, options, says):
    result = call("recommend", "digits", *OPTIONS, *options, "--store", tmp_path)
    assert result.exit_code == 2
    (line,) = [line for line in result.output.splitlines() if line.startswith("error: ")]
    assert says in line
    assert not list(tmp_path.iterdir())


def test_a_batch_beyond_the_data_or_an_unmeasurable_critical_size_leaves_what_can_be_run():
    sizes = own_batch.around(float("inf"), 8, 100)
    assert max(sizes) <= 100
    assert len(set(sizes)) >= 3
