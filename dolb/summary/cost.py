"""What runs cost in device time: a price for each network and batch size, what a price can buy, and a grid's total."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import xarray as xr

SIZE = ("arch", "batch_size")
EAGER = "plain eager loop"  # the benchmark program whose speed the grid's time is compared with


def priced(cells: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the cells with ``run_seconds``, the device time of one run of that network and batch size.

    It is the median over all such runs: the rate and the seed change nothing about the time of a step, but what else
    had the device meanwhile does.
    """
    price = runs.groupby(list(SIZE))["device_seconds"].median().rename("run_seconds")
    return cells.merge(price, on=list(SIZE))


def unevenness(runs: pd.DataFrame) -> float:
    """Return by how much the device times of one network and batch size differ, at most, as a share of their median."""
    seconds = runs.groupby(list(SIZE))["device_seconds"]
    return float(((seconds.max() - seconds.min()) / seconds.median()).max())


def pareto(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the cells of `priced` that are best for their time: no other of the network is as cheap and as accurate.

    By network and price; the last row within a time limit is the one to take.
    """
    ordered = cells.sort_values(["arch", "run_seconds", "accuracy"], ascending=[True, True, False])
    so_far = ordered.groupby("arch")["accuracy"].cummax()
    before = so_far.groupby(ordered["arch"]).shift()
    best = ordered[~(ordered["accuracy"] <= before)]
    return best.sort_values("arch", key=lambda names: names.str.len(), kind="stable", ignore_index=True)


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


def in_all(times: pd.DataFrame) -> dict[str, float]:
    """Return the runs and minutes of `device_time` in all, and of those whose time at eager speed is known."""
    known = times[times["eager_seconds"].notna()]
    return {
        "runs": int(times["runs"].sum()),
        "minutes": float(times["seconds"].sum()) / 60,
        "known_runs": int(known["runs"].sum()),
        "known_minutes": float(known["seconds"].sum()) / 60,
        "eager_minutes": float(known["eager_seconds"].sum()) / 60,
    }


def eager_in_words(total: Mapping[str, float]) -> str:
    """Say what the runs of `in_all` would have taken at eager speed, for all of them or for those where it is known."""
    if not total["known_runs"]:
        return (
            "What the same runs would take in a plain eager loop cannot be told yet: its speed on this device is not "
            "published."
        )
    which = "these runs" if total["known_runs"] == total["runs"] else f"{total['known_runs']:,} of these runs"
    return (
        f"At the speed of a plain eager loop {which} would take {total['eager_minutes']:,.1f} minutes instead of "
        f"{total['known_minutes']:,.1f}, evaluation not counted; speeds between benchmarked batch sizes are "
        "interpolated, and no speed is taken beyond them."
    )


def in_words(cells: pd.DataFrame) -> pd.DataFrame:
    """Return cells of `priced` as a table for readers, a row per cell, with the network as its index."""
    return (
        pd.DataFrame(
            {
                "network": cells["arch"],
                "device seconds": cells["run_seconds"].map("{:,.1f}".format),
                "batch size": cells["batch_size"].map("{:,}".format),
                "learning rate": cells["lr"].map("{:g}".format),
                "test accuracy": cells["accuracy"].map("{:.1%}".format),
            }
        )
        .set_index("network")
        .rename_axis(index=None, columns="network")
    )


def eager_speeds(benchmarks: xr.Dataset, device: str, program: str = EAGER) -> pd.DataFrame:
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
