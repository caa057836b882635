"""DDP's buckets are torch's own, and Horovod's cycles do what its source says."""

import pytest
import torch
import torch.distributed as dist

from dolb import models
from dolb.profiling.simulator import libraries, tensors
from dolb.profiling.simulator.libraries import DDP, MIB, Horovod, horovod


def sizes_of(arch):
    return tensors.work(arch)["bytes"].tolist()[::-1]


def bucket_sizes(arch):
    sizes = sizes_of(arch)
    return [sum(sizes[a:b]) for a, b in libraries.buckets(sizes, DDP().first_bucket_bytes, DDP().bucket_bytes)]


@pytest.mark.parametrize("arch", ["resnet18", "resnet50"])
def test_buckets_are_those_that_torch_assigns(arch):
    parameters = list(models.build(arch, 1000).parameters())[::-1]
    limits = [dist._DEFAULT_FIRST_BUCKET_BYTES, 25 * MIB]
    assigned, _ = dist._compute_bucket_assignment_by_size(parameters, limits)
    ranges = list(libraries.buckets(sizes_of(arch), *limits))
    assert [list(range(a, b)) for a, b in ranges] == assigned


@pytest.fixture
def process_group(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("arch", ["resnet18", "resnet50"])
def test_buckets_are_those_of_a_real_ddp_after_its_first_step(process_group, arch):
    network = torch.nn.parallel.DistributedDataParallel(models.build(arch, 1000))
    for _ in range(3):  # torch logs buckets when a step begins, and rebuilds them after the first
        network(torch.zeros(2, 3, 32, 32)).sum().backward()
    logged = network._get_ddp_logging_data()
    assert logged["bucket_cap_bytes"] == DDP().bucket_bytes
    assert [int(size) for size in logged["rebuilt_bucket_sizes"].split(", ")] == bucket_sizes(arch)


def test_ddp_reduces_in_a_static_order_one_bucket_after_the_other():
    """Claim G20: a bucket waits for its last gradient and for the bucket before it."""
    run = DDP(bucket_bytes=2, first_bucket_bytes=1).schedule([1.0, 2.0, 3.0], [1, 1, 1], lambda _: 5.0, ranks=2)
    assert [(m.start, m.end, m.tensors) for m in run.messages] == [(1.0, 6.0, 1), (6.0, 11.0, 2)]


def test_lanes_wait_side_by_side_and_take_turns_with_bytes():
    """An all-reduce waits for 4 seconds and has one of bytes; the third gets the lane of the first."""
    two = DDP(bucket_bytes=1, first_bucket_bytes=1, lanes=2)
    run = two.schedule([1.0, 1.5, 2.0], [1, 1, 1], lambda size: 4.0 + size, ranks=2)
    assert [(m.start, m.end) for m in run.messages] == [(1.0, 6.0), (1.5, 7.0), (6.0, 11.0)]


def test_lanes_are_those_of_torch_s_gloo_backend():
    assert dist.ProcessGroupGloo._Options()._threads == libraries.GLOO_THREADS


def test_no_lane_at_all_is_refused():
    with pytest.raises(ValueError, match="lanes is 0; numbers from 1 are accepted"):
        DDP(lanes=0)


@pytest.mark.parametrize(
    ("version", "milliseconds", "mebibytes", "cache"),
    [
        ("0.10", 5, 64, False),
        ("0.20", 5, 64, True),
        ("0.20.3", 5, 64, True),
        ("0.21", 1, 128, True),
        ("0.28.1", 1, 128, True),
    ],
)
def test_horovod_has_the_defaults_of_its_version(version, milliseconds, mebibytes, cache):
    """0.21.0 is where Horovod's changelog has them change."""
    chosen = horovod(version)
    assert chosen.cycle_seconds == pytest.approx(milliseconds / 1000)
    assert chosen.fusion_bytes == mebibytes * MIB
    assert chosen.response_cache is cache


def test_a_version_that_is_none_is_refused():
    with pytest.raises(ValueError, match="version 'latest' is not understood; numbers such as"):
        horovod("latest")


def test_fused_tensors_fit_the_buffer_unless_one_alone_does_not():
    assert list(libraries.fuse([3, 3, 9, 1, 1], 0, 5, limit=6)) == [(0, 2), (2, 3), (3, 5)]


def test_horovod_reduces_at_a_cycle_what_was_ready_before_it():
    """Cycles at 0, 10, 20, ...: two tensors wait for 10, the third for 20."""
    free = Horovod(cycle_seconds=10.0, latency=0.0)
    run = free.schedule([1.0, 9.0, 11.0], [4, 4, 4], lambda _: 1.0, ranks=2)
    assert [(m.start, m.tensors) for m in run.messages] == [(10.0, 2), (20.0, 1)]
    assert [(c.ready, c.start) for c in run.cycles] == [(1.0, 10.0), (11.0, 20.0)]


@pytest.mark.parametrize(("blocking", "starts"), [(False, [10.0, 25.0]), (True, [10.0, 25.0])])
def test_all_reduces_never_overlap_each_other(blocking, starts):
    busy = Horovod(cycle_seconds=10.0, latency=0.0, blocking=blocking)
    run = busy.schedule([1.0, 11.0], [4, 4], lambda _: 15.0, ranks=2)
    assert [m.start for m in run.messages] == starts
    assert run.cycles[1].start == (25.0 if blocking else 20.0)


def test_negotiation_without_the_cache_grows_with_ranks_times_tensors():
    plain = Horovod(response_cache=False, latency=0.0, message_seconds=1.0, request_seconds=2.0)
    assert plain.negotiation_seconds(ranks=11, tensors=7) == 10 * (1.0 + 7 * 2.0)


def test_agreement_over_mpi_is_one_all_reduce_of_as_many_hops_as_ranks_have_bits():
    """response_cache.cc: an AND; the OR follows only where an entry of the cache has become invalid."""
    cached = Horovod(response_cache=True, latency=1.0)
    assert [cached.negotiation_seconds(2**k, tensors=100) for k in (1, 4, 10)] == [1, 4, 10]


def test_agreement_over_gloo_goes_twice_around_a_ring():
    over_gloo = Horovod(agreement="ring", latency=1.0)
    assert [over_gloo.negotiation_seconds(ranks, tensors=100) for ranks in (2, 16)] == [2, 30]  # 2 (ranks - 1)


def test_an_agreement_that_is_none_is_refused():
    with pytest.raises(ValueError, match="agreement 'star' is not known; accepted: tree, ring"):
        Horovod(agreement="star")


def test_a_cycle_that_negotiates_longer_than_its_time_starts_late():
    slow = Horovod(cycle_seconds=1.0, response_cache=False, latency=0.0, message_seconds=4.0, request_seconds=0.0)
    run = slow.schedule([0.0, 0.5], [4, 4], lambda _: 0.0, ranks=2)
    assert [c.start for c in run.cycles] == [0.0, 4.0]


def test_a_bucket_size_of_ones_own_holds_for_the_first_bucket_too():
    assert libraries.ddp(25 * MIB) == libraries.ddp() == DDP()  # torch's default
    assert libraries.ddp(2 * MIB) == DDP(bucket_bytes=2 * MIB, first_bucket_bytes=2 * MIB)
