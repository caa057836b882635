"""The numbers of DDP against Horovod: measured on one machine and over links, tuned, and simulated to all of Summit.

Rows are told apart by ``source``: measured here, or simulated. Means are geometric; cells have few repetitions, so the
cells of a network share one spread. Libraries are compared by throughput on as many ranks within a repetition, as what
slows the machine slows both.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from dolb.findings import runs
from dolb.findings.intervals import gmean, pooled_geometric

SPEED, JUDGED, ALONE = "images_per_second", "judged_images_per_second", "alone_images_per_second"
SETTINGS = {"bucket_mb": 25.0, "fusion_threshold_mb": 128.0, "cycle_time_ms": 1.0}  # the libraries' defaults
DDP, OF_ITS_TIME, UNCACHED = "DDP", "Horovod 0.20", "Horovod 0.20, no cache"
TUNED, RING, FREE = "Horovod 0.20, tuned", "ring all-reduce", "Horovod 0.20, no cache, free coordinator"
EVERY = "all networks"
SLOW = 1000.0  # Mbit/s; up to there links set the pace and repetitions hardly differ, beyond the machine's noise shows


def rows(ds: xr.Dataset, source: str) -> pd.DataFrame:
    """Return the runs of one source, ``measured`` or ``simulated``, with what holds for a run."""
    return runs.table(ds).query("source == @source").reset_index(drop=True)


def narrow(ds: xr.Dataset, **values: Any) -> xr.Dataset:
    """Keep measured runs whose config has one of these values, as `runs.narrow` does, and every simulated row."""
    simulated = ds["source"].to_numpy() == "simulated"
    kept = runs.narrow(runs.keep(ds, ~simulated), **values)["key"]
    return runs.keep(ds, simulated | np.isin(ds["key"], kept))


# Measured on one machine


def _on_one_host(ds: xr.Dataset) -> pd.DataFrame:
    return rows(ds, "measured").query("hosts == 1")


def at_defaults(table: pd.DataFrame) -> pd.Series:
    """Return which rows are at the libraries' default settings."""
    return (table[list(SETTINGS)] == list(SETTINGS.values())).all(axis=1)


def cells(ds: xr.Dataset) -> pd.DataFrame:
    """Return measured throughput and efficiency by network, scaling, library and ranks, at the default settings."""
    measured = _on_one_host(ds)
    by = ["arch", "scaling", "library", "variant", "ranks", "several"]
    groups = measured[at_defaults(measured)].assign(several=measured["ranks"] > 1).set_index([*by, "repeat"])
    # One rank alone waits for nobody, and spreads otherwise.
    table = pooled_geometric(groups["efficiency"], ("arch", "several"))
    table[SPEED] = groups.groupby(level=by)[SPEED].agg(gmean)
    table["batch_size"] = groups.groupby(level=by)["batch_size"].first()
    return table.rename(columns={"value": "efficiency", "n": "repeats"}).reset_index().drop(columns="several")


def _ratios(ds: xr.Dataset) -> pd.Series:
    """Return DDP's throughput over Horovod's in the same repetition, on several ranks at the default settings."""
    measured = _on_one_host(ds).query("ranks > 1")
    by = ["arch", "scaling", "ranks", "repeat"]
    wide = measured[at_defaults(measured)].pivot_table(index=by, columns="library", values=SPEED)
    wide = wide.reindex(columns=["ddp", "horovod"])
    return (wide["ddp"] / wide["horovod"]).dropna()


def leads(ds: xr.Dataset) -> pd.DataFrame:
    """Return how many times Horovod's DDP's throughput is in weak scaling, by ranks and network, ``EVERY`` for all.

    The networks of a repetition are measured in one launch and share what that launch had. So for ``EVERY`` they are
    averaged within a launch, and n counts launches.
    """
    ratio = _ratios(ds)
    if ratio.empty:
        return pd.DataFrame(columns=["arch", "ranks", "value", "low", "high", "n"])
    own = pooled_geometric(ratio, ["arch"]).reset_index().query("scaling == 'weak'").drop(columns="scaling")
    weak = ratio.rename("ratio").reset_index().query("scaling == 'weak'")
    wide = weak.pivot_table("ratio", ["ranks", "repeat"], "arch").dropna()
    if wide.empty:
        return own
    by_launch = pd.Series(gmean(wide, axis=1), index=wide.index)
    return pd.concat([own, pooled_geometric(by_launch).reset_index().assign(arch=EVERY)], ignore_index=True)


# Settings


def over_defaults(ds: xr.Dataset) -> pd.Series:
    """Return throughput over that at the defaults in its repetition, on the ranks on which most settings were tried."""
    weak = _on_one_host(ds).query("scaling == 'weak'")
    changed = weak.loc[~at_defaults(weak), ["arch", "ranks"]]
    often = changed["ranks"].value_counts().sort_index(ascending=False)
    weak = weak[weak["arch"].isin(changed["arch"]) & (weak["ranks"] == (often.idxmax() if len(often) else 0))]
    same = ["arch", "library", "repeat"]
    pairs = weak.join(weak[at_defaults(weak)].set_index(same)[SPEED].rename("usual"), on=same).dropna(subset="usual")
    by = ["arch", "library", "variant", "ranks", *SETTINGS, "repeat"]
    return (pairs[SPEED] / pairs["usual"]).set_axis(pd.MultiIndex.from_frame(pairs[by]))


def tuned(ds: xr.Dataset) -> pd.DataFrame:
    """Return the throughput of every setting that was tried over that of the defaults, measured and simulated.

    A setting of a network takes the spread of the libraries' ratios: its own would count the one run of the defaults
    again and again. The defaults are 1 by definition, and simulated settings have no interval.
    """
    ratio = over_defaults(ds)
    measured = pd.DataFrame()
    if len(ratio):
        measured = pooled_geometric(ratio, ["arch"], spread_of=_ratios(ds)).reset_index().assign(source="measured")
        measured.loc[at_defaults(measured), ["low", "high"]] = np.nan
    simulated = rows(ds, "simulated").query("variant == @TUNED")
    usual = simulated["ranks"].map(curve(ds, OF_ITS_TIME).set_index("ranks")[SPEED])
    columns = ["arch", "library", "ranks", *SETTINGS, "source", "value", "low", "high", "n"]
    table = pd.concat([measured, simulated.assign(value=simulated[SPEED] / usual)]).reindex(columns=columns)
    table = table.sort_values(["library", "source", *SETTINGS], ignore_index=True, kind="stable")
    setting = [
        f"buckets of {row.bucket_mb:g} MiB"
        if row.library == "ddp"
        else f"cycle {row.cycle_time_ms:g} ms, fusion {row.fusion_threshold_mb:g} MiB"
        for row in table.itertuples()
    ]
    where = table["ranks"].astype(str) + np.where(table["source"] == "measured", " processes, ", " GPUs, ")
    library = table["library"].map({"ddp": "DDP", "horovod": "Horovod"})
    return table.assign(setting=setting, panel=table["source"] + ": " + library + " on " + where + table["arch"])


# Over links


def linked_cells(ds: xr.Dataset) -> pd.DataFrame:
    """Return efficiency and seconds of a step by network, hosts, library and the rate of links; maybe no row.

    Every launch measures one rank alone; libraries of a repetition are taken over the mean of theirs, so that their
    efficiencies compare as their throughputs do.
    """
    measured = rows(ds, "measured").query("hosts > 1")
    if measured.empty:
        return measured
    alone = measured.groupby(["arch", "hosts", "link_mbit", "repeat"])[ALONE].transform(gmean)
    measured = measured.assign(efficiency=measured["efficiency"] * measured[ALONE] / alone)
    by = ["arch", "hosts", "library", "variant", "link_mbit", "slow"]
    indexed = measured.assign(slow=measured["link_mbit"] <= SLOW).set_index([*by, "repeat"])
    groups = indexed.groupby(level=by)
    table = pooled_geometric(indexed["efficiency"], ["slow"]).rename(columns={"value": "efficiency", "n": "repeats"})
    table["step_seconds"] = groups["batch_size"].first() / groups[SPEED].agg(gmean)
    table["achieved_mbit"] = groups["achieved_mbit"].agg(gmean)
    return table.reset_index().drop(columns="slow")


# Simulated


def curve(ds: xr.Dataset, variant: str) -> pd.DataFrame:
    """Return one simulated curve, in order of ranks."""
    return curves(ds).query("variant == @variant").sort_values("ranks", ignore_index=True)


def curves(ds: xr.Dataset) -> pd.DataFrame:
    """Return the simulated curves with their bands, and as ``FREE`` that without a cache if agreeing cost nothing."""
    simulated = rows(ds, "simulated")
    free = simulated.query("variant == @UNCACHED and switched_off == 'negotiation'").assign(variant=FREE)
    kept = pd.concat([simulated[simulated["efficiency_low"].notna()], free], ignore_index=True)
    return kept[["variant", "arch", "network", "ranks", SPEED, "efficiency", "efficiency_low", "efficiency_high"]]


def simulated_leads(ds: xr.Dataset) -> pd.DataFrame:
    """Return DDP's efficiency over that of each Horovod by ranks, with the middle nine tenths of paired draws."""
    simulated = rows(ds, "simulated").query("ranks > 1").dropna(subset="ddp_lead_low").reset_index(drop=True)
    ddp = simulated["ranks"].map(curve(ds, DDP).set_index("ranks")["efficiency"])
    table = simulated.assign(value=ddp / simulated["efficiency"])
    table = table.rename(columns={"ddp_lead_low": "low", "ddp_lead_high": "high"})
    return table[["variant", "ranks", "value", "low", "high"]]


def judged(ds: xr.Dataset) -> pd.DataFrame:
    """Return the logarithm by which the simulator is off in throughput, by point and library, where it was not fitted.

    The table is empty for results that nobody has judged.
    """
    point = ["arch", "batch_size", "ranks", *SETTINGS]
    measured = _on_one_host(ds).query("ranks > 1").reindex(columns=[*point, "library", SPEED, JUDGED])
    off = np.log(measured[JUDGED] / measured[SPEED])  # the mean over repetitions, of logarithms
    wide = measured.assign(off=off).pivot_table(index=point, columns="library", values="off")
    return wide.reindex(columns=["ddp", "horovod"])


def simulator_errors(ds: xr.Dataset, others: Mapping[str, pd.Series]) -> pd.DataFrame:
    """Return for readers how far the simulator is off where it was not fitted; ``others`` are more relative errors."""
    off = judged(ds)
    found = {
        "throughput on one machine": np.expm1(pd.concat([off["ddp"], off["horovod"]]).dropna()),
        "DDP over Horovod on one machine": np.expm1((off["ddp"] - off["horovod"]).dropna()),
        **others,
    }
    return pd.DataFrame(
        [
            {
                "simulated": name,
                "points": len(error),
                "median error": f"{error.abs().median():.0%}",
                "root mean square": f"{(error**2).mean() ** 0.5:.0%}",
                "largest": f"{error.abs().max():.0%}",
            }
            for name, error in found.items()
            if len(error)
        ]
    )
