"""Time a forward and a backward pass, tensor by tensor: when, on one GPU, each gradient is ready to be reduced.

    python benchmarks/layer_times.py --arch resnet18 resnet50 vgg11 --batch 32 --image-size 224 32

Passes are of plain PyTorch, without an optimizer, over random images: those of 224 pixels have the classes of ImageNet,
those of 32 the classes of CIFAR-10. The simulator of data-parallel training reads these times. Results are added to the
file of published layer times, in place of earlier ones of the same device, network and setting.
"""

from __future__ import annotations

import argparse
import gc
import itertools
from pathlib import Path

import torch
import xarray as xr

from dolb import models, results
from dolb.profiling.simulator import layers
from dolb.training.device import DeviceError, resolve_device

PUBLISHED = Path(__file__).resolve().parents[1] / "results" / "layer-times.nc"
ARCHS = ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "vgg11"]


def main() -> None:
    """Measure, say what was measured, save."""
    parser = argparse.ArgumentParser(description="Time a forward and a backward pass, tensor by tensor.")
    parser.add_argument("--arch", nargs="+", default=ARCHS, choices=models.names(), metavar="ARCH", help="networks")
    parser.add_argument("--batch", nargs="+", type=_count, default=[32], help="images of a pass (default: %(default)s)")
    parser.add_argument("--image-size", nargs="+", type=int, default=[224, 32], choices=list(layers.CLASSES))
    parser.add_argument("--precision", nargs="+", default=["fp32"], choices=layers.PRECISIONS)
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
        measured = layers.measure(
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
        results.save(layers.replace(before, [measured]), asked.output)  # at once: the next one may not fit in time
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
