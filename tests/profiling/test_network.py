"""What an all-reduce costs, against forms that can be worked out by hand."""

import math
from dataclasses import replace

import pytest

from dolb.profiling.simulator import network
from dolb.profiling.simulator.network import Link, Network

FLAT = Network("flat", 1, Link(1.0, 8.0), Link(1.0, 8.0), algorithm="ring")
SUMMIT = network.preset("summit")


@pytest.mark.parametrize("ranks", [2, 3, 16, 1536])
def test_a_ring_takes_twice_the_ranks_less_one_steps(ranks):
    """Claim M8, seen in the cost: with latency 1 and nothing to send, seconds are steps."""
    assert FLAT.allreduce_seconds(ranks, 0) == 2 * (ranks - 1)


@pytest.mark.parametrize("ranks", [2, 3, 16, 1536])
def test_a_ring_sends_2_n_minus_1_over_n_of_the_bytes(ranks):
    free = network.without_latency(FLAT)
    assert free.allreduce_seconds(ranks, 800) == pytest.approx(2 * (ranks - 1) / ranks * 800 / 8)


def test_a_ring_really_reduces_in_that_many_steps():
    """Pass parts around a ring of lists until every rank has every sum, and count."""
    ranks = 5
    parts = [[float(10 * rank + part) for part in range(ranks)] for rank in range(ranks)]
    wanted = [sum(10 * rank + part for rank in range(ranks)) for part in range(ranks)]
    steps = sent = 0
    for step in range(ranks - 1):  # reduce-scatter
        moved = [(rank, (rank - step) % ranks, parts[rank][(rank - step) % ranks]) for rank in range(ranks)]
        for rank, part, value in moved:
            parts[(rank + 1) % ranks][part] += value
        steps, sent = steps + 1, sent + 1
    for step in range(ranks - 1):  # all-gather
        moved = [(rank, (rank + 1 - step) % ranks, parts[rank][(rank + 1 - step) % ranks]) for rank in range(ranks)]
        for rank, part, value in moved:
            parts[(rank + 1) % ranks][part] = value
        steps, sent = steps + 1, sent + 1
    assert parts == [wanted] * ranks
    assert steps == network.ring_steps(ranks)
    assert sent / ranks == network.ring_bytes(ranks, 1.0)


def test_a_ring_of_nodes_pays_the_slow_latency_between_nodes_alone():
    two_nodes = Network("x", 3, Link(1.0, math.inf), Link(100.0, math.inf), algorithm="ring")
    assert two_nodes.allreduce_seconds(6, 0) == 2 * 100 + (2 * 5 - 2) * 1


def test_a_tree_grows_with_the_logarithm_of_nodes():
    tree = Network("x", 1, Link(1.0, math.inf), Link(1.0, math.inf), algorithm="tree")
    assert [tree.allreduce_seconds(2**k, 0) for k in range(1, 12)] == [2 * k for k in range(1, 12)]


def test_a_hierarchy_sends_the_buffer_over_a_nodes_link_once_each_way():
    slow_between = Network("x", 4, Link(0.0, math.inf), Link(0.0, 10.0), algorithm="hierarchical")
    assert slow_between.allreduce_seconds(8, 100) == pytest.approx(2 * (2 - 1) / 2 * 100 / 10)


def test_a_hierarchy_on_one_node_is_a_ring():
    ring, hierarchy = (replace(SUMMIT, algorithm=name) for name in ("ring", "hierarchical"))
    assert hierarchy.allreduce_seconds(6, 1e6) == pytest.approx(ring.allreduce_seconds(6, 1e6))


@pytest.mark.parametrize(("ranks", "size", "faster"), [(1536, 1e6, "tree"), (12, 1e9, "ring")])
def test_auto_is_the_faster_of_ring_and_tree(ranks, size, faster):
    times = {name: replace(SUMMIT, algorithm=name).allreduce_seconds(ranks, size) for name in ("ring", "tree")}
    assert min(times, key=times.get) == faster
    assert SUMMIT.allreduce_seconds(ranks, size) == times[faster]


def test_ranks_of_one_machine_share_its_memory():
    machine = network.loopback(latency=0.0, bandwidth=100.0)
    assert machine.allreduce_seconds(4, 50) == pytest.approx(2 * 3 / 4 * 50 / (100 / 4))


@pytest.mark.parametrize(("ranks", "each"), [(2, 30.0), (4, 25.0)])
def test_a_rank_gets_its_share_of_the_memory_and_no_more_than_one_core_moves(ranks, each):
    machine = network.loopback(latency=0.0, bandwidth=100.0, rank_bandwidth=30.0)
    assert machine.bandwidth(ranks) == each


@pytest.mark.parametrize("algorithm", list(network.ALGORITHMS))
def test_more_bytes_more_latency_or_less_bandwidth_never_takes_less_time(algorithm):
    net = replace(SUMMIT, algorithm=algorithm)
    base = net.allreduce_seconds(96, 1e6)
    assert net.allreduce_seconds(96, 2e6) > base
    assert replace(net, inter=Link(2 * net.inter.latency, net.inter.bandwidth)).allreduce_seconds(96, 1e6) > base
    assert replace(net, achieved=net.achieved / 2).allreduce_seconds(96, 1e6) > base


def test_the_ideal_network_takes_no_time():
    assert network.preset("ideal").allreduce_seconds(27_000, 1e9) == 0


def test_an_unknown_network_says_what_there_is():
    with pytest.raises(ValueError, match="network 'sumit' is not known; accepted: summit"):
        network.preset("sumit")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Link(-1.0, 1.0), "latency of a link is -1.0"),
        (lambda: Link(0.0, 0.0), "bandwidth of a link is 0.0"),
        (lambda: replace(SUMMIT, algorithm="star"), "algorithm 'star' is not known; accepted: ring"),
        (lambda: replace(SUMMIT, achieved=1.5), "achieved is 1.5"),
        (lambda: replace(SUMMIT, ranks_per_node=0), "ranks_per_node is 0"),
    ],
)
def test_a_network_that_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
