"""Time a forward and a backward pass, tensor by tensor: when, on one GPU, each gradient is ready to be reduced.

    python benchmarks/layer_times.py --arch resnet18 resnet50 vgg11 --batch 32 --image-size 224 32

Passes are of plain PyTorch, without an optimizer, over random images: those of 224 pixels have the classes of ImageNet,
those of 32 the classes of CIFAR-10. The simulator of data-parallel training reads these times. Results are added to the
file of published layer times, in place of earlier ones of the same device, network and setting.

Moments are marked while passes run: on a GPU as events in its stream, for which nobody waits before the last pass. So a
GPU is timed as in training: at its own speed, or at the host's where the host takes longer to start the work. The time
of a module is from its start to the start of the next one with parameters, so that activations and pooling count with
the module before them, and the loss with the last. A gradient is ready when autograd has accumulated it. Marks take
time of their own, so all times are scaled to what passes without them take, half of which run before the marked ones
and half after.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from torch import nn

from dolb import models, results
from dolb.profiling.simulator.tensors import Tensors, one_measurement, parameters
from dolb.training.device import DeviceError, resolve_device

PUBLISHED = Path(__file__).resolve().parents[1] / "results" / "layer-times.nc"
ARCHS = ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "vgg11"]
PRECISIONS = ("fp32", "tf32", "bf16")
CLASSES = {224: 1000, 32: 10}  # of the data whose images have so many pixels: ImageNet, CIFAR-10
_FORWARD, _BACKWARD = "end of the forward pass", "end of the backward pass"  # no name of a module has spaces
_SAME = ("device", "arch", "image_size", "num_classes", "batch_size_per_rank", "precision")


@dataclass(frozen=True, eq=False)
class Timing:
    """The tensors of a network with their times, and the passes that they were taken from, in seconds."""

    tensors: Tensors
    ready_spread: np.ndarray  # by tensor, the range of the middle half of passes
    pass_seconds: float  # median of passes without marks; what the times of the tensors add up to
    pass_spread: float
    marked_pass_seconds: float


def measure(
    arch: str,
    *,
    batch_per_rank: int = 32,
    image_size: int = 224,
    num_classes: int | None = None,
    precision: str = "fp32",
    device: torch.device | str = "cuda",
    passes: int = 20,
    warmup: int = 5,
) -> xr.Dataset:
    """Measure a network on random images, and return the Dataset of one measurement.

    ``num_classes`` follows from the size of an image for those in ``CLASSES``. In ``fp32`` nothing is rounded to TF32.
    """
    device = torch.device(device)
    if precision not in PRECISIONS:
        raise ValueError(f"precision {precision!r} is not known; accepted: {', '.join(PRECISIONS)}")
    if device.type != "cuda" and precision != "fp32":
        raise ValueError(f"precision {precision!r} needs a CUDA device; accepted on {str(device)!r}: fp32")
    for name, value in {"batch_per_rank": batch_per_rank, "passes": passes, "warmup": warmup}.items():
        if value < 1:
            raise ValueError(f"{name} is {value}; numbers from 1 are accepted")
    classes = CLASSES.get(image_size) if num_classes is None else num_classes
    if classes is None:
        raise ValueError(f"images of {image_size} pixels need num_classes; it is known for those of {list(CLASSES)}")
    layout = torch.contiguous_format if precision == "fp32" else torch.channels_last  # which tensor cores want
    network = models.initialize(arch, classes, 3, 1, seed=0).to(device, memory_format=layout)  # type: ignore[call-overload]
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(batch_per_rank, 3, image_size, image_size, generator=generator)
    labels = torch.randint(classes, (batch_per_rank,), generator=generator)
    with arithmetic(precision):
        timing = time_tensors(
            network.train(),
            images.to(device, memory_format=layout),
            labels.to(device),
            half=precision == "bf16",
            passes=passes,
            warmup=warmup,
        )
    about = {
        "arch": arch,
        "batch_size_per_rank": batch_per_rank,
        "image_size": image_size,
        "num_classes": classes,
        "precision": precision,
        "images_per_second": batch_per_rank / timing.pass_seconds,
        "passes": passes,
        **results.provenance(
            torch_version=str(torch.__version__),
            device=torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU {platform.machine()}",
            engine="eager",
            data_fingerprint="none: random images",
        ),
    }
    return to_dataset(timing, about)


@contextlib.contextmanager
def arithmetic(precision: str) -> Iterator[None]:
    """Let products of fp32 tensors be rounded to TF32, by cuDNN and cuBLAS, only where that is asked for."""
    rounded, matmul, cudnn = precision == "tf32", torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32
    with cudnn.flags(enabled=cudnn.enabled, benchmark=cudnn.benchmark, allow_tf32=rounded):
        matmul.allow_tf32 = rounded
        try:
            yield
        finally:
            matmul.allow_tf32 = before


def time_tensors(
    network: nn.Module, images: torch.Tensor, labels: torch.Tensor, *, half: bool, passes: int, warmup: int
) -> Timing:
    """Time forward and backward passes of one batch; ``half`` multiplies in bfloat16."""
    batch = _Passes(network, images, labels, half)
    plain = [batch.run(warmup + (passes + 1) // 2)[warmup:]]
    with batch.marked():
        marked = batch.run(warmup + passes)[warmup:]
    plain.append(batch.run(warmup + passes // 2)[warmup:])
    return _timing(network, pd.concat(plain), marked)


class _Passes:
    """Forward and backward passes of one batch, one after the other, and the moments that are marked in them."""

    def __init__(self, network: nn.Module, images: torch.Tensor, labels: torch.Tensor, half: bool):
        self.network, self.images, self.labels, self.half = network, images, labels, half
        self.device = images.device
        self.moments: dict[str, Any] = {}

    @contextlib.contextmanager
    def marked(self) -> Iterator[None]:
        """Mark the start of every module with parameters, and every gradient that is ready, meanwhile."""
        handles: list[Any] = []
        for name, module in self.network.named_modules():
            if any(weight.requires_grad for weight in module.parameters(recurse=False)):
                handles.append(module.register_forward_pre_hook(lambda *_, name=name: self._mark(f"start {name}")))
        for name, weight in parameters(self.network):
            handles.append(weight.register_post_accumulate_grad_hook(lambda _, name=name: self._mark(name)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def run(self, count: int) -> pd.DataFrame:
        """Run so many passes and return the moments of each in seconds since its start, in the order of the first."""
        rows = []
        for _ in range(count):
            self.network.zero_grad(set_to_none=True)
            self.moments = {}
            start = self._now()
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
                loss = models.loss(self.network(self.images), self.labels)
            self._mark(_FORWARD)
            loss.backward()
            self._mark(_BACKWARD)
            rows.append((start, self.moments))
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        if not torch.isfinite(loss):
            raise ValueError(f"the loss is {loss.item()}; times of a pass over numbers that are not finite are refused")
        return pd.DataFrame(
            [{name: self._seconds(start, moment) for name, moment in moments.items()} for start, moments in rows]
        )

    def _mark(self, name: str) -> None:
        self.moments[name] = self._now()

    def _now(self) -> Any:
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def _seconds(self, start: Any, end: Any) -> float:
        return start.elapsed_time(end) / 1e3 if self.device.type == "cuda" else end - start


def _timing(network: nn.Module, plain: pd.DataFrame, marked: pd.DataFrame) -> Timing:
    names = [name for name, _ in parameters(network)]
    _refuse_other_orders([name for name in marked if name in set(names)], names)
    whole, forward = float(plain[_BACKWARD].median()), float(plain[_FORWARD].median())
    # Two tensors of a module may come in either order, microseconds apart; the first registered counts as the later.
    # A median over passes keeps the order of moments, so what lies between two is never negative.
    ready = marked[names[::-1]].sub(marked[_FORWARD], axis=0).cummax(axis=1).median().to_numpy()
    backward = np.diff(ready, prepend=0.0)[::-1] * (whole - forward) / ready[-1]
    starts = marked[[name for name in marked if str(name).startswith("start ")]].median()
    between = np.diff([0.0, *starts.to_numpy()[1:], marked[_FORWARD].median()]) * forward / marked[_FORWARD].median()
    last = {_module(name): name for name in names}  # a module's work stands at its last tensor, as in `tensors.work`
    by_tensor = {
        last[str(name).removeprefix("start ")]: seconds for name, seconds in zip(starts.index, between, strict=True)
    }
    quartiles = marked[names].quantile([0.25, 0.75])
    return Timing(
        tensors=Tensors(
            tuple(names),
            np.array([weight.numel() * weight.element_size() for _, weight in parameters(network)]),
            np.array([by_tensor.get(name, 0.0) for name in names]),
            backward,
        ),
        ready_spread=(quartiles.loc[0.75] - quartiles.loc[0.25]).to_numpy(),
        pass_seconds=whole,
        pass_spread=float(np.subtract(*plain[_BACKWARD].quantile([0.75, 0.25]))),
        marked_pass_seconds=float(marked[_BACKWARD].median()),
    )


def _module(tensor: str) -> str:
    return tensor.rpartition(".")[0]


def _refuse_other_orders(ready: Sequence[str], names: Sequence[str]) -> None:
    """Refuse a network whose modules do not give gradients in the reverse of registration, as the simulator has it."""
    if lacking := sorted(set(names) - set(ready)):
        raise ValueError(f"no gradient of {', '.join(lacking)}; networks that use all of their parameters are accepted")
    came, registered = (list(dict.fromkeys(map(_module, order))) for order in (ready, names[::-1]))
    if came != registered:
        got, wanted = next(pair for pair in zip(came, registered, strict=True) if pair[0] != pair[1])
        raise ValueError(
            f"gradients of {got!r} come before those of {wanted!r}, which is registered later; networks whose modules "
            "run in the order of registration are accepted"
        )


def to_dataset(timing: Timing, about: dict[str, Any]) -> xr.Dataset:
    """Make the Dataset of one measurement; ``about`` is what else holds for it, by names of the schema."""
    tensors = timing.tensors
    by_run = about | {
        "pass_seconds": timing.pass_seconds,
        "pass_spread_seconds": timing.pass_spread,
        "marked_pass_seconds": timing.marked_pass_seconds,
    }
    by_layer = {
        "tensor": np.array(tensors.names),
        "tensor_bytes": tensors.bytes,
        "forward_seconds": tensors.forward_seconds,
        "backward_seconds": tensors.backward_seconds,
        "ready_spread_seconds": timing.ready_spread,
        "layer_run": np.zeros(len(tensors), dtype=int),
    }
    columns = {name: ("run", np.array([value])) for name, value in by_run.items()}
    ds = xr.Dataset(columns | {name: ("layer", values) for name, values in by_layer.items()})
    return results.validate(results.describe(ds.set_coords([name for name in _SAME if name != "device"])))


def replace(before: xr.Dataset | None, measured: Sequence[xr.Dataset]) -> xr.Dataset:
    """Return ``before`` with the new measurements, in place of those of the same device, network and setting."""
    several = [*([] if before is None else [before]), *measured]
    parts: dict[tuple, xr.Dataset] = {}
    for ds in several:
        for number in range(ds.sizes["run"]):
            one = one_measurement(ds, number)
            parts[tuple(one[name].item() for name in _SAME)] = one
    runs = xr.concat([one.drop_dims("layer") for one in parts.values()], "run", coords="minimal", compat="equals")
    layers = [
        one.drop_dims("run").assign(layer_run=("layer", np.full(one.sizes["layer"], number)))
        for number, one in enumerate(parts.values())
    ]
    return results.describe(runs.assign(xr.concat(layers, "layer").data_vars))


def main() -> None:
    """Measure, say what was measured, save."""
    parser = argparse.ArgumentParser(description="Time a forward and a backward pass, tensor by tensor.")
    parser.add_argument("--arch", nargs="+", default=ARCHS, choices=models.names(), metavar="ARCH", help="networks")
    parser.add_argument("--batch", nargs="+", type=_count, default=[32], help="images of a pass (default: %(default)s)")
    parser.add_argument("--image-size", nargs="+", type=int, default=[224, 32], choices=list(CLASSES))
    parser.add_argument("--precision", nargs="+", default=["fp32"], choices=PRECISIONS)
    parser.add_argument("--passes", type=_count, default=20, help="passes of which the median counts (default: 20)")
    parser.add_argument("--warmup", type=_count, default=5, help="passes before those that count (default: 5)")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=PUBLISHED, help="(default: results/layer-times.nc)")
    asked = parser.parse_args()
    try:
        device = resolve_device(asked.device)
    except DeviceError as error:
        parser.error(str(error))
    for size, precision, batch, arch in itertools.product(asked.image_size, asked.precision, asked.batch, asked.arch):
        measured = measure(
            arch,
            batch_per_rank=batch,
            image_size=size,
            precision=precision,
            device=device,
            passes=asked.passes,
            warmup=asked.warmup,
        )
        print(_summary(measured), flush=True)
        before = results.load(asked.output) if asked.output.exists() else None
        results.save(replace(before, [measured]), asked.output)  # at once: the next one may not fit in time
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    print(f"wrote {asked.output}")


def _count(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def _summary(ds: xr.Dataset) -> str:
    run = {str(name): ds[name].item() for name, variable in ds.variables.items() if variable.dims == ("run",)}
    whole, marks = run["pass_seconds"], run["marked_pass_seconds"] / run["pass_seconds"] - 1
    return (
        f"{run['arch']}, {run['batch_size_per_rank']} images of {run['image_size']} pixels, {run['precision']}: "
        f"{1e3 * whole:.2f} ms a pass (middle half within {1e3 * run['pass_spread_seconds']:.2f} ms), "
        f"{float(ds['forward_seconds'].sum()) / whole:.0%} of it forward, {ds.sizes['layer']} tensors; "
        f"marks added {marks:.1%}"
    )


if __name__ == "__main__":
    main()
