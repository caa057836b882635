"""What follows from runs on filtered data: comparisons at equal epochs and updates, and differences seed by seed."""

from __future__ import annotations

import numpy as np
import pytest
from made_runs import joined, made_run
from scipy import stats

from dolb import findings as summary
from dolb import recipes, results
from dolb.findings import filtered as study

EXAMPLES, KEPT = 1000, 800
SETS = ("full", "network-a-1")


def run(name, accuracy, *, batch_size=100, seed=0, epochs=8, fingerprint="", **changes):
    """Make a run on one set; full data have 1,000 examples, others 800."""
    made = made_run((accuracy,) * epochs, subset=name, batch_size=batch_size, seed=seed, **changes)
    examples = EXAMPLES if name == "full" else KEPT
    made["training_examples"] = ("run", [examples])
    made["data_fingerprint"] = ("run", [fingerprint or name])
    return made


@pytest.fixture
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
    return joined(parts)


def test_a_set_is_named_by_the_first_word_of_its_subset(ds):
    assert set(study.runs(ds)["set"]) == {"full", "network", "random"}


def test_the_mean_of_other_runs_lies_where_seeds_of_all_cells_of_the_batch_size_say(ds):
    row = study.predicted(ds, of_runs=4).set_index("set").loc["full"]
    # Three cells of three seeds; the variances are 1, 1 and 1 squared points, with two degrees of freedom each.
    half = stats.t.ppf(0.975, 6) * 0.01 * np.sqrt(1 / 3 + 1 / 4)
    assert row["accuracy"] == pytest.approx(0.81)
    assert (row["low"], row["high"]) == (pytest.approx(0.81 - half), pytest.approx(0.81 + half))
    alone = study.predicted(ds, of_runs=1).set_index("set").loc["full"]
    assert alone["high"] - alone["low"] > row["high"] - row["low"]
    assert study.predicted(ds.isel(run=slice(0, 2)), of_runs=1)["low"].isna().all()  # one seed


def test_equal_epochs_and_equal_updates_are_of_different_runs(ds):
    # Full data make 8 x 10 updates; 800 examples make 8 an epoch, and so 80 in ten epochs.
    epochs, updates = study.runs(ds), study.runs(ds, "updates")
    assert set(epochs.loc[epochs["set"] == "network", "updates"]) == {64}
    assert set(updates.loc[updates["set"] == "network", "updates"]) == {80}


def test_a_set_without_runs_of_equal_updates_is_not_compared_at_these(ds):
    assert "random" not in set(study.runs(ds, "updates")["set"])


def test_an_unknown_comparison_is_refused(ds):
    with pytest.raises(ValueError, match="equal is 'images'; accepted: epochs, updates"):
        study.runs(ds, "images")


def test_differences_are_between_runs_of_one_seed(ds):
    (row,) = study.differences(study.runs(ds), "network", "full").to_dict("records")
    by_seed = np.array([0.02, 0.01, 0.03])
    test = stats.ttest_1samp(by_seed, 0)
    low, high = test.confidence_interval(0.95)
    assert row["difference"] == pytest.approx(by_seed.mean(), abs=1e-6)
    assert (row["low"], row["high"]) == pytest.approx((low, high), abs=1e-6)
    assert (row["p"], row["n"]) == (pytest.approx(test.pvalue, abs=1e-5), 3)


def test_a_seed_that_one_set_lacks_makes_no_pair():
    ds = results.merge([run("full", 0.8), run("full", 0.9, seed=1), run("network-a-1", 0.85)])
    (row,) = study.differences(study.runs(ds), "network", "full").to_dict("records")
    assert (row["n"], row["difference"]) == (1, pytest.approx(0.05, abs=1e-6))
    assert np.isnan(row["low"])


def test_the_best_weight_decay_is_chosen_for_each_set():
    parts = [run("full", 0.7, weight_decay=0.01), run("full", 0.8, weight_decay=0.005)]
    parts += [run("network-a-1", 0.9, weight_decay=0.01), run("network-a-1", 0.6, weight_decay=0.005)]
    best = study.best(study.cells(joined(parts)))
    best = best[best["equal"] == "epochs"].set_index("set")
    assert best["weight_decay"].to_dict() == {"full": 0.005, "network": 0.01}


def test_one_name_for_two_masks_is_refused():
    ds = results.merge(
        [run("full", 0.8), run("network-a-1", 0.8), run("network-a-1", 0.8, seed=1, fingerprint="other")]
    )
    with pytest.raises(ValueError, match="runs of network-a-1 were trained on different examples under one name"):
        study.runs(ds)


def test_a_set_by_two_masks_is_refused():
    ds = results.merge([run("full", 0.8), run("network-a-1", 0.8), run("network-a-2", 0.8)])
    with pytest.raises(ValueError, match="one set has runs by several masks: network-a-1, network-a-2"):
        study.runs(ds)


def test_reported_values_are_drawn_where_there_is_a_cell(ds):
    said = [{"set": "full", "batch_size": size, "accuracy": 0.8, "what": "Fig. 7"} for size in (100, 200)]
    assert [row["batch_size"] for row in study.within(said, study.cells(ds))] == [100]
    assert study.within(said, study.cells(ds), "Fig. 6") == []


def test_runs_are_narrowed_by_set(ds):
    assert set(study.runs(study.narrow(ds, ["full", "random"]))["set"]) == {"full", "random"}
    with pytest.raises(ValueError, match=r"no published run has a set of \['el2n'\]"):
        study.narrow(ds, ["el2n"])


def test_each_set_has_its_size_in_the_order_of_the_figures(ds):
    assert list(study.sizes(ds).items()) == [("full", EXAMPLES), ("network", KEPT), ("random", KEPT)]


def test_the_smallest_p_is_held_to_all_tests_and_the_next_to_one_less():
    # 0.01 x 3, 0.03 x 2, and 0.04 x 1, which is not to become less than the one before
    found = summary.holm(np.array([0.04, 0.01, np.nan, 0.03]))
    assert found == pytest.approx([0.06, 0.03, np.nan, 0.06], nan_ok=True)
    assert summary.holm(np.array([0.7, 0.6])).tolist() == [1.0, 1.0]


def test_gains_are_corrected_for_all_tests_of_both_comparisons(ds):
    table = study.against_network(ds)
    tested = table["p"].notna()
    assert set(table["equal"][tested]) == {"epochs", "updates"}
    assert (table["tests"] == tested.sum()).all()
    least = table.loc[table["p"].idxmin()]
    assert least["p_holm"] == pytest.approx(tested.sum() * least["p"])


def test_a_test_that_both_comparisons_share_counts_once(ds):
    # In batches of 1,000 an epoch is one update of either set, so equal epochs are equal updates.
    pairs = [(0.80, 0.83), (0.82, 0.84), (0.81, 0.82)]
    same = [
        run(name, accuracy, batch_size=1000, seed=seed)
        for seed, pair in enumerate(pairs)
        for name, accuracy in zip(("full", "network-a-1"), pair, strict=True)
    ]
    alone, both = study.against_network(ds), study.against_network(results.merge([ds, *same]))
    shared = both[both["batch_size"] == 1000]
    assert shared["equal"].tolist() == ["epochs", "updates"]
    assert shared["p_holm"].nunique() == 1
    assert both["tests"].iloc[0] == alone["tests"].iloc[0] + 1


def test_words_name_what_holds_after_the_correction(ds):
    table = study.against_network(ds)
    sure = table.assign(p_holm=[0.001, *[0.5] * (len(table) - 1)])
    told = study.gains_in_words(sure)
    assert f"After Holm's correction for all {table['tests'].iloc[0]} tests with these sets those with a star" in told
    assert told.count("*") == 1
    assert study.gains_table(sure).map(lambda cell: "*" in cell).to_numpy().sum() == 1
    assert "none of these is told from chance" in study.gains_in_words(table.assign(p_holm=0.5))


def test_gains_stand_in_a_table_of_sizes_by_set_and_comparison(ds):
    table = study.gains_table(study.against_network(ds))
    assert table.loc["100", "over full, equal epochs"] == "+2.00 (-0.48 to +4.48)"
    assert "over random, equal updates" not in table.columns  # not run
    assert study.gains_table(study.against_network(study.narrow(ds, ["full"]))).empty


def test_gains_in_words_have_their_intervals(ds):
    words = study.gains_in_words(study.against_network(ds).query("equal == 'epochs'"))
    assert "over full +2.00 (-0.48 to +4.48) at 100" in words


def test_sizes_are_compared_together_by_each_seeds_mean_over_them(ds):
    other = [run(name, 0.9, batch_size=50, seed=seed) for seed in range(3) for name in ("full", "network-a-1")]
    table = study.together(results.merge([ds, *other]), border=50).query("equal == 'epochs' and other == 'full'")
    row = table[table["one"] == "network"].iloc[0]
    # Network filtered less full data: 2, 1 and 3 points at batch 100, and none at 50.
    assert row["difference"] == pytest.approx(0.01)
    assert row["n"] == 3
    told = study.together_in_words(study.together(ds, border=100))
    assert "At equal epochs network less random +4.00 (" in told  # 3, 3 and 6 points
    assert "At equal updates" in told


def test_seeds_are_compared_over_the_same_cells(ds):
    """Three seeds gain 2, 1 and 3 points at batch 100; at 50, where the gain is ten, seeds 0 and 1 alone were run."""
    more = [
        run(name, 0.8 + 0.1 * (name != "full"), batch_size=50, seed=s)
        for s in range(2)
        for name in ("full", "network-a-1")
    ]
    frame = study.runs(results.merge([ds, *more]))
    row = study.differences(frame, "network", "full", ()).iloc[0]
    assert (row["difference"], row["n"]) == (pytest.approx((0.06 + 0.055) / 2), 2)  # of the two that have both
    one = frame[(frame["batch_size"] == 100) | (frame["seed"] == 0)]
    row = study.differences(one, "network", "full", ()).iloc[0]
    assert (row["difference"], row["n"]) == (pytest.approx(0.02), 3)  # over the batch that all have


def test_a_baseline_is_compared_with_the_filter_and_with_random_and_full_data(ds):
    baseline = [run("confident-a-1", 0.85 + 0.001 * seed, seed=seed) for seed in range(3)]
    table = study.together(results.merge([ds, *baseline]), border=100).query("equal == 'epochs'")
    pairs = list(zip(table["one"], table["other"], strict=True))
    assert pairs[3:] == [("network", "confident"), ("confident", "random"), ("confident", "full")]
    shown = study.together_table(table, 100)
    assert shown.columns.tolist() == ["from 100 on, equal epochs"]
    assert shown.index.tolist() == [f"{one} less {other}" for one, other in pairs]
    assert shown.loc["confident less full"].item().startswith("+4.10 (")
    told = study.main_in_words(table, 100, 0.023, at=6272)
    assert ", while confident data " in told
    assert "beat full data, +4" in told.split("while confident data")[1]


def test_the_sizes_below_the_border_are_told_apart_from_those_above(ds):
    pairs = [(name, seed, 0.9 - 0.01 * (name != "full") - 0.001 * seed) for seed in range(3) for name in SETS]
    small = [run(name, value, batch_size=50, seed=seed) for name, seed, value in pairs]
    table = study.together(results.merge([ds, *small]), border=100)
    by_side = table.query("equal == 'epochs' and one == 'network' and other == 'full'").set_index("large")
    assert by_side.loc[False, "difference"] == pytest.approx(-0.01, abs=1e-6)
    assert by_side.loc[True, "difference"] == pytest.approx(0.02, abs=1e-6)
    told = study.main_in_words(table, 100, 0.023, at=6272)
    assert "below batch 100 network filtered data lose to full data, -1.00 (" in told
    assert "from batch 100 on network filtered data are not told from random data, +4.00 (-0.30 to" in told
    assert "are not told from full data, +2.00 (-0.48 to +4.48)" in told
    assert "the paper reports +2.3 at batch 6,272" in told
    assert study.main_in_words(study.together(study.narrow(ds, ["full"]), 100), 100, 0.023, 6272) == study.NOTHING


def test_at_another_rate_sets_are_told_with_what_they_reach(ds):
    told = study.better_in_words(ds)
    assert told.startswith(
        "Network filtered data are told to beat random data, at equal epochs, at none of these rates."
    )
    assert "full 81.0%, network 83.0%, random 79.0%. At equal epochs network less random +4.00 (" in told
    assert "not among these" in study.better_in_words(None)
    two = results.merge([ds, *(run("full", 0.6, seed=seed, lr=0.4) for seed in range(2))])
    assert "rate of 0.4: full 60.0%. Two seeds on two sets are not there yet." in study.better_in_words(two)


def test_as_many_updates_may_take_other_numbers_of_images(ds):
    # Ten epochs of 800 are as many images as eight of 1,000; with a stretch to nine epochs they would not be.
    assert study.images_in_words(ds) == "none"
    sizes = [run(name, 0.8, batch_size=700, epochs=8) for name in ("full", "network-a-1")]
    # Two updates an epoch on either set, of 1,000 and of 800 images.
    assert study.images_in_words(results.merge(sizes)) == "-20% at 700"


def test_without_full_data_the_other_sets_are_compared_all_the_same(ds):
    some = study.narrow(ds, ["network", "random"])
    assert set(study.against_network(some)["other"]) == {"random"}
    assert study.gains_in_words(study.against_network(study.narrow(ds, ["full"]))) == "Nothing can be compared yet."


def test_a_gain_of_one_seed_has_no_interval(ds):
    words = study.gains_in_words(study.against_network(ds.isel(run=ds["seed"].values == 0)))
    assert "(one seed) at 100" in words
    assert "nan" not in words


def test_a_set_of_ones_own_is_compared_too_and_comes_last(ds):
    own = [run("mine-0a1b2c3d", 0.75 + seed / 100, seed=seed) for seed in range(3)]
    table = study.against_network(results.merge([ds, *own]))
    gain = table[(table["other"] == "mine") & (table["equal"] == "epochs")]
    # 0.82, 0.83, 0.84 on network filtered data, less 0.75, 0.76, 0.77
    assert gain["difference"].item() == pytest.approx(0.07)
    assert study.in_order(["mine", "random", "full"]) == ["full", "random", "mine"]


def test_the_last_batch_of_an_epoch_is_told_for_full_and_filtered_data():
    runs = [run(name, 0.8, batch_size=size) for name in ("full", "network-a-1") for size in (300, 400)]
    told = study.rests_in_words(results.merge(runs))
    # 1000 = 3 x 300 + 100 = 2 x 400 + 200; 800 = 2 x 300 + 200 = 2 x 400, whose last batch is a full one.
    assert told == "batch 300: 100 and 200 images; batch 400: 200 and 400 images"
    assert study.rests_in_words(results.merge(runs[:2])) == "not run with both"


def test_a_rest_of_one_example_is_no_update_of_its_own():
    ds = results.merge([run("full", 0.8, batch_size=999), run("network-a-1", 0.8, batch_size=999, epochs=8)])
    table = study.runs(ds).set_index("set")
    assert table.loc["full", "updates"] == 8  # 1000 examples: one batch of 1000 in each of 8 epochs


def small_and_large(best):
    """Make runs with small batches of two other ways to choose, and with a large one of the better of them."""
    small = [
        made_run((accuracy,) * 5, subset=f"{name}-a-1", batch_size=size, weight_decay=0.005, seed=seed)
        for name, accuracy in {
            "full": 0.8,
            "network": 0.81,
            "recursive": 0.9,
            **dict.fromkeys(study.OTHER_WAYS, 0.7),
            best: 0.79,
        }.items()
        for size in (64, 256)
        for seed in (0, 1)
    ]
    large = [
        made_run((0.7,) * 5, subset=f"{name}-a-1", batch_size=6272, weight_decay=0.005, seed=seed)
        for name in ("full", "network", best)
        for seed in (0, 1)
    ]
    return joined(small), joined(large)


def test_the_best_baseline_is_that_of_equal_size_with_the_highest_mean():
    small, large = small_and_large("forgetting")
    assert study.best_baseline(small, 0.005) == "forgetting"  # the recursive set is smaller, and not among them
    assert study.best_baseline(small, 0.01) is None
    assert study.best_baseline(small.isel(run=small["subset"].values != "el2n-a-1"), 0.005) is None  # one lacks
    assert study.best_baseline(None, 0.005) is None
    assert "forgetting stands beside them" in study.baseline_in_words(large, small)
    assert "not run with large batches yet" in study.baseline_in_words(large, None)


def test_the_recipe_takes_the_best_baseline_of_the_published_runs(repo_root):
    path = repo_root / "results" / "filtered-small-batch.nc"
    if not path.exists():
        pytest.skip("runs with small batches are not published yet")
    (decay,) = {run.weight_decay for run in recipes.configs("filtered-large-batch", "paper")}
    sets = {run.subset.split("-")[0] for run in recipes.configs("filtered-large-batch", "paper")}
    assert study.best_baseline(results.load(path), decay) in {None, *sets}  # None: not all were run yet
