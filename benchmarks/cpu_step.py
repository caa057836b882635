"""Time the training step on this CPU: stock PyTorch, stock PyTorch with channels_last, and dolb's engine.

    python benchmarks/cpu_step.py --batch-sizes 32 128

A step is everything: a batch from data in memory, forward, loss, backward, SGD update. The programs start from the same
weights, see the same batches (random images in the shape of CIFAR-10; nothing is downloaded) and take turns in one
process, in a random order at each step. If their losses differ, nothing is saved. Results are added to the file of
published benchmarks, in place of earlier ones of the same device, network and batch size.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pandas as pd

from dolb import results
from dolb.profiling import steps
from dolb.training import programs

PUBLISHED = Path(__file__).resolve().parents[1] / "results" / "benchmarks.nc"


def main() -> None:
    """Measure, say what was measured, save."""
    parser = argparse.ArgumentParser(description="Time the training step on this CPU: stock PyTorch and dolb.")
    parser.add_argument("--arch", nargs="+", default=["resnet18"], help="networks (default: %(default)s)")
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[32], help="(default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=20, help="repetitions (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=5, help="steps in a repetition (default: %(default)s)")
    parser.add_argument(
        "--image-shape", nargs=3, type=int, default=programs.CIFAR10, metavar=("HEIGHT", "WIDTH", "CHANNELS"),
        help="of the random images (default: those of CIFAR-10)",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, default=PUBLISHED, help="(default: results/benchmarks.nc)")
    asked = parser.parse_args()
    for name in ("repeats", "steps"):
        if getattr(asked, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(asked, name)}")

    measured = []
    for arch in asked.arch:
        for size in asked.batch_sizes:
            print(f"{arch}, batch {size}; load of the machine {os.getloadavg()[0]:.1f}", flush=True)
            timed = programs.training_step(arch, size, tuple(asked.image_shape))
            measured.append(steps.time_programs(*timed, repeats=asked.repeats, steps=asked.steps))
            print(_table(steps.compare(measured[-1], programs.BASELINE)), flush=True)
    before = results.load(asked.output) if asked.output.exists() else None
    results.save(steps.replace(before, measured), asked.output)
    print(f"wrote {asked.output}")


def _table(cells: pd.DataFrame) -> str:
    shown = cells[["program", "milliseconds", "images_per_second", "ratio", "ratio_low", "ratio_high", "repeats"]]
    return shown.to_string(index=False, float_format="%.2f")


if __name__ == "__main__":
    main()
