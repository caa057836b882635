"""The numbers of one training step: where its time goes, and its events as a table to draw."""

import numpy as np
import pandas as pd
import xarray as xr

from dolb.findings import runs
from dolb.findings.ddp_vs_horovod import rows
from dolb.findings.intervals import student, written_rows

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


def shares(ds: xr.Dataset) -> pd.DataFrame:
    """Return by library and source the shares of rank 0's step that its parts take, with intervals over runs.

    A row is one part: variant, ranks, arch, source, part, value, low, high, n. ``HIDDEN`` is of the all-reduces, the
    others are of the step. Parts may run at the same time.
    """
    made = []
    by = ["variant", "ranks", "arch"]
    for source in ("measured", "simulated"):
        for values, group in rows(ds, source).groupby(by, sort=True):
            known = {part: group[name] / group["step_seconds"] for part, name in PARTS.items() if name in group}
            for part, found in {**known, HIDDEN: group["overlap"]}.items():
                where = dict(zip(by, values, strict=True))
                made.append({**where, "source": source, "part": part, **student(found).row()})
    return pd.DataFrame(made)


def table(ds: xr.Dataset, source: str) -> pd.DataFrame:
    """Return the shares of one source for readers: a row for each part, a column for each library."""
    found = shares(ds).query("source == @source").dropna(subset="value")
    texts = np.where(found["value"] == 0, "none", written_rows(".0%", found[["value", "low", "high"]]))
    wide = found.assign(text=texts).pivot_table(index="part", columns="variant", values="text", aggfunc="first")
    wide = wide.reindex([*PARTS, HIDDEN]).dropna(how="all").fillna("")
    runs = rows(ds, source).groupby("variant")
    wide.loc["milliseconds of a step"] = (1000 * runs["step_seconds"].mean()).map("{:.0f}".format)
    wide.loc["all-reduces in a step"] = runs["messages"].mean().map("{:.0f}".format)
    if source == "measured":
        wide.loc["same order in every step"] = runs["same_order"].all().map({True: "yes", False: "no"})
    return wide.rename_axis(index=None, columns=None)


def events(ds: xr.Dataset) -> pd.DataFrame:
    """Return the events to draw, of one run of each library, with times in milliseconds."""
    setting = runs.table(ds)[_SETTING].rename(columns={"ranks": "of_ranks"})
    table = runs.table(ds, "event").join(setting, on="run_number")
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
    table = runs.table(ds)
    parts = table[["negotiation_seconds", "communication_seconds", "exposed_seconds"]].fillna(0.0)
    shares = parts.div(table["step_seconds"], axis=0)
    off = (shares - shares.groupby([table[name] for name in _SETTING]).transform("mean")).abs().sum(axis=1)
    kept = table.assign(off=off)[table.index.isin(ds["run_number"].to_numpy())]
    return kept.groupby(_SETTING, sort=False)["off"].idxmin().tolist()
