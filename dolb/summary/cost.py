"""What runs cost in device time: a price for each network and batch size, what a price can buy, and a grid's total."""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr

SIZE = ("arch", "batch_size")


def priced(cells: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the cells with ``run_seconds``, the device time of one run of that network and batch size.

    It is the median over all such runs: the rate and the seed change nothing about the time of a step, but what else
    had the device meanwhile does.
    """
    price = runs.groupby(list(SIZE))["device_seconds"].median().rename("run_seconds")
    return cells.merge(price, on=list(SIZE))


def pareto(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the cells of `priced` that are best for their time: no other of the network is as cheap and as accurate.

    By network and price; the last row within a time limit is the one to take.
    """
    ordered = cells.sort_values(["arch", "run_seconds", "accuracy"], ascending=[True, True, False])
    so_far = ordered.groupby("arch")["accuracy"].cummax()
    before = so_far.groupby(ordered["arch"]).shift()
    return ordered[~(ordered["accuracy"] <= before)].reset_index(drop=True)


def device_time(runs: pd.DataFrame, eager: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return, for each network and batch size, the runs made, the device seconds of one (median) and of all.

    With ``eager`` (arch, batch_size, images_per_second of a plain eager loop on the same device) also what the same
    training would have taken at that speed, evaluation left out. Speeds are taken between the measured batch sizes of
    a network, on logarithmic scales, and never beyond them: elsewhere ``eager_seconds`` is nan.
    """
    grouped = runs.groupby(list(SIZE), sort=True)
    table = grouped.agg(
        runs=("device_seconds", "size"), run_seconds=("device_seconds", "median"), seconds=("device_seconds", "sum")
    ).reset_index()
    images = grouped[["epochs", "training_examples"]].apply(lambda rows: rows.prod(axis=1).sum()).to_numpy()
    sizes = zip(table["arch"].tolist(), table["batch_size"].tolist(), strict=True)
    speed = np.array([_speed(eager, arch, size) for arch, size in sizes])
    return table.assign(eager_seconds=images / speed)


def eager_speeds(benchmarks: xr.Dataset, device: str, program: str) -> pd.DataFrame:
    """Return images per second of one benchmark program on one device, median over repetitions; maybe no rows."""
    kept = (benchmarks["device"].to_numpy() == device) & (benchmarks["program"].to_numpy() == program)
    names = [*SIZE, "images_per_second"]
    rows = pd.DataFrame({name: benchmarks[name].to_numpy()[kept] for name in names})
    return rows.groupby(list(SIZE))["images_per_second"].median().reset_index()


def _speed(eager: pd.DataFrame | None, arch: str, batch_size: int) -> float:
    known = eager[eager["arch"] == arch].sort_values("batch_size") if eager is not None else pd.DataFrame()
    if known.empty or not known["batch_size"].min() <= batch_size <= known["batch_size"].max():
        return float("nan")
    logs = np.log(known[["batch_size", "images_per_second"]].to_numpy(dtype=float))
    return float(np.exp(np.interp(np.log(batch_size), logs[:, 0], logs[:, 1])))
