"""Runs as they go on: by updates and seconds so far, and batch sizes compared at equal updates."""

import pytest
from made_runs import joined, made_run

from dolb.findings import batch_size as study
from dolb.findings import cost, progress

EPOCHS = 8


def made(rise):
    """Two batch sizes whose accuracy is a function of batch size and epoch."""
    return joined(
        made_run(
            [rise(size, epoch) for epoch in range(1, EPOCHS + 1)], batch_size=size, bn_workers=8, lr=0.1, seed=seed
        )
        for size in (1000, 10_000)
        for seed in (0, 1)
    )


def table(ds):
    return progress.by_epoch(ds, cost.priced(study.curve_cells(ds), study.curve_runs(ds)))


def told(ds):
    return progress.in_words(table(ds), study.curve_cells(ds))


def test_a_row_has_the_updates_and_seconds_so_far_and_the_mean_over_seeds():
    ds = made(lambda size, epoch: epoch / 10)
    found = table(ds)
    end = found[found["last"] & (found["batch_size"] == 1000)].iloc[0]
    assert (end["epoch"], end["updates"], end["n"]) == (EPOCHS, EPOCHS * 50, 2)
    first = found[(found["epoch"] == 1) & (found["batch_size"] == 1000)].iloc[0]
    assert first["seconds"] == pytest.approx(end["seconds"] / EPOCHS)
    assert first["accuracy"] == pytest.approx(0.1)


def test_at_equal_updates_only_the_batch_differs():
    # The large batch makes 40 updates in all, fewer than the first epoch of the small one: they do not meet.
    assert "No two batch sizes" in told(made(lambda size, epoch: 0.5))
    closer = joined(
        made_run([0.1 * epoch + size / 1e5 for epoch in range(1, EPOCHS + 1)], batch_size=size, bn_workers=8, lr=0.1)
        for size in (5000, 10_000)
    )
    found = progress.at_equal_updates(table(closer))
    assert found["updates"].tolist() == [40, 40]
    assert found["accuracy"].tolist() == pytest.approx([0.4 + 0.05, 0.8 + 0.1])  # after four epochs and after eight
    said = told(closer)
    assert "90.0% with batches of 10,000" in said
    assert (
        "Of 1 curves that are off chance by then the largest batch is ahead of the smallest that meets it there in 1, "
        "and of all that do in 1; the best size of a curve is among those that meet in 1 of 1." in said
    )
    assert "what they lack in updates" in said


def test_every_epoch_is_there_and_some_are_drawn():
    found = table(joined([made_run([0.5] * 50, batch_size=1000, lr=0.1)]))
    assert found["epoch"].tolist() == list(range(1, 51))
    assert {1, 50} < set(found.loc[found["drawn"], "epoch"])
    assert found["drawn"].sum() <= 16


def test_the_best_size_is_by_the_last_epochs_and_not_by_one():
    ends = {5000: [0.8, 0.8, 0.8, 0.1], 10_000: [0.6] * 4}
    ds = joined(made_run([0.5] * 4 + ends[size], batch_size=size, bn_workers=8, lr=0.1) for size in ends)
    best = study.curve_cells(ds).sort_values("accuracy").iloc[-1]
    assert best["batch_size"] == 5000
    assert "in 1 of 1" in told(ds)


def test_curves_at_chance_do_not_count():
    ds = joined(made_run([0.1] * EPOCHS, batch_size=size, bn_workers=8, lr=0.1) for size in (5000, 10_000))
    assert "Of 0 curves" in told(ds)


def test_where_large_batches_lose_at_equal_updates_too_it_is_said():
    ds = joined(made_run([0.5 - size / 1e5] * EPOCHS, batch_size=size, bn_workers=8, lr=0.1) for size in (5000, 10_000))
    assert "not their lack of updates alone" in told(ds)


def test_a_run_that_diverged_is_left_out():
    runs = [made_run([0.5] * EPOCHS, batch_size=size, lr=0.1, diverged=size == 64) for size in (64, 128)]
    assert set(table(joined(runs))["batch_size"]) == {128}
