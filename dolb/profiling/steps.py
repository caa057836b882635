"""The time of a step: programs timed side by side, and kept as results."""

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
ON_GPU, EAGER = "training step on a GPU", "plain eager loop"
ENGINE = "dolb, "  # with how many runs share the GPU
ENGINE_ON_SGD = (ENGINE, "sgd")  # as the benchmark of optimizers calls it
FILTERED_FOLDER = "dolb filter of a folder of images"  # a step is the whole command (benchmarks/own_filter.py)

# Losses of the first steps may differ by this much, relatively. The second and third follow from gradients and updates,
# so a program that leaves something out is refused. Later losses are not compared: rounding in another order, as two
# memory layouts of stock torch have it, starts at 1e-7 and grows to some percent within ten steps.
TOLERANCE, CHECKED_STEPS = 1e-3, 3
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


def _names(ds: xr.Dataset, names: Sequence[str]) -> list[tuple]:
    return list(zip(*(ds[name].to_numpy().tolist() for name in names), strict=True))
