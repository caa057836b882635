"""Time `dolb filter` on a folder of images, from the start of the command to its last file.

    python benchmarks/own_filter.py --data cifar10

The images are written as PNG files, a folder to each class, beside a test set. Each repetition has a store of its own,
so that it trains its extractor. Results are added to the file of published benchmarks, in place of earlier ones of the
same device and network.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import xarray as xr
from PIL import Image

from benchmarks.cpu_step import PUBLISHED
from dolb import data as datasets
from dolb import own, results
from dolb.profiling import steps
from dolb.training.device import device_name, resolve_device


def main() -> None:
    """Write the folder, filter it as often as asked, save."""
    parser = argparse.ArgumentParser(description="Time `dolb filter` on a folder of images.")
    parser.add_argument("--data", default="cifar10", help="data set that is written as files (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=PUBLISHED, help="(default: results/benchmarks.nc)")
    asked = parser.parse_args()
    if asked.repeats < 1:
        parser.error(f"--repeats must be at least 1, got {asked.repeats}")
    data = datasets.load(asked.data)
    with tempfile.TemporaryDirectory() as folder:
        write(data, Path(folder, "images"))
        seconds = [whole(Path(folder, "images"), Path(folder, f"{repeat}")) for repeat in range(asked.repeats)]
    before = results.load(asked.output) if asked.output.exists() else None
    results.save(steps.replace(before, [measured(data, seconds)]), asked.output)
    print(f"{len(data.train_labels):,} images: {', '.join(f'{one:.1f} s' for one in seconds)}; wrote {asked.output}")


def write(data: datasets.ImageData, folder: Path) -> None:
    """Write a data set as PNG files, as ``imagefolder:`` reads them."""
    parts = {"train": (data.train_images, data.train_labels), "test": (data.test_images, data.test_labels)}
    for part, (images, labels) in parts.items():
        for name in data.classes:
            (folder / part / name).mkdir(parents=True)
        for k, (image, label) in enumerate(zip(images, labels, strict=True)):
            pixels = image[..., 0] if image.shape[-1] == 1 else image
            Image.fromarray(pixels).save(folder / part / data.classes[label] / f"{k:06d}.png", compress_level=1)


def whole(images: Path, made: Path) -> float:
    """Return the seconds of one `dolb filter` into a folder of its own."""
    command = [sys.executable, "-m", "dolb.cli", "filter", f"imagefolder:{images}", "--out", str(made / "mask.nc")]
    begun = time.perf_counter()
    subprocess.run([*command, "--store", str(made / "store")], check=True)
    return time.perf_counter() - begun


def measured(data: datasets.ImageData, seconds: list[float]) -> xr.Dataset:
    """Return the times as benchmarks keep them, with the network that the command trained."""
    where = resolve_device("auto")
    run = own.extractor(data, where)
    about = {
        "benchmark": steps.FILTERED_FOLDER, "program": "dolb filter", "runs_at_once": 1,
        **{name: getattr(run, name) for name in ("arch", "batch_size", "data", "optimizer", "precision")},
        **results.provenance(
            torch_version=str(torch.__version__), device=device_name(where), data_fingerprint=data.fingerprint,
            engine="fused" if where.type == "cuda" else "eager",
        ),
    }  # fmt: skip
    rows = pd.DataFrame({"repeat": np.arange(len(seconds)), "step_seconds": seconds})
    return steps.dataset(rows, about, examples=len(data.train_labels))


if __name__ == "__main__":
    main()
