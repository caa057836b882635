"""What one measurement of data-parallel training, or of storage, is: a frozen record whose key names its result."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dolb import names
from dolb.config import Keyed

LIBRARIES = ("ddp", "horovod")
SCALINGS = ("weak", "strong")
DEVICES = ("cpu", "cuda")
PRECISIONS = ("fp32", "tf32", "bf16")  # of layer times
POWER_SGD = "powersgd-"  # with the rank of the two factors that are sent in a matrix's place
HOOKS = ("none", "fp16", f"{POWER_SGD}1", f"{POWER_SGD}2", f"{POWER_SGD}4")
BASELINE = "alone_images_per_second"  # in a row: what one rank did without a library, in the same launch
SYNTHETIC = "synthetic"  # random images in the shape of CIFAR-10's; any other name is one of `dolb.data`


@dataclass(frozen=True, kw_only=True)
class ScalingConfig(Keyed):
    """One measurement, complete: which network, under which library, on how many ranks, with which settings.

    ``bucket_mb`` is DDP's; at its default of 25 MiB the first bucket holds 1 MiB, at any other size all are alike, as
    torch has it. ``fusion_threshold_mb`` and ``cycle_time_ms`` are Horovod's, with the defaults of 0.21 and later.
    ``bn_workers`` is for one rank that stands for several: it takes batch-norm statistics over that many shares.
    ``alone_steps`` are those of one rank that trains without a library, as many before the ranks train as after: what
    efficiency is measured against. ``pinned`` holds each rank, with the threads of its library, to one core of its own.
    With more than one of ``hosts`` the ranks are dealt to that many network namespaces, whose links carry ``link_mbit``
    each way; one host is this machine, over its loopback interface. With more than one of ``nodes`` they are dealt to
    as many machines of a Slurm job. ``hook`` is one of torch's that send gradients smaller than they are, under DDP.
    With ``average_every`` above 1 ranks train by themselves and average their weights after so many updates (local
    SGD). After the last step they classify ``evaluated`` test examples together.
    """

    experiment: str = "adhoc"
    library: str = "ddp"
    ranks: int = 1
    scaling: str = "weak"
    arch: str = "smallnet-8"
    data: str = SYNTHETIC
    device_kind: str = "cpu"
    batch_size_per_rank: int = 32
    bn_workers: int = 1
    steps: int = 20
    warmup_steps: int = 5
    trace_steps: int = 0
    bucket_mb: float = 25.0
    fusion_threshold_mb: float = 128.0
    cycle_time_ms: float = 1.0
    lr: float = 0.01
    momentum: float = 0.9
    seed: int = 0
    repeat: int = 0
    hosts: int = 1
    link_mbit: float = math.inf
    alone_steps: int = 0
    pinned: bool = False
    nodes: int = 1
    hook: str = "none"
    average_every: int = 1
    evaluated: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.coerce()
        for name, value in self.as_dict().items():
            if isinstance(value, float) and math.isnan(value):
                raise ValueError(f"{name} must be a number, got {value}")
        names.require(self.arch)
        self.refuse_unknown(library=LIBRARIES, scaling=SCALINGS, device_kind=DEVICES, hook=HOOKS)
        self.refuse_below(1, "ranks", "batch_size_per_rank", "bn_workers", "steps", "hosts", "nodes", "average_every")
        self.refuse_below(
            0, "warmup_steps", "trace_steps", "fusion_threshold_mb", "momentum", "seed", "repeat", "alone_steps",
            "evaluated",
        )  # fmt: skip
        self.refuse_not_positive("bucket_mb", "cycle_time_ms", "lr", "link_mbit")
        self._refuse_hosts()
        self._refuse_savings()

    def _refuse_hosts(self) -> None:
        for what, count in (("hosts", self.hosts), ("nodes", self.nodes)):
            if self.ranks % count:
                raise ValueError(f"{self.ranks} ranks cannot be dealt equally to {count} {what}")
        if self.hosts > 1 and self.nodes > 1:
            raise ValueError(f"hosts {self.hosts} are of one machine; accepted with them: nodes 1, not {self.nodes}")
        if self.hosts > 1 and self.device_kind != "cpu":
            raise ValueError(f"hosts {self.hosts} need device_kind 'cpu': GPUs of one machine pass its network by")
        if self.hosts == 1 and math.isfinite(self.link_mbit):
            raise ValueError(f"link_mbit {self.link_mbit:g} needs at least 2 hosts; one has no link")

    def _refuse_savings(self) -> None:
        updates = self.warmup_steps + self.steps
        if self.evaluated and self.data == SYNTHETIC:
            raise ValueError(f"evaluated {self.evaluated} needs data with a test set, not {SYNTHETIC!r}")
        if self.library != "ddp" and (self.hook != "none" or self.average_every > 1):
            raise ValueError(f"hook {self.hook!r} and average_every {self.average_every} need library 'ddp'")
        if self.hook != "none" and self.average_every > 1:
            raise ValueError(f"hook {self.hook!r} compresses gradients, and with average_every none are sent")
        if updates % self.average_every:  # ranks must end with the same weights
            raise ValueError(f"average_every {self.average_every} does not divide {updates} updates, warmup counted")

    @property
    def launch(self) -> tuple:
        """What measurements must have in common to be made one after another by the same processes."""
        horovods = (self.fusion_threshold_mb, self.cycle_time_ms) if self.library == "horovod" else ()
        apart = self.key if self.trace_steps else ""  # traces have a folder of their own
        where = (self.device_kind, self.hosts, self.nodes, self.pinned)  # the rate of links can be changed in between
        return self.library, self.ranks, *where, *horovods, apart

    @property
    def alone_batch_size(self) -> int:
        """Batch of the one rank that this is compared with: under weak scaling a rank's, under strong the global."""
        return self.batch_size_per_rank if self.scaling == "weak" else self.batch_size

    @property
    def batch_size(self) -> int:
        """Global batch size: examples in one update."""
        return self.ranks * self.batch_size_per_rank


FORMATS = ("files", "flat", "lmdb", "hdf5", "webdataset", "zarr")
TASKS = ("reading", "decoding", "counting", "training")


@dataclass(frozen=True, kw_only=True)
class StorageConfig(Keyed):
    """One measurement of storage, complete: which images in which form, read how, by how many processes, for what.

    ``task`` is ``reading`` the bytes of ``sample`` of the ``images``, ``decoding`` them too, ``counting`` what the
    system does meanwhile, or ``training`` on them for some steps, to which ``arch``, ``image_size``, ``batch_size``,
    ``steps`` and ``warmup_steps`` belong. ``seed`` draws the order, or where reading in order begins.
    """

    experiment: str = "adhoc"
    task: str = "reading"
    data: str = "imagenet-like"
    images: int = 50_000
    storage: str = "flat"
    access: str = "random"
    cache: str = "cold"
    loader_workers: int = 1
    sample: int = 1024
    arch: str = "smallnet-8"
    image_size: int = 64
    batch_size: int = 32
    steps: int = 24
    warmup_steps: int = 4
    device_kind: str = "cpu"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        names.require(self.arch)
        self.refuse_unknown(
            task=TASKS, storage=FORMATS, access=("random", "sequential"), cache=("cold", "warm"), device_kind=DEVICES
        )
        self.refuse_below(1, "images", "loader_workers", "sample", "image_size", "batch_size", "steps", "warmup_steps")


def weak(ranks: Sequence[int], batch_size_per_rank: int, **same: Any) -> list[ScalingConfig]:
    """Return a config for each number of ranks, where every rank keeps its batch and the global batch grows."""
    return [ScalingConfig(scaling="weak", ranks=n, batch_size_per_rank=batch_size_per_rank, **same) for n in ranks]


def strong(ranks: Sequence[int], batch_size: int, **same: Any) -> list[ScalingConfig]:
    """Return a config for each number of ranks, where the global batch stays and every rank's share shrinks."""
    for n in ranks:
        if batch_size % n:
            raise ValueError(f"a global batch of {batch_size} cannot be shared equally by {n} ranks")
    return [ScalingConfig(scaling="strong", ranks=n, batch_size_per_rank=batch_size // n, **same) for n in ranks]


@dataclass(frozen=True, kw_only=True)
class LayerConfig(Keyed):
    """The time of a pass and an update on one node: a whole network layer by layer, or one product of it alone.

    ``product`` names a fully connected layer whose product with ``batch_size`` inputs is timed; empty times a forward
    and a backward pass and an update of the network. Images are random, in the shape of ``data``'s. With several
    ``ranks`` it is a simulated step on as many nodes, which share the batch and reduce over links of ``link_mbit``.
    """

    experiment: str = "adhoc"
    data: str = SYNTHETIC
    arch: str = "alexnet"
    product: str = ""
    batch_size: int = 1
    ranks: int = 1
    scaling: str = "strong"
    link_mbit: float = math.inf
    device_kind: str = "cpu"
    precision: str = "fp32"
    passes: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_unknown(scaling=SCALINGS, device_kind=DEVICES, precision=PRECISIONS)
        self.refuse_below(1, "batch_size", "ranks", "passes")
        if self.device_kind == "cpu" and self.precision != "fp32":
            raise ValueError(f"precision {self.precision!r} needs device_kind 'cuda'; accepted on a CPU: fp32")

    @property
    def batch_size_per_rank(self) -> int:
        """Images of one node."""
        return self.batch_size // self.ranks
