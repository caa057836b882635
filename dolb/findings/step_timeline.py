"""The numbers of one training step: where its time goes, and its events as a table to draw."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from dolb import results
from dolb.findings import ddp_vs_horovod
from dolb.findings.ddp_vs_horovod import SETTINGS, mean_interval, rows

TIMES = (
    "communication_seconds", "exposed_seconds", "negotiation_seconds", "queue_seconds", "late_seconds", "idle_seconds"
)  # fmt: skip
_GRADIENT_BYTES, _MIB = 4, 2**20
_NOTHING = (-np.inf, -np.inf, np.nan)  # of a time that may be none
LANES = ("compute", "communication", "negotiation", "queue", "copy")
_SHORTEST_MS = (
    0.001  # below a microsecond nothing can be seen at any zoom, and Horovod's readiness marks have no length
)


def narrow(ds: xr.Dataset, **values: Any) -> xr.Dataset:
    """Keep measured steps whose config has one of these values, and every simulated one, with their events."""
    kept = set(ddp_vs_horovod.narrow(ds.drop_dims("event"), **values)["key"].to_numpy())
    return results.merge(one for one in results.split(ds) if one["key"].item() in kept)


def breakdowns(ds: xr.Dataset) -> pd.DataFrame:
    """Return, for each library, measured and simulated, the shares of rank 0's step, with intervals over repetitions.

    ``overlap`` is the share of the communication that is hidden behind computing, the other shares are of the step:
    ``late`` is by how much the last rank is behind the first with its share of the work.
    """
    made = []
    for source in ("measured", "simulated"):
        for (variant, ranks, arch), group in rows(ds, source).groupby(["variant", "ranks", "arch"], sort=True):
            row = {"variant": variant, "source": source, "ranks": ranks, "arch": arch, "repeats": len(group)}
            row["step_ms"] = 1000 * group["step_seconds"].mean()
            known = group.reindex(columns=TIMES)  # steps from before a time was recorded have none
            shares = {name.replace("_seconds", ""): known[name] / group["step_seconds"] for name in TIMES}
            for name, values in {**shares, "overlap": group["overlap"]}.items():
                row[name], row[f"{name}_low"], row[f"{name}_high"] = mean_interval(values.to_numpy())
            row["bucket_mb"] = group["bucket_mb"].max()
            row["pinned"] = bool(group.get("pinned", pd.Series([False])).astype(bool).any())
            row["messages"], row["same_order"] = group["messages"].mean(), bool(group["same_order"].all())
            made.append(row)
    return pd.DataFrame(made)


def in_words(table: pd.DataFrame) -> pd.DataFrame:
    """Return the breakdowns as a table to read, with intervals where there are any."""
    shares = ("communication", "exposed", "overlap", "negotiation", "queue", "idle", "late")
    shown = pd.DataFrame(
        {
            "library": table["variant"] + ", " + table["source"],
            "step": [f"{value:.0f} ms" for value in table["step_ms"]],
            **{name: [_share(row, name) for _, row in table.iterrows()] for name in shares},
            "all-reduces": [f"{value:.1f}".removesuffix(".0") for value in table["messages"]],
            "same order in every step": [_order(row) for _, row in table.iterrows()],
        }
    )
    return shown.set_index("library")


def _order(row: pd.Series) -> str:
    if row["source"] == "simulated":
        return "one step"  # which has nothing to differ from
    return "yes" if row["same_order"] else "no"


def _share(row: pd.Series, name: str) -> str:
    value, low, high = row[name], row[f"{name}_low"], row[f"{name}_high"]
    if np.isnan(value):
        return "not recorded"
    return f"{value:.0%}" if np.isnan(low) else f"{value:.0%} ({low:.0%} to {high:.0%})"


def longest_in_words(table: pd.DataFrame, variant: str, source: str) -> str:
    """Say which of the library's parts is the longest in a step of the breakdowns, and how long the others are."""
    of = table[(table["variant"] == variant) & (table["source"] == source)]
    if of.empty:
        known = sorted(table["variant"] + ", " + table["source"])
        raise ValueError(f"there is no step of {variant!r}, {source}; accepted: {'; '.join(known)}")
    parts = of.iloc[0][["communication", "negotiation", "queue"]].dropna().astype(float).sort_values(ascending=False)
    others = ", ".join(f"{name} {share:.0%}" for name, share in parts.iloc[1:].items())
    return f"{parts.index[0]} is the longest of the library's parts, {parts.iloc[0]:.0%} of the step ({others})"


def overlap_in_words(table: pd.DataFrame) -> str:
    """Say of DDP's measured steps how many buckets are reduced, in how many orders, and what share is hidden."""
    of = table[(table["variant"] == ddp_vs_horovod.DDP) & (table["source"] == "measured")]
    if of.empty:
        return "No step of DDP was measured."
    row = of.iloc[0]
    order = "in the same order" if row["same_order"] else "in changing orders"
    return (
        f"{row['messages']:.0f} buckets are reduced {order} at every step, {_share(row, 'overlap')} of the time beside "
        "computing."
    )


def agreement_in_words(table: pd.DataFrame) -> str:
    """Say of Horovod's measured steps during what shares ranks negotiate and reduce."""
    of = table[(table["variant"] == "Horovod") & (table["source"] == "measured")]
    if of.empty:
        return "No step of Horovod was measured."
    row = of.iloc[0]
    return (
        f"Ranks negotiate during {_share(row, 'negotiation')} of a step and reduce during "
        f"{_share(row, 'communication')}, mean over {row['repeats']} runs."
    )


def buckets_in_words(ds: xr.Dataset) -> str:
    """Say how large DDP's buckets were in the measured steps, on how many ranks, and why they were no larger."""
    ddp = rows(ds, "measured").query("library == 'ddp'")
    told = []
    for (arch, ranks), group in ddp.groupby(["arch", "ranks"], sort=True):
        size = float(group["bucket_mb"].max())
        whole = float(group["parameters"].iloc[0]) * _GRADIENT_BYTES / _MIB
        said = f"DDP ran on {ranks} ranks with buckets of {size:g} MiB"
        if size < SETTINGS["bucket_mb"]:
            said += (
                f" instead of the usual {SETTINGS['bucket_mb']:g}: the gradients of {arch} are {whole:.2g} MiB in all, "
                "and would fit into one; the size was chosen so that there are several to see"
            )
        told.append(said)
    return "; ".join(told) + "." if told else "No step of DDP was measured."


def negotiation_ratios(ds: xr.Dataset) -> tuple[dict[str, float], dict[str, float]]:
    """Return Horovod's time in negotiation while nothing is reduced over that in all-reduces, at least and at most.

    Each is the mean of the logarithm over measured runs, with its interval. Both are the same for runs that recorded
    that time. Of older ones it is known within limits: at least what is longer than all all-reduces, at most all of
    the negotiation, or of the step outside all-reduces.
    """
    measured = rows(ds, "measured")
    mine = measured[measured["library"] == "horovod"]
    step, reduced, negotiated = (
        mine[name] for name in ("step_seconds", "communication_seconds", "negotiation_seconds")
    )
    known = mine.get("negotiation_between_seconds", pd.Series(np.nan, mine.index))
    limits = (known.fillna((negotiated - reduced).clip(lower=0)), known.fillna(negotiated.clip(upper=step - reduced)))
    with np.errstate(divide="ignore"):
        logs = [np.log((limit / reduced).to_numpy()) for limit in limits]
    least, most = (
        dict(zip(("ratio", "low", "high"), mean_interval(one) if np.isfinite(one).all() else _NOTHING, strict=True))
        for one in logs
    )
    return least, most


def drawn(ds: xr.Dataset, variant: str = "Horovod") -> dict[str, float]:
    """Return of the measured step that is drawn, on rank 0: milliseconds of the step and of what Horovod does in it.

    ``negotiation`` and ``communication`` are unions of their events, ``both`` is the time in which both run.
    """
    frame = one_step(ds, variant, "measured").to_dataframe().query("rank == 0")
    lanes = {lane: part[["start_us", "end_us"]].to_numpy() / 1000 for lane, part in frame.groupby("lane")}
    nothing = np.empty((0, 2))
    mine = {lane: lanes.get(lane, nothing) for lane in ("step", "negotiation", "communication")}
    lengths = {lane: _covered(spans) for lane, spans in mine.items()}
    either = _covered(np.concatenate([mine["negotiation"], mine["communication"]]))
    return {**lengths, "both": lengths["negotiation"] + lengths["communication"] - either}


def drawn_in_words(ds: xr.Dataset) -> str:
    """Say what share of the drawn step Horovod negotiates and reduces, and how much of both is at the same time."""
    found = drawn(ds)
    return (
        "The step that is drawn, of the run nearest the mean, has "
        f"{found['negotiation'] / found['step']:.0%} negotiation and "
        f"{found['communication'] / found['step']:.0%} all-reduces: of {found['negotiation']:.0f} ms of negotiation "
        f"{found['both']:.0f} pass while an earlier all-reduce holds Horovod's thread, and "
        f"{found['negotiation'] - found['both']:.0f} while nothing is reduced, "
        f"{(found['negotiation'] - found['both']) / found['step']:.0%} of the step."
    )


def _covered(spans: np.ndarray) -> float:
    """Return the length that intervals cover together."""
    if not len(spans):
        return 0.0
    spans = spans[np.argsort(spans[:, 0])]
    before = np.concatenate([[-np.inf], np.maximum.accumulate(spans[:, 1])[:-1]])
    return float((spans[:, 1] - np.maximum(spans[:, 0], before)).clip(min=0).sum())


def events(ds: xr.Dataset) -> pd.DataFrame:
    """Return the events to draw, of one repetition of each library, with times in milliseconds."""
    names = [str(name) for name, variable in ds.variables.items() if variable.dims == ("event",)]
    table = pd.DataFrame({name: ds[name].to_numpy() for name in names})
    of_run = ["variant", "source", "ranks", "arch"]
    runs = pd.DataFrame({name: ds[name].to_numpy() for name in of_run}).rename(columns={"ranks": "of_ranks"})
    table = table.join(runs, on="run_number")
    drawn = {_nearest(ds, of) for of in _settings(ds)}
    table = table[table["run_number"].isin(drawn) & table["lane"].isin(LANES)]
    start, end = table["start_us"] / 1000, table["end_us"] / 1000
    table = table.assign(start_ms=start, end_ms=end, duration_ms=end - start)
    table["row"] = [f"rank {rank}, {lane}" for rank, lane in zip(table["rank"], table["lane"], strict=True)]
    kept = table[table["duration_ms"] >= _SHORTEST_MS].drop(columns=["start_us", "end_us"])
    return kept.sort_values(["source", "variant", "rank", "start_ms"], ignore_index=True)


def one_step(ds: xr.Dataset, variant: str, source: str) -> xr.Dataset:
    """Return the events of one library's step, measured or simulated, as they are exported."""
    ours = (ds["variant"].to_numpy() == variant) & (ds["source"].to_numpy() == source)
    chosen = next((run for of in _settings(ds) if ours[of].all() and (run := _nearest(ds, of)) is not None), None)
    if chosen is None:
        known = sorted(f"{one}, {of}" for one, of in zip(ds["variant"].values, ds["source"].values, strict=True))
        raise ValueError(
            f"there are no events of {variant!r}, {source}; runs are of: {'; '.join(dict.fromkeys(known))}"
        )
    kept = ds.isel(event=np.flatnonzero(ds["run_number"].to_numpy() == chosen))
    one = ds.isel(run=chosen)
    about = {name: str(one[name].item()) for name in ("variant", "source", "ranks", "arch", "network", "device")}
    return kept.drop_dims(set(kept.dims) - {"event"}).drop_vars("run_number").assign_attrs(about)


def _nearest(ds: xr.Dataset, of: np.ndarray) -> int | None:
    """Return which of these runs to draw: of those whose events were kept, the one nearest the mean of all.

    Near is in the shares of a step that negotiation, communication, and what of it no computing hides, take.
    """
    kept = set(ds["run_number"].to_numpy().tolist())
    names = ("negotiation_seconds", "communication_seconds", "exposed_seconds")
    parts = [ds[name].to_numpy()[of] for name in names]
    shares = np.nan_to_num(np.column_stack(parts)) / ds["step_seconds"].to_numpy()[of, None]
    away = np.abs(shares - shares.mean(axis=0)).sum(axis=1)
    return next((int(of[at]) for at in np.argsort(away, kind="stable") if of[at] in kept), None)


def _settings(ds: xr.Dataset) -> list[np.ndarray]:
    """Return the runs of each library, network and number of ranks, measured or simulated."""
    runs = pd.DataFrame({name: ds[name].to_numpy() for name in ("variant", "source", "ranks", "arch")})
    return [group.index.to_numpy() for _, group in runs.groupby(list(runs), sort=False)]


def exports(ds: xr.Dataset, table: pd.DataFrame) -> dict[str, xr.Dataset]:
    """Return the step of each row of `breakdowns` by the name of a file for it."""
    return {
        f"{variant} {source}".lower().replace(",", "").replace(" ", "-"): one_step(ds, variant, source)
        for variant, source in zip(table["variant"], table["source"], strict=True)
    }
