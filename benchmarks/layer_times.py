"""Time a forward and a backward pass, tensor by tensor: when, on one GPU, each gradient is ready to be reduced.

    python benchmarks/layer_times.py --arch resnet18 resnet50 vgg11 --batch 32 --image-size 224 32

Passes are of plain PyTorch, without an optimizer, over random images: those of 224 pixels have the classes of ImageNet,
those of 32 the classes of CIFAR-10. The simulator of data-parallel training reads these times. Results are added to the
file of published layer times, in place of earlier ones of the same device, network and setting.

How passes are timed is in `dolb.profiling.layers`.
"""

import argparse
import gc
import itertools
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from dolb import models, results
from dolb.profiling.config import PRECISIONS
from dolb.profiling.layers import Timing, arithmetic, time_tensors
from dolb.profiling.simulator.tensors import one_measurement
from dolb.training.device import DeviceError, resolve_device

PUBLISHED = Path(__file__).resolve().parents[1] / "results" / "layer-times.nc"
ARCHS = ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "vgg11"]
CLASSES = {224: 1000, 32: 10}  # of the data whose images have so many pixels: ImageNet, CIFAR-10
_SAME = ("device", "arch", "image_size", "num_classes", "batch_size_per_rank", "precision")


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
