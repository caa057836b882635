"""Verdicts on noise, on training on filtered data and on its landscape, from results whose answer is known."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from made_landscapes import made_study
from made_runs import made_run
from scipy import stats

from dolb import claims, results

EVERY = claims.load()
DECAYS = (0.005, 0.01, 0.012, 0.0135)


def verdict(name, ds):
    return claims.judge({name: EVERY[name]}, {EVERY[name].experiment: ds})[name]


def large(gain, random=-0.03, spread=lambda size: 0.001, sizes=(2048, 4096, 6272, 10368)):
    """Make eight seeds at large batches; filtered data gain over full data what a function of the batch says."""
    parts = []
    for size in sizes:
        for seed in range(8):
            noise = spread(size) * ((seed * 7) % 5 - 2)
            for name, more in (("full", 0.0), ("network-a-1", gain(size) + noise / 2), (f"random-a-{seed}", random)):
                accuracy = 0.77 + noise + more
                parts.append(made_run((accuracy,) * 5, subset=name, batch_size=size, bn_workers=8, seed=seed))
    return results.merge(parts)


def small(accuracy, seeds=3, decays=DECAYS, sizes=(64, 128, 256)):
    """Make runs with small batches, whose accuracy is a function of set, batch size and weight decay."""
    return results.merge(
        made_run(
            (accuracy(name, size, decay) + 0.0005 * ((seed * 7 + len(name)) % 5),) * 5,
            subset={"full": "full", "filtered": "network-a-1", "random": f"random-a-{seed}"}[name],
            batch_size=size, weight_decay=decay, seed=seed,
        )
        for name in ("full", "filtered", "random")
        for size in sizes
        for decay in decays
        for seed in range(seeds)
    )  # fmt: skip


def test_the_papers_gain_above_6000_and_none_below_replicates_its_findings():
    ds = large(lambda size: 0.023 if size > 6000 else 0.0)
    for name in ("G11", "G12", "G13", "G14"):
        assert verdict(name, ds).outcome == "replicated", name
    (found,) = verdict("G12", ds).estimates
    assert (found.value, found.n) == (pytest.approx(2.3, abs=0.05), 8)


def test_a_gain_far_below_the_papers_is_smaller_than_claimed_and_none_replicates_nothing():
    assert verdict("G11", large(lambda size: 0.004)).outcome == "smaller than claimed"
    ds = large(lambda size: 0.0 if size > 6000 else -0.02)
    assert verdict("G11", ds).outcome == "not replicated"
    assert verdict("G13", ds).outcome == "not replicated"


def test_without_the_ends_of_a_range_a_claim_about_it_is_not_yet_measured():
    assert verdict("G11", large(lambda size: 0.02, sizes=(2048, 6272))).outcome == "not yet measured"
    assert verdict("G12", large(lambda size: 0.02, sizes=(2048, 4096))).outcome == "not yet measured"


def test_runs_at_equal_updates_do_not_count():
    ds = large(lambda size: 0.0)
    stretched = [
        made_run((0.9,) * 6, subset="network-a-1", batch_size=6272, bn_workers=8, seed=seed) for seed in range(8)
    ]
    assert verdict("G12", results.merge([ds, results.merge(stretched)])).estimates == verdict("G12", ds).estimates


@pytest.mark.parametrize(("factor", "outcome"), [(3.0, "replicated"), (1.0, "inconclusive"), (0.4, "not replicated")])
def test_whether_seeds_vary_more_is_the_ratio_of_their_deviations(factor, outcome):
    found = verdict("G15", large(lambda size: 0.0, spread=lambda size: 0.002 * (factor if size >= 6272 else 1)))
    assert found.outcome == outcome
    assert found.estimates[0].value == pytest.approx(factor, rel=1e-4)
    assert verdict("G15", large(lambda size: 0.0, sizes=(6272, 10368))).outcome == "not yet measured"


GAINS = {"filtered": 0.006, "full": 0.0, "random": -0.018}


def test_the_papers_gains_with_small_batches_replicate_its_findings():
    ds = small(lambda name, size, decay: 0.8 + GAINS[name] + (0.014 if size == 256 else 0.0))
    for name in ("G7", "G8", "G9", "G10"):
        assert verdict(name, ds).outcome == "replicated", name


def test_sets_that_do_not_differ_replicate_no_gain_over_random_data():
    ds = small(lambda name, size, decay: 0.8)
    for name in ("G7", "G8", "G9", "G10"):
        assert verdict(name, ds).outcome == "not replicated", name


def test_best_cells_are_compared_by_g7_and_small_weight_decays_by_g9():
    """Filtered data gain at the smallest decay alone, and full data do best at the largest."""

    def accuracy(name, size, decay):
        return 0.85 if name == "full" and decay == 0.0135 else 0.8 + (0.02 if name == "filtered" else 0.0)

    ds = small(accuracy)
    assert verdict("G7", ds).estimates[0].value == pytest.approx(-3, abs=0.1)
    assert verdict("G9", ds).estimates[0].value == pytest.approx(2, abs=0.1)


def test_other_weight_decays_than_the_papers_and_more_seeds_of_one_set_decide_nothing():
    ds = small(lambda name, size, decay: 0.8 + GAINS[name])
    wider = small(lambda name, size, decay: 0.9 if name == "full" else 0.5, decays=(0.02,), seeds=5)
    more = small(lambda name, size, decay: 0.99, seeds=5)
    more = more.isel(run=((more["subset"] == "full") & (more["seed"] >= 3)).to_numpy().nonzero()[0])
    every = results.merge([ds, wider, more])
    for name in ("G7", "G8", "G9", "G10"):
        assert verdict(name, every).estimates == verdict(name, ds).estimates, name


def test_a_batch_size_that_lacks_leaves_a_claim_about_all_of_them_open():
    ds = small(lambda name, size, decay: 0.8 + GAINS[name], sizes=(128, 256))
    for name in ("G7", "G8", "G9", "G10"):
        assert verdict(name, ds).outcome == "not yet measured", name


# Noise

SHARES = {"resnet18": 0.02, "resnet34": 0.03, "resnet50": 0.04, "resnet101": 0.05, "resnet152": 0.12}


def masks(shares=SHARES, trainings=2, **more):
    """Make masks of 10,000 examples that remove these shares, the second training a tenth more."""
    rows = [
        {"arch": arch, "seed": seed, "removed": share * (1 + 0.1 * seed)}
        for arch, share in shares.items()
        for seed in range(trainings)
    ]
    frame = pd.DataFrame(rows)
    same = {
        "key": "", "weights": "trained", "map_seed": 0, "filter": "dbscan", "perplexity": 30.0, "min_samples": 5,
        "seconds": 1.0, "eps": 0.5, "network_accuracy": 0.9, "feature_width": 512, "peak_memory_bytes": 1,
        "trained_by": "", "size_of": "", "within": "", "share": 0.0,
        "map_rate": 200.0, "map_start": "pca", "iterations": 750,
    }  # fmt: skip
    keep = np.arange(10_000)[None] >= (10_000 * frame.pop("removed").to_numpy()[:, None]).round()
    coords = {name: ("run", values.to_numpy()) for name, values in frame.assign(**same | more).items()}
    return xr.Dataset({"keep": (("run", "example"), keep)}, coords)


def test_extractors_that_differ_sixfold_replicate_the_claim_by_tukeys_interval():
    found = verdict("G6", masks())
    (ratio,) = found.estimates
    assert (found.outcome, ratio.value, ratio.n) == ("replicated", pytest.approx(6, rel=0.01), 2 * len(SHARES))
    # It knows that largest and smallest were chosen.
    bounds = stats.tukey_hsd(*(np.log([share, share * 1.1]) for share in SHARES.values())).confidence_interval(0.95)
    assert np.log([ratio.low, ratio.high]) == pytest.approx([bounds.low[4, 0], bounds.high[4, 0]], abs=0.02)


@pytest.mark.parametrize(
    ("ds", "outcome"),
    [
        (masks(dict.fromkeys(SHARES, 0.05) | {"resnet152": 0.051}), "not replicated"),
        (masks(map_rate=0.0), "not yet measured"),
        (masks(trainings=1), "not yet measured"),
        (masks({"resnet18": 0.02, "resnet50": 0.1}), "not yet measured"),
        (masks(eps=1.0), "not yet measured"),
    ],
    ids=["hardly differ", "maps of today", "one training", "two networks", "another radius"],
)
def test_extractors_are_judged_if_all_were_trained_twice_on_maps_of_2020(ds, outcome):
    assert verdict("G6", ds).outcome == outcome


def test_the_width_of_features_is_a_fact_about_the_networks_that_the_claim_names():
    assert verdict("G5", results.published("features")).outcome == "replicated"


# The loss landscape


def smoother(curvature, **changes):
    return verdict("G16", made_study(curvature, **changes))


@pytest.mark.parametrize(
    ("others", "outcome"), [(1.5, "replicated"), (1.1, "smaller than claimed"), (0.9, "not replicated")]
)
def test_curvature_of_other_sets_over_that_of_filtered_data_decides(others, outcome):
    found = smoother(lambda name, over: 1.0 if name == "network" else others)
    assert found.outcome == outcome
    assert (found.estimates[0].value, found.estimates[0].n) == (pytest.approx(others, rel=0.05), 5)


def test_images_at_the_same_weights_decide_nothing_and_one_batch_size_or_one_seed_is_not_enough():
    found = smoother(lambda name, over: {"full": 2.0, "network": 1.0, "random": 2.0}[over], noise=0.0)
    # Over its own set a network of filtered data has half of the curvature; over full data all have the same.
    assert found.estimates[0].value == pytest.approx(2**0.5)
    for less in ({"sizes": (256,)}, {"seeds": 1}):
        assert smoother(lambda name, over: 1.0, **less).outcome == "not yet measured"


def test_where_masks_differ_a_gain_is_the_mean_over_masks_and_less_certain():
    """On the first mask filtered data gain 2 points; on three others they lose as much, on one they gain as much."""
    ds = large(lambda size: 0.02, sizes=(6272,))
    filtered = ds.isel(run=(ds["subset"] == "network-a-1").to_numpy().nonzero()[0])
    others = []
    for mask, gain in enumerate((-0.04, -0.04, -0.04, 0.0), start=2):
        for k in range(filtered.sizes["run"]):
            one = filtered.isel(run=[k])
            made = made_run(
                one["test_accuracy"].to_numpy()[0] + gain, subset=f"network-a-{mask}", bn_workers=8,
                batch_size=int(one["batch_size"].item()), seed=int(one["seed"].item()),
            )  # fmt: skip
            others.append(made)
    given = {"filtered-large-batch": ds, "other-masks": results.merge(others)}
    together = claims.judge({"G12": EVERY["G12"]}, given)["G12"]
    (alone,), (nested,) = verdict("G12", ds).estimates, together.estimates
    assert (alone.value, nested.value) == (pytest.approx(2, abs=0.05), pytest.approx(2 - 12 / 5, abs=0.05))
    assert nested.high - nested.low > 3 * (alone.high - alone.low)
    assert together.outcome == "inconclusive"
