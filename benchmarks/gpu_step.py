"""Time the training step on a GPU: a plain eager loop, a DataLoader pipeline, torch.compile, and dolb's engine.

    python benchmarks/gpu_step.py --batch-sizes 64 256 1024 16384
    python benchmarks/gpu_step.py --arch resnet34 resnet50 --batch-sizes 16 256 20480 --plain
    python benchmarks/gpu_step.py --arch resnet34 resnet50 --batch-sizes 16 256 20480 --engine

A step is everything: batch, augmentation, forward, loss, backward, SGD update. The programs train the same network on
random images in the shape of CIFAR-10, and take turns in one process, in a random order at each repetition. What the
DataLoader's workers have prepared while others had their turn is used up untimed before its own, and a repetition of it
has hundreds of steps. With the programs go the device's own limits, measured in the same process, and the step's
arithmetic and memory traffic, counted. Results are added to the file of published benchmarks, in place of earlier ones
of the same device, network and batch size, of which all programs are timed again.

With ``--plain`` only the eager loop is timed, at that speed the book says what a study would have taken; with
``--engine`` only dolb's engine, at that speed it says what a run costs. Either passes over what the file has of this
device already, and leaves what was timed of other programs; between programs that were not timed in one process no
ratio is given.
"""

from __future__ import annotations

import argparse
import gc
from pathlib import Path

import torch

from dolb import results
from dolb.profiling import roofline, steps
from dolb.training import gpu_programs, programs
from dolb.training.device import device_name, resolve_device

PUBLISHED = Path(__file__).resolve().parents[1] / "results" / "benchmarks.nc"
EXAMPLES = 50_000


def main() -> None:
    """Measure, say what was measured, save."""
    parser = argparse.ArgumentParser(description="Time the training step on a GPU: plain PyTorch and dolb.")
    parser.add_argument("--arch", nargs="+", default=["resnet18"], help="networks (default: %(default)s)")
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[64, 256, 1024, 16384])
    parser.add_argument("--compiled", nargs="*", type=int, default=[], help="batch sizes at which to try torch.compile")
    parser.add_argument("--loader", nargs="*", type=int, default=[], help="batch sizes at which to try a DataLoader")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--plain", action="store_true", help="only the eager loop, where it was not timed before")
    only.add_argument("--engine", action="store_true", help="only dolb's engine, where it was not timed before")
    parser.add_argument("--repeats", type=int, default=5, help="repetitions (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.4, help="of a repetition (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=PUBLISHED, help="(default: results/benchmarks.nc)")
    asked = parser.parse_args()

    device = resolve_device("cuda")
    data = programs.random_images(EXAMPLES)
    peak_flops, peak_bandwidth = roofline.peaks(device)
    print(f"matrix product {peak_flops / 1e12:.0f} TFLOP/s, copy {peak_bandwidth / 1e12:.2f} TB/s", flush=True)
    for arch in asked.arch:
        work = roofline.count(arch)
        for size in asked.batch_sizes:
            before = results.load(asked.output) if asked.output.exists() else None
            cell = (gpu_programs.BENCHMARK, device_name(device), arch, size)
            known = steps.timed(before, *cell) if before is not None else set()
            again = set() if asked.plain or asked.engine else known
            if asked.plain and gpu_programs.EAGER in known:
                continue
            if asked.engine and any(program.startswith(gpu_programs.ENGINE) for program in known):
                continue
            # What takes the place of earlier figures has all that they compared.
            others = {
                "compiled": size in asked.compiled or gpu_programs.COMPILED in again,
                "loader": size in asked.loader or any(program.startswith(gpu_programs.LOADER) for program in again),
            }
            only_one = {"plain_only": asked.plain, "engine_only": asked.engine}
            timed, about = gpu_programs.training_step(data, arch, size, device, **others, **only_one)
            floors = {
                "step_flops": work.flops(size),
                "step_bytes": work.bytes(size),
                "peak_flops": peak_flops,
                "peak_bandwidth": peak_bandwidth,
            }
            measured = steps.time_bursts(
                {name: program.burst for name, program in timed.items()},
                {name: program.runs for name, program in timed.items()},
                {**about, **floors},
                ready={name: program.ready for name, program in timed.items()},
                repeats=asked.repeats,
                seconds=asked.seconds,
            )
            cells = steps.compare(measured, next(iter(timed)))  # the eager loop, or one run where it is left out
            print(f"{arch}, batch {size}")
            print(cells[["program", "images_per_second", "ratio", "ratio_low", "ratio_high"]].to_string(), flush=True)
            kept = steps.replace(before, [measured], by_program=asked.plain or asked.engine)
            results.save(kept, asked.output)  # at once: the next one may not fit in time
            del timed
            gc.collect()
            torch.cuda.empty_cache()
    print(f"wrote {asked.output}")


if __name__ == "__main__":
    main()
