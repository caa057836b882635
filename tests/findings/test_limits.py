"""What bounds training on many nodes, by layers whose times are known."""

import numpy as np
import pandas as pd
import pytest
from made_limits import POWERS, made_network, made_product, made_study

from dolb import results
from dolb.findings import limits as study
from dolb.findings.runs import narrow


def shrinking(size):
    """A network of which all shrinks with the batch."""
    return {"conv": 0.01 * size, "fc": 0.01 * size}


def with_update(size):
    """The same with an update that takes as long as ten images, whatever the batch."""
    return {**shrinking(size), "update": 0.2}


@pytest.fixture(scope="module")
def ds():
    return made_study(alexnet=with_update, googlenet=shrinking)


def test_what_shrinks_with_the_batch_has_the_ideal_speedup(ds):
    found = study.free(ds).query("arch == 'googlenet'")
    np.testing.assert_allclose(found["speedup"], found["nodes"])
    np.testing.assert_allclose(found["bound"], found["nodes"])
    assert (found["batch_size"] == 32).all()  # the study's batch, though 64 images were measured too


def test_what_does_not_shrink_is_lost_as_amdahl_has_it(ds):
    found = study.free(ds).query("arch == 'alexnet' and seed == 0")
    whole = 0.02 * 256 + 0.2
    np.testing.assert_allclose(found["speedup"], whole / (0.02 * found["images"] + 0.2))
    np.testing.assert_allclose(found["serial"], 0.2 / whole)
    np.testing.assert_allclose(found["bound"], found["speedup"])  # the update is the one layer that does not scale


def test_a_layer_scales_if_it_becomes_twice_as_fast_from_the_whole_batch_to_one_image():
    def seconds(size):
        return {"fast": 0.01 * size, "hardly": 1.0 + 0.9 * size / 32, "enough": 0.5 + 0.6 * size / 32}

    found = study.free(results.merge(made_network("googlenet", seconds, POWERS[:6], 50)))
    assert (found["stuck"] == 1).all()
    np.testing.assert_allclose(found["serial"], 1.9 / (1.9 + 1.1 + 0.32))


def test_layers_are_modules_with_both_passes_and_add_up_to_the_step(ds):
    sums = study.layers(ds).groupby(["arch", "seed", "batch_size"])["seconds"].sum()
    measured = ds.isel(run=(ds["source"] == "measured") & (ds["product"] == ""))
    index = [measured[name].to_numpy() for name in ("arch", "seed", "batch_size")]
    steps = pd.Series(measured["step_seconds"].to_numpy(), index=pd.MultiIndex.from_arrays(index)).sort_index()
    np.testing.assert_allclose(sums.to_numpy(), steps.to_numpy())


def test_networks_of_many_layers_are_drawn_by_block():
    def seconds(size):
        return {f"block{block}.conv{number}": 0.001 for block in (1, 2) for number in range(8)}

    drawn = study.layer_times(results.merge(made_network("deep", seconds, [1, 2], 10)))
    assert set(drawn["layer"]) == {"block1", "block2", "update"}
    assert drawn.query("layer == 'block1'")["milliseconds"].tolist() == pytest.approx([8.0, 8.0])


@pytest.mark.parametrize(
    ("fixed", "last"),
    # Steps of (64 / n + fixed) units: twice n nodes are 1.5 times as fast where 64 / n = 2 * fixed, so 2n = 64 / fixed.
    [(0.0, 64.0), (4.0, 16.0), (8.0, 8.0), (64.0, 1.0)],
)
def test_nodes_pay_until_twice_as_many_are_no_longer_half_as_fast_again(fixed, last):
    seconds = {2.0**k: 64 / 2**k + fixed for k in range(7)}
    assert study._last_that_pays(seconds) == pytest.approx(last)


def test_a_faster_link_never_makes_fewer_nodes_pay_and_none_beats_free_communication(ds):
    found = study.stops(ds).sort_values("gbit")
    for _, group in found.groupby(["arch", "batch_size", "seed"]):
        assert (np.diff(group["nodes"]) >= -1e-9).all()


def test_the_roof_is_memory_for_few_inputs_and_arithmetic_for_many():
    rows = made_product("alexnet", "classifier.1", lambda size: 1e-2, (1, 256), flops=1e11, bandwidth=1e10)
    found = study.products(results.merge(rows)).set_index("batch_size")["roof"]
    assert found[1] == pytest.approx(1e10 * 2e6 / (4 * (1e6 + 2000)) / 1e9)
    assert found[256] == pytest.approx(100.0)


def test_some_networks_can_be_had_alone_with_their_layers(ds):
    alone = narrow(ds, arch=["alexnet"])
    assert set(study.free(alone)["arch"]) == {"alexnet"}
    pd.testing.assert_frame_equal(
        study.free(alone).reset_index(drop=True), study.free(ds).query("arch == 'alexnet'").reset_index(drop=True)
    )
