"""The numbers of one training step: where its time goes, and its events as a table to draw."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from dolb import results
from dolb.findings import ddp_vs_horovod
from dolb.findings.ddp_vs_horovod import rows
from dolb.findings.intervals import student, written

LANES = ("compute", "communication", "negotiation", "queue", "copy")
PARTS = {
    "negotiation": "negotiation_seconds",
    "of that, nothing is reduced": "negotiation_between_seconds",
    "all-reduces": "communication_seconds",
    "of that, not hidden": "exposed_seconds",
    "neither computes nor reduces": "idle_seconds",
    "last rank behind the first": "late_seconds",
}
HIDDEN = "share of all-reduces hidden"
_SETTING = ["variant", "source", "ranks", "arch"]
_SHORTEST_MS = 0.001  # below a microsecond nothing can be seen, and Horovod's readiness marks have no length


def narrow(ds: xr.Dataset, **values: Any) -> xr.Dataset:
    """Keep measured steps whose config has one of these values, and every simulated one, with their events."""
    kept = set(ddp_vs_horovod.narrow(ds.drop_dims("event"), **values)["key"].to_numpy())
    return results.merge(one for one in results.split(ds) if one["key"].item() in kept)


def shares(ds: xr.Dataset) -> pd.DataFrame:
    """Return by library and source the shares of rank 0's step that its parts take, with intervals over runs.

    A row is one part: variant, source, ranks, arch, part, value, low, high, n. ``HIDDEN`` is of the all-reduces, the
    others are of the step. Parts may run at the same time.
    """
    made = []
    for source in ("measured", "simulated"):
        for values, group in rows(ds, source).groupby(["variant", "ranks", "arch"], sort=True):
            step = group["step_seconds"]
            known = {part: group[name] / step for part, name in PARTS.items() if name in group}
            for part, found in {**known, HIDDEN: group["overlap"]}.items():
                one = student(found)
                low, high = (one.low, one.high) if one.n > 1 else (np.nan, np.nan)
                where = dict(zip(("variant", "ranks", "arch"), values, strict=True))
                made.append(
                    {**where, "source": source, "part": part, "value": one.value, "low": low, "high": high, "n": one.n}
                )
    return pd.DataFrame(made)


def table(ds: xr.Dataset, source: str) -> pd.DataFrame:
    """Return the shares of one source for readers: a row for each part, a column for each library."""
    found = shares(ds).query("source == @source").dropna(subset="value")
    texts = [
        written(".0%", row["value"], row["low"], row["high"]) if row["value"] else "none"
        for row in found.to_dict("records")
    ]
    wide = found.assign(text=texts).pivot_table(index="part", columns="variant", values="text", aggfunc="first")
    wide = wide.reindex([*PARTS, HIDDEN]).dropna(how="all").fillna("")
    runs = rows(ds, source).groupby("variant")
    wide.loc["milliseconds of a step"] = (1000 * runs["step_seconds"].mean()).map("{:.0f}".format)
    wide.loc["all-reduces in a step"] = runs["messages"].mean().map("{:.0f}".format)
    if source == "measured":
        wide.loc["same order in every step"] = runs["same_order"].all().map({True: "yes", False: "no"})
    return wide.rename_axis(index=None, columns=None)


def negotiation_over_reduces(ds: xr.Dataset) -> pd.Series:
    """Return of every measured run of Horovod its negotiation while nothing is reduced over its all-reduces."""
    mine = rows(ds, "measured").query("library == 'horovod'")
    return (mine["negotiation_between_seconds"] / mine["communication_seconds"]).dropna()


def hidden(ds: xr.Dataset) -> pd.Series:
    """Return of every measured run of DDP the share of its communication that is hidden behind computing."""
    return rows(ds, "measured").query("library == 'ddp'")["overlap"].dropna()


def events(ds: xr.Dataset) -> pd.DataFrame:
    """Return the events to draw, of one run of each library, with times in milliseconds."""
    names = [str(name) for name, variable in ds.variables.items() if variable.dims == ("event",)]
    table = pd.DataFrame({name: ds[name].to_numpy() for name in names})
    runs = pd.DataFrame({name: ds[name].to_numpy() for name in _SETTING}).rename(columns={"ranks": "of_ranks"})
    table = table.join(runs, on="run_number")
    table = table[table["run_number"].isin(_drawn(ds)) & table["lane"].isin(LANES)]
    start, end = table["start_us"] / 1000, table["end_us"] / 1000
    table = table.assign(start_ms=start, end_ms=end, duration_ms=end - start)
    kept = table[table["duration_ms"] >= _SHORTEST_MS].drop(columns=["start_us", "end_us"])
    return kept.sort_values(["source", "variant", "rank", "start_ms"], ignore_index=True, kind="stable")


def exports(ds: xr.Dataset) -> dict[str, xr.Dataset]:
    """Return the events of each step that is drawn, by the name of a file for it."""
    found = {}
    for run in _drawn(ds):
        one = ds.isel(run=run)
        kept = ds.isel(event=np.flatnonzero(ds["run_number"].to_numpy() == run))
        about = {name: str(one[name].item()) for name in ("variant", "source", "ranks", "arch", "network", "device")}
        name = f"{about['variant']} {about['source']}".lower().replace(",", "").replace(" ", "-")
        found[name] = kept.drop_dims(set(kept.dims) - {"event"}).drop_vars("run_number").assign_attrs(about)
    return found


def _drawn(ds: xr.Dataset) -> list[int]:
    """Return which run of each setting to draw: of those whose events were kept, the one nearest the mean of all.

    Near is in the shares of a step that negotiation, communication, and what of it no computing hides, take.
    """
    kept = set(ds["run_number"].to_numpy().tolist())
    settings = pd.DataFrame({name: ds[name].to_numpy() for name in _SETTING})
    names = ("negotiation_seconds", "communication_seconds", "exposed_seconds")
    chosen = []
    for _, group in settings.groupby(_SETTING, sort=False):
        of = group.index.to_numpy()
        parts = np.nan_to_num(np.column_stack([ds[name].to_numpy()[of] for name in names]))
        part = parts / ds["step_seconds"].to_numpy()[of, None]
        order = np.argsort(np.abs(part - part.mean(axis=0)).sum(axis=1), kind="stable")
        chosen.extend([int(of[at]) for at in order if of[at] in kept][:1])
    return chosen
