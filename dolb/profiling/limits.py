"""What bounds training on many nodes: the time of layers by local batch, skinny products, and links between nodes.

With free communication a node that has fewer images needs only the time of its own pass and update, so one node with a
smaller batch stands for it. What communication adds is simulated, from the measured layers of that batch.

On a CPU one core computes, and its own clock is read: what others do on the machine meanwhile does not count.
"""

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import nn
from torch.nn import functional as F

from dolb import data, results
from dolb.profiling.config import SYNTHETIC, LayerConfig
from dolb.profiling.layers import arithmetic, time_tensors
from dolb.profiling.ranks import cores
from dolb.profiling.simulator import network, tensors
from dolb.profiling.simulator.libraries import DDP
from dolb.profiling.simulator.step import SOURCE, Scenario, simulate
from dolb.results.fill import Todo, fill

GBITS = (1.0, 10.0, 56.0, 100.0)  # Ethernet of three generations, and the study's InfiniBand FDR
LEAST_SHARED = 16  # images of a batch that is shared out in simulation
# On the H200 layers of these were timed with 32 images; so many of them train together, each on a node of its own.
WEAK_GPU, WEAK_BATCH, WEAK_NODES = "H200", 32, 16
WEAK_ARCHS = ("resnet18", "resnet50", "resnet152", "vgg11")
MOMENTUM = 0.9
SHORT = 32  # images; with more, a pass of a CPU takes so long that its start does not count
PRODUCT_BYTES, MOST_COPIES = 2**29, 128  # a product takes its weights from memory, never from a cache
_EVENT = ("rank", "lane", "name", "start_us", "end_us", "bytes")


def measure_all(
    configs: Sequence[LayerConfig],
    *,
    store: str | Path | None = None,
    time_limit: float | None = None,
    progress: bool = True,
) -> xr.Dataset:
    """Return the measurements of ``configs`` as one Dataset, making those that the store lacks, as in `fill`."""

    def make(todo: Todo[LayerConfig]) -> Iterator[xr.Dataset]:
        for config in todo.claim():
            yield measure(config)

    how: dict[str, Any] = {"what": "measurements", "unit": "measurement", "foresee": True}
    return fill(configs, make, store=store, time_limit=time_limit, progress=progress, **how)


def measure(config: LayerConfig) -> xr.Dataset:
    """Measure a network or a product, and return its row with the times of its layers as events."""
    device = torch.device(config.device_kind)
    classes, shape = _shape(config.data)
    with torch.random.fork_rng(devices=[]), arithmetic(config.precision), _one_core():
        torch.manual_seed(config.seed)
        if config.product:
            values, events = _product(config, classes, shape, device)
        else:
            values, events = _network(config, classes, shape, device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"one core of {cores.processor()}"
    return to_dataset(config, values, events, name)


def to_dataset(config: LayerConfig, values: Mapping[str, Any], events: Sequence[tuple], device: str) -> xr.Dataset:
    """Make the row of one measurement; ``values`` are by names of the schema, events tuples in the order of theirs."""
    about = results.provenance(
        torch_version=str(torch.__version__), device=device, engine="eager", data_fingerprint="none: random images"
    )
    speed = config.batch_size / values["step_seconds"]
    row = _rows([_columns(config, {**values, "images_per_second": speed, **about})])
    columns = zip(_EVENT, zip(*events, strict=True), strict=True)
    return results.validate(results.describe(row.assign({name: ("event", np.array(one)) for name, one in columns})))


@contextlib.contextmanager
def _one_core() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _shape(name: str) -> tuple[int, tuple[int, int, int]]:
    """Return the classes of a data set, and channels, height and width of its images."""
    if name == SYNTHETIC:
        return tensors.NUM_CLASSES, (3, tensors.IMAGE_SIZE, tensors.IMAGE_SIZE)
    found = data.load(name, progress=False)
    return found.num_classes, (found.channels, *found.image_size)


def _network(config: LayerConfig, classes: int, shape: tuple[int, ...], device: torch.device) -> tuple[dict, list]:
    """Time passes layer by layer, and then updates, which take as long whatever the batch."""
    layout = torch.contiguous_format if config.precision == "fp32" else torch.channels_last
    net = tensors.build(config.arch, classes, shape[0]).train().to(device, memory_format=layout)  # type: ignore[call-overload]
    images = torch.randn(config.batch_size, *shape).to(device, memory_format=layout)
    labels = torch.randint(classes, (config.batch_size,)).to(device)
    warmup = 3 if device.type == "cuda" else 1 if config.batch_size <= SHORT else 0
    how: dict[str, Any] = {"half": config.precision == "bf16", "passes": config.passes, "warmup": warmup}
    timing = time_tensors(net, images, labels, **how, clock=time.process_time)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=MOMENTUM)
    update = _seconds(optimizer.step, device, repeats=config.passes + 1)
    step = timing.tensors
    values = {
        "step_seconds": timing.pass_seconds + update,
        "pass_seconds": timing.pass_seconds,
        "marked_pass_seconds": timing.marked_pass_seconds,
        "parameters": int(step.bytes.sum()) // 4,
    }
    done = [("forward", name, 0) for name in step.names]
    done += [("backward", name, size) for name, size in zip(step.names[::-1], step.bytes[::-1].tolist(), strict=True)]
    ends = 1e6 * np.concatenate([[0.0], np.cumsum(step.forward_seconds), step.ready_seconds()])
    follow = zip(done, pairwise(ends.tolist()), strict=True)  # one begins where the one before ends
    events = [(0, lane, name, start, end, size) for (lane, name, size), (start, end) in follow]
    end = 1e6 * timing.pass_seconds
    return values, [*events, (0, "update", "update", end, end + 1e6 * update, 0)]


def _product(config: LayerConfig, classes: int, shape: tuple[int, ...], device: torch.device) -> tuple[dict, list]:
    """Time the product of a fully connected layer, one copy of its weights after another, so that none is cached."""
    with torch.device("meta"):
        layer = tensors.build(config.arch, classes, shape[0]).get_submodule(config.product)
    if not isinstance(layer, nn.Linear):
        raise ValueError(f"{config.product!r} of {config.arch} is {type(layer).__name__}; accepted: a Linear layer")
    inputs, outputs, size = layer.in_features, layer.out_features, config.batch_size
    weight = torch.randn(outputs, inputs)
    copies = [weight.clone().to(device) for _ in range(min(math.ceil(PRODUCT_BYTES / weight.nbytes), MOST_COPIES))]
    given = torch.randn(size, inputs, device=device)

    def every() -> None:
        for one in copies:
            F.linear(given, one)

    seconds = _seconds(every, device, repeats=config.passes) / len(copies)
    flops, bandwidth = peaks(device)
    values = {
        "step_seconds": seconds,
        "parameters": inputs * outputs,
        "step_flops": 2.0 * size * inputs * outputs,
        "step_bytes": 4.0 * (inputs * outputs + size * (inputs + outputs)),
        "peak_flops": flops,
        "peak_bandwidth": bandwidth,
    }
    return values, [(0, "forward", config.product, 0.0, 1e6 * seconds, weight.nbytes)]


@lru_cache(maxsize=2)
def peaks(device: torch.device) -> tuple[float, float]:
    """Measure the fastest square product in fp32, in FLOP/s, and the fastest copy, in bytes/s, both ways counted."""
    side, size = (8192, 2**31) if device.type == "cuda" else (2048, 2**28)
    left, right, product = (torch.randn(side, side, device=device) for _ in range(3))
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    flops = 2.0 * side**3 / _seconds(lambda: torch.mm(left, right, out=product), device, 5, min)
    return flops, 2.0 * size / _seconds(lambda: target.copy_(source), device, 5, min)


def _seconds(
    work: Callable[[], Any],
    device: torch.device,
    repeats: int,
    of: Callable[[list[float]], float] = statistics.median,
) -> float:
    """Return the seconds of one of some repetitions, after one that does not count."""
    taken, clock = [], time.perf_counter if device.type == "cuda" else time.process_time
    for _ in range(1 + repeats):
        start = clock()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(clock() - start)
    return of(taken[1:])


def _columns(config: LayerConfig, values: Mapping[str, Any]) -> dict[str, Any]:
    own = {"batch_size_per_rank": config.batch_size_per_rank, "key": config.key}
    return {**config.as_dict(), **own, **values}


def _rows(rows: Sequence[Mapping[str, Any]]) -> xr.Dataset:
    columns = {name: ("run", np.array([row[name] for row in rows])) for name in rows[0]}
    return results.describe(xr.Dataset(columns).set_coords([*LayerConfig().as_dict(), "batch_size_per_rank", "key"]))


# Simulated


def with_simulated(ds: xr.Dataset) -> xr.Dataset:
    """Return the measured rows with, beside them, the steps that links of several rates would make of them.

    Every batch from `LEAST_SHARED` images on is shared out to nodes of one device each, down to an image a node. Beside
    them stand networks whose layers were timed on an H200, with the same batch on each of several nodes.
    """
    measured = [one for one in results.split(ds) if str(one["source"].item()) != SOURCE]
    whole = [one for one in measured if not str(one["product"].item())]
    timed = {_setting(one): one for one in whole}
    rows = []
    for setting, one in timed.items():
        *same, batch = setting
        shared = [(n, other) for n in _halvings(batch) if (other := timed.get((*same, batch // n))) is not None]
        if batch >= LEAST_SHARED:
            rows += [_shared(one, from_events(other), n, gbit) for gbit in GBITS for n, other in shared if n > 1]
    rows += [_weak(arch, gbit) for gbit in GBITS for arch in WEAK_ARCHS]
    return results.merge([*measured, _rows(rows)])


def _setting(one: xr.Dataset) -> tuple:
    return tuple(one[name].item() for name in ("device", "data", "arch", "precision", "seed", "batch_size"))


def _halvings(batch: int) -> list[int]:
    return [2**power for power in range(int(math.log2(batch)) + 1) if batch % 2**power == 0]


def from_events(one: xr.Dataset) -> tensors.Tensors:
    """Read the tensors of a measured network, with the times of their layers and of the update."""
    lane, names = one["lane"].to_numpy(), one["name"].to_numpy()
    seconds = (one["end_us"] - one["start_us"]).to_numpy() / 1e6
    ahead, back = np.flatnonzero(lane == "forward"), np.flatnonzero(lane == "backward")[::-1]
    update = float(seconds[lane == "update"].sum())
    return tensors.Tensors(
        tuple(map(str, names[ahead])), one["bytes"].to_numpy()[back], seconds[ahead], seconds[back], update
    )


def _shared(one: xr.Dataset, step: tensors.Tensors, nodes: int, gbit: float) -> dict[str, Any]:
    """Return the row of a batch that so many nodes share, from the tensors of a share and the row of the whole."""
    known = {name: one[name].item() for name in LayerConfig().as_dict()}
    config = LayerConfig.from_dict({**known, "ranks": nodes, "link_mbit": 1000 * gbit})
    about = {name: one[name].item() for name in ("device", "torch_version")}
    return _simulated(config, step, gbit, float(one["step_seconds"].item()) / nodes, **about)


def _weak(arch: str, gbit: float) -> dict[str, Any]:
    """Return the row of a network on several H200, from layers that were timed on one."""
    same: dict[str, Any] = {"experiment": "limits", "scaling": "weak", "device_kind": "cuda"}
    batch = WEAK_BATCH * WEAK_NODES
    config = LayerConfig(arch=arch, batch_size=batch, ranks=WEAK_NODES, link_mbit=1000 * gbit, **same)
    step = tensors.on_gpu(arch, WEAK_BATCH, WEAK_GPU)
    about = {"device": f"NVIDIA {WEAK_GPU}", "torch_version": str(torch.__version__)}
    return _simulated(config, step, gbit, step.step_seconds, **about)


def _simulated(config: LayerConfig, step: tensors.Tensors, gbit: float, ideal: float, **about: Any) -> dict[str, Any]:
    """Return a simulated row; ``ideal`` is what the step would take if nothing were lost by sharing."""
    found = simulate(Scenario(step, network.cluster(1, gbit), DDP(), config.batch_size_per_rank), config.ranks)
    values = {
        "step_seconds": found.step_seconds,
        "communication_seconds": found.communication_seconds,
        "efficiency": ideal / found.step_seconds,
        "images_per_second": config.batch_size / found.step_seconds,
        "parameters": int(step.bytes.sum()) // 4,
        **results.provenance(engine=SOURCE, data_fingerprint="none: random images", **about),
        "source": SOURCE,
        "world_size": config.ranks,
    }
    return _columns(config, values)
