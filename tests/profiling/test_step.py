"""One simulated step, against what can be worked out by hand: all-reduces, what libraries do when, and its events."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.distributed as dist

from dolb import models
from dolb.profiling.simulator import libraries, network, tensors
from dolb.profiling.simulator.libraries import DDP, MIB, Horovod, horovod
from dolb.profiling.simulator.network import Link, Network
from dolb.profiling.simulator.step import Scenario, events, simulate, slowest_of, without

SUMMIT = network.preset("summit")
IDEAL = Network("ideal", 1, Link(0.0, math.inf), Link(0.0, math.inf))

# What an all-reduce costs

FLAT = Network("flat", 1, Link(1.0, 8.0), Link(1.0, 8.0), algorithm="ring")


@pytest.mark.parametrize("ranks", [2, 3, 16, 1536])
def test_a_ring_takes_twice_the_ranks_less_one_steps(ranks):
    """Claim M8, seen in the cost: with latency 1 and nothing to send, seconds are steps."""
    assert FLAT.allreduce_seconds(ranks, 0) == 2 * (ranks - 1)


@pytest.mark.parametrize("ranks", [2, 3, 16, 1536])
def test_a_ring_sends_2_n_minus_1_over_n_of_the_bytes(ranks):
    free = network.without_latency(FLAT)
    assert free.allreduce_seconds(ranks, 800) == pytest.approx(2 * (ranks - 1) / ranks * 800 / 8)


def test_a_ring_of_nodes_pays_the_slow_latency_between_nodes_alone():
    two_nodes = Network("x", 3, Link(1.0, math.inf), Link(100.0, math.inf), algorithm="ring")
    assert two_nodes.allreduce_seconds(6, 0) == 2 * 100 + (2 * 5 - 2) * 1


def test_a_tree_grows_with_the_logarithm_of_nodes():
    tree = Network("x", 1, Link(1.0, math.inf), Link(1.0, math.inf), algorithm="tree")
    assert [tree.allreduce_seconds(2**k, 0) for k in range(1, 12)] == [2 * k for k in range(1, 12)]


@pytest.mark.parametrize(("ranks", "size", "faster"), [(1536, 1e6, "tree"), (12, 1e9, "ring")])
def test_auto_is_the_faster_of_ring_and_tree(ranks, size, faster):
    times = {name: replace(SUMMIT, algorithm=name).allreduce_seconds(ranks, size) for name in ("ring", "tree")}
    assert min(times, key=times.get) == faster
    assert SUMMIT.allreduce_seconds(ranks, size) == times[faster]


def test_ranks_of_one_machine_share_its_memory():
    machine = network.loopback(latency=0.0, bandwidth=100.0, rank_bandwidth=math.inf)
    assert machine.allreduce_seconds(4, 50) == pytest.approx(2 * 3 / 4 * 50 / (100 / 4))


@pytest.mark.parametrize(("ranks", "each"), [(2, 30.0), (4, 25.0)])
def test_a_rank_gets_its_share_of_the_memory_and_no_more_than_one_core_moves(ranks, each):
    machine = network.loopback(latency=0.0, bandwidth=100.0, rank_bandwidth=30.0)
    assert machine.bandwidth(ranks) == each


def test_ranks_of_one_host_pay_no_bandwidth():
    two_hosts = network.over_links(0.0, 1e6, ranks_per_host=2)
    assert two_hosts.allreduce_seconds(2, 1e6) == 0
    assert two_hosts.allreduce_seconds(4, 1e6) == pytest.approx(network.ring_bytes(4, 1e6) / 1e6)


# DDP's buckets are torch's own, and Horovod's cycles do what its source says


def sizes_of(arch):
    return tensors.work(arch)["bytes"].tolist()[::-1]


def bucket_sizes(arch):
    sizes = sizes_of(arch)
    return [sum(sizes[a:b]) for a, b in libraries.buckets(sizes, DDP().first_bucket_bytes, DDP().bucket_bytes)]


@pytest.fixture
def process_group(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_buckets_are_those_of_a_real_ddp_after_its_first_step(process_group):
    network = torch.nn.parallel.DistributedDataParallel(models.build("resnet18", 1000))
    for _ in range(3):  # torch logs buckets when a step begins, and rebuilds them after the first
        network(torch.zeros(2, 3, 32, 32)).sum().backward()
    logged = network._get_ddp_logging_data()
    assert logged["bucket_cap_bytes"] == DDP().bucket_bytes
    assert [int(size) for size in logged["rebuilt_bucket_sizes"].split(", ")] == bucket_sizes("resnet18")


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


def test_a_bucket_size_of_ones_own_holds_for_the_first_bucket_too():
    assert libraries.ddp(25 * MIB) == libraries.ddp() == DDP()  # torch's default
    assert libraries.ddp(2 * MIB) == DDP(bucket_bytes=2 * MIB, first_bucket_bytes=2 * MIB)


# A step

RESNET50 = tensors.v100("resnet50")
POLICIES = [DDP(), horovod("0.20"), horovod("0.20", response_cache=False), horovod("0.21")]


def scenario(policy=POLICIES[0], net=SUMMIT, **changes):
    return Scenario(RESNET50, net, policy, batch_per_rank=32, **changes)


@pytest.fixture(params=POLICIES, ids=lambda policy: policy.name)
def policy(request):
    return request.param


@pytest.mark.parametrize("ranks", [2, 96, 1536])
def test_k_ranks_on_an_ideal_network_have_k_times_the_throughput_of_one(ranks):
    """Claim J1."""
    ideal = scenario(net=IDEAL)
    assert simulate(ideal, ranks).images_per_second == pytest.approx(ranks * simulate(ideal, 1).images_per_second)
    assert simulate(ideal, ranks).efficiency == pytest.approx(1)


@pytest.mark.parametrize("ranks", [2, 1536])
def test_horovod_without_its_clock_is_ideal_on_an_ideal_network_too(ranks):
    free = without(without(scenario(horovod("0.20"), IDEAL), "negotiation"), "cycle")
    assert simulate(free, ranks).step_seconds == pytest.approx(RESNET50.compute_seconds)


@pytest.mark.parametrize("ranks", [1, 96])
def test_the_optimizer_waits_for_the_last_sum_and_is_never_hidden(policy, ranks):
    slow = replace(RESNET50, optimizer_seconds=0.02)
    without_it = simulate(scenario(policy), ranks)
    assert simulate(replace(scenario(policy), tensors=slow), ranks).step_seconds == pytest.approx(
        without_it.step_seconds + 0.02
    )


def test_one_rank_communicates_with_nobody(policy):
    alone = simulate(scenario(policy, jitter=0.1), 1)
    assert alone.step_seconds == RESNET50.compute_seconds
    assert alone.efficiency == 1


def test_without_overlap_a_ddp_step_is_compute_and_then_all_communication():
    apart = simulate(scenario(overlap=False), 96)
    assert apart.step_seconds == pytest.approx(RESNET50.compute_seconds + apart.communication_seconds)


def test_without_overlap_horovod_waits_half_a_cycle_agrees_and_reduces_all_at_once():
    big = Horovod(cycle_seconds=5e-3, fusion_bytes=1 << 40)
    apart = simulate(scenario(big, overlap=False), 96)
    parts = 5e-3 / 2 + big.negotiation_seconds(96, len(RESNET50)) + SUMMIT.allreduce_seconds(96, RESNET50.bytes.sum())
    assert apart.step_seconds == pytest.approx(RESNET50.compute_seconds + parts, abs=5e-3 / 16)


def test_a_slow_network_is_the_sum_of_its_messages():
    slow = replace(SUMMIT, achieved=1e-4)
    step = simulate(scenario(net=slow), 96)
    first_bucket_ready = RESNET50.ready_seconds()[1]  # fc's bias and weight
    assert step.step_seconds == pytest.approx(first_bucket_ready + step.communication_seconds)


@pytest.mark.parametrize("ranks", [2, 10, 1000])
def test_the_slowest_rank_is_the_mean_maximum_of_draws(ranks):
    draws = np.random.default_rng(0).logistic(1, 0.02 * np.sqrt(3) / np.pi, size=(4000, ranks))
    assert draws.std() == pytest.approx(0.02, rel=0.05)
    assert slowest_of(ranks, 0.02) == pytest.approx(draws.max(axis=1).mean(), abs=0.001)


@pytest.mark.parametrize("ranks", [12, 768])
@pytest.mark.parametrize("mechanism", ["negotiation", "cycle", "jitter", "latency", "bandwidth"])
def test_a_mechanism_that_is_off_costs_nothing(policy, mechanism, ranks):
    full = scenario(policy, jitter=0.01)
    # A faster cycle or link may split what one message held before; that can cost a little again.
    assert simulate(without(full, mechanism), ranks).step_seconds <= simulate(full, ranks).step_seconds * 1.01


@pytest.mark.parametrize("ranks", [0, -1, 1.5])
def test_a_number_of_ranks_that_cannot_be_is_refused(ranks):
    with pytest.raises(ValueError, match="whole numbers from 1"):
        simulate(scenario(), ranks)


def lane(table, name, rank=0):
    return table[(table["lane"] == name) & (table["rank"] == rank)]


def test_events_are_of_three_ranks(policy):
    table = events(scenario(policy, jitter=0.01), 1536)
    assert set(table["rank"]) == {0, 768, 1535}
    assert (table["end_us"] >= table["start_us"]).all()


def test_events_reduce_every_byte_once(policy):
    ds = events(scenario(policy), 96)
    assert int(lane(ds, "communication")["bytes"].sum()) == RESNET50.bytes.sum()


def test_events_end_with_the_step_of_ddp():
    full = scenario(jitter=0.01)
    assert float(events(full, 96)["end_us"].max()) / 1e6 == pytest.approx(simulate(full, 96).step_seconds)


def test_the_last_rank_computes_longest_and_the_others_wait():
    ds = events(scenario(jitter=0.02), 96)
    last, first = (float(lane(ds, "compute", rank)["end_us"].max()) for rank in (95, 0))
    assert last == pytest.approx(first * slowest_of(96, 0.02))


def test_a_horovod_step_shows_negotiation_and_several_all_reduces():
    """Claim G19; and claim G20 for DDP, which shows none."""
    ds = events(scenario(horovod("0.20", response_cache=False)), 1536)
    assert len(lane(ds, "communication")) > 1
    negotiation = lane(ds, "negotiation")
    assert float((negotiation["end_us"] - negotiation["start_us"]).sum()) > 10_000
    assert lane(events(scenario(), 1536), "negotiation").empty


def test_the_optimizer_is_the_last_event():
    late = replace(scenario(jitter=0.01), tensors=replace(RESNET50, optimizer_seconds=0.02))
    table = events(late, 96)
    last = table[table["lane"] == "compute"].sort_values("end_us").iloc[-1]
    assert last["name"] == "optimizer"
    assert last["end_us"] / 1e6 == pytest.approx(simulate(late, 96).step_seconds)
