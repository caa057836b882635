"""What follows from runs on filtered data: comparisons at equal epochs and updates, and differences seed by seed."""

import itertools

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from made_runs import made_run
from scipy import stats

from dolb import results
from dolb.findings import filtered as study

EXAMPLES, KEPT = 1000, 800


def run(name, accuracy, *, batch_size=100, seed=0, epochs=8, fingerprint="", **changes):
    """Make a run on one set; full data have 1,000 examples, others 800."""
    made = made_run((accuracy,) * epochs, subset=name, batch_size=batch_size, seed=seed, **changes)
    made["training_examples"] = ("run", [EXAMPLES if name == "full" else KEPT])
    made["data_fingerprint"] = ("run", [fingerprint or name])
    return made


@pytest.fixture(scope="module")
def ds():
    parts = []
    for seed, (full, network, random, stretched) in enumerate(
        [(0.80, 0.82, 0.79, 0.84), (0.82, 0.83, 0.80, 0.86), (0.81, 0.84, 0.78, 0.85)]
    ):
        parts += [
            run("full", full, seed=seed),
            run("network-a-1", network, seed=seed),
            run("network-a-1", stretched, seed=seed, epochs=10),
            run(f"random-a-{seed}", random, seed=seed),
        ]
    return results.merge(parts)


def test_equal_epochs_and_equal_updates_are_of_different_runs(ds):
    # Full data make 8 x 10 updates; 800 examples make 8 an epoch, and so 80 in ten epochs.
    epochs, updates = study.runs(ds), study.runs(ds, "updates")
    assert set(epochs.loc[epochs["set"] == "filtered", "updates"]) == {64}
    assert set(updates.loc[updates["set"] == "filtered", "updates"]) == {80}
    assert "random" not in set(updates["set"])  # not run with as many


def test_differences_are_between_runs_of_one_seed_in_points(ds):
    found = study.difference(study.runs(ds), "filtered", "full")
    by_seed = np.array([2.0, 1.0, 3.0])
    low, high = stats.ttest_1samp(by_seed, 0).confidence_interval(0.95)
    assert (found.value, found.low, found.high, found.n) == pytest.approx((by_seed.mean(), low, high, 3), abs=1e-4)


def test_one_seed_in_common_makes_no_difference():
    ds = results.merge([run("full", 0.8), run("full", 0.9, seed=1), run("network-a-1", 0.85)])
    assert study.difference(study.runs(ds), "filtered", "full") is None
    assert study.difference(study.runs(ds), "filtered", "random") is None
    assert study.gains(ds).empty


def test_seeds_are_compared_over_the_same_cells(ds):
    """Three seeds gain 2, 1 and 3 points at batch 100; at 50, where the gain is ten, seeds 0 and 1 alone were run."""
    more = [
        run(name, 0.8 + 0.1 * (name != "full"), batch_size=50, seed=seed)
        for seed in range(2)
        for name in ("full", "network-a-1")
    ]
    frame = study.runs(results.merge([ds, *more]))
    found = study.difference(frame, "filtered", "full")
    assert (found.value, found.n) == (pytest.approx((6 + 5.5) / 2), 2)  # of the two that have both
    one = frame[(frame["batch_size"] == 100) | (frame["seed"] == 0)]
    found = study.difference(one, "filtered", "full")
    assert (found.value, found.n) == (pytest.approx(2), 3)  # over the batch that all have


def test_a_weight_decay_and_seeds_that_one_set_has_alone_change_no_difference(ds):
    more = [run("full", 0.5, weight_decay=0.02, seed=seed) for seed in range(3)] + [run("full", 0.5, seed=3)]
    before, after = (study.gains(one) for one in (ds, results.merge([ds, *more])))
    pd.testing.assert_frame_equal(before, after)


def test_the_best_weight_decay_is_chosen_for_each_set():
    accuracies = {("full", 0.01): 0.7, ("full", 0.005): 0.8, ("network-a-1", 0.01): 0.9, ("network-a-1", 0.005): 0.6}
    ds = results.merge(
        run(name, accuracy + seed / 100, weight_decay=decay, seed=seed)
        for (name, decay), accuracy in accuracies.items()
        for seed in range(2)
    )
    best = study.best(study.cells(ds).query("equal == 'epochs'")).set_index("set")
    assert best["weight_decay"].to_dict() == {"full": 0.005, "filtered": 0.01}
    found = study.difference(study.at_best_decay(study.runs(ds)), "filtered", "full")
    assert (found.value, found.n) == (pytest.approx(10), 2)


def test_runs_by_two_masks_of_one_set_are_refused():
    parts = [run("network-a-1", 0.8), run("network-a-2", 0.8)]
    with pytest.raises(ValueError, match="one set has runs by several masks: network-a-1, network-a-2"):
        study.runs(results.merge(parts))


def test_runs_are_narrowed_by_set(ds):
    assert set(study.runs(study.narrow(ds, ["network", "random"]))["set"]) == {"filtered", "random"}
    with pytest.raises(ValueError, match=r"no published run has a set of \['grid'\]"):
        study.narrow(ds, ["grid"])


def test_the_sizes_below_the_border_are_compared_apart_from_those_above(ds):
    pairs = [(name, seed) for seed in range(3) for name in ("full", "network-a-1")]
    small = [run(name, 0.9 - 0.01 * (name != "full") - 0.001 * seed, batch_size=50, seed=seed) for name, seed in pairs]
    table = study.together(results.merge([ds, *small]), border=100)
    by_side = table.query("equal == 'epochs' and one == 'filtered' and other == 'full'").set_index("large")["points"]
    assert by_side.to_dict() == {False: pytest.approx(-1, abs=1e-4), True: pytest.approx(2, abs=1e-4)}
    few, many = (ds.assign(training_examples=xr.where(ds["subset"] == "full", 1000, kept)) for kept in (937, 402))
    shares = {row.split(":")[0] for row in study.sides_by_share(100, few, many).index}
    assert shares == {"6.3% removed", "59.8% removed"}


def test_a_baseline_and_a_set_of_ones_own_are_compared_with_the_filter_and_with_random_and_full_data(ds):
    others = [run(f"{name}-a-1", 0.85 + 0.001 * seed, seed=seed) for seed in range(3) for name in ("mine", "confident")]
    table = study.together(results.merge([ds, *others]), border=100).query("equal == 'epochs'")
    pairs = list(zip(table["one"], table["other"], strict=True))
    assert pairs[:3] == [("filtered", "full"), ("filtered", "random"), ("random", "full")]
    assert pairs[3:6] == [("filtered", "confident"), ("confident", "random"), ("confident", "full")]
    assert pairs[6:] == [("filtered", "mine"), ("mine", "random"), ("mine", "full")]


def test_reported_values_are_shown_where_there_is_a_cell(ds):
    said = [
        {"set": name, "batch_size": size, "accuracy": value, "what": "Fig. 7"}
        for name, value in (("full", 0.8), ("network", 0.823))
        for size in (100, 200)
    ]
    shown = study.reported_cells(said, study.cells(ds))
    assert sorted(zip(shown["set"], shown["batch_size"], strict=True)) == [("filtered", 100), ("full", 100)]
    gain = study.reported_gains(shown).iloc[0]
    assert (gain["other"], gain["batch_size"], gain["points"]) == ("full", 100, pytest.approx(2.3))
    assert study.reported_cells(said, study.cells(ds), "Fig. 6").empty
    assert study.reported_gains(shown[:0]).empty


def test_a_run_that_two_experiments_have_counts_once_in_what_a_rate_gives(ds):
    again = results.merge([run("full", 0.80, seed=0), run("full", 0.6, seed=0, lr=0.4)])
    cells = study.by_rate(ds, again).set_index(["set", "lr"])
    usual = float(ds["lr"].to_numpy()[0])
    assert (cells.loc[("full", usual), "n"], cells.loc[("full", 0.4), "n"]) == (3, 1)
    assert cells.loc[("full", 0.4), "accuracy"] == pytest.approx(0.6)


def test_a_mask_is_a_repetition_of_what_all_masks_differ_from_the_first_by():
    """Three further masks differ from the first by 1, 2 and -1 points at batch 100, and by 9 at batch 50."""
    gains = {"network-a-1": 0.0, "network-a-2": 0.01, "network-a-3": 0.02, "network-a-4": -0.01}
    first, *others = (
        [
            run(name, 0.8 + seed / 100 + (gain if size == 100 else 0.09), batch_size=size, seed=seed)
            for size in (100, 50)
            for seed in range(2)
        ]
        for name, gain in gains.items()
    )
    full = [run("full", 0.7, batch_size=size) for size in (100, 50)]
    known = results.merge([*first, *full, run("network-a-1", 0.5, seed=2)])
    more = results.merge(itertools.chain(*others))
    found = study.over_masks(known, more, [100])
    low, high = stats.ttest_1samp([0, 1, 2, -1], 0).confidence_interval(0.95)
    assert (found.value, found.low, found.high, found.n) == pytest.approx((0.5, low, high, 4), abs=1e-4)
    assert study.over_masks(known, more, [7]).value == pytest.approx(0.25, abs=1e-4)  # by all sizes that there are


def test_masks_are_told_together_beside_full_data():
    first = [run("network-b-1", 0.8 + seed / 100, seed=seed) for seed in range(2)]
    more = [run("network-a-2", 0.9 + seed / 100, seed=seed) for seed in range(2)]
    full = [run("full", 0.7 + seed / 100, seed=seed) for seed in range(3)]
    told = study.by_mask(results.merge([*first, *full]), results.merge(more))
    assert told.iloc[0, 1:].tolist() == ["+15.00", "+10.00", "+20.00", "2 of 2"]


def test_where_an_epoch_has_fewer_updates_is_told_and_what_that_costs():
    """Of 1,000 and 800 images batches of 500 make two updates either way; of 400 three and two, or dropped two each."""
    parts = [
        run(
            name,
            0.8 + seed / 100 + (name != "full") * (0.01 if size == 500 else -0.02),
            batch_size=size,
            seed=seed,
            **more,
        )
        for size in (500, 400)
        for seed in range(2)
        for name in ("full", "network-a-1")
        for more in ({}, {"drop_last": True})
    ]
    table = study.crossover(results.merge(parts)).set_index(["equal", "batch_size"])
    dropped = "epochs, last batch dropped"
    assert table["fewer"].to_dict() == {
        ("epochs", 400): 1, ("epochs", 500): 0, ("updates", 500): 0, (dropped, 400): 0, (dropped, 500): 1,
    }  # fmt: skip
    assert table.loc[("epochs", 400), "points"] == pytest.approx(-2, abs=1e-4)
    found = study.per_update(results.merge(parts))
    costs = found[found["updates"] == "difference"].set_index("equal")["points"]
    assert costs.to_dict() == pytest.approx({"epochs": 3, dropped: -3}, abs=1e-4)


def test_what_a_share_gains_is_over_full_data_and_over_as_many_images_at_random():
    def at(share, name, gain):
        made = [run(name, 0.8 + gain + seed / 100, seed=seed) for seed in range(3)]
        return [one.assign(training_examples=("run", [round(EXAMPLES * (1 - share))])) for one in made]

    known = results.merge([*at(0, "full", 0), *at(0.2, "network-a-1", -0.01), *at(0.2, "random-a-1", -0.02)])
    others = results.merge(
        [
            *at(0.4, "network-a-2", -0.05),
            *at(0.4, "random-a-2", -0.03),
            *at(0.2, "el2n-a-1", -0.04),
            *at(0.4, "el2n-a-2", -0.06),
            *at(0.2, "grid-a-1", -0.02),
        ]
    )  # the grid: of one share alone
    table = study.by_share(known, others).query("equal == 'epochs'").set_index(["removed", "one", "other"])["points"]
    assert {(round(share, 6), *pair): round(points, 3) for (share, *pair), points in table.items()} == {
        (0.2, "filtered", "full"): -1, (0.2, "random", "full"): -2, (0.2, "el2n", "full"): -4,
        (0.2, "filtered", "random"): 1, (0.2, "el2n", "random"): -2,
        (0.4, "filtered", "full"): -5, (0.4, "random", "full"): -3, (0.4, "filtered", "random"): -2,
        (0.4, "el2n", "full"): -6, (0.4, "el2n", "random"): -3,
    }  # fmt: skip
