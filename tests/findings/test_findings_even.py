"""What a rest does is told from pairs of like batches, of which one divides the data evenly."""

import pytest
from made_runs import made_curve, made_run

from dolb import recipes, results
from dolb.findings import batch_size as study
from dolb.findings import even


def curve(**changes):
    return results.merge(made_curve({8192: 0.7, 16384: 0.6, 20480: 0.65}, lr=0.03, **changes))


def evenly(size, accuracy, **changes):
    return made_run((accuracy,) * 5, experiment="even-batches", batch_size=size, bn_workers=8, lr=0.03, **changes)


def test_a_batch_is_compared_with_the_like_one_of_the_curve():
    (pair,) = even.pairs(curve(), evenly(16667, 0.66)).to_dict("records")
    assert (pair["batch_size"], pair["even_size"], pair["rest"]) == (16384, 16667, 848)
    assert pair["effect"] == pytest.approx(0.06)
    assert 0 < pair["effect_low"] < 0.06 < pair["effect_high"]


def test_another_network_rate_or_size_is_not_compared():
    others = [evenly(16667, 0.66, arch="resnet50"), evenly(12500, 0.66)]
    assert even.pairs(curve(), results.merge(others)).empty


def test_words_give_every_pair_and_count_the_clear_ones():
    both = results.merge([evenly(16667, 0.66), evenly(8333, 0.70)])
    told = even.in_words(curve(), both)
    assert "smallnet-4 with batch 16,667 instead of 16,384, which leaves 848: +6.0 points" in told
    assert "In 1 of 2 cases accuracy is higher without the rest; in 1 the interval is clear of zero" in told


def test_words_say_of_how_many_seeds_a_pair_is():
    assert "), one seed each." in even.in_words(curve(), evenly(16667, 0.66))
    assert "dropped late," not in even.in_words(curve(), evenly(16667, 0.66))
    again = results.merge([evenly(16667, 0.66), evenly(16667, 0.67, seed=1)])
    assert ", 2 against 1 seeds." in even.in_words(curve(), again)


def test_words_say_where_a_run_dropped_late():
    dropped = made_run((0.8, 0.66, 0.66, 0.6, 0.66), experiment="even-batches", batch_size=16667, bn_workers=8, lr=0.03)
    told = even.in_words(curve(), dropped)
    assert "one seed each (1 of 2 runs dropped late)." in told
    assert told.endswith("in 1 the interval is clear of zero, in 0 of these without a run that dropped late.")


def test_without_runs_it_is_said_not_to_be_tested():
    assert "not tested yet" in even.in_words(curve(), None)
    assert "not tested yet" in even.in_words(curve(), evenly(100, 0.5))


@pytest.mark.parametrize(("scale", "examples"), [("paper", 50_000), ("demo", 1437)])
def test_every_run_leaves_no_small_rest_and_has_a_like_one_in_the_study(scale, examples):
    runs = recipes.configs("even-batches", scale)
    studied = recipes.configs("batch-size", scale, part="curve")
    for run in runs:
        rest = examples % run.batch_size
        assert rest == 0 or rest > 0.9 * run.batch_size
        assert any(
            abs(one.batch_size / run.batch_size - 1) < even.ALIKE and (one.arch, one.lr) == (run.arch, run.lr)
            for one in studied
        )
    assert {run.bn_workers for run in runs} == {8}


def test_what_statistics_do_to_deeper_networks_is_told_apart_from_the_curve_that_is_drawn():
    shallow = [made_run((0.8,) * 5, batch_size=size, bn_workers=n, lr=0.03) for size in (256, 512) for n in (1, 8)]
    same = {"batch_size": 256, "lr": 0.03, "arch": "resnet152"}
    deep = [made_run((accuracy,) * 5, bn_workers=n, **same) for n, accuracy in ((1, 0.7), (8, 0.5))]
    assert study.seams_in_words(results.merge(shallow)) == "With deeper networks this was not run."
    assert "resnet152 at batch 256, 32 examples to a worker: -20.0 points" in study.seams_in_words(
        results.merge(shallow + deep)
    )
