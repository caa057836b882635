"""What the runs on warmup say of its best length."""

import numpy as np
import pandas as pd
import pytest

from dolb.findings import warmup as study


@pytest.fixture
def frame():
    """Accuracies of four seeds whose best warmup is 4 epochs at batch 100 and 8 at 400, and nothing without warmup."""
    rng = np.random.default_rng(0)
    rows = [
        {"batch_size": size, "warmup_epochs": length, "seed": seed,
         "accuracy": (0.8 - 0.05 * np.log(length / best) ** 2 if length else 0.1) + rng.normal(0, 1e-4)}
        for size, best in ((100, 4), (400, 8)) for length in (0, 1, 2, 5, 10, 20) for seed in range(4)
    ]  # fmt: skip
    return pd.DataFrame(rows).assign(
        arch="resnet50", lr=0.1, diverged=False, late_drop=False, jitter=0.0, updates=1, device_seconds=1.0,
        test_examples=10_000,
    )  # fmt: skip


def test_the_best_length_is_where_accuracy_is_highest(frame):
    best = study.best_lengths(frame).set_index("batch_size")
    assert best.loc[100, "best"] == pytest.approx(4, rel=0.05)
    assert best.loc[400, "best"] == pytest.approx(8, rel=0.05)
    assert (best["low"] <= best["best"]).all()
    assert (best["best"] <= best["high"]).all()


def test_twice_the_warmup_for_four_times_the_batch_is_a_power_of_a_half(frame):
    found = study.exponent(frame)
    assert found.value == pytest.approx(0.5, abs=0.05)
    assert found.low <= found.value <= found.high
    assert found.n == 4


def test_three_lengths_and_none_are_too_few_for_a_best_one(frame):
    few = frame[frame["warmup_epochs"].isin([0, 5, 10, 20])]
    assert study.best_lengths(few).empty
    assert study.exponent(few) is None
    assert set(study.best_table(few, {100: 5})["resnet50"]) == {""}
