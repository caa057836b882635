"""What runs took of memory is told of device and host, and of which runs nothing is known."""

import numpy as np
import pytest
from made_runs import made_run

from dolb import results
from dolb.findings import memory


@pytest.fixture
def two_runs():
    runs = [made_run(arch="resnet18", batch_size=64), made_run(arch="resnet152", batch_size=20480)]
    return results.merge(runs).sortby("batch_size").assign(peak_memory_bytes=("run", [2 * 10**9, 40 * 10**9]))


def test_the_largest_share_of_the_device_is_told_with_its_run(two_runs):
    assert memory.in_words(two_runs).startswith(
        "A run took at most 40.0 GB of its device's memory (resnet152 with batch 20,480)."
    )


def test_what_runs_at_once_took_together_is_told_by_their_peaks(two_runs):
    found = memory.in_words(two_runs.assign(concurrent_runs=("run", [8.0, 3.0])))
    assert "times the runs that had the device with it, it is 120 GB at most." in found


def test_the_hosts_memory_is_told_as_the_process_has_it_and_for_how_many_runs(two_runs):
    found = memory.in_words(two_runs.assign(peak_host_memory_bytes=("run", [np.nan, 2.5e9])))
    assert "1 of 2 runs tell the high-water mark of the process that made them" in found
    assert "at most 2.5 GB." in found
    assert found.endswith("For the others, of resnet18, it was not recorded.")


def test_host_memory_that_every_run_has_leaves_no_others(two_runs):
    found = memory.in_words(two_runs.assign(peak_host_memory_bytes=("run", [1.5e9, 2.5e9])))
    assert "2 of 2 runs" in found
    assert "the others" not in found


def test_on_a_cpu_memory_is_the_process_alone(two_runs):
    found = memory.in_words(two_runs.assign(peak_host_memory_bytes=two_runs["peak_memory_bytes"].astype(float)))
    assert found == "The process that made these runs took at most 40.0 GB of memory."


def test_runs_without_any_host_memory_say_so(two_runs):
    assert memory.in_words(two_runs).endswith("The host's memory was not recorded.")
