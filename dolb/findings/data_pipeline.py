"""The numbers of the data pipeline: how fast each form of storage is read, and how long a trainer waits for it."""

from itertools import product

import numpy as np
import pandas as pd
import xarray as xr

from dolb.findings import runs
from dolb.findings.intervals import geometric, gmean, student, written_rows

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
    frame = runs.table(ds).query("task == @task and device_kind == @device_kind")
    return frame[frame["data"].isin(_SMALL) == small].reset_index(drop=True)


def cells(ds: xr.Dataset, small: bool = False) -> pd.DataFrame:
    """Return images per second by form, order, cache and number of processes, geometric means with intervals."""
    made = [
        {**dict(zip(_CELL, values, strict=True)), **geometric(group["images_per_second"]).row()}
        for values, group in rows(ds, "reading", small=small).groupby(_CELL, sort=False)
    ]
    return _named(pd.DataFrame(made, columns=[*_CELL, "value", "low", "high", "n"]))


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
            made.append({**where, "over": over, **geometric(table[FLAT] / table[form]).row()})
    return pd.DataFrame(made)


def ratios_table(ds: xr.Dataset) -> pd.DataFrame:
    """Return `ratios` for readers: a row for each order and cache."""
    found = ratios(ds)
    texts = pd.Series(written_rows(".2f", found[["value", "low", "high"]])).str.replace(r"^\S+", r"\g<0>×", regex=True)
    order = found["access"].replace({"sequential": "in order"})
    found = found.assign(text=texts, best=found["best"].map(NAMES), access=order)
    by = ["images", "access", "cache", "best"]
    wide = found.pivot_table(index=by, columns="over", values="text", aggfunc="first", sort=False).reset_index()
    shown = {"images": "images", "access": "order", "cache": "cache", "files": "flat file over small files",
             "best other": "over the best other", "best": "which is"}  # fmt: skip
    return wide[list(shown)].rename(columns=shown).rename_axis(columns=None)


# The trainer


def starved(ds: xr.Dataset) -> pd.DataFrame:
    """Return the share of its time that a trainer waits, by device, form and order, with intervals over seeds."""
    made = [
        {"device": device, "storage": form, "access": access, **student(group["starved"]).row(),
         "images_per_second": group["images_per_second"].mean(),
         "trainer": group["trainer_images_per_second"].mean()}
        for kind, device in {"cuda": "GPU", "cpu": "CPU"}.items()
        for (form, access), group in rows(ds, "training", kind).groupby(["storage", "access"], sort=False)
    ]  # fmt: skip
    columns = ["device", "storage", "access", "value", "low", "high", "n", "images_per_second", "trainer"]
    return _named(pd.DataFrame(made, columns=columns))


# For readers


def table(ds: xr.Dataset) -> pd.DataFrame:
    """Return a row for each form: images per second of the best number of processes, decoded too, and what it costs."""
    best = cells(ds).groupby(["access", "cache", "storage"])["value"].max()
    ways = {"random, cold": ("random", "cold"), "random, warm": ("random", "warm"),
            "in order, cold": ("sequential", "cold")}  # fmt: skip
    made = {name: best.loc[way].map("{:,.0f}".format) for name, way in ways.items()}
    decoded = rows(ds, "decoding").groupby("storage")["images_per_second"].agg(gmean)
    made["random, cold, decoded"] = decoded.map("{:,.0f}".format)
    counted = rows(ds, "counting").query("access == 'random'").set_index("storage")
    made["system calls per image"] = counted["syscalls_per_image"].map("{:.1f}".format)
    read = counted["read_bytes_per_image"] / counted["image_bytes"]
    made["read from disk per byte of image"] = read.map("{:.2f}".format)
    wide = (
        pd.DataFrame(made)
        .reindex([form for form in NAMES if form in best.index.get_level_values("storage")])
        .fillna("")
    )
    return wide.rename(index=NAMES).rename_axis("images/s of the form").reset_index()
