"""The numbers of DDP against Horovod: measured throughput and efficiency, simulated curves, and what tuning gains.

Rows are told apart by ``source``: measured here, or simulated. Means are geometric and intervals Student's, with one
spread of logarithms for all cells of a network, as cells have few repetitions (for all cells, where a network has too
few in all); runs are compared within a repetition, as
what slows a machine slows both. Libraries are compared by throughput on as many ranks: an efficiency over a library's
own rank hides what the library costs there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from dolb import findings as summary
from dolb.findings import pooled
from dolb.findings.pooled import Spread

CELL = ("arch", "scaling", "library", "variant", "ranks")
SPEED = "images_per_second"
SETTINGS = {"bucket_mb": 25.0, "fusion_threshold_mb": 128.0, "cycle_time_ms": 1.0}  # the libraries' defaults
DDP = "DDP"
OF_ITS_TIME, UNCACHED, LATER = "Horovod 0.20", "Horovod 0.20, no cache", "Horovod 0.21"
TUNED = "Horovod 0.20, tuned"
RING = "ring all-reduce"
DROP = 0.05  # a curve bends where a doubling of ranks costs more of efficiency than these 5 points


def rows(ds: xr.Dataset, source: str) -> pd.DataFrame:
    """Return the runs of one source, ``measured`` or ``simulated``, with what holds for a run."""
    names = [str(name) for name, variable in ds.variables.items() if variable.dims == ("run",)]
    table = pd.DataFrame({name: ds[name].to_numpy() for name in names})
    table = table if "hosts" in table else table.assign(hosts=1, link_mbit=np.inf)  # from before there were links
    return table[table["source"] == source].reset_index(drop=True)


def on_loopback(ds: xr.Dataset) -> pd.DataFrame:
    """Return the measured runs whose ranks share one machine and its loopback interface.

    A run of weak scaling that is a point of strong scaling too, as many ranks with the same batch, is there for both;
    the second time it is ``shared``, so that what counts runs can count it once.
    """
    measured = rows(ds, "measured").assign(shared=False)
    measured = measured[measured["hosts"] == 1].reset_index(drop=True)
    strong = measured[measured["scaling"] == "strong"]
    if strong.empty:
        return measured
    same = ["arch", "library", "repeat", "batch_size"]
    alone = np.log(strong[SPEED] / (strong["efficiency"] * strong["ranks"]))
    alone = np.exp(alone.groupby([strong[name] for name in same]).mean()).rename("alone")
    shared = (
        measured[measured["scaling"] == "weak"].join(alone, on=same, how="inner").assign(scaling="strong", shared=True)
    )
    shared["efficiency"] = shared[SPEED] / (shared.pop("alone") * shared["ranks"])
    point = [*same, "ranks", *SETTINGS]
    lacking = ~pd.MultiIndex.from_frame(shared[point]).isin(pd.MultiIndex.from_frame(strong[point]))
    return pd.concat([measured, shared[lacking]], ignore_index=True)


def narrow(ds: xr.Dataset, **values: Any) -> xr.Dataset:
    """Keep measured runs whose config has one of these values, as `summary.narrow` does, and every simulated row."""
    simulated = ds["source"].to_numpy() == "simulated"
    kept = set(summary.narrow(ds.isel(run=np.flatnonzero(~simulated)), **values)["key"].to_numpy())
    return ds.isel(run=np.flatnonzero(simulated | np.isin(ds["key"].to_numpy(), list(kept))))


def cells(ds: xr.Dataset) -> pd.DataFrame:
    """Return measured throughput and efficiency by network, scaling, library and ranks, at the default settings.

    ``shared`` are the cells of strong scaling whose runs are those of a cell of weak scaling.
    """
    usual, spreads = at_defaults(ds), cell_spreads(ds)
    made = []
    for values, group in usual.groupby(list(CELL), sort=True):
        of = {name: by[group["arch"].iloc[0]] for name, by in spreads[bool(group["ranks"].iloc[0] > 1)].items()}
        speed, efficiency = (pooled.geometric(group[name].to_numpy(), of[name]) for name in (SPEED, "efficiency"))
        made.append(
            {
                **dict(zip(CELL, values, strict=True)),
                **dict(zip((SPEED, "speed_low", "speed_high"), speed, strict=True)),
                **dict(zip(("efficiency", "low", "high"), efficiency, strict=True)),
                "batch_size": int(group["batch_size"].iloc[0]),
                "repeats": len(group),
                "shared": bool(group["shared"].all()),
                "device": group["device"].iloc[0],
                "source": "measured",
            }
        )
    return pd.DataFrame(made)


def at_defaults(ds: xr.Dataset) -> pd.DataFrame:
    """Return the runs of `on_loopback` at the libraries' default settings."""
    measured = on_loopback(ds)
    return measured[_usual(measured)]


def cell_spreads(ds: xr.Dataset) -> dict[bool, dict[str, dict[str, Spread]]]:
    """Return what repetitions of a cell differ by, of throughput and of efficiency, for one rank and for several.

    The keys are whether there are several ranks, the name of the quantity, and the network. Each run counts once.
    """
    usual = at_defaults(ds)
    archs = sorted(set(usual["arch"]))
    usual = usual[~usual["shared"]].set_index(list(CELL), drop=False)
    return {
        several: {name: _by_network(part[name], CELL, archs) for name in (SPEED, "efficiency")}
        for several, part in ((False, usual[usual["ranks"] == 1]), (True, usual[usual["ranks"] > 1]))
    }


def _by_network(values: pd.Series, by: Sequence[str], archs: Sequence[str]) -> dict[str, Spread]:
    """Pool within each network what values differ by within cells, which levels of the index tell apart."""
    of = values.index.get_level_values("arch")
    return pooled.by_kind({arch: pooled.spread(values[of == arch], list(by)) for arch in archs})


def gaps(ds: xr.Dataset) -> pd.DataFrame:
    """Return by network, scaling and ranks how many times Horovod's throughput DDP's is, with its interval.

    ``shared`` are those of strong scaling whose runs are those of weak scaling.
    """
    by = ["arch", "scaling", "ranks", "shared"]
    return ratios(paired(on_loopback(ds), by), by, _ratio_spreads(on_loopback(ds)))


def paired(runs: pd.DataFrame, by: list[str]) -> pd.Series:
    """Return DDP's throughput over Horovod's in the same repetition, on several ranks at the default settings."""
    runs = runs[_usual(runs) & (runs["ranks"] > 1)]
    wide = runs.pivot_table(index=[*by, "repeat"], columns="library", values=SPEED)
    wide = wide.reindex(columns=["ddp", "horovod"])
    return (wide["ddp"] / wide["horovod"]).dropna()


def _ratio_spreads(measured: pd.DataFrame) -> dict[str, Spread]:
    """Pool what ratios of two runs of a network differ by, those of the libraries on as many ranks in one repetition.

    Ratios of settings to the defaults take it too: they share one run of the defaults, so that their own spread would
    count that one again and again.
    """
    by = ["arch", "scaling", "ranks"]
    runs = measured[~measured["shared"]]
    return pooled.by_kind(
        {arch: pooled.spread(paired(runs[runs["arch"] == arch], by), by) for arch in sorted(set(measured["arch"]))}
    )


# -- settings ----------------------------------------------------------------------------------------------------------


def tuned(ds: xr.Dataset) -> pd.DataFrame:
    """Return, for every setting that was tuned, its throughput over that of the defaults.

    Measured are those on the number of ranks on which most was, with an interval; simulated ones have none.
    ``default`` are the defaults themselves, which are there to be drawn and are none of the settings tried.
    """
    parts = [_tuned_measured(on_loopback(ds)), _tuned_simulated(rows(ds, "simulated"))]
    table = pd.concat([part for part in parts if len(part)], ignore_index=True)
    table = table.reindex(columns=[*table, *{"low", "high", "repeats"}.difference(table)])
    names = table["variant"].str.split(",").str[0]
    return table.assign(
        panel=table["source"] + ": " + names + " on " + table["ranks"].astype(str) + " ranks, " + table["arch"]
    )


def _tuned_measured(measured: pd.DataFrame) -> pd.DataFrame:
    ratio, by = _over_defaults(measured)
    table = ratios(ratio, by, _ratio_spreads(measured))
    table = table.assign(source="measured", setting=_in_words(table), default=_usual(table))
    table.loc[table["default"], ["low", "high", "log_error"]] = np.nan  # 1 by definition
    return table


def _over_defaults(measured: pd.DataFrame) -> tuple[pd.Series, list[str]]:
    """Return every run's throughput over that at the defaults in its repetition, and what tells settings apart."""
    weak = measured[measured["scaling"] == "weak"]
    changed = weak.loc[~_usual(weak), ["arch", "ranks"]]
    often = changed["ranks"].value_counts().sort_index(ascending=False)
    weak = weak[weak["arch"].isin(changed["arch"]) & (weak["ranks"] == (often.idxmax() if len(often) else 0))]
    same = ["arch", "library", "repeat"]
    usual = weak[_usual(weak)].set_index(same)[SPEED]
    pairs = weak.join(usual.rename("usual"), on=same).dropna(subset="usual")
    by = ["arch", "library", "variant", "ranks", *SETTINGS]
    return (pairs[SPEED] / pairs["usual"]).set_axis(pd.MultiIndex.from_frame(pairs[by])), by


def _tuned_simulated(simulated: pd.DataFrame) -> pd.DataFrame:
    table = simulated[simulated["variant"] == TUNED]
    if table.empty:
        return table
    usual = curves_at(simulated, OF_ITS_TIME)
    ratio = table[SPEED] / table["ranks"].map(usual.set_index("ranks")[SPEED])
    kept = table[["arch", "library", "variant", "ranks", *SETTINGS, "source"]]
    default = np.all([kept[name] == usual[name].iloc[0] for name in SETTINGS], axis=0)
    return kept.assign(ratio=ratio, setting=_in_words(kept), default=default)


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


def bend_range(ds: xr.Dataset, variant: str) -> tuple[float, float]:
    """Return between which ranks a curve bends in the middle nine tenths of the draws; infinite where it does not."""
    curve = curves_at(rows(ds, "simulated"), variant)
    return float(curve["bend_low"].iloc[0]), float(curve["bend_high"].iloc[0])


def ring_steps(ds: xr.Dataset) -> pd.DataFrame:
    """Return how many steps a ring all-reduce took, by ranks."""
    simulated = rows(ds, "simulated")
    return simulated.loc[simulated["variant"] == RING, ["ranks", "message_steps"]].sort_values("ranks")


# -- intervals ---------------------------------------------------------------------------------------------------------


def _usual(table: pd.DataFrame) -> pd.Series:
    return pd.Series(np.all([table[name] == value for name, value in SETTINGS.items()], axis=0), index=table.index)


def ratios(ratio: pd.Series, by: Sequence[str], spreads: Mapping[str, Spread]) -> pd.DataFrame:
    """Return the geometric mean of ratios by group, with its interval by the spread of its network."""
    made = []
    for values, group in ratio.groupby(level=list(by), sort=True):
        spread = spreads[group.index.get_level_values("arch")[0]]
        middle, low, high = pooled.geometric(group.to_numpy(), spread)
        made.append(
            {
                **dict(zip(by, values if isinstance(values, tuple) else (values,), strict=True)),
                "ratio": middle,
                "low": low,
                "high": high,
                "repeats": len(group),
                "log_error": spread.error(len(group)),
                "freedom": spread.freedom,
            }
        )
    return pd.DataFrame(made, columns=[*by, "ratio", "low", "high", "repeats", "log_error", "freedom"])


def mean_interval(values: np.ndarray) -> tuple[float, float, float]:
    """Return the mean and Student's interval of it; of one value the interval is not known (NaN)."""
    mean = float(values.mean())
    if len(values) < 2:
        return mean, float("nan"), float("nan")
    half = stats.t.ppf((1 + summary.CONFIDENCE) / 2, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return mean, mean - float(half), mean + float(half)
