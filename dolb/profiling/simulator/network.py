"""What an all-reduce costs: latency and bandwidth of links, and ring and tree algorithms over them.

A message of ``b`` bytes over a link takes ``latency + b / bandwidth``. Every cost here is a closed form: working it out
takes no longer for more ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

MICROSECOND, GB = 1e-6, 1e9


@dataclass(frozen=True)
class Link:
    """A link: seconds that any message takes, and bytes per second at its peak."""

    latency: float
    bandwidth: float


@dataclass(frozen=True)
class Network:
    """Nodes of a few ranks each, links within and between them, and how an all-reduce goes over them.

    Parameters
    ----------
    algorithm
        ``ring``, ``tree``, or ``auto`` for the faster of ring and tree, as NCCL picks.
    achieved
        Share of the links' peak bandwidth that an all-reduce gets.
    launch
        Seconds that every all-reduce takes whatever its size.
    chunk_bytes
        A tree passes the buffer on in chunks of this size; each level delays the first chunk.
    shared_bandwidth
        Bytes per second that the ranks of a node have together, as processes of one machine share its memory; None
        where every rank has a link to itself.
    """

    name: str
    ranks_per_node: int
    intra: Link
    inter: Link
    algorithm: str = "auto"
    achieved: float = 1.0
    launch: float = 0.0
    chunk_bytes: int = 0
    shared_bandwidth: float | None = None

    def shape(self, ranks: int) -> tuple[int, int]:
        """Return how many nodes the ranks fill, the last perhaps in part, and how many ranks a full one has."""
        return -(-ranks // self.ranks_per_node), min(ranks, self.ranks_per_node)

    def allreduce_seconds(self, ranks: int, size: float) -> float:
        """Return the seconds of one all-reduce of ``size`` bytes over ``ranks`` ranks."""
        return ALGORITHMS[self.algorithm](self, ranks, size) if ranks > 1 else 0.0

    def intra_bandwidth(self, ranks: int) -> float:
        """Return the bytes per second that a rank gets within its node."""
        share = math.inf if self.shared_bandwidth is None else self.shared_bandwidth / self.shape(ranks)[1]
        return self.achieved * min(self.intra.bandwidth, share)

    def bandwidth(self, ranks: int) -> float:
        """Return the bytes per second of the slowest link that the ranks use."""
        inter = self.inter.bandwidth * self.achieved if self.shape(ranks)[0] > 1 else math.inf
        return min(self.intra_bandwidth(ranks), inter)


def ring_steps(ranks: int) -> int:
    """Return the steps of a ring all-reduce: twice around, less the rank's own part (claim M8)."""
    return 2 * (ranks - 1)


def ring_bytes(ranks: int, size: float) -> float:
    """Return the bytes that each rank of a ring all-reduce sends: a part of 1/ranks at every step."""
    return ring_steps(ranks) * size / ranks


def levels(ranks: int) -> int:
    """Return the depth of a binary tree over the ranks."""
    return (ranks - 1).bit_length()


def ring_seconds(network: Network, ranks: int, size: float) -> float:
    """Cost a ring through all ranks: it leaves every node once, so 2(nodes - 1) of its steps are between nodes."""
    nodes, _ = network.shape(ranks)
    between = ring_steps(nodes)
    hops = (ring_steps(ranks) - between) * network.intra.latency + between * network.inter.latency
    return network.launch + hops + ring_bytes(ranks, size) / network.bandwidth(ranks)


def tree_seconds(network: Network, ranks: int, size: float) -> float:
    """Cost a pipelined tree of nodes, a chain within each: up and down, every byte sent twice at full bandwidth."""
    nodes, local = network.shape(ranks)
    chain = (local - 1) * (network.intra.latency + network.chunk_bytes / network.intra_bandwidth(ranks))
    between = levels(nodes) * (network.inter.latency + network.chunk_bytes / network.bandwidth(ranks))
    return network.launch + 2 * (chain + between) + 2 * size / network.bandwidth(ranks)


def _faster_seconds(network: Network, ranks: int, size: float) -> float:
    return min(ring_seconds(network, ranks, size), tree_seconds(network, ranks, size))


ALGORITHMS: dict[str, Callable[[Network, int, float], float]] = {
    "ring": ring_seconds,
    "tree": tree_seconds,
    "auto": _faster_seconds,
}

# Latencies are those by which NCCL picks its algorithms (src/graph/tuning.cc of 2020, the "simple" protocol of the
# ring): 3.4 us over NVLink, 5.7 over PCIe, 9.6 over a network, 8.4 to start; chunks of 256 KiB in a tree.
_NVLINK, _PCIE, _NET = 3.4 * MICROSECOND, 5.7 * MICROSECOND, 9.6 * MICROSECOND
_LAUNCH, _CHUNK = 8.4 * MICROSECOND, 256 * 1024
# What share of the peak NCCL gets on these machines is not published; 0.8 is assumed and `curves.UNKNOWN` varies it.
ASSUMED_ACHIEVED = 0.8


def _nccl(name: str, ranks_per_node: int, intra: Link, inter: Link) -> Network:
    return Network(name, ranks_per_node, intra, inter, achieved=ASSUMED_ACHIEVED, launch=_LAUNCH, chunk_bytes=_CHUNK)


NETWORKS: dict[str, Network] = {
    # Six V100 a node, pairs joined by NVLink at 50 GB/s, two rails of 100 Gb/s EDR InfiniBand.
    "summit": _nccl("summit", 6, Link(_NVLINK, 50 * GB), Link(_NET, 2 * 12.5 * GB)),
    # Eight V100 with six NVLinks of 25 GB/s each; four 100 Gb/s InfiniBand adapters.
    "dgx1": _nccl("dgx1", 8, Link(_NVLINK, 6 * 25 * GB), Link(_NET, 4 * 12.5 * GB)),
    # Four GPUs on PCIe 3 x16 and one 25 Gb/s Ethernet adapter.
    "roce25": _nccl("roce25", 4, Link(_PCIE, 12 * GB), Link(_NET, 25 / 8 * GB)),
}


def preset(name: str) -> Network:
    """Return a network by name."""
    if name not in NETWORKS:
        raise ValueError(f"network {name!r} is not known; accepted: {', '.join(NETWORKS)}")
    return NETWORKS[name]


def loopback(latency: float, bandwidth: float, rank_bandwidth: float) -> Network:
    """Return the ranks of one machine, which reduce in a ring through memory that all of them share.

    ``bandwidth`` is what ranks have together, ``rank_bandwidth`` the most that one rank moves, whose core has to copy
    every byte. The numbers differ from machine to machine: `fit` finds them.
    """
    link = Link(latency, rank_bandwidth)
    return Network("loopback", 1 << 30, link, link, algorithm="ring", shared_bandwidth=bandwidth)


def over_links(latency: float, bandwidth: float, ranks_per_host: int) -> Network:
    """Return hosts around a switch, which reduce in a ring, each over a link of its own.

    Both numbers are a link's, as `links` measures them. Within a host nothing but the latency is counted.
    """
    return Network("links", ranks_per_host, Link(latency, math.inf), Link(latency, bandwidth), algorithm="ring")


def without_latency(network: Network) -> Network:
    """Return the network with bandwidth as its only cost."""
    intra, inter = (replace(link, latency=0.0) for link in (network.intra, network.inter))
    return replace(network, intra=intra, inter=inter, launch=0.0, chunk_bytes=0)


def without_bandwidth(network: Network) -> Network:
    """Return the network with latency as its only cost."""
    intra, inter = (replace(link, bandwidth=math.inf) for link in (network.intra, network.inter))
    shared = None if network.shared_bandwidth is None else math.inf
    return replace(network, intra=intra, inter=inter, shared_bandwidth=shared)
