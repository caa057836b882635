"""The machine as results name it: its processor, and its hardware threads in the order ranks get them."""

import math
import os

import pytest

from dolb.profiling.ranks import cores, launch


@pytest.fixture
def two_to_a_core(monkeypatch):
    """A machine of four cores with two hardware threads each, numbered as Linux does."""
    monkeypatch.setattr(cores, "_core_of", lambda: {thread: thread % 4 for thread in range(8)})


def test_ranks_get_a_core_each_where_neighbours_share_one_too(monkeypatch):
    monkeypatch.setattr(cores, "_core_of", lambda: {thread: thread // 2 for thread in range(6)})
    assert cores.hardware_threads() == [0, 2, 4, 1, 3, 5]


def test_a_machine_is_named_by_its_processor_and_threads(two_to_a_core):
    assert cores.machine_name() == f"{cores.processor()}, 8 threads, 2 to a core"


def test_the_least_quota_of_a_cgroup_and_of_those_around_it_counts(tmp_path):
    tree, membership = tmp_path / "cgroup", tmp_path / "membership"
    (tree / "outer" / "inner").mkdir(parents=True)
    membership.write_text("4:memory:/elsewhere\n0::/outer/inner\n")
    assert cores.quota(tree, membership) == math.inf
    (tmp_path / "cpu.max").write_text("1 100000")  # of no cgroup
    (tree / "outer" / "cpu.max").write_text("300000 100000")
    (tree / "outer" / "inner" / "cpu.max").write_text("max 100000")
    assert cores.quota(tree, membership) == 3
    (tree / "cpu.max").write_text("100000 50000")
    assert cores.quota(tree, membership) == 2
    assert cores.quota(tree, tmp_path / "none") == 2  # where nobody tells, it is the whole tree


@pytest.mark.parametrize(("allowed", "ranks"), [(math.inf, None), (1.9, 1), (0.5, 1), (1e6, None)])
def test_a_quota_leaves_whole_cores_and_one_at_least(monkeypatch, allowed, ranks):
    monkeypatch.setattr(cores, "quota", lambda: allowed)
    assert cores.usable() == (ranks or len(os.sched_getaffinity(0)))
    assert launch.slots() == cores.usable()
