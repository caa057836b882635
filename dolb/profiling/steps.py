"""The time of a step: programs timed side by side, and kept as results."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from dolb import results

Step = Callable[[], float]  # does one step and returns its loss

# How published benchmarks name what was timed, and the programs (benchmarks/cpu_step.py, benchmarks/gpu_step.py).
ON_CPU, STOCK = "training step on a CPU", "stock torch"
ON_GPU, EAGER, COMPILED, LOADER = "training step on a GPU", "plain eager loop", "torch.compile", "DataLoader"
ENGINE = "dolb, "  # with how many runs share the GPU
FILTERED_FOLDER = "dolb filter of a folder of images"  # a step is the whole command (benchmarks/own_filter.py)
BY_OPTIMIZER = "training step on a GPU by optimizer"  # whose programs are the engine's, one run, named by the optimizer

# Losses of the first steps may differ by this much, relatively. The second and third follow from gradients and updates,
# so a program that leaves something out is refused. Later losses are not compared: rounding in another order, as two
# memory layouts of stock torch have it, starts at 1e-7 and grows to some percent within ten steps.
TOLERANCE, CHECKED_STEPS = 1e-3, 3
TIMES_READY = 15
_SAME = ["benchmark", "device", "arch", "batch_size"]


class Disagreement(RuntimeError):
    """Programs that should do the same step have different losses, so their times must not be compared."""


def time_programs(
    programs: Mapping[str, Step],
    about: Mapping[str, Any],
    *,
    repeats: int = 10,
    steps: int = 5,
    warmup: int = 2,
) -> xr.Dataset:
    """Time the programs step by step, in a random order each time, so that whatever slows the machine slows all alike.

    Each call of a program does one training step and returns its loss; the time of a repetition is the median over its
    steps. ``about`` is what else is known of every program, by names of the schema, with at least ``batch_size``. A
    ``Disagreement`` is raised if losses of the first steps differ from the first program's by more than `TOLERANCE`.
    """
    rng = np.random.default_rng(0)
    losses: dict[str, list[float]] = {name: [] for name in programs}

    def seconds() -> dict[str, float]:
        taken = {}
        for name in rng.permutation(list(programs)):
            start = time.perf_counter()
            loss = programs[name]()
            taken[str(name)] = time.perf_counter() - start
            losses[name].append(loss)
        return taken

    gc.collect()
    gc.disable()
    try:
        for _ in range(warmup):
            seconds()
        tables = [pd.DataFrame([seconds() for _ in range(steps)]) for _ in range(repeats)]
    finally:
        gc.enable()
    _check(losses)
    rows = [
        {"program": name, "repeat": repeat, "step_seconds": float(table[name].median())}
        for repeat, table in enumerate(tables)
        for name in programs
    ]
    return dataset(pd.DataFrame(rows), about, examples=about["batch_size"])


def time_bursts(
    bursts: Mapping[str, Callable[[int], None]],
    runs_at_once: Mapping[str, int],
    about: Mapping[str, Any],
    *,
    ready: Mapping[str, int] | None = None,
    repeats: int = 5,
    seconds: float = 0.4,
) -> xr.Dataset:
    """Time programs that run ahead of the host, many steps at a time, in a random order at each repetition.

    Each function does that many steps and returns when the device has done them; with several runs at once, that many
    of each. A repetition of a program takes about ``seconds``.

    ``ready`` says of a program how many batches others' turns give it time to prepare. It does as many steps untimed
    before each repetition, so that none of them flatters it, and a repetition has `TIMES_READY` times as many steps or
    more, so that it lasts over many rounds of the workers that prepare them.
    """
    rng = np.random.default_rng(0)
    ready = dict.fromkeys(bursts, 0) | dict(ready or {})
    steps = {name: max(_steps_within(burst, seconds), TIMES_READY * ready[name]) for name, burst in bursts.items()}
    rows: list[dict[str, Any]] = []
    for repeat in range(repeats):
        taken = {}
        for name in map(str, rng.permutation(list(bursts))):
            if ready[name]:
                bursts[name](ready[name])
            taken[name] = _timed(bursts[name], steps[name])
        for name, runs in ((name, runs_at_once[name]) for name in bursts):
            each = taken[name] / (steps[name] * runs)
            rows.append({"program": name, "repeat": repeat, "step_seconds": each, "runs_at_once": runs})
    return dataset(pd.DataFrame(rows), about, examples=about["batch_size"])


def _steps_within(burst: Callable[[int], None], seconds: float) -> int:
    """Warm a program up, and return how many of its steps take about that long."""
    burst(3)
    steps, taken = 4, 0.0
    while taken < seconds / 8 and steps < 2**20:
        steps *= 2
        taken = _timed(burst, steps)
    return max(1, round(steps * seconds / taken))


def _timed(burst: Callable[[int], None], steps: int) -> float:
    start = time.perf_counter()
    burst(steps)
    return time.perf_counter() - start


def _check(losses: Mapping[str, Sequence[float]]) -> None:
    reference, *others = losses
    expected = np.array(losses[reference][:CHECKED_STEPS])
    for name in others:
        apart = np.abs(np.array(losses[name][:CHECKED_STEPS]) - expected) / np.abs(expected)
        if not (apart <= TOLERANCE).all():  # a loss that is no number is refused as well
            step = int(np.argmin(apart <= TOLERANCE))
            raise Disagreement(
                f"at step {step + 1} the loss of {name!r} is {losses[name][step]:.6g} and that of {reference!r} is "
                f"{expected[step]:.6g}; a relative difference up to {TOLERANCE:g} is accepted"
            )


def dataset(frame: pd.DataFrame, about: Mapping[str, Any], *, examples: int) -> xr.Dataset:
    """Return times of steps of so many examples as results, with what else is known of all of them."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    frame = frame.assign(images_per_second=examples / frame["step_seconds"], measured_at=now, **about)
    columns = {str(name): ("run", np.array(frame[name].tolist())) for name in frame}
    coords = {name for name in columns if results.SCHEMA[name].role in ("config", "benchmark")} - {"step_seconds"}
    return results.describe(xr.Dataset(columns).set_coords(sorted(coords)))


def replace(before: xr.Dataset | None, measured: Sequence[xr.Dataset], *, by_program: bool = False) -> xr.Dataset:
    """Return ``before`` with the new measurements, in place of its rows of the same benchmark, device and network.

    With ``by_program`` only rows of the same program make room, and what was timed of others stays.
    """
    parts = list(measured)
    same = [*_SAME, "program"] if by_program else _SAME
    if before is not None:
        new = {row for ds in measured for row in _names(ds, same)}
        kept = [position for position, row in enumerate(_names(before, same)) if row not in new]
        parts.insert(0, before.isel(run=kept))
    names = {str(name) for ds in parts for name in ds.variables}
    parts = [_with_columns(ds, sorted(names - set(map(str, ds.variables)))) for ds in parts]
    coords = {str(name) for ds in parts for name in ds.coords}
    parts = [ds.set_coords(sorted(coords)) for ds in parts]
    return results.describe(xr.concat(parts, "run", data_vars="all", coords="all", join="outer"))


def _with_columns(ds: xr.Dataset, names: Sequence[str]) -> xr.Dataset:
    """Add columns that other measurements have: one run at once, as was usual, and what nobody counted or noted."""
    blank = {name: "" if results.SCHEMA[name].kind == "text" else np.nan for name in names} | {"runs_at_once": 1}
    return ds.assign({name: ("run", np.full(ds.sizes["run"], blank[name])) for name in names})


def timed(ds: xr.Dataset, benchmark: str, device: str, arch: str, batch_size: int) -> set[str]:
    """Return the programs that were timed on a device with a network and a batch size; maybe none."""
    cell = (benchmark, device, arch, batch_size)
    return {program for *names, program in _names(ds, [*_SAME, "program"]) if tuple(names) == cell}


def select(
    ds: xr.Dataset, benchmark: str, archs: Sequence[str] | None = None, batch_sizes: Sequence[int] | None = None
) -> xr.Dataset:
    """Keep the rows of one benchmark, and of these networks and batch sizes; None is all there are."""
    wanted: dict[str, Sequence | None] = {"benchmark": [benchmark], "arch": archs, "batch_size": batch_sizes}
    kept = np.ones(ds.sizes["run"], dtype=bool)
    for name, values in wanted.items():
        if values is not None:
            kept &= np.isin(ds[name].to_numpy(), list(values))
    if not kept.any():
        raise ValueError(f"no measurement of {wanted}; there are: {sorted(set(_names(ds)))}")
    return ds.isel(run=kept)


def _names(ds: xr.Dataset, names: Sequence[str] = tuple(_SAME)) -> list[tuple]:
    return list(zip(*(ds[name].to_numpy().tolist() for name in names), strict=True))
