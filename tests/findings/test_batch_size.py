"""The numbers of the batch-size study: optima, equal updates, how curves fall and spread, batch norm's part."""

from itertools import chain

import numpy as np
import pytest
from made_runs import made_curve, made_run

from dolb import results
from dolb.findings import batch_size as study
from dolb.findings.runs import final_accuracy
from dolb.recipes.batch_sizes import WORKERS

SIZES = [2**k for k in range(7, 15)]  # 128 to 16384: seven doublings


def runs(*curves):
    return final_accuracy(results.merge(chain(*curves)))


def preferred(accuracies, **changes):
    return study.preferred(runs(made_curve(accuracies, **changes))).iloc[0]


# Curves and optima


def test_runs_with_other_shares_stay_out_of_the_curve():
    odd = [made_run((0.99,) * 5, batch_size=256, lr=0.1, bn_workers=workers) for workers in (1, 32, 128)]
    cells = study.curve_cells(results.merge([*made_curve({16: 0.6, 256: 0.8}, lr=0.1), *odd]))
    assert cells.loc[cells["batch_size"] == 256, "accuracy"].item() == pytest.approx(0.80)
    assert WORKERS == study.WORKERS


def test_a_rate_of_few_batch_sizes_is_drawn_and_not_judged():
    ds = results.merge(
        [*made_curve(dict.fromkeys(SIZES, 0.8), lr=0.1), *made_curve(dict.fromkeys(SIZES[:3], 0.4), lr=0.3)]
    )
    assert set(study.curve_cells(ds)["lr"]) == {0.1, 0.3}
    assert set(study.judged_runs(ds)["lr"]) == {0.1}


def test_the_best_batch_size_comes_with_the_sizes_that_may_equal_it_and_what_the_ends_lose():
    row = preferred({32: 0.70, 64: 0.80, 128: 0.803, 256: 0.75})
    assert (row["batch_size"], row["smallest"], row["largest"]) == (128, 64, 128)
    assert [row["rise"], row["fall"]] == pytest.approx([0.103, 0.053], abs=1e-6)


@pytest.mark.parametrize(
    ("accuracies", "open_below", "open_above"),
    [
        ((0.5, 0.7, 0.8, 0.7, 0.5), False, False),
        ((0.8, 0.7, 0.6, 0.5, 0.4), True, False),
        ((0.4, 0.5, 0.6, 0.7, 0.8), False, True),
        ((0.8, 0.7, 0.6, 0.7, 0.8), True, True),
    ],
)
def test_the_interval_of_the_best_size_is_open_where_it_reaches_an_end_of_what_was_run(
    accuracies, open_below, open_above
):
    row = preferred(dict(zip((16, 64, 256, 1024, 4096), accuracies, strict=True)))
    assert (row["open_below"], row["open_above"]) == (open_below, open_above)


def test_seeds_that_disagree_widen_the_interval_of_the_best_size():
    one, other = {64: 0.80, 128: 0.84, 256: 0.80}, {64: 0.86, 128: 0.83, 256: 0.76}
    row = study.preferred(runs(made_curve(one, seed=0), made_curve(other, seed=1))).iloc[0]
    assert (row["smallest"], row["largest"]) == (64, 256)
    assert preferred(one)["smallest"] == 128


def test_a_size_beside_the_optimum_at_which_a_run_collapsed_may_be_the_best():
    whole = {64: 0.5, 128: 0.7, 256: 0.8, 512: 0.7, 1024: 0.6}
    for size, ends in {128: (128, 256), 64: (256, 256)}.items():  # only one next to the interval is in it
        made = [
            made_run(
                (*(0.9,) * 8, 0.2, 0.2) if batch == size else (accuracy,) * 10, batch_size=batch, test_examples=10**8
            )
            for batch, accuracy in whole.items()
        ]
        row = study.preferred(runs(made)).iloc[0]
        assert (row["smallest"], row["largest"]) == ends


# Equal updates


def made_progress():
    """Two batch sizes of 50,000 images, 100 and 50 updates an epoch, that learn alike by update."""
    return results.merge(made_run((0.2, 0.4, 0.6, 0.8), batch_size=size, bn_workers=8) for size in (500, 1000))


def test_progress_counts_updates_and_marks_the_end_of_a_run():
    table = study.by_epoch(made_progress()).set_index(["batch_size", "epoch"])
    assert table.loc[(500, 4), "updates"] == 400
    assert table.loc[(1000, 3), ["updates", "accuracy", "n"]].tolist() == pytest.approx([150, 0.6, 1])
    assert table["last"].groupby("batch_size").sum().tolist() == [1, 1]


def test_batch_sizes_meet_after_as_many_updates_as_the_largest_makes():
    equal = study.at_equal_updates(study.by_epoch(made_progress())).set_index("batch_size")
    assert equal["updates"].unique().tolist() == [200]
    assert equal["accuracy"].to_dict() == pytest.approx({500: 0.4, 1000: 0.8})
    assert study.largest_ahead(equal.reset_index()) == (1, 1)


# How suddenly a curve falls


def slope(sizes=SIZES, lost=0.4):
    return np.linspace(0.8, 0.8 - lost, len(sizes))


LONGER = [*SIZES, 20480]  # the last step is a third of a doubling, so the window of one begins before 16384
HALF = slope(lost=0.2) - np.where(np.arange(len(SIZES)) > 3, 0.2, 0)  # half a cliff on a slope
LINE = 0.8 - 0.4 * np.log2(np.array(LONGER) / 128) / np.log2(20480 / 128)


@pytest.mark.parametrize(
    ("sizes", "accuracy", "expected"),
    [
        *[(SIZES, np.where(np.arange(len(SIZES)) < at, 0.8, 0.1), 1) for at in (1, 4, 7)],
        *[(SIZES[:length], slope(SIZES[:length]), 0) for length in (3, 8)],
        (SIZES, HALF, ((0.2 / 7 + 0.2) / 0.4 - 1 / 7) / (6 / 7)),
        (LONGER, LINE, 0),
        ([16, 32, 64, *SIZES], [0.1, 0.5, 0.7, *slope()], 0),  # what comes before the optimum
        (SIZES[:4], [0.8, 0.8, 0.3, 0.35], 1),  # a turn at the end
    ],
)
def test_a_cliff_has_suddenness_one_wherever_it_is_and_a_slope_zero_however_long(sizes, accuracy, expected):
    assert study.suddenness(sizes, accuracy) == pytest.approx(expected, abs=1e-9)


def test_no_loss_a_short_stretch_or_a_curve_that_ends_early_has_no_suddenness():
    assert np.isnan(study.suddenness(SIZES, [0.8] * len(SIZES)))
    assert np.isnan(study.suddenness([128, 256], [0.8, 0.2]))
    whole = made_curve(dict(zip(SIZES, slope(), strict=True)), arch="resnet18")
    early = made_curve(dict(zip(SIZES[:5], slope(SIZES[:5]), strict=True)), arch="resnet50")
    assert study.falls(runs(whole, early))["arch"].tolist() == ["resnet18"]


# How far curves lie apart


def apart(by_rate, archs=("resnet18", "resnet34", "resnet50"), sizes=SIZES):
    """Curves that are level, so far apart from the first network to the last at each rate."""
    return [
        made_curve(dict.fromkeys(sizes, 0.8 - distance * place), lr=lr, arch=arch)
        for lr, distance in by_rate.items()
        for arch, place in zip(archs, np.linspace(0, 1, len(archs)), strict=True)
    ]


def test_rates_are_compared_over_the_networks_and_sizes_that_all_have():
    deep = [made_curve(dict.fromkeys(SIZES[2:], 0.3), lr=lr, arch="resnet152") for lr in (0.01, 0.1)]
    lowest = apart({0.003: 0.5}, archs=("resnet18", "resnet50"))
    found = study.ranges(runs(*apart({0.01: 0.02, 0.1: 0.2}), *deep, *lowest))
    assert found.columns.tolist() == [0.01, 0.1]
    assert found.index.tolist() == SIZES[2:]
    assert np.allclose(found, 0.5, atol=1e-6)  # the deepest is 50 points below the best at both


# Batch norm


def with_workers(accuracies, **changes):
    """Runs by (batch size, workers)."""
    return results.merge(
        made_run((value,) * 5, batch_size=size, bn_workers=workers, **changes)
        for (size, workers), value in accuracies.items()
    )


SPLIT = {(256, 1): 0.80, (256, 8): 0.79, (256, 16): 0.77, (16, 1): 0.70, (32, 1): 0.75}


def test_statistics_and_gradient_are_separated_at_equal_statistics():
    found = study.separated(with_workers(SPLIT)).set_index("batch_size")
    # At 16 the statistics cost 3 points and the gradient 7, at 32 they cost 1 and 4.
    assert found["difference"].to_dict() == pytest.approx({16: 0.04, 32: 0.03}, abs=1e-6)
    assert found.loc[16, "difference_low"] < 0.04 < found.loc[16, "difference_high"]
    assert found["n"].tolist() == [3, 3]  # runs of three cells


def test_shares_and_whole_batches_meet_where_the_share_is_the_batch():
    cells = study.share_cells(with_workers(SPLIT)).set_index(["change", "share"])["accuracy"].to_dict()
    shared, whole = ({256: 0.80, 32: 0.79, 16: 0.77}, {256: 0.80, 32: 0.75, 16: 0.70})
    known = {(study.SHARED, share): value for share, value in shared.items()}
    assert cells == pytest.approx(known | {(study.WHOLE, share): value for share, value in whole.items()})


def test_of_two_batches_in_shares_the_one_that_divides_the_data_is_taken():
    """Of 50,000 examples a batch of 400 leaves none and one of 256 leaves 80, which the workers would share."""
    sizes = ((400, 1), (400, 5), (400, 25), (256, 1), (256, 4), (256, 64), (16, 1), (250, 1))
    ds = with_workers(dict.fromkeys(sizes, 0.8))
    cells = study.share_cells(ds)
    assert set(cells.loc[cells["change"] == study.SHARED, "batch_size"]) == {400}
    assert study.separated(ds)["batch_size"].tolist() == [16]  # 400 is no multiple of the others


def test_without_such_runs_the_tables_are_empty():
    ds = results.merge(made_curve(dict.fromkeys(SIZES, 0.8)))
    assert study.share_cells(ds).empty
    assert study.separated(ds).empty


# The last partial batch


def test_a_batch_is_compared_with_the_nearest_that_divides_the_data():
    curve = results.merge(made_curve({4096: 0.7, 16384: 0.5, 20480: 0.6}, lr=0.03))
    even = results.merge([made_run((0.55,) * 5, batch_size=16667, bn_workers=8, lr=0.03, experiment="even-batches")])
    row = study.even_division(curve, even).iloc[0]
    assert (row["batch_size"], row["partial"], row["even_size"]) == (16384, 50_000 % 16384, 16667)
    assert row["effect_low"] < row["effect"] < row["effect_high"]
    assert row["effect"] == pytest.approx(0.05)
