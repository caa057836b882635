"""Numbers of the data pipeline, by measurements whose answer is known."""

import pytest
from made_storage import made_counts, made_reading, made_training

from dolb import results
from dolb.findings import data_pipeline as study

SPEEDS = {"files": 100.0, "flat": 400.0, "lmdb": 300.0, "hdf5": 200.0, "webdataset": 150.0, "zarr": 20.0}


def speed(form, access, cache, workers, seed):
    """In order and warm are each twice as fast, four processes three times; every further seed has a tenth more."""
    factor = (2 if access == "sequential" else 1) * (2 if cache == "warm" else 1) * (3 if workers == 4 else 1)
    return SPEEDS[form] * factor * 1.1**seed


@pytest.fixture(scope="module")
def ds():
    rows = [*made_reading(speed), *made_training(lambda form, access, seed: 0.5 if form == "files" else 0.2)]
    return results.merge([*rows, *made_counts()])


def test_cells_have_the_geometric_mean_of_seeds_and_its_interval(ds):
    cells = study.cells(ds).set_index(["storage", "access", "cache", "loader_workers"])
    one = cells.loc[("flat", "random", "cold", 4)]
    assert one["value"] == pytest.approx(400 * 3 * 1.1)
    assert one["low"] < one["value"] < one["high"]
    assert one["n"] == 3
    assert len(cells) == 6 * 2 * 2 * 2


def test_the_best_other_form_is_named_for_every_order_and_cache(ds):
    found = study.ratios(ds)
    assert set(found["best"]) == {"lmdb"}
    assert found.query("over == 'best other'")["value"].tolist() == pytest.approx([4 / 3] * 4)


def test_small_images_have_rows_of_their_own(ds):
    small = made_reading(lambda form, *_: 10 * SPEEDS[form] if form == "flat" else SPEEDS[form], data="cifar10")
    both = results.merge([ds, results.merge(small)])
    found = study.ratios(both).query("over == 'files'").groupby("images")["value"].mean()
    assert found.to_dict() == pytest.approx({"ImageNet-sized": 4.0, "CIFAR-10": 40.0})


def test_the_table_has_the_best_number_of_processes_and_what_reading_costs(ds):
    table = study.table(ds).set_index("images/s of the form")
    assert table.index.tolist() == list(study.NAMES.values())
    files = table.loc["small files"]
    assert files["random, cold"] == "330"  # 100 times 3, times 1.1: the mean over seeds
    assert files["random, cold, decoded"] == "300"
    assert files["system calls per image"] == "6.5"
    assert files["read from disk per byte of image"] == "1.50"


def test_forms_that_were_not_measured_are_left_out():
    rows = [*made_reading(speed, formats=("files", "lmdb")), *made_counts(("files", "lmdb"))]
    ds = results.merge(rows)
    assert study.table(ds)["images/s of the form"].tolist() == ["small files", "LMDB"]
    assert study.ratios(ds).empty
