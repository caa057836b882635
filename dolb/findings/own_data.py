"""What each way to filter finds of planted faults: precision and recall, with intervals over seeds."""

import numpy as np
import pandas as pd
import xarray as xr

from dolb.findings.intervals import student, written_rows

USUAL = 0.05  # of the images, which methods remove unless told: as many as have a fault
MEASURES = ("precision", "recall")
KINDS = {"flipped": "flipped labels", "garbage": "garbage images"}
# What a method looks at, by its name in `dolb filter`.
LOOKS_AT = {
    "paper": "map of features, DBSCAN", "knee": "map, DBSCAN by its own radius", "hdbscan": "map, HDBSCAN",
    "neighbours": "distance among features", "el2n": "errors of young networks", "forgetting": "what training forgets",
    "confident": "predictions for held-out images", "grid": "map, thinned evenly", "random": "nothing",
}  # fmt: skip


def counts(ds: xr.Dataset) -> pd.DataFrame:
    """Return a row for each planted data set, share to remove and method: removed, found, planted, and both measures.

    ``precision`` is the share of the removed images that were planted, ``recall`` the share of the planted ones that
    were removed; who removes nothing is right in nothing.
    """
    planted = ds["planted_examples"].sum("fault").rename("planted")
    counted = xr.Dataset(
        {"removed": ds["removed_examples"], "found": ds["found_examples"].sum("fault"), "planted": planted,
         "seconds": ds["method_seconds"]}
    )  # fmt: skip
    frame = counted.to_dataframe().reset_index()
    kind = np.where(frame["flipped_share"] > 0, "flipped", "garbage")
    examples = ds["training_examples"].to_series().reindex(frame["run"]).to_numpy()
    frame = frame.assign(kind=kind, examples=examples, recall=frame["found"] / frame["planted"])
    return frame.assign(precision=frame["found"] / frame["removed"].clip(lower=1))


def cells(ds: xr.Dataset) -> pd.DataFrame:
    """Return precision and recall of each method by kind of fault and share to remove, over seeds.

    Methods are in order: those first whose F1, the harmonic mean of both measures, is highest at the usual share.
    """
    frame = counts(ds)
    usual = frame[np.isclose(frame["removed_share"], USUAL)]
    f1 = 2 * usual["found"] / (usual["removed"] + usual["planted"])
    order = f1.groupby(usual["method"]).mean().sort_values(ascending=False).index
    made = [
        {"kind": kind, "removed_share": share, "method": method, "measure": measure,
         **_share(group[measure]), "removed": (group["removed"] / group["examples"]).mean()}
        for (kind, share, method), group in frame.groupby(["kind", "removed_share", "method"])
        for measure in MEASURES
    ]  # fmt: skip
    table = pd.DataFrame(made).assign(planted=lambda one: one["kind"].map(KINDS))
    rank = table["method"].map({method: k for k, method in enumerate(order)})
    return table.assign(rank=rank).sort_values(["kind", "removed_share", "rank"], kind="stable", ignore_index=True)


def _share(values: pd.Series) -> dict[str, float]:
    return vars(student(values).map(lambda value: np.clip(value, 0, 1)))  # a share is none beyond these


def by_fault(ds: xr.Dataset) -> pd.DataFrame:
    """Return the share of each kind of fault that methods find at the usual share, over seeds."""
    usual = ds.isel(run=np.isclose(ds["removed_share"], USUAL))
    share = (usual["found_examples"] / usual["planted_examples"].where(usual["planted_examples"] > 0)).rename("recall")
    frame = share.to_dataframe().reset_index().dropna(subset="recall")
    rows = [
        {"method": method, "fault": fault, **_share(group["recall"])}
        for (method, fault), group in frame.groupby(["method", "fault"])
    ]
    return pd.DataFrame(rows)


def table(ds: xr.Dataset) -> pd.DataFrame:
    """Return a row for each method at the usual share, for readers: both measures of both kinds, and what it costs."""
    found, frame = cells(ds), counts(ds)
    found = found[np.isclose(found["removed_share"], USUAL)]
    text = written_rows(".0%", found[["value", "low", "high"]])
    wide = found.assign(text=text, column=found["planted"] + ", " + found["measure"]).pivot_table(
        index="method", columns="column", values="text", aggfunc="first"
    )
    columns = [f"{kind}, {measure}" for kind in KINDS.values() for measure in MEASURES]
    seconds = frame.groupby("method")["seconds"].mean().map("{:,.0f}".format)
    wide = wide.reindex(found.sort_values("rank")["method"].unique())[[one for one in columns if one in wide]]
    wide.insert(0, "looks at", wide.index.map(LOOKS_AT))
    removed = found.groupby("method")["removed"].mean().map("{:.1%}".format)
    return wide.assign(removed=removed, seconds=seconds).rename_axis(columns=None).reset_index()


def by_fault_table(ds: xr.Dataset) -> pd.DataFrame:
    """Return `by_fault` for readers: a row for each method, in the order of `table`."""
    found = by_fault(ds)
    text = written_rows(".0%", found[["value", "low", "high"]])
    wide = found.assign(text=text).pivot_table(index="method", columns="fault", values="text", aggfunc="first")
    columns = [str(one) for one in ds["fault"].to_numpy() if one in wide]
    return wide.reindex(table(ds)["method"])[columns].rename_axis(columns=None).reset_index()
