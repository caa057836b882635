"""What follows from maps and masks: how well a map parts classes, how much is noise, how far two noise sets agree."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

from dolb import results
from dolb.findings import maps, rounds, stability
from dolb.findings import noise as study

EXAMPLES = 400


def made_mask(keep, **changes) -> xr.Dataset:
    """Make the Dataset of one mask, with the names that the pipeline writes."""
    named = {"arch": "resnet101", "weights": "trained", "seed": 0, "map_seed": 0, "filter": "dbscan"}
    named |= {"perplexity": 30.0, "iterations": 500, "map_rate": 0.0, "map_start": "pca", "share": 0.0, "within": ""}
    named |= {"min_samples": 5, "eps": 0.5, "network_accuracy": 0.8} | changes
    named |= {"feature_width": 2048, "seconds": 60.0, "peak_memory_bytes": 10**9}
    named["key"] = "-".join(map(str, named.values()))
    coords = {name: ("run", np.array([value])) for name, value in named.items()}
    coords["label"] = ("example", np.arange(EXAMPLES) % 10)
    until = np.where(keep, 0.4, 0.9).astype(np.float32)
    place = np.arange(EXAMPLES, dtype=np.float32)
    table = {"keep": keep, "x": place, "y": place, "noise_until": until}
    return xr.Dataset({name: ("example", values) for name, values in table.items()}, coords)


def without(*removed: int) -> np.ndarray:
    keep = np.ones(EXAMPLES, dtype=bool)
    keep[list(removed)] = False
    return keep


@pytest.fixture
def ds() -> xr.Dataset:
    return results.merge(
        [
            made_mask(without(*range(20))),
            made_mask(without(*range(5, 25)), map_seed=1),
            made_mask(without(*range(10, 30)), seed=1),
            made_mask(without(*range(10)), arch="resnet18"),
            made_mask(without(*range(10, 20)), weights="imagenet"),
            made_mask(without(*range(15)), perplexity=50.0),
            made_mask(without(*range(40)), filter="hdbscan"),
            made_mask(without(*range(18, 38)), filter="confident"),
        ]
    )


def test_the_share_of_noise_is_the_mean_over_maps_of_an_extractor(ds):
    table = study.removed(ds).set_index("extractor")
    assert list(table.index) == ["resnet101", "resnet18", "resnet101, ImageNet"]
    assert table.loc["resnet101", "removed"] == pytest.approx(20 / EXAMPLES)
    assert table.loc["resnet101", ["n", "networks", "map_seeds"]].tolist() == [3, 2, 2]
    assert table.loc["resnet18", "removed"] == pytest.approx(10 / EXAMPLES)


def of_networks(sizes, maps=1, **changes):
    """Masks of one extractor that remove so many, an entry for each training, every one found on so many maps."""
    seeds = [(seed, size, map_seed) for seed, size in enumerate(sizes) for map_seed in range(maps)]
    return [made_mask(without(*range(size)), seed=seed, map_seed=map_seed, **changes) for seed, size, map_seed in seeds]


def half_width(masks):
    (row,) = study.removed(results.merge(masks)).to_dict("records")
    return EXAMPLES * (row["high"] - row["low"]) / 2


def test_the_interval_is_where_the_map_of_one_more_network_would_lie():
    # Student's prediction interval of one more value, from three.
    expected = stats.t.ppf(0.975, 2) * np.std([18, 20, 22], ddof=1) * np.sqrt(1 + 1 / 3)
    assert half_width(of_networks([18, 20, 22])) == pytest.approx(expected)


def test_more_maps_of_the_same_networks_that_say_the_same_make_it_no_narrower():
    assert half_width(of_networks([18, 20, 22], maps=3)) == pytest.approx(half_width(of_networks([18, 20, 22])))


def test_maps_that_differ_make_it_wider():
    # The means of the networks are as before, and a map lies four above or below them.
    spread = [
        made_mask(without(*range(size + off)), seed=seed, map_seed=place)
        for seed, size in enumerate([16, 20, 24])
        for place, off in enumerate((-4, 4))
    ]
    # Of two values four off their mean the variance is 32, half of which the means of two have already.
    assert half_width(spread) == pytest.approx(satterthwaite((4 * 4 * (1 + 1 / 3), 2), (32 / 2, 3)))


def satterthwaite(*parts):
    total = sum(part for part, _ in parts)
    freedom = total**2 / sum(part**2 / count for part, count in parts)
    return stats.t.ppf(0.975, freedom) * np.sqrt(total)


def test_two_networks_that_agree_by_luck_differ_no_less_than_their_maps_make_them():
    alike = [
        made_mask(without(*range(20 + off)), seed=seed, map_seed=place)
        for seed in (0, 1)
        for place, off in enumerate((-1, 1))
    ]
    # The means of two maps vary by half of what one does, 2, though these are the same.
    assert half_width(alike) == pytest.approx(satterthwaite((2 / 2 * (1 + 1 / 2), 1), (2 / 2, 2)))
    told = study.rests_on(study.removed(results.merge(alike)))
    assert "from 2 trainings of resnet101 alone, 1 degree of freedom" in told


def test_without_a_second_training_that_is_said():
    told = study.rests_on(study.removed(results.merge(of_networks([20], maps=3))))
    assert told == "No network here was trained twice, so there is no interval."


def test_networks_of_other_extractors_tell_how_far_networks_vary():
    both = results.merge([*of_networks([18, 20, 22]), *of_networks([36, 40, 44], arch="resnet18")])
    rows = study.removed(both).set_index("extractor")
    # Relative to their means they vary alike, and there are four degrees of freedom in the place of two.
    for name, mean in (("resnet101", 20), ("resnet18", 40)):
        half = EXAMPLES * (rows.loc[name, "high"] - rows.loc[name, "low"]) / 2
        assert half == pytest.approx(stats.t.ppf(0.975, 4) * 0.1 * mean * np.sqrt(1 + 1 / 3))


def test_one_network_has_no_interval_however_many_its_maps(ds):
    assert np.isnan(half_width(of_networks([20], maps=3)))


def test_noise_sets_are_compared_by_what_their_maps_differ_in(ds):
    table = stability.stability(ds).set_index("differs")
    assert table.loc["another map", "overlap"] == pytest.approx(15 / 25)
    assert table.loc["another training", "pairs"] == 2
    assert table.loc["another training", "most"] == pytest.approx(15 / 25)
    assert table.loc["another training", "least"] == pytest.approx(10 / 30)
    assert list(table.index) == list(stability.PAIRS)


def test_pairs_of_maps_are_told_with_the_networks_that_they_are_of(ds):
    told = stability.in_words(stability.stability(ds))
    assert "by another map 0.60 (0.60 to 0.60 over one pair of maps, of one network)" in told
    assert "by another training 0.47 (0.33 to 0.60 over 2 pairs of maps, of one pair of networks)" in told


class Planned(NamedTuple):
    key: str
    arch: str = "resnet101"
    weights: str = "trained"
    seed: int = 0


def test_what_an_experiment_has_and_these_masks_lack_is_told_by_extractor(ds):
    there = [str(key) for key in ds["key"].to_numpy()]
    here = [Planned(there[0]), Planned(there[2], seed=1), Planned(there[3], "resnet18")]
    assert study.lacking(ds, here) == ""
    more = [Planned("a", "resnet152"), Planned("b", weights="imagenet"), Planned("c", "resnet18", seed=1)]
    assert study.lacking(ds, [*here, *more, Planned("d")]) == (
        "There is no map yet by resnet152. "
        "There is no map by resnet101 with ImageNet weights, which have to be fetched. "
        "Not all trainings are here yet of resnet18 (1 of 2). Of the others 1 is not here yet."
    )


def test_a_radius_that_no_filter_used_is_none(ds):
    known = results.merge([ds, made_mask(without(1), filter="knee"), made_mask(without(2), filter="knee", eps=1.7)])
    table = study.rows(known).set_index("filter")["eps"]
    assert (table["dbscan"] == 0.5).all()
    assert np.isnan(table["hdbscan"])
    assert np.isnan(table["confident"])
    assert table["knee"].to_numpy() == pytest.approx([np.nan, 1.7], nan_ok=True)  # older files have the default there
    assert len(study.grid(known)) == len(study.grid(ds))


def test_one_parameter_changes_at_a_time_and_the_mask_in_use_stands_among_them(ds):
    table = study.by_parameter(ds)
    assert table.groupby("parameter")["first"].sum().to_dict() == dict.fromkeys(
        ["filter", "map", "min_samples", "perplexity", "test accuracy"], 1
    )
    changed = table[~table["first"]].set_index("parameter")
    assert changed.loc["perplexity", "overlap"] == pytest.approx(15 / 20)
    assert changed.loc["filter", "removed"] == pytest.approx(40 / EXAMPLES)


def test_parameters_are_of_the_network_of_the_mask_in_use_whatever_was_published_first(ds):
    used = made_mask(without(*range(3)), share=3 / EXAMPLES, filter="share")
    others = (
        made_mask(without(*range(7)), arch="resnet18"),
        made_mask(without(3), filter="random", size_of=used["key"].item()),
    )
    table = study.by_parameter(results.merge([*others, used, ds]))
    assert table.equals(study.by_parameter(results.merge([ds, used, *others])))
    assert table.loc[table["first"], "removed"].to_numpy() == pytest.approx(20 / EXAMPLES)


def test_a_map_that_is_made_otherwise_is_told_by_rate_start_and_iterations(ds):
    other = made_mask(without(*range(4)), map_rate=200.0, map_start="random", iterations=750)
    table = study.by_parameter(results.merge([ds, other]))
    assert table[table["parameter"] == "map"].set_index("value")["removed"].to_dict() == {
        "rate by size, pca start, 500 iterations": pytest.approx(20 / EXAMPLES),
        "rate 200, random start, 750 iterations": pytest.approx(4 / EXAMPLES),
    }
    assert study.removed(results.merge([ds, other])).equals(study.removed(ds))  # which counts the usual maps alone


def test_masks_by_a_network_trained_less_well_are_not_counted_but_stand_among_the_parameters(ds):
    weaker = made_mask(without(*range(60)), trained_by="another", network_accuracy=0.5)
    both = results.merge([ds.assign_coords(trained_by=("run", ["the run"] * ds.sizes["run"])), weaker])
    assert study.removed(both).equals(study.removed(ds))
    table = study.by_parameter(both)
    table = table[table["parameter"] == "test accuracy"].set_index("value")
    assert table["removed"].to_dict() == {"50.0%": pytest.approx(60 / EXAMPLES), "80.0%": pytest.approx(20 / EXAMPLES)}
    assert table["first"].to_dict() == {"50.0%": False, "80.0%": True}


def test_the_mask_in_use_is_by_the_better_network_and_so_are_the_others_of_its_size(ds):
    share = 8 / EXAMPLES
    made = []
    for trained_by, accuracy, start in (("weaker", 0.5, 0), ("better", 0.8, 100)):
        more = {"trained_by": trained_by, "network_accuracy": accuracy, "share": share}
        mask = made_mask(without(*range(start, start + 8)), filter="share", size_of="", **more)
        grid = without(*range(start + 4, start + 12))
        made += [mask, made_mask(grid, filter="grid", size_of=mask["key"].item(), **more | {"share": 0.0})]
    both = results.merge(made)
    assert str(study.reference(both)["trained_by"].item()) == "better"
    (row,) = study.others(both).to_dict("records")
    assert row["shared"] == pytest.approx(4 / 8)


def test_without_others_of_its_size_the_mask_in_use_is_the_one_by_share(ds):
    share = 8 / EXAMPLES
    matched = made_mask(without(*range(8)), filter="share", share=share, eps=0.8)
    assert study.reference(results.merge([ds, matched]))["eps"] == 0.8
    alone = results.merge([matched])
    assert study.reference(alone)["eps"] == 0.8
    assert study.by_parameter(alone).empty
    assert study.radii(alone) == {"in use": 0.8}


def test_of_two_maps_by_networks_of_one_seed_the_better_is_drawn():
    labels = np.arange(EXAMPLES) % 10
    better = made_map(labels, 100.0 * labels[:, None] + np.zeros((EXAMPLES, 2)))
    both = [better.assign_coords(key=("run", ["weaker"]), network_accuracy=("run", [0.5])), better]
    assert len(maps.parted(results.merge(both))) == len(maps.parted(better)) == 2
    assert set(maps.parted(results.merge(both))["network_accuracy"]) == {0.8}


def test_masks_of_one_share_are_no_masks_by_the_usual_radius_and_agree_among_themselves(ds):
    share = 8 / EXAMPLES
    matched = [
        made_mask(without(*range(8)), filter="share", share=share, eps=0.8),
        made_mask(without(*range(4, 12)), filter="share", share=share, eps=0.7, map_seed=1),
    ]
    by_size = made_mask(without(*range(8)), filter="random", size_of=matched[0]["key"].item())
    sizeless = [one.assign_coords(size_of=("run", [""] * one.sizes["run"])) for one in (ds, *matched)]
    both = results.merge([*sizeless, by_size])
    assert study.removed(both).equals(study.removed(ds))
    assert study.reference(both)["eps"] == 0.8
    (pair,) = stability.agreement(both).to_dict("records")
    assert pair["overlap"] == pytest.approx(4 / 12)


def test_other_ways_to_choose_are_held_to_what_chance_would_share(ds):
    (row,) = study.others(ds).to_dict("records")
    assert (row["filter"], row["images"]) == ("confident", 2)
    assert row["shared"] == pytest.approx(2 / 20)
    assert row["by_chance"] == pytest.approx(20 / EXAMPLES)


def test_what_confident_learning_flags_is_counted_however_many_that_are(ds):
    # It flags 10 to 49, of each class four of 40; noise is 0 to 19, two of each class; both are 10 to 19.
    both = results.merge([ds, made_mask(without(*range(10, 50)), filter="flagged")])
    counts = study.flagged(both)
    assert counts == {"images": EXAMPLES, "flagged": 40, "noise": 20, "both": 10, "by_chance": 10 * 2 * 4 / 40}
    assert study.others(both)["filter"].tolist() == ["confident"]  # those of equal size
    told = study.flagged_in_words(counts)
    assert "flags 40 of 400 labels as wrong. Of the 20 images that are noise it flags 10, 50.0%" in told
    assert "drawn at random from the same classes it would flag 2, 10.0%. And of what it flags 25.0% is noise" in told


def test_without_flags_that_is_said(ds):
    assert study.flagged(ds) == {}
    assert study.flagged_in_words({}) == "What confident learning flags is not among these masks."


def test_chance_is_a_draw_with_as_many_of_each_class():
    # All that the two remove is of class 0, of 40 examples: of 10 and 10 drawn there 10 * 10 / 40 are shared.
    one, other = without(*range(0, 100, 10)), without(*range(50, 150, 10))
    (row,) = study.others(results.merge([made_mask(one), made_mask(other, filter="confident")])).to_dict("records")
    assert row["shared"] == pytest.approx(5 / 10)
    assert row["by_chance"] == pytest.approx(10 / 40)
    pair = stability.agreement(results.merge([made_mask(one), made_mask(other, map_seed=1)])).iloc[0]
    assert pair["overlap"] == pytest.approx(5 / 15)
    assert pair["by_chance"] == pytest.approx(2.5 / 17.5)


def test_the_share_by_eps_follows_from_the_radii_of_the_points(ds):
    curve = study.by_eps(ds)
    ours = curve[curve["extractor"] == "resnet101"]
    between = ours[(ours["eps"] > 0.41) & (ours["eps"] < 0.89)]
    assert between["removed"].unique() == pytest.approx([20 / EXAMPLES])


def test_the_first_mask_is_handed_on_over_examples_alone(ds):
    one = study.reference(ds)
    assert one["keep"].dims == ("example",)
    assert int((~one["keep"]).sum()) == 20


def test_the_mask_in_use_is_the_one_whose_size_others_have_wherever_it_stands():
    used, other = made_mask(without(1), arch="resnet101"), made_mask(without(2), arch="resnet18")
    like = made_mask(without(3), filter="random")
    masks = [one.assign_coords(size_of=("run", [""])) for one in (other, used)]
    masks.insert(0, like.assign_coords(size_of=("run", [used["key"].item()])))
    assert study.first(results.merge(masks)) == 2


def in_rounds() -> xr.Dataset:
    """A first round that removes 20, a second that removes 12 more, and two maps by another training."""
    first = made_mask(without(*range(20)))
    second = made_mask(without(*range(32)), network_accuracy=0.7)
    return results.merge(
        [
            first.assign_coords(within=("run", [""])),
            second.assign_coords(within=("run", [first["key"].item()])),
            made_mask(without(*range(10, 30)), seed=1),
            made_mask(without(*range(10, 22)), seed=1, map_seed=1),
        ]
    )


def test_each_round_is_told_by_what_it_removes_and_what_another_training_says_of_that():
    one, two = rounds.rounds(in_rounds()).to_dict("records")
    assert (one["examples"], one["images"], two["examples"], two["images"]) == (EXAMPLES, 20, EXAMPLES - 20, 12)
    assert two["in_all"] == pytest.approx(32 / EXAMPLES)
    assert (one["overlap"], two["overlap"]) == (1, pytest.approx(20 / 32))
    # Of the second round's 20 to 31 the other maps have 20 to 29, and 20 and 21: ten and two, six in the mean.
    assert two["shared"] == pytest.approx(6 / EXAMPLES)
    # It removes two of classes 0 and 1 and one of each other, of 38. Of what is left to it the other maps have 20 to
    # 29, one of each class, and 20 and 21, of classes 0 and 1: in the mean one of these and half of one of others.
    drawn = sum(taken / 38 * there for taken, there in [(2, 1), (2, 1), *[(1, 0.5)] * 8])
    assert two["by_chance"] == pytest.approx(drawn / EXAMPLES)
    told = rounds.in_words(rounds.rounds(in_rounds()))
    assert (
        "Round 2 removes 12 of 380 images, 3.00% of all, on the map by a network with a test accuracy of 70.0%" in told
    )
    assert "Of what round 2 removes, 50% is noise on a map by another training" in told


def test_a_second_round_is_no_mask_of_the_grid_and_no_change_of_a_parameter():
    ds = in_rounds()
    assert study.removed(ds)["n"].tolist() == [3]
    assert len(study.by_parameter(ds)) == 5  # the mask in use, once for each parameter


@pytest.mark.parametrize(
    ("radius", "told"), [(1.3, "the radius of the first round, 1.30"), (1.1, "its own there, 1.10")]
)
def test_by_which_radius_a_second_round_filters_is_told(radius, told):
    first = made_mask(without(*range(8)), filter="share", share=8 / EXAMPLES, eps=1.3)
    second = made_mask(without(*range(12)), filter="share", share=8 / EXAMPLES, eps=radius, within=first["key"].item())
    assert told in rounds.radius_in_words(rounds.rounds(results.merge([first, second])))


def test_without_a_second_round_there_is_one_and_that_is_said(ds):
    assert len(rounds.rounds(ds)) == 1
    assert rounds.in_words(rounds.rounds(ds)) == "A second round is not among these masks."


def test_the_points_of_a_map_have_the_names_of_their_classes(ds):
    one = study.reference(ds)
    table = study.points_of(one, [f"class {k}" for k in range(10)])
    assert len(table) == EXAMPLES
    assert table["class"].tolist()[:2] == ["class 0", "class 1"]
    assert (~table["keep"]).sum() == 20


def test_masks_without_their_map_have_no_curve(ds):
    bare = ds.drop_vars(["x", "y", "noise_until"])
    assert study.has_map(study.reference(ds))
    assert not study.has_map(study.reference(bare))
    assert study.by_eps(bare).empty
    assert study.by_eps(ds.assign(noise_until=ds["noise_until"] * np.nan)).empty


def test_a_map_with_the_classes_apart_has_neighbours_of_ones_own_class():
    labels = np.repeat(np.arange(10), 30)
    rng = np.random.default_rng(0)
    apart = made_map(labels, 100 * labels[:, None] + rng.random((300, 2)))
    mixed = made_map(labels, rng.random((300, 2)))
    assert maps.parted(apart)["agreement"].tolist() == [1.0, 1.0]
    assert maps.parted(mixed)["agreement"].max() < 0.3


def made_map(labels: np.ndarray, place: np.ndarray) -> xr.Dataset:
    ds = made_mask(np.ones(EXAMPLES, dtype=bool)).drop_vars(["keep", "x", "y", "noise_until", "label"])
    coords = {"label": ("example", labels), "of_test_set": ("example", np.arange(len(labels)) % 3 == 0)}
    table = {name: (("run", "example"), place[None, :, axis]) for axis, name in enumerate("xy")}
    return ds.assign_coords(coords).assign(table)


def test_the_table_for_readers_has_a_row_per_extractor():
    labels = np.repeat(np.arange(10), 30)
    shown = maps.parted_in_words(maps.parted(made_map(labels, 100.0 * labels[:, None] + np.zeros((300, 2)))))
    assert isinstance(shown, pd.DataFrame)
    assert shown.loc["resnet101", "features"] == 2048
    assert shown.loc["resnet101", "network's test accuracy"] == "80.0%"


def test_what_a_map_took_of_memory_is_told_by_the_masks_on_it_too(ds):
    def timed(one, seconds, peak):
        return one.assign(map_seconds=("run", [seconds]), peak_memory_bytes=("run", [peak]))

    read = timed(made_mask(without()), 109.5, 7e8)
    made = timed(made_mask(without(1)), 109.5, 1.4e9)
    another = timed(made_mask(without(2), perplexity=50.0), 300.0, 2.8e9)
    assert maps.peak_bytes(read, None) == 7e8
    assert maps.peak_bytes(read, results.merge([made, another])) == 1.4e9
