"""The verdicts on what one training step looks like: G19 and G20."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import xarray as xr

from dolb.claims.claim import Claim, Judge, of_parts, sign
from dolb.findings import step_timeline as study

_TOO_FEW = "Traced steps of this library are not among the results."


def _negotiation(ds: xr.Dataset, _claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    table = study.breakdowns(ds)
    measured, simulated = _of(table, "measured", "Horovod"), _of(table, "simulated", "Horovod")
    if measured.empty:
        return "not yet measured", "", _TOO_FEW
    row = measured.iloc[0]
    ours = (
        f"Measured on {row['ranks']} processes ({row['arch']}, {row['repeats']} runs), ranks negotiate during "
        f"{row['negotiation']:.0%}{_interval(row, 'negotiation')} of a step and reduce during "
        f"{row['communication']:.0%}{_interval(row, 'communication')}, in {row['messages']:.1f} all-reduces. "
        f"{_between(ds)}{_drawn(ds)}"
        + "".join(
            f"In simulation, {one.variant} on {one.ranks:,} GPUs: {one.negotiation:.0%} and {one.communication:.0%} of "
            f"a step, in {one.messages:.0f} all-reduces. "
            for one in simulated.itertuples()
        )
    ).strip()
    reason = (
        "Judged by the measured step. Negotiation counts as long if its part in which nothing is reduced takes longer "
        "than the all-reduces themselves, the interval of the ratio over runs too: while an earlier all-reduce holds "
        "Horovod's thread, tensors wait under the name of negotiation. It is not long if that interval lies below, and "
        "not told between; of runs that did not record this part, its least and its most are judged. It includes "
        "waiting for the other ranks to have the same gradient. Several all-reduces are two or more in a step. Both "
        "must hold for replicated; one that does not, with none that does, makes it not replicated. Under DDP such "
        "a wait is part of the all-reduces, which begin on a rank when it has its bucket, so that neither length is "
        "compared between the libraries."
    )
    return of_parts(_long(ds), bool(row["messages"] >= 2)), ours, reason


def _long(ds: xr.Dataset) -> bool | None:
    """Return whether negotiation while nothing is reduced is longer than all-reduces (True), not (False), or open."""
    least, most = study.negotiation_ratios(ds)
    return True if least["low"] > 0 else False if most["high"] < 0 else None


def _between(ds: xr.Dataset) -> str:
    """Say how long negotiation is while nothing is reduced, beside all-reduces, within what is known of it."""
    least, most = (np.exp(one["ratio"]) for one in study.negotiation_ratios(ds))
    told = f"{least:.2f}" if least == most else f"between {least:.2f} and {most:.2f}"
    known = "" if least == most else ", as these runs did not record what of it runs beside all-reduces"
    return f"Negotiation while nothing is reduced is {told} times as long as the all-reduces, mean over runs{known}. "


def _drawn(ds: xr.Dataset) -> str:
    drawn = set(ds["run_number"].to_numpy()) if "run_number" in ds else set()
    mine = np.flatnonzero((ds["variant"].to_numpy() == "Horovod") & (ds["source"].to_numpy() == "measured"))
    return f"{study.drawn_in_words(ds)} " if drawn.intersection(mine) else ""


def _overlap(ds: xr.Dataset, _claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    table = study.breakdowns(ds)
    measured, simulated = _of(table, "measured", "DDP"), _of(table, "simulated", "DDP")
    if measured.empty:
        return "not yet measured", "", _TOO_FEW
    row = measured.iloc[0]
    ours = (
        f"Measured on {row['ranks']} processes ({row['arch']}, {row['repeats']} runs), DDP reduces its "
        f"{row['messages']:.0f} buckets of {row['bucket_mb']:g} MiB "
        f"{'in the same order' if row['same_order'] else 'in changing orders'} at every step on every rank, and "
        f"{row['overlap']:.0%}{_interval(row, 'overlap')} of the communication is hidden behind "
        f"computing{_turns(row)}. "
        + "".join(
            f"In simulation, on {one.ranks:,} GPUs, {one.overlap:.0%} of it is hidden. "
            for one in simulated.itertuples()
        )
    ).strip()
    reason = (
        "Judged by the measured steps. Replicated needs one sequence of bucket sizes in all of them, a hidden share "
        "whose interval over runs lies above zero, and ranks with a core to spare for communication. On one core "
        "computing and communication take turns: what is hidden there need not have saved time, and no step without "
        "overlap was measured that would show it. So the second half is then not told, and the claim mixed at most."
    )
    hidden = None if row["pinned"] else sign(row["overlap_low"], row["overlap_high"])
    return of_parts(bool(row["same_order"]), hidden), ours, reason


def _turns(row: pd.Series) -> str:
    return "; each rank was held to one core, where the two take turns" if row["pinned"] else ""


def _of(table: pd.DataFrame, source: str, library: str) -> pd.DataFrame:
    return table[(table["source"] == source) & table["variant"].str.startswith(library)]


def _interval(row: pd.Series, name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f" ({low:.0%} to {high:.0%})" if low == low else ""


JUDGES: dict[str, Judge] = {"G19": _negotiation, "G20": _overlap}
