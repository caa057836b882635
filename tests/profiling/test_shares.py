"""Steps of more workers than there are, from the steps of one."""

import pytest
from made_strong_weak import made_steps

from dolb import results
from dolb.profiling.simulator import shares


@pytest.fixture(scope="module")
def steps():
    ds = results.validate(made_steps())
    return ds.isel(run=ds["source"].to_numpy() == "simulated")


def test_a_step_takes_as_long_as_computing_its_share_and_more_with_more_workers(steps):
    table = steps[["ranks", "batch_size_per_rank", "step_seconds"]].to_dataframe()
    for share, own in table.groupby("batch_size_per_rank"):
        seconds = own.sort_values("ranks")["step_seconds"].tolist()
        assert seconds == sorted(seconds)
        assert 0.01 + 0.01 * share < seconds[0] < seconds[-1] < 1.1 * (0.01 + 0.01 * share) + 0.01


def test_every_worker_count_and_share_has_a_row_of_its_own_that_is_marked_simulated(steps):
    assert steps.sizes["run"] == len(shares.WORKERS) * 6
    assert len(set(steps["key"].to_numpy())) == steps.sizes["run"]


def test_images_and_volumes_are_both_simulated():
    ds = made_steps(data="synthetic", arch="resnet18")
    assert (ds["source"] == "simulated").sum() == len(shares.WORKERS) * 6
