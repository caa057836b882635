"""The verdicts on what one training step looks like: G19 and G20."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import xarray as xr

from dolb.claims.claim import Claim, Judge, outcome, sign
from dolb.summary import step_timeline as study

_TOO_FEW = "Traced steps of this library are not among the results."


def _negotiation(ds: xr.Dataset, _claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    table = study.breakdowns(ds)
    measured, simulated = _of(table, "measured", "Horovod"), _of(table, "simulated", "Horovod")
    if measured.empty:
        return "not yet measured", "", _TOO_FEW
    row = measured.iloc[0]
    ratio = study.negotiation_ratio(ds)
    ours = (
        f"Measured on {row['ranks']} processes ({row['arch']}, {row['repeats']} runs), ranks negotiate during "
        f"{row['negotiation']:.0%}{_interval(row, 'negotiation')} of a step and reduce during "
        f"{row['communication']:.0%}{_interval(row, 'communication')}, in {row['messages']:.1f} all-reduces. "
        + "".join(
            f"In simulation, {one.variant} on {one.ranks:,} GPUs: {one.negotiation:.0%} and {one.communication:.0%} of "
            f"a step, in {one.messages:.0f} all-reduces. "
            for one in simulated.itertuples()
        )
    ).strip()
    reason = (
        "Judged by the measured step. Negotiation counts as long if it takes longer than the all-reduces themselves, "
        "the interval of the ratio over runs too; it includes waiting for the other ranks to have the same gradient. "
        "Several all-reduces are two or more in a step. Under DDP such a wait is part of the all-reduces, which begin "
        "on a rank when it has its bucket, so that neither length is compared between the libraries."
    )
    return outcome(sign(ratio["low"], ratio["high"]), bool(row["messages"] >= 2)), ours, reason


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
    return outcome(bool(row["same_order"]), hidden), ours, reason


def _turns(row: pd.Series) -> str:
    return "; each rank was held to one core, where the two take turns" if row["pinned"] else ""


def _of(table: pd.DataFrame, source: str, library: str) -> pd.DataFrame:
    return table[(table["source"] == source) & table["variant"].str.startswith(library)]


def _interval(row: pd.Series, name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f" ({low:.0%} to {high:.0%})" if low == low else ""


JUDGES: dict[str, Judge] = {"G19": _negotiation, "G20": _overlap}
