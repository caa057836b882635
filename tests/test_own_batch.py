"""Which batch size and rate suit a data set: real runs on small images, judged by what is held out of training."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from dolb import data as datasets
from dolb import own_batch, results
from dolb.cli import app
from dolb.training.engine import subset_of

pytestmark = pytest.mark.usefixtures("on_one_core")
OPTIONS = ["digits", "--arch", "smallnet-4", "--epochs", 1, "--seeds", 2, "--device", "cpu", "--batch-sizes", "64,256"]


def call(*arguments):
    return CliRunner().invoke(app, ["recommend", *map(str, arguments)], env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def found(store, on_one_core):
    """What is recommended, after a call whose minutes were too few."""
    assert call(*OPTIONS, "--store", store, "--minutes", 0).exit_code == 3
    how = {"arch": "smallnet-4", "epochs": 1, "seeds": 2, "batch_sizes": [64, 256]}
    return own_batch.recommend(datasets.load("digits"), **how, store=store, device="cpu", progress=False)


def test_what_is_held_out_is_a_share_of_every_class_and_no_test_image():
    digits = datasets.load("digits")
    data = subset_of(digits, "held-out-0.2", {})
    held, all_of = (np.bincount(labels) for labels in (data.test_labels, digits.train_labels))
    assert np.abs(held - 0.2 * all_of).max() <= 1
    both = np.concatenate([data.train_images, data.test_images])
    assert sorted(one.tobytes() for one in both) == sorted(one.tobytes() for one in digits.train_images)


def test_the_batch_to_take_is_the_largest_within_the_margin(found):
    table, taken = found.checked, found.taken
    assert list(table["batch_size"]) == [64, 256]
    assert found.best["accuracy"] == table["accuracy"].max()
    assert taken["below"] <= own_batch.MARGIN
    larger = table[table["batch_size"] > taken["batch_size"]]
    assert (larger["below"] > own_batch.MARGIN).all()
    assert found.above is None if larger.empty else found.above["batch_size"] == larger["batch_size"].iloc[0]


def test_runs_are_judged_by_what_is_held_out_and_accuracies_are_of_other_seeds_than_the_search_had(found, store):
    runs = results.RunStore(store)
    names = ["batch_size", "lr", "seed", "subset", "test_examples", "test_accuracy"]
    frame = pd.DataFrame([{name: ds[name].item() for name in names} for ds in map(runs.get, runs.keys())])
    assert set(frame["subset"]) == {"held-out-0.2"}
    assert set(frame["test_examples"]) == {287}
    taken = found.taken
    here = (frame["batch_size"] == taken["batch_size"]) & (frame["lr"] == taken["lr"]) & (frame["seed"] > 1)
    assert sorted(frame["seed"][here]) == [2, 3]
    assert taken["accuracy"] == pytest.approx(100 * frame["test_accuracy"][here].mean())
    assert (frame[frame["seed"] < 2].groupby("batch_size")["lr"].nunique() >= 3).all()


def test_the_command_says_what_is_known_after_each_phase_and_trains_nothing_again(found, store):
    before = {path.name: path.stat().st_mtime_ns for path in store.glob("*.nc")}
    result = call(*OPTIONS, "--store", store)
    assert result.exit_code == 0, result.output
    assert {path.name: path.stat().st_mtime_ns for path in store.glob("*.nc")} == before
    told = ["1 of 3", "best rate at batch", "2 of 3", "critical batch", "3 of 3", "best rates: ", "take batch"]
    places = [result.output.index(one) for one in told]
    assert places == sorted(places)
    assert f"--batch-size {found.taken['batch_size']} --lr {found.taken['lr']:g}" in result.output


def test_a_batch_beyond_the_data_or_an_unmeasurable_critical_size_leaves_what_can_be_run():
    sizes = own_batch.around(float("inf"), 8, 100, [386])
    assert all(386 % size <= 1 or 386 % size >= size / 4 for size in sizes[1:])
    assert max(sizes) <= 100
    assert len(set(sizes)) >= 3
