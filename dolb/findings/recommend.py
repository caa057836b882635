"""Which batch size for a network, a rate and a time limit: what a run costs, and which cells are best for it."""

import numpy as np
import pandas as pd
import xarray as xr

from dolb.findings.intervals import written_rows
from dolb.findings.runs import table

SIZE = ["arch", "batch_size"]
FORWARD = 1 / 3  # of the arithmetic of a training step: the backward pass has two products for each of the forward's


def speeds(benchmarks: xr.Dataset, device: str, program: str | tuple[str, ...]) -> pd.DataFrame:
    """Return arch, batch_size and images_per_second of one run alone on a device, median over repetitions.

    ``program`` is how the names of the benchmark's programs begin that are meant. There may be no rows.
    """
    rows = table(benchmarks)
    alone = (rows["device"] == device) & rows["program"].str.startswith(program) & (rows["runs_at_once"] == 1)
    return rows[alone].groupby(SIZE)["images_per_second"].median().reset_index()


def priced(cells: pd.DataFrame, runs: pd.DataFrame, known: pd.DataFrame, evaluated: int) -> pd.DataFrame:
    """Return the cells with ``seconds``, what one run takes that has the device to itself, setting up left out.

    ``known`` are the benchmark's `speeds`. Where they reach a size, the price is the time of a run's images at that
    speed, and ``priced_by`` is "benchmark"; speeds between benchmarked sizes are interpolated. Counted with it is an
    evaluation after every epoch, in batches of ``evaluated``: forward passes alone, at the speed of the nearest size.
    Elsewhere it is the median of the runs' own device seconds, and ``priced_by`` is "runs".
    """
    # A run that diverged counts with the seconds that all its epochs would have taken.
    whole = runs["device_seconds"] * runs["epochs"] / runs["epochs_done"]
    prices = runs.assign(seconds=whole).groupby(SIZE, as_index=False).agg(
        {"seconds": "median", "epochs": "median", "training_examples": "median", "test_examples": "median"}
    )  # fmt: skip
    speed = [speed_at(known, *size) for size in zip(prices["arch"], prices["batch_size"], strict=True)]
    forward = [speed_at(known, arch, evaluated, beyond=True) for arch in prices["arch"]]
    epoch = prices["training_examples"] / speed + FORWARD * prices["test_examples"] / forward
    by_benchmark = prices["epochs"] * epoch
    prices["priced_by"] = np.where(by_benchmark.notna(), "benchmark", "runs")
    prices["seconds"] = by_benchmark.fillna(prices["seconds"])
    return cells.merge(prices[[*SIZE, "seconds", "priced_by"]], on=SIZE)


def speed_at(known: pd.DataFrame, arch: str, batch_size: int, beyond: bool = False) -> float:
    """Return the speed at a batch size; beyond the benchmarked ones nan or, if asked for, that of the nearest."""
    own = known[known["arch"] == arch].sort_values("batch_size")
    if own.empty or not (beyond or own["batch_size"].min() <= batch_size <= own["batch_size"].max()):
        return float("nan")
    logs = np.log(own[["batch_size", "images_per_second"]].to_numpy(dtype=float))
    return float(np.exp(np.interp(np.log(batch_size), logs[:, 0], logs[:, 1])))


def best_for_their_time(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the cells of `priced` that no other of the network beats, being as fast and as accurate.

    By network, the shallow first, and price: the last row within a time limit is the one to take.
    """
    ordered = cells.sort_values(["arch", "seconds", "accuracy"], ascending=[True, True, False], kind="stable")
    so_far = ordered.groupby("arch")["accuracy"].cummax()
    best = ordered[~(ordered["accuracy"] <= so_far.groupby(ordered["arch"]).shift())]
    return best.sort_values("arch", key=lambda names: names.str.len(), kind="stable", ignore_index=True)


def shown(best: pd.DataFrame) -> pd.DataFrame:
    """Return cells as a table for readers: network, seconds, batch size, learning rate, accuracy with its interval."""
    return pd.DataFrame(
        {
            "network": best["arch"],
            "seconds of one run": best["seconds"].map("{:,.1f}".format),
            "batch size": best["batch_size"].map("{:,}".format),
            "learning rate": best["lr"].map("{:g}".format),
            "test accuracy": written_rows(".1%", best[["accuracy", "low", "high"]]),
        }
    )
