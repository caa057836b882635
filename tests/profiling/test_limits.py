"""Layers and products measured for real on small networks, and the links that are simulated from them."""

import numpy as np
import pytest
import torch

from dolb import recipes, results
from dolb.profiling import limits
from dolb.profiling.config import LayerConfig
from dolb.profiling.simulator import tensors

TINY = {"experiment": "limits", "data": "digits", "arch": "smallnet-4", "passes": 1}


@pytest.fixture(scope="module")
def measured():
    configs = [LayerConfig(**TINY, batch_size=size) for size in (1, 2, 4, 8, 16, 32)]
    return limits.measure_all([*configs, LayerConfig(**TINY, product="fc", batch_size=8)], progress=False)


@pytest.fixture(scope="module")
def with_simulated(measured):
    return limits.with_simulated(measured)


def test_the_times_of_layers_and_update_add_up_to_the_step(measured):
    for one in results.split(measured):
        assert float((one["end_us"] - one["start_us"]).sum()) / 1e6 == pytest.approx(one["step_seconds"].item())
    passes = measured["pass_seconds"].to_numpy()[:-1]
    assert (measured["step_seconds"].to_numpy()[:-1] > passes).all()


def test_layers_are_read_back_as_the_tensors_that_the_simulator_takes(measured):
    one = results.split(measured)[3]
    step = limits.from_events(one)
    known = tensors.work("smallnet-4", 8, num_classes=10, channels=1)
    assert list(step.names) == known["name"].tolist()
    assert step.bytes.tolist() == known["bytes"].tolist()
    assert step.step_seconds == pytest.approx(one["step_seconds"].item())
    assert step.optimizer_seconds > 0


def test_a_product_counts_what_it_computes_and_moves(measured):
    one = measured.isel(run=-1)
    assert one["step_flops"].item() == 2 * 8 * 16 * 10
    assert one["step_bytes"].item() == 4 * (160 + 8 * 26)
    assert one["peak_flops"].item() > 1e8
    assert one["peak_bandwidth"].item() > 1e8


def test_a_product_must_be_a_fully_connected_layer():
    with pytest.raises(ValueError, match=r"'stem.0' of smallnet-4 is Conv2d; accepted: a Linear layer"):
        limits.measure(LayerConfig(**TINY, product="stem.0"))


def test_published_runs_go_back_to_a_store_each_with_its_own_layers(measured, with_simulated, tmp_path):
    store = results.RunStore(tmp_path)
    store.take(with_simulated)
    for one in results.split(measured):
        again = store.get(one["key"].item())
        assert again["end_us"].to_numpy().tolist() == one["end_us"].to_numpy().tolist()
    assert len(store.keys()) == measured.sizes["run"]  # what is simulated stays out


def test_a_shared_batch_is_simulated_from_the_layers_of_a_share_and_a_faster_link_is_never_slower(
    measured, with_simulated
):
    ds = with_simulated.isel(run=with_simulated["source"] == "simulated").drop_dims("event")
    table = ds.to_dataframe().reset_index(drop=True)
    for _, group in table.groupby(["scaling", "arch", "batch_size", "ranks"]):
        assert (np.diff(group.sort_values("link_mbit")["step_seconds"]) <= 1e-12).all()
    shared = table[table["scaling"] == "strong"]
    assert set(shared["ranks"]) == {2, 4, 8, 16, 32}
    assert set(shared["batch_size"]) == {16, 32}  # of batches from 16 images on
    whole = measured.isel(run=slice(-1))  # without the product
    alone = dict(zip(whole["batch_size"].values.tolist(), whole["step_seconds"].values, strict=True))
    assert (shared["step_seconds"] >= shared["batch_size_per_rank"].map(alone)).all()


def test_simulating_again_renews_what_was_simulated_and_keeps_what_was_measured(with_simulated):
    twice = limits.with_simulated(with_simulated)
    assert twice["key"].to_numpy().tolist() == with_simulated["key"].to_numpy().tolist()
    assert results.validate(twice).sizes == with_simulated.sizes


@pytest.mark.parametrize(("arch", "megabytes"), [("alexnet", 244), ("googlenet", 26), ("resnet50", 102)])
def test_the_studied_networks_have_torchvisions_weights_without_helping_heads(arch, megabytes):
    assert round(tensors.work(arch)["bytes"].sum() / 1e6) == megabytes


def test_products_of_the_recipe_are_fully_connected_layers_of_their_networks():
    for config in recipes.configs("limits", "paper", part="products", seeds=[0], batch_sizes=[1]):
        assert f"{config.product}.weight" in tensors.work(config.arch)["name"].tolist()


def test_a_gpu_is_another_measurement_and_gets_batches_up_to_256():
    here, there = (recipes.configs("limits", "paper", device_kind=kind) for kind in ("cpu", "cuda"))
    assert not {one.key for one in here} & {one.key for one in there}
    assert {one.batch_size for one in there if one.arch == "resnet50"} == {2**power for power in range(9)}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_layers_and_products_are_measured_on_a_gpu():
    whole, product = (LayerConfig(**TINY | {"device_kind": "cuda"}, product=name, batch_size=8) for name in ("", "fc"))
    ds = limits.measure_all([whole, product], progress=False)
    assert (ds["step_seconds"] > 0).all()
    assert ds["device"].to_numpy()[0].startswith("NVIDIA")
