"""One simulated step, against what can be worked out by hand: all-reduces, what libraries do when, and its events."""

import itertools
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
from dolb.profiling.simulator.step import Scenario, events, simulate, slowest_of

SUMMIT = network.preset("summit")
IDEAL = Network("ideal", 1, Link(0.0, math.inf), Link(0.0, math.inf))

# What an all-reduce costs

HOST = {"tensor_seconds": 0.0, "collective_seconds": 0.0}  # nothing
FLAT = Network("flat", 1, Link(1.0, 8.0), Link(1.0, 8.0), algorithm="ring")


@pytest.mark.parametrize("ranks", [2, 3, 16, 1536])
def test_a_ring_takes_2_n_minus_1_steps_and_sends_that_over_n_of_the_bytes(ranks):
    """Claim M8, seen in the cost: with latency 1 and nothing to send, seconds are steps."""
    assert FLAT.allreduce_seconds(ranks, 0) == 2 * (ranks - 1)
    free = replace(FLAT, intra=Link(0.0, 8.0), inter=Link(0.0, 8.0))
    assert free.allreduce_seconds(ranks, 800) == pytest.approx(2 * (ranks - 1) / ranks * 800 / 8)


def test_a_ring_of_nodes_pays_the_slow_latency_between_nodes_alone():
    two_nodes = Network("x", 3, Link(1.0, math.inf), Link(100.0, math.inf), algorithm="ring")
    assert two_nodes.allreduce_seconds(6, 0) == 2 * 100 + (2 * 5 - 2) * 1


def test_a_tree_grows_with_the_logarithm_of_nodes():
    tree = Network("x", 1, Link(1.0, math.inf), Link(1.0, math.inf), algorithm="tree")
    assert [tree.allreduce_seconds(2**k, 0) for k in range(1, 12)] == [2 * k for k in range(1, 12)]


def test_a_message_smaller_than_a_chunk_is_passed_on_as_soon_as_it_is_there():
    """512 bytes over 512 GPUs were charged a chunk of 256 KiB at every level."""
    tree = Network("x", 4, Link(0.0, 12e9), Link(0.0, 3e9), algorithm="tree", chunk_bytes=256 * 1024)
    assert tree.allreduce_seconds(512, 512) == pytest.approx(2 * 512 * (3 / 12e9 + 7 / 3e9 + 1 / 3e9))


def test_small_messages_go_by_the_protocol_of_low_latency_and_large_ones_by_that_of_full_bandwidth():
    both = replace(FLAT, protocols=(network.SIMPLE, network.LOW_LATENCY))
    assert both.allreduce_seconds(16, 0) == pytest.approx(0.3 * FLAT.allreduce_seconds(16, 0))
    assert both.allreduce_seconds(16, 1e9) == FLAT.allreduce_seconds(16, 1e9)


@pytest.mark.parametrize(("ranks", "each"), [(2, 30.0), (4, 25.0)])
def test_a_rank_gets_its_share_of_the_memory_and_no_more_than_one_core_moves(ranks, each):
    machine = network.loopback(latency=0.0, bandwidth=100.0, rank_bandwidth=30.0)
    assert machine.allreduce_seconds(ranks, 50) == pytest.approx(2 * (ranks - 1) / ranks * 50 / each)


def test_ranks_of_one_host_pay_no_bandwidth():
    two_hosts = network.over_links(0.0, 1e6, ranks_per_host=2)
    assert two_hosts.allreduce_seconds(2, 1e6) == 0
    assert two_hosts.allreduce_seconds(4, 1e6) == pytest.approx(network.ring_bytes(4, 1e6) / 1e6)


# DDP's buckets are torch's own, and Horovod's cycles do what its source says


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
    sizes = tensors.work("resnet18")["bytes"].tolist()[::-1]
    ours = [sum(sizes[a:b]) for a, b in libraries.buckets(sizes, DDP().first_bucket_bytes, DDP().bucket_bytes)]
    assert [int(size) for size in logged["rebuilt_bucket_sizes"].split(", ")] == ours


def test_ddp_reduces_in_a_static_order_one_bucket_after_the_other():
    """Claim G20: a bucket waits for its last gradient and for the bucket before it."""
    run = DDP(bucket_bytes=2, first_bucket_bytes=1, **HOST).schedule([1.0, 2.0, 3.0], [1, 1, 1], lambda _: 5.0, ranks=2)
    assert [(m.start, m.end, m.tensors) for m in run.messages] == [(1.0, 6.0, 1), (6.0, 11.0, 2)]


def test_lanes_wait_side_by_side_and_take_turns_with_bytes():
    """An all-reduce waits for 4 seconds and has one of bytes; the third gets the lane of the first."""
    two = DDP(bucket_bytes=1, first_bucket_bytes=1, lanes=2, **HOST)
    run = two.schedule([1.0, 1.5, 2.0], [1, 1, 1], lambda size: 4.0 + size, ranks=2)
    assert [(m.start, m.end) for m in run.messages] == [(1.0, 6.0), (1.5, 7.0), (6.0, 11.0)]


def test_lanes_are_those_of_torch_s_gloo_backend():
    assert dist.ProcessGroupGloo._Options()._threads == libraries.GLOO_THREADS


def test_fused_tensors_fit_the_buffer_unless_one_alone_does_not():
    assert list(libraries.fuse([3, 3, 9, 1, 1], 0, 5, limit=6)) == [(0, 2), (2, 3), (3, 5)]


def test_horovod_reduces_at_a_cycle_what_was_ready_before_it():
    """Cycles at 0, 10, 20, ...: two tensors wait for 10, the third for 20."""
    free = Horovod(cycle_seconds=10.0, latency=0.0, **HOST)
    run = free.schedule([1.0, 9.0, 11.0], [4, 4, 4], lambda _: 1.0, ranks=2)
    assert [(m.start, m.tensors) for m in run.messages] == [(10.0, 2), (20.0, 1)]
    assert [(c.ready, c.start) for c in run.cycles] == [(1.0, 10.0), (11.0, 20.0)]


@pytest.mark.parametrize(("blocking", "wakes"), [(False, 20.0), (True, 25.0)])
def test_all_reduces_never_overlap_each_other(blocking, wakes):
    busy = Horovod(cycle_seconds=10.0, latency=0.0, blocking=blocking, **HOST)
    run = busy.schedule([1.0, 11.0], [4, 4], lambda _: 15.0, ranks=2)
    assert [m.start for m in run.messages] == [10.0, 25.0]
    assert run.cycles[1].start == wakes


def test_agreeing_takes_the_hops_of_an_all_reduce_and_without_the_cache_grows_with_ranks_times_tensors():
    """response_cache.cc: an AND; the OR follows only where an entry of the cache has become invalid."""
    over_mpi, over_gloo = Horovod(latency=1.0), Horovod(agreement="ring", latency=1.0)
    assert [over_mpi.negotiation_seconds(2**k, tensors=100) for k in (1, 4, 10)] == [1, 4, 10]
    assert [over_gloo.negotiation_seconds(ranks, tensors=100) for ranks in (2, 16)] == [2, 30]  # 2 (ranks - 1)
    plain = Horovod(response_cache=False, latency=0.0, message_seconds=1.0, request_seconds=2.0)
    assert plain.negotiation_seconds(ranks=11, tensors=7) == 10 * (1.0 + 7 * 2.0)


def test_up_to_0_13_2_horovod_s_thread_sleeps_for_a_cycle_after_its_work():
    """Work takes 2 of agreement: cycles begin at 10, 22, 34 instead of 10, 20, 30."""
    late = Horovod(cycle_seconds=10.0, latency=2.0, on_time=False, **HOST)
    run = late.schedule([1.0, 11.0, 23.0], [4, 4, 4], lambda _: 1.0, ranks=2, phase=10 / 12)
    assert [cycle.start for cycle in run.cycles] == [10.0, 22.0, 34.0]
    assert [horovod(version).on_time for version in ("0.12", "0.13.2", "0.13.3", "0.20")] == [False, False, True, True]


# What communication costs computing


def test_hooks_and_starts_of_collectives_hold_up_the_pass_under_ddp():
    """Tensors cost 1 each and collectives 10: the second bucket is ready at 3 + 3 + 10, and starts 10 later."""
    dear = DDP(bucket_bytes=2, first_bucket_bytes=1, tensor_seconds=1.0, collective_seconds=10.0)
    run = dear.schedule([1.0, 2.0, 3.0], [1, 1, 1], lambda _: 0.5, ranks=2)
    assert [message.start for message in run.messages] == [12.0, 26.0]
    assert run.reduced == 26.5


def test_under_horovod_the_thread_starts_collectives_and_the_pass_goes_on():
    dear = Horovod(cycle_seconds=0.0, latency=0.0, fusion_bytes=0, tensor_seconds=1.0, collective_seconds=10.0)
    run = dear.schedule([1.0, 2.0], [1, 1], lambda _: 0.5, ranks=2)
    assert run.ready == [2.0, 4.0]
    assert [(m.start, m.end) for m in run.messages] == [(2.0, 12.5), (12.5, 23.0)]


def test_computing_runs_slower_beside_an_all_reduce_and_gradients_come_later():
    """The first all-reduce runs from 1 to 5: at half speed 2 seconds of computing take those 4."""
    run = DDP(1, 1, **HOST).schedule([1.0, 4.0], [1, 1], lambda _: 4.0, ranks=2, interference=0.5)
    assert run.ready == pytest.approx([1.0, 6.0])
    assert [m.start for m in run.messages] == pytest.approx([1.0, 6.0])


# A step

RESNET50 = tensors.on_gpu("resnet50", 32, "V100")
POLICIES = [DDP(), horovod("0.20"), horovod("0.20", response_cache=False), horovod("0.21")]


BARE = replace(SUMMIT, interference=0.0, contention=0.0, jitter=0.0)  # of which all can be worked out by hand


def free(policy):
    """Return the library as if it cost the host nothing."""
    return replace(policy, **HOST)


def scenario(policy=POLICIES[0], net=SUMMIT):
    return Scenario(RESNET50, net, policy, batch_per_rank=32)


@pytest.fixture(params=POLICIES, ids=lambda policy: policy.name)
def policy(request):
    return request.param


@pytest.mark.parametrize("ranks", [2, 96, 1536])
def test_k_ranks_on_an_ideal_network_have_k_times_the_throughput_of_one(ranks):
    """Claim J1."""
    ideal = scenario(free(DDP()), IDEAL)
    assert simulate(ideal, ranks).images_per_second == pytest.approx(ranks * simulate(ideal, 1).images_per_second)
    assert simulate(ideal, ranks).efficiency == pytest.approx(1)


@pytest.mark.parametrize("ranks", [1, 96])
def test_the_optimizer_waits_for_the_last_sum_and_is_never_hidden(policy, ranks):
    slow = replace(RESNET50, optimizer_seconds=0.02)
    without_it = simulate(scenario(policy), ranks)
    assert simulate(replace(scenario(policy), tensors=slow), ranks).step_seconds == pytest.approx(
        without_it.step_seconds + 0.02
    )


def test_a_slow_network_is_the_sum_of_its_messages():
    step = simulate(scenario(free(DDP()), replace(BARE, achieved=1e-4)), 96)
    first_bucket_ready = RESNET50.ready_seconds()[1]  # fc's bias and weight
    assert step.step_seconds == pytest.approx(first_bucket_ready + step.communication_seconds)


@pytest.mark.parametrize("ranks", [2, 10, 1000])
def test_the_slowest_rank_is_the_mean_maximum_of_draws(ranks):
    draws = np.random.default_rng(0).logistic(1, 0.02 * np.sqrt(3) / np.pi, size=(4000, ranks))
    assert draws.std() == pytest.approx(0.02, rel=0.05)
    assert slowest_of(ranks, 0.02) == pytest.approx(draws.max(axis=1).mean(), abs=0.001)


# What holds for every machine and library


@pytest.mark.parametrize("name", list(network.NETWORKS))
@pytest.mark.parametrize("ranks", [2, 16, 512])
def test_more_bandwidth_or_less_latency_never_hurts(name, ranks):
    machine = network.preset(name)
    for policy in (DDP(), horovod("0.20")):
        steps = [
            simulate(scenario(policy, replace(machine, inter=Link(latency, bandwidth))), ranks).step_seconds
            for latency, bandwidth in ((1e-4, 1e9), (1e-5, 1e9), (1e-5, 1e10), (1e-6, 1e11), (0.0, math.inf))
        ]
        # A faster link may split what one message of Horovod held before; that can cost a little again.
        slack = 1 if isinstance(policy, DDP) else 1.01
        assert all(after <= before * slack for before, after in itertools.pairwise(steps))


def test_ranks_that_share_a_node_slow_each_other_and_more_nodes_do_not():
    crowded = scenario(free(DDP()), replace(IDEAL, ranks_per_node=8, contention=0.01))
    assert [simulate(crowded, ranks).efficiency for ranks in (1, 2, 8, 64)] == pytest.approx(
        [1, 1 / 1.01, 1 / 1.07, 1 / 1.07]
    )


@pytest.mark.parametrize(
    ("arch", "published"),
    [("resnet50", -0.026), ("resnet101", -0.035), ("resnext50_32x4d", -0.015), ("resnext101_32x8d", -0.013)],
)
def test_buckets_of_1_mib_lose_what_pytorch_s_benchmark_published_and_one_for_each_tensor_more(arch, published):
    """Its README, eight V100, 1 MiB against 25; nothing charged small messages before, and they came out faster."""
    usual = Scenario(tensors.on_gpu(arch, 32, "V100"), network.preset("dgx1"), DDP(), 32)
    small, each = (simulate(replace(usual, policy=libraries.ddp(size)), 8) for size in (MIB, 0))
    lost = [step.efficiency / simulate(usual, 8).efficiency - 1 for step in (small, each)]
    assert lost[0] == pytest.approx(published, abs=0.007)
    assert lost[1] < lost[0]


# What a GPU computes


def test_a_published_throughput_is_that_of_the_network_itself_and_nothing_is_guessed():
    assert tensors.on_gpu("resnet50", 32, "V100").compute_seconds == pytest.approx(32 / 329)
    assert tensors.on_gpu("vgg11", 32, "H200").compute_seconds == pytest.approx(32 / 1148, rel=1e-3)
    with pytest.raises(ValueError, match="vgg11 trains on 'V100' in fp32 is not known; known for it: H200"):
        tensors.on_gpu("vgg11", 32, "V100")


def test_layers_take_the_shares_that_were_measured():
    measured, mine = tensors.measured_shape("resnet50"), tensors.at_speed("resnet50", 64, 1000.0)
    assert mine.compute_seconds == pytest.approx(0.064)
    shares = [step.backward_seconds / step.compute_seconds for step in (measured, mine)]
    assert shares[0] == pytest.approx(shares[1])


def test_networks_that_were_not_measured_are_shared_out_by_multiplications():
    assert tensors.measured_shape("vgg16") is None
    assert tensors.at_speed("vgg16", 64, 154.0).bytes.sum() == 4 * 138_357_544  # torchvision's count of parameters


def lane(table, name, rank=0):
    return table[(table["lane"] == name) & (table["rank"] == rank)]


def test_events_are_of_three_ranks_and_reduce_every_byte_once(policy):
    table = events(scenario(policy), 1536)
    assert set(table["rank"]) == {0, 768, 1535}
    assert (table["end_us"] >= table["start_us"]).all()
    assert int(lane(table, "communication")["bytes"].sum()) == RESNET50.bytes.sum()


def test_the_last_rank_computes_longest_and_the_others_wait():
    ds = events(scenario(free(DDP()), replace(BARE, jitter=0.02)), 96)
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
    late = replace(scenario(), tensors=replace(RESNET50, optimizer_seconds=0.02))
    table = events(late, 96)
    last = table[table["lane"] == "compute"].sort_values("end_us").iloc[-1]
    assert last["name"] == "optimizer"
    assert last["end_us"] / 1e6 == pytest.approx(simulate(late, 96).step_seconds)
