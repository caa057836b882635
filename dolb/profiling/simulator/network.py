"""What an all-reduce costs: latency and bandwidth of links, and the algorithms and protocols that NCCL has for them.

A message of ``b`` bytes over a link takes ``latency + b / bandwidth``. Every cost here is a closed form: working it out
takes no longer for more ranks.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

MICROSECOND, GB, GBIT = 1e-6, 1e9, 1e9 / 8
ABOVE_ZERO = 1e-300  # the least that is


def require(what: str, value: float, least: float = 0.0, most: float = math.inf) -> None:
    """Raise a ``ValueError`` unless the value is a number between two limits; infinity is only where ``most`` is."""
    if not least <= value <= most:  # NaN is between none
        accepted = f"{least:g} to {most:g}" if least != ABOVE_ZERO else "more than 0"
        raise ValueError(f"{what} is {value}; accepted: {accepted}")


@dataclass(frozen=True)
class Link:
    """A link: seconds that any message takes, and bytes per second at its peak."""

    latency: float
    bandwidth: float

    def __post_init__(self) -> None:
        require("latency", self.latency, most=1e300)
        require("bandwidth", self.bandwidth, least=ABOVE_ZERO)


@dataclass(frozen=True)
class Protocol:
    """How a message goes over links: what shares of their latency it takes and of their bandwidth it gets."""

    latency: float
    bandwidth: float


SIMPLE = Protocol(1.0, 1.0)
# NCCL's protocol for small messages: a flag goes with every word, so nobody waits for a buffer to be whole, and twice
# the bytes are sent. A hop takes 0.25 of the simple one's time over NVLink, 0.32 over PCIe, 0.28 over a network.
LOW_LATENCY = Protocol(0.3, 0.5)


@dataclass(frozen=True)
class Network:
    """Nodes of a few ranks, links within and between them, how an all-reduce goes, and how ranks get in the way."""

    name: str
    ranks_per_node: int
    intra: Link
    inter: Link
    algorithm: str = "auto"  # ring, tree, or the faster of the two, as NCCL picks
    protocols: tuple[Protocol, ...] = (SIMPLE,)  # of which every message takes the fastest
    achieved: float = 1.0  # share of the links' peak bandwidth that an all-reduce gets
    launch: float = 0.0  # seconds that the kernel of every all-reduce takes whatever its size
    chunk_bytes: int = 0  # at most so much a tree passes on at a time; each level delays the first chunk
    # Bytes per second that the ranks of a node have together, as processes of one machine share its memory; None where
    # every rank has a link to itself.
    shared_bandwidth: float | None = None
    interference: float = 0.0  # share of its speed that computing loses while an all-reduce runs beside it
    contention: float = 0.0  # share by which a neighbour on its node slows a rank: they share host, memory and power
    # Standard deviation of a rank's compute time over ranks, as a share of its mean. Draws are logistic: bell-shaped
    # with tails heavier than normal, and with an expected maximum in closed form.
    jitter: float = 0.0

    def __post_init__(self) -> None:
        require("ranks_per_node", self.ranks_per_node, least=1)

    def shape(self, ranks: int) -> tuple[int, int]:
        """Return how many nodes the ranks fill, the last perhaps in part, and how many ranks a full one has."""
        return -(-ranks // self.ranks_per_node), min(ranks, self.ranks_per_node)

    def allreduce_seconds(self, ranks: int, size: float) -> float:
        """Return the seconds of one all-reduce of ``size`` bytes over ``ranks`` ranks."""
        if ranks == 1:
            return 0.0
        costs = ALGORITHMS[self.algorithm]
        return min(cost(self, ranks, size, protocol) for cost in costs for protocol in self.protocols)

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


def ring_seconds(network: Network, ranks: int, size: float, protocol: Protocol = SIMPLE) -> float:
    """Cost a ring through all ranks: it leaves every node once, so 2(nodes - 1) of its steps are between nodes."""
    nodes, _ = network.shape(ranks)
    between = ring_steps(nodes)
    hops = (ring_steps(ranks) - between) * network.intra.latency + between * network.inter.latency
    bandwidth = protocol.bandwidth * network.bandwidth(ranks)
    return protocol.latency * (network.launch + hops) + ring_bytes(ranks, size) / bandwidth


def tree_seconds(network: Network, ranks: int, size: float, protocol: Protocol = SIMPLE) -> float:
    """Cost a pipelined tree of nodes, a chain within each: up and down, every byte sent twice at full bandwidth."""
    nodes, local = network.shape(ranks)
    chunk = min(network.chunk_bytes, size) / protocol.bandwidth
    hops = (local - 1) * network.intra.latency + levels(nodes) * network.inter.latency
    first = (local - 1) * chunk / network.intra_bandwidth(ranks) + levels(nodes) * chunk / network.bandwidth(ranks)
    bandwidth = protocol.bandwidth * network.bandwidth(ranks)
    return protocol.latency * (network.launch + 2 * hops) + 2 * first + 2 * size / bandwidth


ALGORITHMS: dict[str, tuple[Callable[[Network, int, float, Protocol], float], ...]] = {
    "ring": (ring_seconds,),
    "tree": (tree_seconds,),
    "auto": (ring_seconds, tree_seconds),
}

# Machines

# Latencies are those by which NCCL picks its algorithms (src/graph/tuning.cc of 2.7, the "simple" protocol of the
# ring): 3.4 us over NVLink, 5.7 over PCIe, 9.6 over a network, 8.4 to start; chunks of 256 KiB in a tree.
NVLINK, PCIE, NET = 3.4 * MICROSECOND, 5.7 * MICROSECOND, 9.6 * MICROSECOND
_LAUNCH, _CHUNK = 8.4 * MICROSECOND, 256 * 1024
_FIRST_TREES = (2, 4)
# What no data sheet says, one value for all machines. What share of the peak NCCL gets is assumed; the others are
# fitted to a third of the published points; a test sees that no other value is nearer to these.
ASSUMED_ACHIEVED = 0.8
FITTED = {"interference": 0.068, "contention": 0.0068, "jitter": 0.0027}


def nccl(name: str, ranks_per_node: int, intra: Link, inter: Link, version: str = "2.7") -> Network:
    """Return GPUs that reduce through NCCL: before 2.4 in rings alone, since then also in trees."""
    algorithm = "auto" if tuple(map(int, version.split("."))) >= _FIRST_TREES else "ring"
    return Network(
        name, ranks_per_node, intra, inter, algorithm, (SIMPLE, LOW_LATENCY), ASSUMED_ACHIEVED, _LAUNCH, _CHUNK,
        **FITTED,
    )  # fmt: skip


NETWORKS: dict[str, Network] = {
    machine.name: machine
    for machine in (
        # Six V100 a node, pairs joined by NVLink at 50 GB/s, two rails of 100 Gb/s EDR InfiniBand.
        nccl("summit", 6, Link(NVLINK, 50 * GB), Link(NET, 2 * 100 * GBIT)),
        # Eight V100 with six NVLinks of 25 GB/s each; four 100 Gb/s InfiniBand adapters.
        nccl("dgx1", 8, Link(NVLINK, 6 * 25 * GB), Link(NET, 4 * 100 * GBIT), "2.4"),
        # Sixteen V100 on NVSwitch; eight 100 Gb/s InfiniBand adapters.
        nccl("dgx2", 16, Link(NVLINK, 6 * 25 * GB), Link(NET, 8 * 100 * GBIT)),
        # Eight A100 on NVSwitch with twelve NVLinks of 25 GB/s; eight 200 Gb/s InfiniBand adapters.
        nccl("dgxa100", 8, Link(NVLINK, 12 * 25 * GB), Link(NET, 8 * 200 * GBIT), "2.8"),
        # Four GPUs on PCIe 3 x16 and one 25 Gb/s Ethernet adapter, in 2017 and 2018.
        nccl("roce25", 4, Link(PCIE, 12 * GB), Link(NET, 25 * GBIT), "2.1"),
        # Facebook's Big Basin of 2017: eight P100 with four NVLinks of 20 GB/s; one 50 Gb/s Ethernet adapter.
        nccl("bigbasin", 8, Link(NVLINK, 4 * 20 * GB), Link(NET, 50 * GBIT), "2.0"),
        # Preferred Networks' MN-1 of 2017: eight P100 on PCIe, two 56 Gb/s FDR InfiniBand adapters.
        nccl("mn1", 8, Link(PCIE, 12 * GB), Link(NET, 2 * 56 * GBIT), "2.0"),
        # IBM's Minsky of 2017: four P100 with two NVLinks of 20 GB/s to each neighbour; 100 Gb/s EDR InfiniBand.
        nccl("minsky", 4, Link(NVLINK, 2 * 20 * GB), Link(NET, 100 * GBIT), "2.0"),
        # Tencent's cluster of 2018: eight P40 on PCIe, 100 Gb/s Ethernet.
        nccl("tencent", 8, Link(PCIE, 12 * GB), Link(NET, 100 * GBIT), "2.1"),
        # ABCI of 2018: four V100 with two NVLinks of 25 GB/s to each neighbour; two 100 Gb/s EDR InfiniBand adapters.
        nccl("abci", 4, Link(NVLINK, 2 * 25 * GB), Link(NET, 2 * 100 * GBIT), "2.3"),
    )
}


def preset(name: str) -> Network:
    """Return a machine by name."""
    if name not in NETWORKS:
        raise ValueError(f"network {name!r} is not known; accepted: {', '.join(NETWORKS)}")
    return NETWORKS[name]


def cluster(gpus: int, gbit: float, latency_us: float = NET / MICROSECOND, intra_gbyte: float = 150.0) -> Network:
    """Return nodes of so many GPUs, joined by Gbit/s a node, with NCCL of today; within a node by NVLink's GB/s."""
    between = Link(latency_us * MICROSECOND, gbit * GBIT)
    return nccl("cluster", gpus, Link(NVLINK, intra_gbyte * GB), between, "2.20")


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
