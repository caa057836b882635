"""The numbers of the data pipeline: how fast each form of storage is read, and how long a trainer waits for it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import xarray as xr

from dolb.findings.intervals import Estimate, geometric, student

NAMES = {
    "files": "small files", "flat": "flat file (ours)", "lmdb": "LMDB", "hdf5": "HDF5", "webdataset": "WebDataset",
    "zarr": "Zarr",
}  # fmt: skip
FILES, FLAT = "files", "flat"
_SMALL = ("cifar10",)  # data whose images are a few kilobytes
_IMAGES = {"imagenet-like": "ImageNet-sized", "cifar10": "CIFAR-10"}
_CELL = ["storage", "access", "cache", "loader_workers"]
_WAYS = list(product((False, True), ("random", "sequential"), ("cold", "warm")))  # small images, order, cache


def rows(ds: xr.Dataset, task: str, device_kind: str = "cpu", small: bool = False) -> pd.DataFrame:
    """Return a row for every measurement of one task, of ImageNet-sized images or of small ones."""
    frame = pd.DataFrame({str(name): ds[name].to_numpy() for name in ds.variables if ds[name].dims == ("run",)})
    kept = (frame["task"] == task) & (frame["device_kind"] == device_kind) & (frame["data"].isin(_SMALL) == small)
    return frame[kept].reset_index(drop=True)


def cells(ds: xr.Dataset, small: bool = False) -> pd.DataFrame:
    """Return images per second by form, order, cache and number of processes, geometric means with intervals."""
    made = [
        {**dict(zip(_CELL, values, strict=True)), **_bounds(geometric(group["images_per_second"]))}
        for values, group in rows(ds, "reading", small=small).groupby(_CELL, sort=False)
    ]
    return _named(pd.DataFrame(made, columns=[*_CELL, "value", "low", "high", "n"]))


def _bounds(found: Estimate) -> dict[str, float]:
    low, high = (found.low, found.high) if found.n > 1 else (np.nan, np.nan)
    return {"value": found.value, "low": low, "high": high, "n": found.n}


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """Add the forms' names for readers, in one order everywhere."""
    order = {form: place for place, form in enumerate(NAMES)}
    table = table.assign(form=table["storage"].map(NAMES))
    return table.sort_values("storage", key=lambda names: names.map(order), kind="stable", ignore_index=True)


def by_seed(ds: xr.Dataset, access: str, cache: str, small: bool = False) -> pd.DataFrame:
    """Return images per second with a row for every seed and a column for every form, over the numbers of processes.

    The numbers of processes count alike: it is their geometric mean.
    """
    frame = rows(ds, "reading", small=small).query("access == @access and cache == @cache")
    logs = frame.assign(log=np.log(frame["images_per_second"]))
    return logs.pivot_table(index="seed", columns="storage", values="log", aggfunc="mean").map(np.exp)


def flat_over_files(ds: xr.Dataset, access: str = "random", cache: str = "cold", small: bool = False) -> pd.Series:
    """Return for every seed how many times as many images come from the flat file as from small files."""
    table = by_seed(ds, access, cache, small)
    return (table[FLAT] / table[FILES]).dropna() if {FLAT, FILES} <= set(table) else pd.Series(dtype=float)


def ratios(ds: xr.Dataset) -> pd.DataFrame:
    """Return the flat file's images per second over those of small files, and of the best other form, with intervals.

    A row is one order and cache, of ImageNet-sized images and, where they were read, small ones. ``best`` is the other
    form that is fastest over all seeds.
    """
    made = []
    for small, access, cache in _WAYS:
        table = by_seed(ds, access, cache, small)
        if not {FLAT, FILES} <= set(table):
            continue
        others = table.drop(columns=FLAT)
        best = str(np.log(others).mean().idxmax())
        data = str(rows(ds, "reading", small=small)["data"].iloc[0])
        where = {"images": _IMAGES.get(data, data), "access": access, "cache": cache, "best": best}
        for over, form in (("files", FILES), ("best other", best)):
            made.append({**where, "over": over, **_bounds(geometric(table[FLAT] / table[form]))})
    return pd.DataFrame(made)


def ratios_table(ds: xr.Dataset) -> pd.DataFrame:
    """Return `ratios` for readers: a row for each order and cache."""
    found = ratios(ds)
    found = found.assign(written=[_times(row) for row in found.to_dict("records")], best=found["best"].map(NAMES))
    wide = found.pivot_table(
        index=["images", "access", "cache", "best"], columns="over", values="written", aggfunc="first", sort=False
    ).reset_index()
    columns = {"files": "flat file over small files", "best other": "over the best other", "best": "which is"}
    order = {"sequential": "in order"}
    wide = wide.assign(access=wide["access"].replace(order)).rename(columns={**columns, "access": "order"})
    return wide.rename_axis(columns=None)[["images", "order", "cache", "flat file over small files",
                                           "over the best other", "which is"]]  # fmt: skip


def _times(row: dict) -> str:
    return f"{row['value']:.2f}×" + (f" ({row['low']:.2f} to {row['high']:.2f})" if row["n"] > 1 else "")


# The trainer


def starved(ds: xr.Dataset) -> pd.DataFrame:
    """Return the share of its time that a trainer waits, by device, form and order, with intervals over seeds."""
    made = [
        {"device": device, "storage": form, "access": access, **_bounds(student(group["starved"])),
         "images_per_second": group["images_per_second"].mean(),
         "trainer": group["trainer_images_per_second"].mean()}
        for kind, device in {"cuda": "GPU", "cpu": "CPU"}.items()
        for (form, access), group in rows(ds, "training", kind).groupby(["storage", "access"], sort=False)
    ]  # fmt: skip
    columns = ["device", "storage", "access", "value", "low", "high", "n", "images_per_second", "trainer"]
    return _named(pd.DataFrame(made, columns=columns))


def starves_less(ds: xr.Dataset) -> pd.Series:
    """Return for every seed the share starved on small files at random less that on the best container.

    The container, and whether it is read in order or at random, is the best of the other seeds: the best of the same
    ones would be too good by chance. On a GPU if one was measured, else on the CPU.
    """
    frame = next((found for kind in ("cuda", "cpu") if len(found := rows(ds, "training", kind))), pd.DataFrame())
    if frame.empty:
        return pd.Series(dtype=float)
    table = frame.pivot_table(index="seed", columns=["storage", "access"], values="starved").dropna()  # whole seeds
    if (FILES, "random") not in table or len(table) < 2:
        return pd.Series(dtype=float)
    containers = table.drop(columns=FILES, level="storage")
    less = {
        seed: table.loc[seed, (FILES, "random")] - containers.loc[seed, containers.drop(index=seed).mean().idxmin()]
        for seed in table.index
    }
    return pd.Series(less, dtype=float)


# For readers


def table(ds: xr.Dataset) -> pd.DataFrame:
    """Return a row for each form: images per second of the best number of processes, decoded too, and what it costs."""
    found, made = cells(ds), {}
    best = found.groupby(["access", "cache", "storage"])["value"].max()
    for name, way in {"random, cold": ("random", "cold"), "random, warm": ("random", "warm"),
                      "in order, cold": ("sequential", "cold")}.items():  # fmt: skip
        made[name] = best.loc[way].map("{:,.0f}".format)
    decoded = rows(ds, "decoding").groupby("storage")["images_per_second"].apply(lambda one: geometric(one).value)
    made["random, cold, decoded"] = decoded.map("{:,.0f}".format)
    counted = rows(ds, "counting").query("access == 'random'").set_index("storage")
    made["system calls per image"] = counted["syscalls_per_image"].map("{:.1f}".format)
    made["read from disk per byte of image"] = (counted["read_bytes_per_image"] / counted["image_bytes"]).map(
        "{:.2f}".format
    )
    wide = pd.DataFrame(made).reindex([form for form in NAMES if form in set(found["storage"])]).fillna("")
    return wide.rename(index=NAMES).rename_axis("images/s of the form").reset_index()
