"""Runs with their loss landscapes: what is measured, over which examples, kept in the store and taken up again."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dolb import data, results
from dolb.augment import DeviceImages
from dolb.training import landscape, observe
from dolb.training.config import LandscapeConfig, RunConfig
from dolb.training.curvature import MeanLoss
from dolb.training.landscape import measure, measure_all, sample

N = 1437  # training examples of the digits
MASKS = {"network-a-1": np.arange(N) % 10 != 0, "random-a-1": np.arange(N) % 10 != 5}
CONFIG = LandscapeConfig(
    experiment="loss-landscape", epochs=2, batch_size=256, lr=0.2, judged_on="full,network-a-1,random-a-1",
    judged_examples=48, eigenvalue_tolerance=0.1, most_products=8, trace_probes=2, surface_points=3,
)  # fmt: skip
CONFIGS = [CONFIG, replace(CONFIG, subset="network-a-1")]


def measured(configs, store, **more):
    return measure_all(configs, store=store, subsets=MASKS, device="cpu", at_once=1, progress=False, **more)


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    return measured(CONFIGS, tmp_path_factory.mktemp("store"))


def test_a_landscape_is_a_run_with_more_and_can_be_published(ds, tmp_path):
    back = results.load(results.save(ds, tmp_path / "loss-landscape.nc"))
    assert back["top_eigenvalue"].dims == ("run", "loss_over")
    assert back["surface_loss"].dims == ("run", "loss_over", "alpha", "beta")
    assert back["loss_over"].values.tolist() == ["full", "network", "random"]
    assert back["alpha"].values.tolist() == [-1, 0, 1]
    assert back["judged_on"].values.tolist() == [CONFIG.judged_on] * 2
    assert "judged_examples" in back.coords
    for name in ds.data_vars:
        np.testing.assert_array_equal(back[name], ds[name], err_msg=str(name))


def test_the_loss_is_that_of_the_network_as_trained_without_measuring_over_the_chosen_examples(ds):
    digits = data.load("digits")
    (got,) = observe.networks([RunConfig.from_dict(CONFIG.as_dict())], digits, device="cpu", progress=False)
    np.testing.assert_array_equal(ds["test_accuracy"].values[:1], got.result["test_accuracy"])
    chosen = sample({"network": MASKS["network-a-1"]}, 48, CONFIG.seed)["network"]
    images = DeviceImages(digits.train_images[chosen], digits.train_labels[chosen], digits.mean, digits.std, "cpu", 0)
    loss = MeanLoss(got.network(digits), images.centre(0, 48), images.labels)
    one = ds.isel(run=0).sel(loss_over="network")
    assert one["judged_loss"].item() == pytest.approx(loss.value(loss.point), rel=1e-4)
    assert one["surface_loss"].sel(alpha=0, beta=0).item() == pytest.approx(one["judged_loss"].item(), rel=1e-5)
    filters = [value.flatten() for value in got.network(digits).parameters() if value.ndim > 1]
    assert ds["weight_norm"].values[0] == pytest.approx(torch.cat(filters).norm().item(), rel=1e-4)


def test_two_sets_are_judged_by_nearly_the_same_examples():
    keep = {"full": np.ones(N, dtype=bool), **{name.split("-")[0]: mask for name, mask in MASKS.items()}}
    chosen = sample(keep, 100, seed=3)
    assert all(len(one) == 100 for one in chosen.values())
    assert MASKS["network-a-1"][chosen["network"]].all()
    # A tenth of the first hundred examples is not in the set, and others follow for them.
    assert len(set(chosen["full"]) & set(chosen["network"])) == MASKS["network-a-1"][chosen["full"]].sum() > 80


def test_a_pack_is_trained_before_any_of_it_is_measured_and_what_is_not_measured_is_not_trained_again(
    tmp_path, monkeypatch
):
    pack = [CONFIG, replace(CONFIG, epochs=1, seed=1)]
    kept: list[set[str]] = []  # among the paused, as each is measured

    def once(*rest):
        if kept:
            raise KeyboardInterrupt  # as the user does while the second is measured
        kept.append({path.stem for path in (tmp_path / "paused").glob("*.pt")})
        return measure(*rest)

    monkeypatch.setattr(landscape, "packs", lambda configs, device: [list(configs)])
    monkeypatch.setattr(landscape, "measure", once)
    with pytest.raises(KeyboardInterrupt):
        measured(pack, tmp_path)
    monkeypatch.setattr(landscape, "measure", measure)
    assert kept == [{config.key for config in pack}]  # when the first was measured both had ended
    (path,) = (tmp_path / "paused").glob("*.pt")
    ended = torch.load(path, weights_only=True)
    ds = measured(pack, tmp_path)
    assert not list((tmp_path / "paused").glob("*.pt"))
    row = ds.isel(run=ds["key"].values.tolist().index(path.stem))
    assert row["seconds"].item() == ended["train_seconds"] + ended["eval_seconds"]


def test_a_run_that_diverged_has_no_landscape_and_is_a_result(tmp_path):
    ds = measured([replace(CONFIG, lr=1e30)], tmp_path)
    assert ds["diverged"].item()
    assert np.isnan(ds["top_eigenvalue"].values).all()
    assert np.isnan(ds["surface_loss"].values).all()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"subset": "network-b-2"}, "subset 'network-b-2' is not known; accepted: full, share-0.1, network-a-1"),
        ({"judged_on": "full,grid-a-1"}, "subset 'grid-a-1' is not known"),
        ({"judged_examples": 1400}, r"judged_examples 1400 is larger than the 1293 training examples of digits \(n"),
        ({"batch_size": 1438}, r"batch_size 1438 is larger than the 1437 training examples of digits \(full\)"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_any_training(tmp_path, changes, says):
    with pytest.raises(ValueError, match=says):
        measured([CONFIG, replace(CONFIG, **changes)], tmp_path)
    assert not list(tmp_path.glob("*.nc"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_runs_are_trained_together_and_measured_as_on_the_cpu(tmp_path):
    on = {"subsets": MASKS, "progress": False}
    pair = [CONFIG, replace(CONFIG, seed=1)]
    there = measure_all(pair, store=tmp_path, device="cuda", **on)
    assert there["concurrent_runs"].values.min() > 1
    here = measure_all(pair, device="cpu", **on)
    # Training differs in its last digits, and so do the weights; the landscape is that of the same network.
    np.testing.assert_allclose(there["top_eigenvalue"], here["top_eigenvalue"], rtol=0.1)
    np.testing.assert_allclose(there["normalized_trace"], here["normalized_trace"], rtol=0.2)
