"""The verdicts on how data-parallel training scales: G18, G21, M8 and J1.

What happens on hundreds of GPUs is simulated here, and every text that rests on that says so.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import xarray as xr

from dolb.claims.claim import Claim, Judge, outcome, sign
from dolb.summary import ddp_vs_horovod as study

STUDIED = 1536  # GPUs of the study's curve
NEAR_1000 = (500, 2000)  # a bend that begins within these is one near 1000
SURE = 0.95  # an order holds in simulation if it does in this share of the draws of what is not known
TELLS = 0.5  # a wider interval of an efficiency, or of a ratio of throughputs, says nothing
MARGINAL = 0.05  # a gain below this is a marginal one


def _scaling(ds: xr.Dataset, _claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    curves = study.curves(ds)
    if curves.empty:
        return "not yet measured", "", "The simulated curves are not among the results."
    ahead = {name: _ahead(curves, name) for name in (study.OF_ITS_TIME, study.LATER)}
    at = {str(row["variant"]): row for _, row in curves[curves["ranks"] == STUDIED].iterrows()}
    bends = {name: study.bend(ds, name) for name in (study.OF_ITS_TIME, study.UNCACHED)}
    measured, here = _measured_order(ds)
    ours = (
        f"In simulation, on {STUDIED:,} GPUs of Summit, "
        + ", ".join(_efficiency(name, at[name]) for name in (study.DDP, study.OF_ITS_TIME, study.UNCACHED))
        + f". DDP is ahead of {study.OF_ITS_TIME} in {ahead[study.OF_ITS_TIME]:.0%} of the draws of what is not known "
        f"at the worst number of GPUs up to there, and of {study.LATER}, with its later defaults, in "
        f"{ahead[study.LATER]:.0%}. By the lines it leads {study.OF_ITS_TIME} by {_lead(at, study.OF_ITS_TIME)} and "
        f"{study.LATER} by {_lead(at, study.LATER)} of efficiency there. Draws vary what is not known of the machine, "
        f"not the model; how far that is off on published points is on the page. "
        f"{study.OF_ITS_TIME} {_bend(curves, study.OF_ITS_TIME, bends)}; without its response cache "
        f"it {_bend(curves, study.UNCACHED, bends)}. {here}{_over_links(ds)}"
    )
    reason = (
        "The GPUs of the claim are simulated; only ranks on one machine are measured. Replicated needs three things: "
        f"DDP ahead in at least {SURE:.0%} of the draws at every number of GPUs, with the defaults that Horovod had "
        "then; a curve of that Horovod which bends (a doubling of GPUs costs more than "
        f"{study.DROP:.0%} of efficiency) from {NEAR_1000[0]} to {NEAR_1000[1]:,} GPUs; and measured here, DDP's "
        "throughput above Horovod's on as many ranks, its interval too. Without the cache is not how Horovod "
        "came, so a bend there alone does not count."
    )
    bent = bool(NEAR_1000[0] <= bends[study.OF_ITS_TIME] <= NEAR_1000[1])
    return outcome(ahead[study.OF_ITS_TIME] >= SURE, bent, measured), ours, reason


def _ahead(curves: pd.DataFrame, variant: str) -> float:
    """Return the share of draws in which DDP is ahead, at that number of GPUs of the study where it is lowest."""
    rows = curves[(curves["variant"] == variant) & curves["ranks"].between(2, STUDIED)]
    return float(rows["ddp_ahead"].min())


def _efficiency(name: str, row: pd.Series) -> str:
    return (
        f"{name} has an efficiency of {row['efficiency']:.0%} ({row.efficiency_low:.0%} to {row.efficiency_high:.0%})"
    )


def _lead(at: Mapping[str, pd.Series], variant: str) -> str:
    return f"{100 * (at[study.DDP]['efficiency'] - at[variant]['efficiency']):+.1f} points"


def _bend(curves: pd.DataFrame, variant: str, bends: Mapping[str, float]) -> str:
    """Say from where on a curve bends, and what its efficiency is there and where the study ended."""
    ranks = bends[variant]
    if np.isnan(ranks):
        return "does not bend"
    curve = curves[curves["variant"] == variant].set_index("ranks")["efficiency"]
    told = f"bends from about {round(ranks, -1):,.0f} GPUs on, where its efficiency is {curve[ranks]:.0%}"
    return f"{told}, to {curve[STUDIED]:.0%} at {STUDIED:,}" if ranks < STUDIED else told


def _measured_order(ds: xr.Dataset) -> tuple[bool | None, str]:
    gaps = study.gaps(ds)
    gaps = gaps[gaps["ranks"] == gaps["ranks"].max()]
    if gaps.empty:
        return None, "Nothing was measured with both libraries on several ranks."
    told = "; ".join(
        f"{row.arch}, {row.scaling} scaling, {row.ratio:.2f}{_between(row.low, row.high)}" for row in gaps.itertuples()
    )
    signs = [sign(np.log(row.low), np.log(row.high)) for row in gaps.itertuples()]
    agreed = signs[0] if len(set(signs)) == 1 else None
    return agreed, (
        f"Measured on {int(gaps['ranks'].iloc[0])} processes of one machine over Gloo, DDP's throughput is that of "
        f"Horovod times: {told}."
    )


def _over_links(ds: xr.Dataset) -> str:
    """Say the same over links between hosts; it is told beside the verdict and does not decide it."""
    gaps = study.linked_gaps(ds)
    gaps = gaps[gaps["hosts"] == gaps["hosts"].max()]
    if gaps.empty:
        return ""
    told = "; ".join(
        f"{row.arch} at {study.rate_in_words(row.link_mbit)} {row.ratio:.2f}{_between(row.low, row.high)}"
        for row in gaps.itertuples()
    )
    return f" Over rate-limited links between {int(gaps['hosts'].iloc[0])} hosts on one machine: {told}."


def _between(low: float, high: float) -> str:
    return "" if np.isnan(low) else f" ({low:.2f} to {high:.2f})"


def _tuning(ds: xr.Dataset, _claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    table = study.tuned(ds)
    horovod = table[table["library"] == "horovod"]
    simulated = horovod[horovod["source"] == "simulated"]
    if simulated.empty:
        return "not yet measured", "", "The simulated settings are not among the results."
    best = simulated.sort_values("ratio", kind="stable").iloc[-1]
    holds: list[bool | None] = [bool(best["ratio"] - 1 < MARGINAL)]
    ours = (
        f"In simulation, on {best['ranks']} GPUs of Summit, the best of {len(simulated)} settings "
        f"({best['setting']}) has {best['ratio'] - 1:+.1%} of the throughput at the defaults of {study.OF_ITS_TIME}. "
    )
    measured = horovod[(horovod["source"] == "measured") & (horovod["repeats"] > 1)]
    if measured.empty:
        holds.append(None)
        ours += "No setting was measured more than once."
    else:
        top = measured.sort_values("ratio").iloc[-1]
        tells = top["high"] - top["low"] < TELLS
        holds.append(_marginal(top["low"] - 1, top["high"] - 1) if tells else None)
        ours += (
            f"Measured on {top['ranks']} processes of one machine, {top['arch']}, the best of {len(measured)} settings "
            f"({top['setting']}) changes the throughput by {top['ratio'] - 1:+.1%} "
        )
        ours += (
            f"({top['low'] - 1:+.1%} to {top['high'] - 1:+.1%})."
            if tells
            else f"over {top['repeats']:.0f} repetitions that differ too much to tell."
        )
    reason = (
        "The GPUs of the claim are simulated; ranks on one machine are measured, with later defaults of Horovod. A "
        f"gain is marginal below {MARGINAL:.0%}: of the best simulated setting, and of the best measured one with its "
        "interval, which being the best of several leans upwards."
    )
    return outcome(*holds), ours, reason


def _marginal(low: float, high: float) -> bool | None:
    return True if high < MARGINAL else False if low > MARGINAL else None


def _ring(ds: xr.Dataset, _claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    counted = study.ring_steps(ds)
    if counted.empty:
        return "not yet measured", "", "No ring all-reduce is among the results."
    right = counted["message_steps"] == 2 * (counted["ranks"] - 1)
    told = ", ".join(f"{row.ranks} ranks {row.message_steps:.0f}" for row in counted.itertuples())
    ours = f"In simulation, counted in a ring all-reduce that was carried out part by part: {told}."
    reason = "Replicated needs 2(N-1) steps at every number of ranks N, after which every rank must hold the exact sum."
    return outcome(*map(bool, right)), ours, reason


def _ideal(ds: xr.Dataset, _claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    cells = study.cells(ds)
    every = cells[cells["ranks"] > 1] if len(cells) else cells
    several = every[every["high"] - every["low"] < TELLS]
    if several.empty or len(several) < len(every) / 2:
        lacking = (
            f"Intervals narrower than {TELLS:.0%} for at least half of the efficiencies on several ranks are the "
            f"least; {len(several)} of {len(every)} have one."
        )
        return "not yet measured", "", lacking
    below = several["low"] <= 1
    ordered = several.sort_values("efficiency")
    least, most = ordered.iloc[0], ordered.iloc[-1]
    ours = (
        f"Measured on one machine, {int(below.sum())} of {len(several)} cells of several ranks are at or under K times "
        f"the throughput of one: efficiency goes from {_cell(least)} to {_cell(most)}."
    )
    reason = (
        "Efficiency is defined by this ideal, so what can be tested is that it is one: replicated needs no cell whose "
        "whole interval lies above K times the throughput of one rank."
    )
    return outcome(*map(bool, below)), ours, reason


def _cell(row: pd.Series) -> str:
    return (
        f"{row['efficiency']:.0%} ({row['low']:.0%} to {row['high']:.0%}; {row['variant']}, {row['arch']}, "
        f"{row['scaling']}, {row['ranks']} ranks)"
    )


JUDGES: dict[str, Judge] = {"G18": _scaling, "G21": _tuning, "M8": _ring, "J1": _ideal}
