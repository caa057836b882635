"""The machine as results name it: its processor, its hardware threads in the order ranks get them, and who is busy."""

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
    assert cores.threads_per_core() == 2
    assert cores.machine_name() == f"{cores.processor()}, 8 threads, 2 to a core"


@pytest.mark.parametrize(
    ("cpu_max", "allowed"),
    [("max 100000\n", math.inf), ("200000 100000\n", 2.0), ("150000 100000\n", 1.5), ("5 50", 0.1)],
)
def test_a_quota_is_told_in_cores(cpu_max, allowed):
    assert cores.in_cores(cpu_max) == allowed


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


@pytest.mark.parametrize(("user", "nice", "idle", "busy"), [(50, 25, 25, 0.5), (0, 75, 25, 0.0)])
def test_work_that_yields_is_not_counted(monkeypatch, tmp_path, user, nice, idle, busy):
    stat = tmp_path / "stat"
    stat.write_text("cpu0 0 0 0 0 0 0 0 0\n")
    monkeypatch.setattr(cores, "_STAT", stat)
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: {0})
    monkeypatch.setattr(cores.time, "sleep", lambda _: stat.write_text(f"cpu0 {user} {nice} 0 {idle} 0 0 0 0\n"))
    assert cores.busy_threads() == pytest.approx(busy)


def test_where_nobody_counts_it_is_not_known_who_is_busy(monkeypatch, tmp_path):
    monkeypatch.setattr(cores, "_STAT", tmp_path / "none")
    assert math.isnan(cores.busy_threads(0.0))


def test_without_lscpu_each_thread_is_a_core(monkeypatch):
    monkeypatch.setattr(cores, "_lscpu", lambda *_: "")
    assert set(cores._core_of.__wrapped__().items()) == {(thread, thread) for thread in os.sched_getaffinity(0)}
    assert cores.processor.__wrapped__() == os.uname().machine


@pytest.fixture
def busy(monkeypatch):
    """Four cores, of which other work keeps busy so many at each look, and waits that take no time."""

    def made(*looks):
        left = list(looks)
        monkeypatch.setattr(cores, "usable", lambda: 4)
        monkeypatch.setattr(cores, "busy_threads", lambda: left.pop(0) if len(left) > 1 else left[0])
        monkeypatch.setattr(cores, "_BETWEEN", 0.0)
        return left

    return made


def test_ranks_wait_until_each_can_have_a_core(busy):
    left = busy(3.0, 2.0, 0.5, 9.0)
    assert cores.await_room(3) == 0.5
    assert left == [9.0]  # looked at no further


def test_ranks_go_on_when_patience_ends_and_record_what_is_busy(busy):
    busy(3.0)
    assert cores.await_room(3, patience=0.05) == 3.0


@pytest.mark.parametrize(("ranks", "looks"), [(8, 1.0), (2, math.nan), (2, 2.0)])
def test_where_waiting_cannot_help_or_is_not_needed_nobody_waits(busy, ranks, looks):
    busy(looks, 0.0)
    assert cores.await_room(ranks) == pytest.approx(looks, nan_ok=True)
