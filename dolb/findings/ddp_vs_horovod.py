"""The numbers of DDP against Horovod: measured on one machine and over links, tuned, and simulated to all of Summit.

Rows are told apart by ``source``: measured here, or simulated. Means are geometric; cells have few repetitions, so the
cells of a network share one spread. Libraries are compared by throughput on as many ranks within a repetition, as what
slows the machine slows both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from dolb.findings import runs
from dolb.findings.intervals import pooled_geometric

SPEED, JUDGED = "images_per_second", "judged_images_per_second"
SETTINGS = {"bucket_mb": 25.0, "fusion_threshold_mb": 128.0, "cycle_time_ms": 1.0}  # the libraries' defaults
DDP, OF_ITS_TIME, UNCACHED = "DDP", "Horovod 0.20", "Horovod 0.20, no cache"
TUNED, RING, FREE = "Horovod 0.20, tuned", "ring all-reduce", "Horovod 0.20, no cache, free coordinator"
EVERY = "all networks"
SLOW = 1000.0  # Mbit/s; up to there links set the pace and repetitions hardly differ, beyond the machine's noise shows
_CELL = ["arch", "scaling", "library", "variant", "ranks"]
_LINKED = ["arch", "hosts", "library", "variant", "link_mbit"]


def rows(ds: xr.Dataset, source: str) -> pd.DataFrame:
    """Return the runs of one source, ``measured`` or ``simulated``, with what holds for a run."""
    names = [str(name) for name, variable in ds.variables.items() if variable.dims == ("run",)]
    table = pd.DataFrame({name: ds[name].to_numpy() for name in names})
    return table[table["source"] == source].reset_index(drop=True)


def narrow(ds: xr.Dataset, **values: Any) -> xr.Dataset:
    """Keep measured runs whose config has one of these values, as `runs.narrow` does, and every simulated row."""
    simulated = ds["source"].to_numpy() == "simulated"
    kept = set(runs.narrow(ds.isel(run=np.flatnonzero(~simulated)), **values)["key"].to_numpy())
    return ds.isel(run=np.flatnonzero(simulated | np.isin(ds["key"].to_numpy(), list(kept))))


# Measured on one machine


def _on_one_host(ds: xr.Dataset) -> pd.DataFrame:
    measured = rows(ds, "measured")
    return measured[measured["hosts"] == 1]


def _usual(table: pd.DataFrame) -> pd.Series:
    return pd.Series(np.all([table[name] == value for name, value in SETTINGS.items()], axis=0), index=table.index)


def cells(ds: xr.Dataset) -> pd.DataFrame:
    """Return measured throughput and efficiency by network, scaling, library and ranks, at the default settings."""
    measured = _on_one_host(ds)
    usual = measured[_usual(measured)].assign(several=lambda table: table["ranks"] > 1)
    indexed = usual.set_index([*_CELL, "several", "repeat"])
    alike = ("arch", "several")  # one rank alone waits for nobody, and spreads otherwise
    speed, efficiency = (pooled_geometric(indexed[name], alike) for name in (SPEED, "efficiency"))
    table = efficiency.rename(columns={"value": "efficiency", "n": "repeats"})
    table[[SPEED, "speed_low", "speed_high"]] = speed[["value", "low", "high"]]
    table["batch_size"] = indexed.groupby(level=[*_CELL, "several"])["batch_size"].first()
    return table.reset_index().drop(columns="several")


def _ratios(ds: xr.Dataset) -> pd.Series:
    """Return DDP's throughput over Horovod's in the same repetition, on several ranks at the default settings."""
    measured = _on_one_host(ds)
    measured = measured[_usual(measured) & (measured["ranks"] > 1)]
    wide = measured.pivot_table(index=["arch", "scaling", "ranks", "repeat"], columns="library", values=SPEED)
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
    own = pooled_geometric(ratio, ["arch"]).reset_index()
    own = own[own["scaling"] == "weak"].drop(columns="scaling")
    weak = ratio[ratio.index.get_level_values("scaling") == "weak"].droplevel("scaling")
    wide = weak.to_frame("ratio").pivot_table("ratio", ["ranks", "repeat"], "arch").dropna()
    if wide.empty:
        return own
    by_launch = pd.Series(stats.gmean(wide, axis=1), index=wide.index)
    return pd.concat([own, pooled_geometric(by_launch).reset_index().assign(arch=EVERY)], ignore_index=True)


# Settings


def _over_defaults(ds: xr.Dataset) -> pd.Series:
    """Return throughput over that at the defaults in its repetition, on the ranks on which most settings were tried."""
    weak = _on_one_host(ds).query("scaling == 'weak'")
    changed = weak.loc[~_usual(weak), ["arch", "ranks"]]
    often = changed["ranks"].value_counts().sort_index(ascending=False)
    weak = weak[weak["arch"].isin(changed["arch"]) & (weak["ranks"] == (often.idxmax() if len(often) else 0))]
    same = ["arch", "library", "repeat"]
    pairs = weak.join(weak[_usual(weak)].set_index(same)[SPEED].rename("usual"), on=same).dropna(subset="usual")
    by = ["arch", "library", "variant", "ranks", *SETTINGS, "repeat"]
    return (pairs[SPEED] / pairs["usual"]).set_axis(pd.MultiIndex.from_frame(pairs[by]))


def tuned(ds: xr.Dataset) -> pd.DataFrame:
    """Return the throughput of every setting that was tried over that of the defaults, measured and simulated.

    A setting of a network takes the spread of the libraries' ratios: its own would count the one run of the defaults
    again and again. The defaults are 1 by definition, and simulated settings have no interval.
    """
    ratio = _over_defaults(ds)
    measured = pooled_geometric(ratio, ["arch"], spread_of=_ratios(ds)) if len(ratio) else pd.DataFrame()
    measured = measured.reset_index().assign(source="measured")
    if len(measured):
        measured.loc[_usual(measured), ["low", "high"]] = np.nan
    simulated = rows(ds, "simulated")
    usual = curve(ds, OF_ITS_TIME).set_index("ranks")[SPEED]
    simulated = simulated[simulated["variant"] == TUNED].assign(
        value=lambda table: table[SPEED] / table["ranks"].map(usual)
    )
    columns = ["arch", "library", "ranks", *SETTINGS, "source", "value", "low", "high", "n"]
    table = pd.concat([measured, simulated], ignore_index=True).reindex(columns=columns)
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


def best_setting_held_out(ds: xr.Dataset) -> pd.Series:
    """Return for each launch the gain of Horovod's setting that is best in the other launches.

    The best of several settings is best by luck too; a launch that had no part in the choice does not have that luck.
    """
    ratio = _over_defaults(ds)
    if ratio.empty:
        return ratio
    table = ratio.rename("ratio").reset_index()
    table = table[(table["library"] == "horovod") & ~_usual(table)]
    wide = table.pivot_table(index="repeat", columns=list(SETTINGS), values="ratio").dropna(axis="columns")
    held_out = {
        repeat: float(wide.loc[repeat, wide.drop(index=repeat).agg(stats.gmean).idxmax()])
        for repeat in (wide.index if len(wide) > 1 else ())
    }
    return pd.Series(held_out, dtype=float)


# Over links


def linked_cells(ds: xr.Dataset) -> pd.DataFrame:
    """Return efficiency and seconds of a step by network, hosts, library and the rate of links; maybe no row."""
    measured = rows(ds, "measured")
    measured = measured[measured["hosts"] > 1].assign(slow=lambda table: table["link_mbit"] <= SLOW)
    if measured.empty:
        return measured
    by = [*_LINKED, "slow"]
    indexed = measured.set_index([*by, "repeat"])
    table = pooled_geometric(indexed["efficiency"], ["slow"]).rename(columns={"value": "efficiency", "n": "repeats"})
    groups = indexed.groupby(level=by)
    table["step_seconds"] = groups["batch_size"].first() / groups[SPEED].agg(stats.gmean)
    table["achieved_mbit"] = groups["achieved_mbit"].agg(stats.gmean)
    return table.reset_index().drop(columns="slow")


# Simulated


def curve(ds: xr.Dataset, variant: str) -> pd.DataFrame:
    """Return one simulated curve, in order of ranks."""
    simulated = rows(ds, "simulated")
    chosen = simulated[(simulated["variant"] == variant) & simulated["efficiency_low"].notna()]
    return chosen.sort_values("ranks", ignore_index=True)


def curves(ds: xr.Dataset) -> pd.DataFrame:
    """Return the simulated curves with their bands, and as ``FREE`` that without a cache if agreeing cost nothing."""
    simulated = rows(ds, "simulated")
    free = simulated[(simulated["variant"] == UNCACHED) & (simulated["switched_off"] == "negotiation")]
    kept = pd.concat([simulated[simulated["efficiency_low"].notna()], free.assign(variant=FREE)])
    return kept[["variant", "arch", "network", "ranks", "efficiency", "efficiency_low", "efficiency_high"]].reset_index(
        drop=True
    )


def simulated_leads(ds: xr.Dataset) -> pd.DataFrame:
    """Return DDP's efficiency over that of each Horovod by ranks, with the middle nine tenths of paired draws."""
    simulated = rows(ds, "simulated")
    simulated = simulated[simulated["ddp_lead_low"].notna() & (simulated["ranks"] > 1)]
    ddp = curve(ds, DDP).set_index("ranks")["efficiency"]
    table = simulated.assign(value=simulated["ranks"].map(ddp) / simulated["efficiency"])
    table = table.rename(columns={"ddp_lead_low": "low", "ddp_lead_high": "high"})
    return table[["variant", "ranks", "value", "low", "high"]].reset_index(drop=True)


def ring_steps(ds: xr.Dataset) -> pd.Series:
    """Return how many steps a ring all-reduce took, by ranks."""
    simulated = rows(ds, "simulated")
    return simulated[simulated["variant"] == RING].set_index("ranks")["message_steps"].sort_index()


def judged(ds: xr.Dataset) -> pd.DataFrame:
    """Return the logarithm by which the simulator is off in throughput, by point and library, where it was not fitted.

    The table is empty for results that nobody has judged.
    """
    measured = _on_one_host(ds).reindex(columns=["arch", "batch_size", "ranks", *SETTINGS, "library", SPEED, JUDGED])
    known = np.log(
        measured[(measured["ranks"] > 1) & measured[JUDGED].notna()]
        .groupby(["arch", "batch_size", "ranks", *SETTINGS, "library"])[[SPEED, JUDGED]]
        .agg(stats.gmean)
    )
    off = (known[JUDGED] - known[SPEED]).rename("off").reset_index()
    wide = off.pivot_table(index=["arch", "batch_size", "ranks", *SETTINGS], columns="library", values="off")
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
