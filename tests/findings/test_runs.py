"""From a Dataset of runs to a table: which runs, their final accuracy, their updates."""

import numpy as np
import pytest
from made_runs import made_run

from dolb import results
from dolb.findings.runs import final_accuracy, narrow


def test_the_final_accuracy_is_the_mean_of_the_last_five_epochs_or_that_in_which_a_run_diverged():
    frame = final_accuracy(made_run((0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7), batch_size=20480, bn_workers=8))
    assert frame["accuracy"].item() == pytest.approx(np.mean([0.3, 0.4, 0.5, 0.6, 0.7]))
    assert frame["updates"].item() == 7 * 3  # 50,000 = 20,480 + 20,480 + 9,040
    assert final_accuracy(made_run((0.6, 0.1, np.nan), diverged=True))["accuracy"].item() == pytest.approx(0.1)


STEADY = (0.7,) * 20


@pytest.mark.parametrize(
    ("series", "late"),
    [
        (STEADY, False),
        ((*STEADY, 0.54, 0.7, 0.7, 0.7, 0.7, 0.7), True),
        ((*STEADY, 0.56, 0.7, 0.7, 0.7, 0.7, 0.7), False),  # 14 points
        ((*STEADY, 0.1, *STEADY), False),  # long ago
        ((*STEADY, 0.1), True),
        ((*STEADY, *(0.1,) * 20), True),  # it never came back
        ((*(0.1,) * 20, 0.7, 0.7), False),
    ],
    ids=["steady", "dropped", "less", "early", "at the end", "for good", "rose"],
)
def test_a_late_drop_is_an_epoch_of_the_last_ten_far_below_the_best_before_it(series, late):
    assert final_accuracy(made_run(series))["late_drop"].item() is late


def test_narrowing_keeps_what_is_asked_for_and_says_what_is_not_there():
    ds = results.merge([made_run(seed=7, lr=0.3), made_run(seed=0, lr=0.1)])
    assert narrow(ds, lr=None, seed=None).sizes["run"] == 2
    assert narrow(ds, lr=[0.3])["seed"].item() == 7
    with pytest.raises(ValueError, match=r"no published run has lr \[0.5\]; published: lr 0.1, 0.3$"):
        narrow(ds, lr=[0.5], seed=[7])
    with pytest.raises(ValueError, match=r"no published run has lr \[0.5\]; "):
        narrow(ds, lr=[0.3, 0.5])
    with pytest.raises(
        ValueError, match=r"no published run has lr \[0.3\], seed \[0\]; published: lr 0.1, 0.3; seed 0, 7$"
    ):
        narrow(ds, lr=[0.3], seed=[0])
