"""One rank of data-parallel training, under torchrun (DDP) or horovodrun (Horovod): the same network, data and steps.

    python -m dolb.profiling.ranks.rank FOLDER           started by torchrun or horovodrun, for each rank

The folder holds ``configs.json``, the measurements to make one after another. Each rank leaves there ``rank-K-N.json``
for the N-th, with the seconds of every step and a hash of its weights, and where steps are traced ``torch-K.json`` and,
by Horovod's coordinator alone, ``horovod-0.json``.

What efficiency is measured against is made in the same launch: rank 0 trains by itself, without a library, before the
library is started and after it has ended, while the other ranks wait and when they are gone.

At every step the ranks take consecutive shares of one global batch, so one rank with the global batch does the same
update but for rounding; each rank takes batch-norm statistics over its own share, and so must that one
(``bn_workers``). DDP sends no buffers (``broadcast_buffers=False``), as Horovod sends none: both move gradients alone.
"""

import contextlib
import copy
import gc
import hashlib
import itertools
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from dolb import data, models
from dolb.augment import DeviceImages, draw_epoch
from dolb.profiling.config import POWER_SGD, SYNTHETIC, ScalingConfig
from dolb.profiling.ranks import cores
from dolb.profiling.ranks.links import INTERFACE
from dolb.profiling.ranks.supervise import rank, write_whole

MIB = 2**20
CIFAR10_SHAPE, SYNTHETIC_IMAGES, SYNTHETIC_CLASSES = (32, 32, 3), 1024, 10
TORCH_DEFAULT_BUCKET_MB = 25.0
_TASKS = Path("/proc/self/task")
ALONE_WARMUP_STEPS = 1
EVALUATED_AT_ONCE = 256
SETTLING_BARRIERS = 5  # after traced steps: meanwhile each thread of a library ends what it records
POLL_SECONDS = 0.02
READY, EXIT, ALONE = "rank-{}.ready", "rank-{}.exit", "alone-{}.json"  # the second is the keeper's
GO = "go-{}"  # from outside: the links have the rate of that measurement


class _Ddp:
    """torch's DistributedDataParallel, over NCCL on GPUs and Gloo otherwise."""

    def __init__(self, config: ScalingConfig, device: torch.device):
        self.device = device
        torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")

    def distribute(
        self, config: ScalingConfig, network: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, Any]:
        """Wrap the network; given no size of its own, DDP makes its first bucket a small one.

        Every rank has made the same weights, so DDP need not send them, as Horovod does not. Ranks that average their
        weights now and then reduce no gradients.
        """
        if config.average_every > 1:
            return network, _local_sgd(optimizer, config.average_every)
        size = None if config.bucket_mb == TORCH_DEFAULT_BUCKET_MB else config.bucket_mb
        wrapped = nn.parallel.DistributedDataParallel(
            network,
            device_ids=[self.device.index] if self.device.type == "cuda" else None,
            bucket_cap_mb=size,
            broadcast_buffers=False,
            init_sync=False,
        )
        if config.hook != "none":
            wrapped.register_comm_hook(*_comm_hook(config.hook))
        return wrapped, optimizer

    def barrier(self) -> None:
        torch.distributed.barrier()

    def timeline(self, path: Path) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext()  # torch's profiler sees DDP's communication

    def stop(self) -> None:
        torch.distributed.destroy_process_group()


def _comm_hook(name: str) -> tuple[Any, Callable]:
    """Return the state and the function of one of torch's hooks; PowerSGD's begins at the first step that it can."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    if name == "fp16":
        return None, default_hooks.fp16_compress_hook
    rank_of_factors = int(name.removeprefix(POWER_SGD))
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=rank_of_factors, start_powerSGD_iter=2)
    return state, powerSGD_hook.powerSGD_hook


def _local_sgd(optimizer: torch.optim.Optimizer, every: int) -> Any:
    """Return an optimizer whose ranks train by themselves and average their weights after every so many updates."""
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    return PostLocalSGDOptimizer(optimizer, PeriodicModelAverager(every, warmup_steps=every - 1))


class _Horovod:
    """Horovod, whose background thread negotiates and reduces; its settings are environment variables."""

    def __init__(self, config: ScalingConfig, device: torch.device):
        import horovod.torch as hvd

        os.environ["HOROVOD_FUSION_THRESHOLD"] = str(round(config.fusion_threshold_mb * MIB))
        os.environ["HOROVOD_CYCLE_TIME"] = str(config.cycle_time_ms)
        if config.trace_steps:
            os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"  # says that one may be started later
        self.hvd = hvd
        hvd.init()
        if config.trace_steps and hvd.rank() == 0:
            _yield_timeline_thread()

    def distribute(
        self, config: ScalingConfig, network: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, Any]:
        """Wrap the optimizer; Horovod remembers tensors by name, so those of another measurement have others."""
        named = [(f"{config.key}.{name}", parameter) for name, parameter in network.named_parameters()]
        return network, self.hvd.DistributedOptimizer(optimizer, named_parameters=named)

    def barrier(self) -> None:
        self.hvd.barrier()

    @contextlib.contextmanager
    def timeline(self, path: Path) -> Iterator[None]:
        """Write a Horovod timeline, which the coordinator, rank 0, does for all."""
        self.hvd.start_timeline(str(path), mark_cycles=True)
        self.barrier()
        try:
            yield
            self.barrier()
        finally:
            self.hvd.stop_timeline()

    def stop(self) -> None:
        self.hvd.shutdown()


def _yield_timeline_thread() -> None:
    """Leave the thread that writes Horovod's timeline what time others spare: it never sleeps and would take a core."""

    def nanoseconds() -> dict[int, int]:
        return {int(task.name): int((task / "schedstat").read_text().split()[0]) for task in _TASKS.iterdir()}

    before = nanoseconds()
    time.sleep(0.2)  # training has not begun: nothing else is busy
    used = {task: spent - before.get(task, 0) for task, spent in nanoseconds().items() if task != os.getpid()}
    os.setpriority(os.PRIO_PROCESS, max(used, key=lambda task: used[task]), 19)


Library = _Ddp | _Horovod


def load_images(config: ScalingConfig, device: torch.device) -> tuple[DeviceImages, int, str]:
    """Return the images to train on, the number of their classes, and their fingerprint."""
    if config.data != SYNTHETIC:
        found = data.load(config.data, progress=False)
        images = DeviceImages(found.train_images, found.train_labels, found.mean, found.std, device, pad=0)
        return images, found.num_classes, found.fingerprint
    rng = np.random.Generator(np.random.PCG64(config.seed))
    pixels = rng.integers(0, 256, size=(max(SYNTHETIC_IMAGES, config.batch_size), *CIFAR10_SHAPE), dtype=np.uint8)
    labels = rng.integers(0, SYNTHETIC_CLASSES, size=len(pixels))
    digest = hashlib.sha256(pixels.tobytes() + labels.astype("<i8").tobytes()).hexdigest()
    return DeviceImages(pixels, labels, [0.5] * 3, [0.25] * 3, device, pad=0), SYNTHETIC_CLASSES, f"sha256:{digest}"


def shares(config: ScalingConfig, images: DeviceImages, me: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield this rank's share of one global batch after another, the same examples under either library."""
    if len(images) < config.batch_size:
        raise ValueError(f"a global batch of {config.batch_size} needs as many images; {config.data} has {len(images)}")
    start = me * config.batch_size_per_rank
    for epoch in itertools.count():
        order = torch.from_numpy(draw_epoch(len(images), config.seed, epoch, "none", pad=0).order).to(images.device)
        for first in range(0, len(order) - config.batch_size + 1, config.batch_size):
            index = order[first + start : first + start + config.batch_size_per_rank]
            still = torch.zeros_like(index)
            yield images.batch(index, still, still, still.bool()), images.labels[index]


_initialize = cache(models.initialize)  # what every measurement of a network copies; VGG-11's weights take seconds


def _begin(config: ScalingConfig, device: torch.device) -> tuple[DeviceImages, str, nn.Module, torch.optim.Optimizer]:
    """Return images and their fingerprint, and a network as it is before any step with its optimizer."""
    images, num_classes, fingerprint = load_images(config, device)
    initial = _initialize(config.arch, num_classes, images.channels, config.bn_workers, config.seed)
    network = copy.deepcopy(initial).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=config.lr, momentum=config.momentum)
    return images, fingerprint, network, optimizer


def run(configs: Sequence[ScalingConfig], folder: Path, me: int) -> None:
    """Do one rank's share of measurements that one launch can make, one after another, and write each down."""
    torch.set_num_threads(1)  # one core to a rank
    if configs[0].nodes > 1 and configs[0].pinned:  # its keeper is on another machine
        os.sched_setaffinity(0, {cores.hardware_threads()[int(os.environ["LOCAL_RANK"])]})
    device = _own_gpu() if configs[0].device_kind == "cuda" else torch.device("cpu")
    compared = list({alone_name(config): config for config in configs if config.alone_steps}.values())
    others = [rank for rank in range(configs[0].ranks) if rank]
    if compared:
        write_whole(folder / READY.format(me), "")
        if me == 0:
            _wait_for(folder, [READY.format(rank) for rank in others])  # nobody else is still starting
            _train_alone(compared, device, folder / ALONE.format("before"))
        else:
            _wait_for(folder, [ALONE.format("before")])
    library = (_Ddp if configs[0].library == "ddp" else _Horovod)(configs[0], device)
    for number, config in enumerate(configs):
        if config.hosts > 1:
            _wait_for(folder, [GO.format(number)])
        found = train(config, library, device, folder, me)
        write_whole(folder / f"rank-{me}-{number}.json", json.dumps(found))
        gc.collect()
    library.barrier()
    library.stop()
    if compared and me == 0:
        _wait_for(folder, [EXIT.format(rank) for rank in others])
        _train_alone(compared, device, folder / ALONE.format("after"))


def _own_gpu() -> torch.device:
    """Return this rank's GPU, which is a shared one where ranks outnumber GPUs.

    NCCL refuses a host's second rank on one GPU; to it, such ranks are on another host and meet over the network.
    """
    share, index = divmod(
        int(os.environ.get("LOCAL_RANK") or os.environ["HOROVOD_LOCAL_RANK"]), torch.cuda.device_count()
    )
    if share:
        os.environ["NCCL_HOSTID"] = f"share {share} of a host's GPUs"
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def _wait_for(folder: Path, names: Sequence[str]) -> None:
    """Return once these files are there; who waits for a rank that died is ended from outside."""
    while not all((folder / name).exists() for name in names):
        time.sleep(POLL_SECONDS)


def _train_alone(configs: Sequence[ScalingConfig], device: torch.device, path: Path) -> None:
    """Train as one rank without a library, and write down the images per second of each network and batch size."""
    found: dict[str, float] = {}
    for config in configs:
        one = replace(
            config, ranks=1, hosts=1, nodes=1, link_mbit=math.inf, batch_size_per_rank=config.alone_batch_size
        )
        images, _, network, optimizer = _begin(one, device)
        step = _step(one.arch, network, optimizer, shares(one, images, 0), device)
        seconds = _timed(step, ALONE_WARMUP_STEPS, one.alone_steps)
        found[alone_name(config)] = one.batch_size * one.alone_steps / sum(seconds)
    write_whole(path, json.dumps(found))


def alone_name(config: ScalingConfig) -> str:
    """Name what a measurement is compared with; measurements of one launch may share it."""
    return f"{config.arch} {config.data} {config.alone_batch_size}"


def _step(
    arch: str,
    network: nn.Module,
    optimizer: Any,
    batches: Iterator[tuple[torch.Tensor, torch.Tensor]],
    device: torch.device,
) -> Callable[[], float]:
    """Return what does one update and tells its seconds, with a library or without."""

    def step() -> float:
        start = time.perf_counter()
        pixels, labels = next(batches)
        optimizer.zero_grad()
        models.objective(arch, network(pixels), pixels, labels).backward()
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - start

    return step


def _timed(step: Callable[[], float], warmup: int, steps: int, meet: Callable[[], None] = lambda: None) -> list[float]:
    """Return the seconds of steps, after some that do not count; ``meet`` is called in between."""
    for _ in range(warmup):
        step()
    gc.collect()
    gc.disable()
    meet()
    seconds = [step() for _ in range(steps)]
    gc.enable()
    return seconds


def train(config: ScalingConfig, library: Library, device: torch.device, folder: Path, me: int) -> dict[str, Any]:
    """Train one rank's share of the steps and return what was measured."""
    images, fingerprint, plain, optimizer = _begin(config, device)
    torch.manual_seed(config.seed)
    network, optimizer = library.distribute(config, plain, optimizer)
    step = _step(config.arch, network, optimizer, shares(config, images, me), device)
    begun: list[int] = []

    def meet() -> None:
        library.barrier()
        begun.append(_sent_bytes())

    seconds = _timed(step, config.warmup_steps, config.steps, meet)
    sent = _sent_bytes() - begun[0]
    if config.trace_steps:
        _trace(config, library, step, folder, me)
    weights = [parameter.detach().cpu().numpy() for parameter in plain.parameters()]
    if os.environ.get("DOLB_KEEP_WEIGHTS"):
        np.save(folder / f"weights-{me}.npy", np.concatenate([one.ravel() for one in weights]))
    correct = _correct(config, plain, device, me) if config.evaluated else 0
    library.barrier()
    return {
        "step_seconds": seconds,
        "sent_bytes": sent,
        "correct": correct,
        "weights": hashlib.sha256(b"".join(one.tobytes() for one in weights)).hexdigest(),
        "parameters": sum(one.size for one in weights),
        "data_fingerprint": fingerprint,
        "device": _gpu_name(device, config.ranks // config.nodes) if device.type == "cuda" else "",
        "threads": len(os.sched_getaffinity(0)),
        "node": os.environ.get("SLURMD_NODENAME", ""),
    }


def _sent_bytes() -> int:
    """Return what the interface of this host has sent so far; 0 where there is no link."""
    lines = [line.split(":") for line in Path("/proc/net/dev").read_text().splitlines() if ":" in line]
    return next((int(counts.split()[8]) for name, counts in lines if name.strip() == INTERFACE), 0)


@torch.no_grad()
def _correct(config: ScalingConfig, network: nn.Module, device: torch.device, me: int) -> int:
    """Return how many of this rank's share of test examples the network classifies correctly."""
    found = data.load(config.data, progress=False)
    mine = slice(me, config.evaluated, config.ranks)
    test = DeviceImages(found.test_images[mine], found.test_labels[mine], found.mean, found.std, device, pad=0)
    network.eval()
    starts = range(0, len(test), EVALUATED_AT_ONCE)
    scores = torch.cat([network(test.centre(start, start + EVALUATED_AT_ONCE)) for start in starts])
    return int((scores.argmax(1) == test.labels).sum())


def _gpu_name(gpu: torch.device, ranks: int) -> str:
    name, each = torch.cuda.get_device_name(gpu), math.ceil(ranks / torch.cuda.device_count())
    return name if each == 1 else f"{name}, up to {each} ranks on one"


def _trace(config: ScalingConfig, library: Library, step: Callable[[], float], folder: Path, me: int) -> None:
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if config.device_kind == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)

    # Shapes tell how many bytes a collective moves; Gloo's threads are seen only where all threads are.
    all_threads = torch.profiler._ExperimentalConfig(profile_all_threads=True)
    profiler = torch.profiler.profile(
        activities=kinds, record_shapes=True, acc_events=True, experimental_config=all_threads
    )
    with library.timeline(folder / "horovod-0.json"), profiler:
        library.barrier()
        for number in range(config.trace_steps):
            with torch.profiler.record_function(f"step {number}"):
                step()
        for _ in range(SETTLING_BARRIERS):
            library.barrier()
    profiler.export_chrome_trace(str(folder / f"torch-{me}.json"))


if __name__ == "__main__":
    place = Path(sys.argv[1])
    run([ScalingConfig.from_dict(one) for one in json.loads((place / "configs.json").read_text())], place, rank())
