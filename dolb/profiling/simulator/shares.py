"""Steps of more workers than there are here: their computing as measured on one, what they send each other simulated.

A worker computes its share of the batch as long as one rank with a batch of that size was measured to, which under
strong scaling shrinks less than the share. On CPUs every worker is a machine of its own on 10 Gbit/s; GPUs are eight to
a machine on 100 Gbit/s.
"""

from functools import cache

import pandas as pd
import torch
import xarray as xr

from dolb import models, results
from dolb.profiling.simulator import network, tensors
from dolb.profiling.simulator.curves import Row, named, row, simulated_rows
from dolb.profiling.simulator.libraries import DDP
from dolb.profiling.simulator.step import SOURCE, Scenario

WORKERS = (2, 4, 8, 16, 32)
CLUSTERS = {"cpu": (network.cluster(gpus=1, gbit=10), 10_000.0), "cuda": (network.cluster(gpus=8, gbit=100), 100_000.0)}


def simulated(measured: xr.Dataset, workers: tuple[int, ...] = WORKERS) -> xr.Dataset:
    """Return the steps of so many workers, for every network, device and share that one rank was timed at."""
    names = ["arch", "data", "device_kind", "batch_size_per_rank", "ranks", "source", "step_seconds"]
    table = measured[names].to_dataframe().reset_index(drop=True)
    alone = table[(table["ranks"] == 1) & (table["source"] != SOURCE)]
    rows = alone.groupby(names[:4])["step_seconds"].median().reset_index().to_dict("records")
    return simulated_rows(
        [_row({str(name): one for name, one in row.items()}, count) for row in rows for count in workers]
    )


def with_simulated(measured: xr.Dataset) -> xr.Dataset:
    """Return measured steps, and beside them what is simulated of more workers."""
    measured = measured.isel(run=measured["source"].to_numpy() != SOURCE)
    return results.merge([named(measured), simulated(measured)])


def _row(alone: Row, workers: int) -> Row:
    arch, data, kind, share = (alone[name] for name in ("arch", "data", "device_kind", "batch_size_per_rank"))
    over, mbit = CLUSTERS[kind]
    step = tensors.by_multiplications(_work(arch, data), alone["step_seconds"])
    return row(
        Scenario(step, over, DDP(), share), workers, experiment="strong-weak-steps", arch=arch, data=data,
        device_kind=kind, link_mbit=mbit, variant=f"DDP on {kind}, {data}, {share} a worker",
    )  # fmt: skip


@cache
def _work(arch: str, data: str) -> pd.DataFrame:
    if not models.require(arch).of_volumes:
        return tensors.work(arch, image_size=32, num_classes=10)
    side = int(data.rpartition("-")[2])
    with torch.device("meta"):
        return tensors.count(models.build(arch, 2, side), (side, side, side))
