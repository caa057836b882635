"""The numbers of DDP against Horovod: measured throughput and efficiency, simulated curves, and what tuning gains.

Rows are told apart by ``source``: measured here, or simulated. Means are geometric and intervals Student's over
the logarithms of repetitions; runs are compared within a repetition, as what slows a machine slows both. Libraries are
compared by throughput on as many ranks: an efficiency over a library's own rank hides what the library costs there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from dolb import summary

CELL = ("arch", "scaling", "library", "variant", "ranks")
SETTINGS = {"bucket_mb": 25.0, "fusion_threshold_mb": 128.0, "cycle_time_ms": 1.0}  # the libraries' defaults
DDP = "DDP"
OF_ITS_TIME, UNCACHED, LATER = "Horovod 0.20", "Horovod 0.20, no cache", "Horovod 0.21"
TUNED = "Horovod 0.20, tuned"
RING = "ring all-reduce"
LINKED = ("arch", "hosts", "library", "variant", "link_mbit")
DROP = 0.05  # a curve bends where a doubling of ranks costs more efficiency than this


def rows(ds: xr.Dataset, source: str) -> pd.DataFrame:
    """Return the runs of one source, ``measured`` or ``simulated``, with what holds for a run."""
    names = [str(name) for name, variable in ds.variables.items() if variable.dims == ("run",)]
    table = pd.DataFrame({name: ds[name].to_numpy() for name in names})
    table = table if "hosts" in table else table.assign(hosts=1, link_mbit=np.inf)  # from before there were links
    return table[table["source"] == source].reset_index(drop=True)


def on_loopback(ds: xr.Dataset) -> pd.DataFrame:
    """Return the measured runs whose ranks share one machine and its loopback interface.

    A run of weak scaling that is a point of strong scaling too, as many ranks with the same batch, is there for both.
    """
    measured = rows(ds, "measured")
    measured = measured[measured["hosts"] == 1].reset_index(drop=True)
    strong = measured[measured["scaling"] == "strong"]
    if strong.empty:
        return measured
    same = ["arch", "library", "repeat", "batch_size"]
    alone = np.log(strong["images_per_second"] / (strong["efficiency"] * strong["ranks"]))
    alone = np.exp(alone.groupby([strong[name] for name in same]).mean()).rename("alone")
    shared = measured[measured["scaling"] == "weak"].join(alone, on=same, how="inner").assign(scaling="strong")
    shared["efficiency"] = shared["images_per_second"] / (shared.pop("alone") * shared["ranks"])
    point = [*same, "ranks", *SETTINGS]
    lacking = ~pd.MultiIndex.from_frame(shared[point]).isin(pd.MultiIndex.from_frame(strong[point]))
    return pd.concat([measured, shared[lacking]], ignore_index=True)


def narrow(ds: xr.Dataset, **values: Any) -> xr.Dataset:
    """Keep measured runs whose config has one of these values, as `summary.narrow` does, and every simulated row."""
    simulated = ds["source"].to_numpy() == "simulated"
    kept = set(summary.narrow(ds.isel(run=np.flatnonzero(~simulated)), **values)["key"].to_numpy())
    return ds.isel(run=np.flatnonzero(simulated | np.isin(ds["key"].to_numpy(), list(kept))))


def cells(ds: xr.Dataset) -> pd.DataFrame:
    """Return measured throughput and efficiency by network, scaling, library and ranks, at the default settings."""
    measured = on_loopback(ds)
    usual = measured[_usual(measured)]
    made = []
    for values, group in usual.groupby(list(CELL), sort=True):
        speed, efficiency = (geometric(group[name].to_numpy()) for name in ("images_per_second", "efficiency"))
        made.append(
            {
                **dict(zip(CELL, values, strict=True)),
                **dict(zip(("images_per_second", "speed_low", "speed_high"), speed, strict=True)),
                **dict(zip(("efficiency", "low", "high"), efficiency, strict=True)),
                "batch_size": int(group["batch_size"].iloc[0]),
                "repeats": len(group),
                "device": group["device"].iloc[0],
                "source": "measured",
            }
        )
    return pd.DataFrame(made)


def made_in_words(cells: pd.DataFrame, made: set[str], grid: set[str]) -> str:
    """Say how many measurements there are, of how many cells, how often they were repeated, and what the grid lacks.

    ``made`` and ``grid`` are keys. A grid whose settings have changed since is lacking as a whole.
    """
    once = int((cells["repeats"] == 1).sum())
    told = f"{len(made)} measurements stand behind this half, of {len(cells)} cells."
    if once:
        told += (
            f" {once} of these were measured once: they have no bar, and may be off by what a repetition would show."
        )
    if not (lacking := len(grid - made)):
        return told
    if lacking == len(grid):
        return (
            f"{told} They were made with other settings than the grid has now, and all of its {len(grid)} are to come."
        )
    return f"{told} Of the grid of the paper scale {lacking} of {len(grid)} are not made yet."


def gaps(ds: xr.Dataset) -> pd.DataFrame:
    """Return by network, scaling and ranks how many times Horovod's throughput DDP's is, with its interval."""
    measured = on_loopback(ds)
    return _ddp_over_horovod(measured[_usual(measured) & (measured["ranks"] > 1)], ["arch", "scaling", "ranks"])


def _ddp_over_horovod(runs: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    wide = runs.pivot_table(index=[*by, "repeat"], columns="library", values="images_per_second")
    if not {"ddp", "horovod"} <= set(wide):
        return pd.DataFrame(columns=[*by, "ratio", "low", "high", "repeats"])
    return _ratios((wide["ddp"] / wide["horovod"]).dropna(), by)


# -- measured over links -----------------------------------------------------------------------------------------------


def linked(ds: xr.Dataset) -> pd.DataFrame:
    """Return seconds of a step, throughput and efficiency by network, hosts, library and the rate of links.

    The table is empty where nothing was measured over links.
    """
    measured = rows(ds, "measured")
    made = []
    for values, group in measured[measured["hosts"] > 1].groupby(list(LINKED), sort=True):
        batch = int(group["batch_size"].iloc[0])
        speed, efficiency = (geometric(group[name].to_numpy()) for name in ("images_per_second", "efficiency"))
        made.append(
            {
                **dict(zip(LINKED, values, strict=True)),
                **dict(zip(("step_seconds", "step_high", "step_low"), (batch / value for value in speed), strict=True)),
                **dict(zip(("efficiency", "low", "high"), efficiency, strict=True)),
                "images_per_second": speed[0],
                "achieved_mbit": geometric(group["achieved_mbit"].to_numpy())[0],
                "link_latency_seconds": geometric(group["link_latency_seconds"].to_numpy())[0],
                "limit": rate_in_words(float(group["link_mbit"].iloc[0])),
                "batch_size": batch,
                "repeats": len(group),
                "device": group["device"].iloc[0],
                "source": "measured",
            }
        )
    return pd.DataFrame(made)


def linked_gaps(ds: xr.Dataset) -> pd.DataFrame:
    """Return by network, hosts and the rate of links how many times Horovod's throughput DDP's is."""
    measured = rows(ds, "measured")
    return _ddp_over_horovod(measured[measured["hosts"] > 1], ["arch", "hosts", "link_mbit"])


def links_in_words(cells: pd.DataFrame, points: pd.DataFrame) -> str:
    """Say what was measured over links, and by how much the simulator is off where nothing was fitted.

    ``cells`` are those of `linked`; ``points`` have used (fit or judge) and error, as the simulator's check has them.
    """
    hosts = ", ".join(map(str, sorted(set(cells["hosts"]))))
    limits = ", ".join(dict.fromkeys(cells.sort_values("link_mbit")["limit"]))
    errors = points.loc[points["used"] == "judge", "error"].abs()
    told = f"Measured: {', '.join(sorted(set(cells['arch'])))} on {hosts} hosts, with links of {limits}. "
    if errors.empty:
        return f"{told}One rate alone does not judge the simulator."
    return (
        f"{told}On links that it was not fitted to the simulator is off by {errors.max():.0%} at most, "
        f"{errors.median():.0%} in the median."
    )


def rate_in_words(mbit: float) -> str:
    """Say a rate as people say it."""
    if np.isinf(mbit):
        return "no limit"
    return f"{mbit:g} Mbit/s" if mbit < 1000 else f"{mbit / 1000:g} Gbit/s"


# -- settings ----------------------------------------------------------------------------------------------------------


def tuned(ds: xr.Dataset) -> pd.DataFrame:
    """Return, for every setting that was tuned, its throughput over that of the defaults.

    Measured are those on the number of ranks on which most was, with an interval over repetitions; simulated ones have
    none.
    """
    parts = [_tuned_measured(on_loopback(ds)), _tuned_simulated(rows(ds, "simulated"))]
    table = pd.concat([part for part in parts if len(part)], ignore_index=True)
    table = table.reindex(columns=[*table, *{"low", "high", "repeats"}.difference(table)])
    names = table["variant"].str.split(",").str[0]
    return table.assign(
        panel=table["source"] + ": " + names + " on " + table["ranks"].astype(str) + " ranks, " + table["arch"]
    )


def _tuned_measured(measured: pd.DataFrame) -> pd.DataFrame:
    weak = measured[measured["scaling"] == "weak"]
    changed = weak.loc[~_usual(weak), ["arch", "ranks"]]
    often = changed["ranks"].value_counts().sort_index(ascending=False)
    weak = weak[weak["arch"].isin(changed["arch"]) & (weak["ranks"] == (often.idxmax() if len(often) else 0))]
    same = ["arch", "library", "repeat"]
    usual = weak[_usual(weak)].set_index(same)["images_per_second"]
    pairs = weak.join(usual.rename("usual"), on=same).dropna(subset="usual")
    by = ["arch", "library", "variant", "ranks", *SETTINGS]
    ratio = (pairs["images_per_second"] / pairs["usual"]).set_axis(pd.MultiIndex.from_frame(pairs[by]))
    return _ratios(ratio, by).assign(source="measured", setting=lambda table: _in_words(table))


def _tuned_simulated(simulated: pd.DataFrame) -> pd.DataFrame:
    table = simulated[simulated["variant"] == TUNED]
    if table.empty:
        return table
    usual = curves_at(simulated, OF_ITS_TIME).set_index("ranks")["images_per_second"]
    ratio = table["images_per_second"] / table["ranks"].map(usual)
    kept = table[["arch", "library", "variant", "ranks", *SETTINGS, "source"]]
    return kept.assign(ratio=ratio, setting=_in_words(kept))


def _in_words(table: pd.DataFrame) -> list[str]:
    return [
        f"buckets of {row.bucket_mb:g} MiB"
        if row.library == "ddp"
        else f"cycle {row.cycle_time_ms:g} ms, fusion {row.fusion_threshold_mb:g} MiB"
        for row in table.itertuples()
    ]


def labelled(points: pd.DataFrame) -> pd.DataFrame:
    """Give the points of a calibration a text that says what each was."""
    if "what" in points:
        return points.assign(label=points["what"] + " on " + points["ranks"].astype(str) + " GPUs")
    names = points["library"].map({"ddp": "DDP", "horovod": "Horovod"})
    where = " on " + points["ranks"].astype(str) + " ranks, "
    return points.assign(label=points["arch"] + ", " + names + where + _in_words(points))


# -- simulated ---------------------------------------------------------------------------------------------------------


def curves(ds: xr.Dataset) -> pd.DataFrame:
    """Return the simulated curves with their bands."""
    simulated = rows(ds, "simulated")
    return simulated[simulated["efficiency_low"].notna()].reset_index(drop=True)


def curves_at(simulated: pd.DataFrame, variant: str) -> pd.DataFrame:
    """Return one simulated curve, in order of ranks."""
    chosen = simulated[(simulated["variant"] == variant) & simulated["efficiency_low"].notna()]
    return chosen.sort_values("ranks", ignore_index=True)


def ablation(ds: xr.Dataset) -> pd.DataFrame:
    """Return the curve that bends with everything on, and with one mechanism off at a time; ``gained`` is the rise."""
    simulated = rows(ds, "simulated")
    table = simulated[simulated["variant"] == UNCACHED].copy()
    whole = table[table["switched_off"] == "none"].set_index("ranks")["efficiency"]
    table["gained"] = table["efficiency"] - table["ranks"].map(whole)
    return table.sort_values(["switched_off", "ranks"], ignore_index=True)


def bend(ds: xr.Dataset, variant: str) -> float:
    """Return the fewest ranks from which a doubling costs more than ``DROP`` of efficiency, or NaN where none does.

    Where twice a number of ranks was not simulated, the curve is taken to be straight over the logarithm of ranks.
    """
    curve = curves_at(rows(ds, "simulated"), variant)
    ranks, efficiency = curve["ranks"].to_numpy(float), curve["efficiency"].to_numpy()
    lost = efficiency - np.interp(np.log(2 * ranks), np.log(ranks), efficiency)
    found = ranks[(lost > DROP) & (2 * ranks <= ranks[-1]) & (ranks > 1)]
    return float(found[0]) if len(found) else float("nan")


def ring_steps(ds: xr.Dataset) -> pd.DataFrame:
    """Return how many steps a ring all-reduce took, by ranks."""
    simulated = rows(ds, "simulated")
    return simulated.loc[simulated["variant"] == RING, ["ranks", "message_steps"]].sort_values("ranks")


# -- intervals ---------------------------------------------------------------------------------------------------------


def _usual(table: pd.DataFrame) -> pd.Series:
    return pd.Series(np.all([table[name] == value for name, value in SETTINGS.items()], axis=0), index=table.index)


def _ratios(ratio: pd.Series, by: Sequence[str]) -> pd.DataFrame:
    """Return the geometric mean of ratios by group, with Student's interval over their logarithms."""
    made = []
    for values, group in ratio.groupby(level=list(by), sort=True):
        middle, low, high = geometric(group.to_numpy())
        made.append(
            {
                **dict(zip(by, values if isinstance(values, tuple) else (values,), strict=True)),
                "ratio": middle,
                "low": low,
                "high": high,
                "repeats": len(group),
            }
        )
    return pd.DataFrame(made)


def geometric(values: np.ndarray) -> tuple[float, float, float]:
    """Return the geometric mean and Student's interval over logarithms, which suits speeds and their ratios."""
    middle, low, high = (float(np.exp(value)) for value in mean_interval(np.log(values)))
    return middle, low, high


def mean_interval(values: np.ndarray) -> tuple[float, float, float]:
    """Return the mean and Student's interval of it; of one value the interval is not known (NaN)."""
    mean = float(values.mean())
    if len(values) < 2:
        return mean, float("nan"), float("nan")
    half = stats.t.ppf((1 + summary.CONFIDENCE) / 2, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return mean, mean - float(half), mean + float(half)
