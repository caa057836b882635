"""The numbers of what bounds training on many nodes: free communication, skinny products, and links.

A batch of B images on N nodes leaves B/N to each. With free communication a step then takes what one node was measured
to take for B/N images; over links it is simulated from the measured layers. Seeds are whole repetitions.
"""

from typing import Any, cast

import numpy as np
import pandas as pd
import xarray as xr

from dolb.findings import runs
from dolb.findings.ddp_vs_horovod import rows
from dolb.findings.intervals import student

BATCHES = {"alexnet": 256, "googlenet": 32}  # of the study's networks; of others the largest that was measured
# Which of two networks scales further is asked at one batch, and over the study's network, InfiniBand FDR.
SAME_BATCH, STUDIED_GBIT = 64, 56.0
PAYS = 1.5  # twice the nodes pay while they are at least so many times as fast
SHRINKS = 2.0  # a layer scales if from the whole batch to one image it becomes at least so many times as fast
FEW = 8  # images a node, at which the loss with free communication is judged
FREE = np.inf
UPDATE = "update"
_CURVE = ["device_kind", "arch", "seed"]
MOST_LAYERS = 10  # that are drawn one by one


# Free communication


def _networks(ds: xr.Dataset) -> pd.DataFrame:
    measured = rows(ds, "measured")
    return measured.loc[measured["product"] == "", [*_CURVE, "batch_size", "step_seconds", "parameters"]]


def layers(ds: xr.Dataset) -> pd.DataFrame:
    """Return the seconds of every layer, its forward and backward pass together, and of the update, by batch size."""
    table = runs.table(ds, "event").join(runs.table(ds)[[*_CURVE, "batch_size", "product"]], on="run_number")
    table = table[table["product"] == ""].assign(seconds=(table["end_us"] - table["start_us"]) / 1e6)
    table["layer"] = np.where(table["lane"] == UPDATE, UPDATE, table["name"].str.rpartition(".")[0])
    return table.groupby([*_CURVE, "batch_size", "layer"], sort=False)["seconds"].sum().reset_index()


def _wholes(networks: pd.DataFrame) -> pd.Series:
    """Return by device and network the batch that nodes share: the study's, else the largest that all seeds have."""
    counts = networks.groupby(["device_kind", "arch", "batch_size"])["seed"].nunique().reset_index(name="seeds")
    counts = counts[counts["seeds"] == counts.groupby(["device_kind", "arch"])["seeds"].transform("max")]
    ordered = counts.assign(studied=counts["batch_size"] == counts["arch"].map(BATCHES))
    return ordered.sort_values(["studied", "batch_size"]).groupby(["device_kind", "arch"])["batch_size"].last()


def free(ds: xr.Dataset) -> pd.DataFrame:
    """Return the speedup by number of nodes with free communication, and Amdahl's bound on it, of every seed.

    ``serial`` is the share of the whole batch's time that layers take which do not scale (`SHRINKS`).
    """
    networks, by_layer, made = _networks(ds), layers(ds), []
    wholes, layered = _wholes(networks).to_dict(), dict(iter(by_layer.groupby(_CURVE)))
    for values, group in networks.groupby(_CURVE, sort=False):
        named = dict(zip(_CURVE, values, strict=True))
        seconds = group.set_index("batch_size")["step_seconds"].sort_index()
        batch = int(wholes[named["device_kind"], named["arch"]])
        times = layered[values].pivot_table(index="layer", columns="batch_size", values="seconds")
        stuck = times[batch] < SHRINKS * times[seconds.index[0]]
        serial = float(times.loc[stuck, batch].sum() / times[batch].sum())
        for size in seconds.index[seconds.index <= batch]:
            nodes, speedup = batch / size, seconds[batch] / seconds[size]
            bound = 1 / (serial + (1 - serial) / nodes)
            about = {"batch_size": batch, "images": int(size), "nodes": nodes, "stuck": int(stuck.sum())}
            made.append(
                {**named, **about, "layers": len(times), "serial": serial, "speedup": speedup,
                 "efficiency": speedup / nodes, "bound": bound}
            )  # fmt: skip
    return pd.DataFrame(made)


def free_table(ds: xr.Dataset) -> pd.DataFrame:
    """Return for readers the speedup at `FEW` images a node, and what of the ideal one is lost."""
    found = free(ds).query("images == @FEW").groupby(["device_kind", "arch"])
    return pd.DataFrame(
        {
            "global batch": found["batch_size"].first(),
            "nodes": found["nodes"].first().astype(int),
            "speedup": found["speedup"].mean().map("{:.1f}".format),
            "lost": found["efficiency"].agg(lambda one: student(1 - one).written(".0%")),
        }
    ).rename_axis(["device", "network"])


def amdahl_table(ds: xr.Dataset) -> pd.DataFrame:
    """Return for readers, at an image a node, the layers that do not scale, the bound by them, and what is reached."""
    found = free(ds).query("images == 1").groupby(["device_kind", "arch"])
    return pd.DataFrame(
        {
            "nodes": found["nodes"].first().astype(int),
            "do not scale": found["stuck"].mean().map("{:.0f}".format) + " of " + found["layers"].first().astype(str),
            "their share of a step": found["serial"].mean().map("{:.1%}".format),
            "bound": found["bound"].mean().map("{:.1f}".format),
            "reached": found["speedup"].mean().map("{:.1f}".format),
        }
    ).rename_axis(["device", "network"])


def curves(ds: xr.Dataset) -> pd.DataFrame:
    """Return what is drawn: mean speedup by nodes, network and link, ``gbit`` infinite where communication is free."""
    linked = _shared(ds).query("batch_size == whole")
    table = pd.concat([free(ds).assign(gbit=FREE), linked])
    drawn = table.groupby(["device_kind", "arch", "gbit", "nodes"], sort=False)["speedup"].agg(["mean", "min", "max"])
    drawn = drawn.rename(columns={"mean": "speedup", "min": "low", "max": "high"}).reset_index()
    return drawn.assign(source=np.where(np.isinf(drawn["gbit"]), "measured", "simulated"))


def layer_times(ds: xr.Dataset) -> pd.DataFrame:
    """Return milliseconds by layer, its kind and local batch, mean over seeds; a block of layers counts as one."""
    table = layers(ds)
    deep = table.groupby("arch")["layer"].transform("nunique") > MOST_LAYERS
    table["layer"] = table["layer"].where(~deep, table["layer"].str.partition(".")[0])
    sums = table.groupby([*_CURVE, "batch_size", "layer"], sort=False)["seconds"].sum()
    means = sums.groupby(["device_kind", "arch", "layer", "batch_size"], sort=False).mean()
    drawn = (1000 * means).rename("milliseconds").reset_index()
    connected = drawn["layer"].str.contains("classifier|fc")
    kinds = np.select([drawn["layer"] == UPDATE, connected], [UPDATE, "fully connected"], "convolutions")
    return drawn.assign(kind=kinds)


# Products


def products(ds: xr.Dataset) -> pd.DataFrame:
    """Return the speed of single products by inputs, mean over seeds, and of the roof: what the machine could do."""
    table = rows(ds, "measured").query("product != ''")
    roof = np.minimum(table["peak_flops"], table["peak_bandwidth"] * table["step_flops"] / table["step_bytes"])
    speed = table["step_flops"] / table["step_seconds"]
    table = table.assign(gflops=speed / 1e9, roof=roof / 1e9, of_roof=speed / roof)
    keys = ["device_kind", "arch", "product", "parameters", "batch_size"]
    found = table.groupby(keys, sort=False)[["gflops", "roof", "of_roof", "step_seconds"]].mean().reset_index()
    millions = (found["parameters"] / 1e6).map("{:.1f}".format)
    return found.assign(layer=found["arch"] + " " + found["product"] + ", " + millions + "M weights")


def products_table(ds: xr.Dataset) -> pd.DataFrame:
    """Return for readers the speed per sample by inputs, over that with the most, and the part of the roof."""
    found = products(ds).assign(speed=lambda table: table["batch_size"] / table["step_seconds"])
    wide = found.pivot_table(index=["device_kind", "layer"], columns="batch_size", values="speed", sort=False)
    shown = [size for size in (1, 8, 32, 128) if size in wide and size != wide.columns.max()]
    wide = wide.dropna(subset=[*shown, wide.columns.max()])  # what is not measured whole yet
    table = wide[shown].div(wide[wide.columns.max()], axis=0).map("{:.0%}".format)
    table.columns = [f"{size} input{'s' if size > 1 else ''}" for size in shown]
    ends = found.sort_values("batch_size").groupby(["device_kind", "layer"])["of_roof"]
    for size, part in ((wide.columns.min(), ends.first()), (wide.columns.max(), ends.last())):
        table[f"of the roof, with {size}"] = part.reindex(table.index).map("{:.0%}".format)
    return table.rename_axis(["device", "layer"])


# Links


def _shared(ds: xr.Dataset) -> pd.DataFrame:
    """Return the simulated steps of shared batches, with their speedup over the measured step of one node."""
    table = rows(ds, "simulated").query("scaling == 'strong'")
    networks = _networks(ds)
    alone = networks.set_index([*_CURVE, "batch_size"])["step_seconds"].rename("alone")
    table = table.join(alone, on=[*_CURVE, "batch_size"])
    table = table.join(_wholes(networks).rename("whole"), on=["device_kind", "arch"])
    speedup = table["alone"] / table["step_seconds"]
    return table.assign(nodes=table["ranks"].astype(float), gbit=table["link_mbit"] / 1000, speedup=speedup)


def stops(ds: xr.Dataset) -> pd.DataFrame:
    """Return the nodes up to which twice as many pay, by network, batch, link and seed; at most an image a node.

    Between two numbers of nodes it is interpolated where twice as many are exactly `PAYS` times as fast.
    """
    by: list[str] = [*_CURVE, "batch_size", "gbit"]
    times = _networks(ds)[[*_CURVE, "batch_size", "step_seconds"]].groupby(_CURVE)
    single = {key: dict(zip(own["batch_size"], own["step_seconds"], strict=True)) for key, own in times}
    made = []
    for key, group in _shared(ds)[[*by, "nodes", "step_seconds"]].groupby(by, sort=False):
        *values, batch, gbit = cast("tuple[Any, ...]", key)
        named, alone = dict(zip(_CURVE, values, strict=True)), single[tuple(values)]
        linked = {1.0: alone[batch], **dict(zip(group["nodes"], group["step_seconds"], strict=True))}
        unlinked = {batch / size: seconds for size, seconds in alone.items() if size <= batch}
        made.append({**named, "batch_size": batch, "gbit": gbit, "nodes": _last_that_pays(linked)})
        made.append({**named, "batch_size": batch, "gbit": FREE, "nodes": _last_that_pays(unlinked)})
    return pd.DataFrame(made).drop_duplicates()


def _last_that_pays(seconds: dict[float, float]) -> float:
    nodes = np.array(sorted(seconds))
    times = np.array([seconds[count] for count in nodes])
    gains = times[:-1] / times[1:]
    if (gains >= PAYS).all():
        return float(nodes[-1])
    first = int(np.argmax(gains < PAYS))
    if first == 0:
        return 1.0
    before, after = gains[first - 1], gains[first]
    return float(nodes[first] * 2 ** ((before - PAYS) / (before - after)))


def stops_table(ds: xr.Dataset) -> pd.DataFrame:
    """Return for readers the nodes up to which twice as many pay: a row for each network and batch, links across."""
    size = (_networks(ds).groupby("arch")["parameters"].first() * 4 / 1e6).map("{:.0f}".format)
    found = stops(ds)
    last = found["arch"].map(BATCHES).fillna(found.groupby("arch")["batch_size"].transform("max"))
    shown = found[(found["batch_size"] == SAME_BATCH) | (found["batch_size"] == last)]
    by = ["device_kind", "arch", "batch_size"]
    usual = shown.pivot_table(index=by, columns="gbit", values="nodes", aggfunc="median")
    usual.columns = [f"{gbit:g} Gbit/s" if np.isfinite(gbit) else "free" for gbit in usual.columns]
    table = usual.map("{:.0f}".format)
    table.insert(0, "MB", size.reindex(table.index.get_level_values("arch")).to_numpy())
    return table.rename_axis(["device", "network", "global batch"])


def weak_table(ds: xr.Dataset) -> pd.DataFrame:
    """Return for readers the simulated efficiency of GPUs that keep their batch, by network and link."""
    table = rows(ds, "simulated").query("scaling == 'weak'")
    table = table.assign(MB=(table["parameters"] * 4 / 1e6).map("{:.0f}".format), gbit=table["link_mbit"] / 1000)
    wide = table.pivot_table(index=["arch", "MB"], columns="gbit", values="efficiency", sort=False)
    wide.columns = [f"{gbit:g} Gbit/s" for gbit in wide.columns]
    return wide.map("{:.0%}".format).rename_axis(["network", "MB"])
