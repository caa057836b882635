"""Ways to send less, by measurements whose answer is known."""

import numpy as np
import pytest
from made_scaling import made_measurement

from dolb import results
from dolb.findings import mitigations as study


def made(hook="none", every=1, sent=40e6, speed=32.0, accuracy=None, **changes):
    """Make the row of one measurement of two ranks over a link."""
    same = {
        "experiment": "mitigations",
        "data": "cifar10",
        "ranks": 2,
        "hosts": 2,
        "batch_size_per_rank": 16,
        "steps": 16,
    }
    same |= {"hook": hook, "average_every": every, "evaluated": 0 if accuracy is None else 100}
    row = made_measurement(speed, **same | {"link_mbit": 100.0} | changes).assign(sent_bytes=("run", [sent]))
    return row if accuracy is None else row.assign(final_accuracy=("run", [accuracy]))


def test_bytes_and_seconds_of_a_step_stand_for_each_way_and_link():
    rows = [made(repeat=k, speed=32.0) for k in (0, 1)] + [
        made("fp16", sent=20e6, speed=64.0, repeat=k) for k in (0, 1)
    ]
    found = study.savings(results.merge(rows)).set_index(["way", "what"])["value"]
    assert found[study.PLAIN, "megabytes"] == pytest.approx(40)
    assert found["gradients in fp16", "megabytes"] == pytest.approx(20)
    assert found["gradients in fp16", "seconds"] == pytest.approx(0.5)


def test_accuracies_are_compared_within_a_seed():
    timed = [made(), made(every=16, sent=2.5e6)]
    judged = [made(accuracy=0.3 + 0.1 * seed, seed=seed) for seed in (0, 1, 2)]
    judged += [made(every=16, accuracy=0.28 + 0.1 * seed, seed=seed) for seed in (0, 1, 2)]
    table = study.table(results.merge([*timed, *judged]))
    assert table.loc["weights, every 16 updates", "points gained"].startswith("\N{MINUS SIGN}2.0 (")
    assert table.loc[study.PLAIN, "points gained"] == ""
    assert table.loc[study.PLAIN, "accuracy"] == "40.0%"


def test_without_accuracies_the_table_has_none():
    table = study.table(results.merge([made(), made("powersgd-4", sent=1e6)]))
    assert list(table.index) == [study.PLAIN, "PowerSGD, rank 4"]
    assert "accuracy" not in table
    assert np.isfinite(table["MB a step"].astype(float)).all()
