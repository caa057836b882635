"""The verdicts on how data-parallel training scales: G18, G21, M8 and J1.

What happens on hundreds of GPUs is simulated here, and every text that rests on that says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import xarray as xr

from dolb.claims.claim import Claim, Judge, outcome, sign
from dolb.summary import ddp_vs_horovod as study
from dolb.summary import pooled, simulated_lead

STUDIED = 1536  # GPUs of the study's curve
NEAR_1000 = (500, 2000)  # a bend that begins within these is one near 1000
SURE = 0.95  # an order holds in simulation if it does in this share of the draws of what is not known
TELLS = 2.0  # an interval of an efficiency whose ends are further apart than by this factor says nothing
MARGINAL = 0.05  # a gain below this is a marginal one
ALIKE = 1e-4  # simulated settings whose throughputs differ by less do not differ


def _scaling(ds: xr.Dataset, _claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    curves = study.curves(ds)
    if curves.empty:
        return "not yet measured", "", "The simulated curves are not among the results."
    ahead = {name: _ahead(curves, name) for name in (study.OF_ITS_TIME, study.LATER)}
    at = {str(row["variant"]): row for _, row in curves[curves["ranks"] == STUDIED].iterrows()}
    measured, here = _measured_order(ds)
    order, trusted = _simulated_order(ds, ahead[study.OF_ITS_TIME])
    ours = (
        f"In simulation, on {STUDIED:,} GPUs of Summit, "
        + ", ".join(_efficiency(name, at[name]) for name in (study.DDP, study.OF_ITS_TIME, study.UNCACHED))
        + f". DDP is ahead of {study.OF_ITS_TIME} in {ahead[study.OF_ITS_TIME]:.0%} of the draws of what is not known "
        f"at the worst number of GPUs up to there, and of {study.LATER}, with its later defaults, in "
        f"{ahead[study.LATER]:.0%}. By the lines it leads {study.OF_ITS_TIME} by {_lead(at, study.OF_ITS_TIME)} and "
        f"{study.LATER} by {_lead(at, study.LATER)} of efficiency there. {trusted}. Draws vary what is not known of "
        "the machine, not the model. "
        f"{study.OF_ITS_TIME} {_bend(ds, study.OF_ITS_TIME)}; without its response cache "
        f"it {_bend(ds, study.UNCACHED)}. {here}{_over_links(ds)}"
    )
    reason = (
        "The GPUs of the claim are simulated; only ranks on one machine are measured. Replicated needs three things. "
        f"DDP is ahead in at least {SURE:.0%} of the draws at every number of GPUs, with the defaults that Horovod had "
        f"then, and on {STUDIED:,} the middle nine tenths of its lead in these draws, which vary both libraries "
        "alike, stay above none when widened by the model's error of the two libraries' ratio: Student's quantile of "
        "how far it is off on pairs measured on one machine and not fitted, as none were on such GPUs. A smaller lead "
        "rests on the model alone and is not told. The curve of that Horovod bends (a doubling of "
        f"GPUs costs more than {100 * study.DROP:.0f} points of efficiency) between {NEAR_1000[0]} and "
        f"{NEAR_1000[1]:,} GPUs in the middle nine tenths of the draws. And measured on the most ranks, DDP's "
        "throughput is above Horovod's in every cell, its interval too, widened for the number of cells compared "
        "(Bonferroni); one cell whose interval lies below contradicts it. Without the cache is not how "
        "Horovod came, so a bend there alone does not count."
    )
    return outcome(order, _bends_near_1000(ds, study.OF_ITS_TIME), measured), ours, reason


def _simulated_order(ds: xr.Dataset, ahead: float) -> tuple[bool | None, str]:
    """Return whether DDP leads in paired draws by more than the model may be off, and that in words; or None."""
    found, error = simulated_lead.lead(ds, study.OF_ITS_TIME, STUDIED), simulated_lead.model_error(ds)
    told = (
        f"In the middle nine tenths of the draws, each with both libraries, its efficiency is {found.low:.3f} to "
        f"{found.high:.3f} times that of {study.OF_ITS_TIME}"
    )
    if not error.pairs:
        return None, f"{told}; how far off the model is in this ratio is not known, as no pair of runs here judges it"
    holds = sign(np.log(found.widened_low), np.log(found.widened_high))
    told += (
        f". On {error.pairs} pairs measured here that it was not fitted to, the model is off in this ratio by "
        f"{np.expm1(error.log):.0%} in the root of the mean square, and widened by that it is {found.widened_low:.2f} "
        f"to {found.widened_high:.2f}" + (", so the order is not told" if holds is None else "")
    )
    return (ahead >= SURE if holds else holds), told


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


def _bends_near_1000(ds: xr.Dataset, variant: str) -> bool | None:
    """Return whether a curve bends near 1000 GPUs in the draws (True), does not (False), or either (None)."""
    low, high = study.bend_range(ds, variant)
    if high < NEAR_1000[0] or low > NEAR_1000[1]:
        return False
    return True if low >= NEAR_1000[0] and high <= NEAR_1000[1] else None


def _bend(ds: xr.Dataset, variant: str) -> str:
    """Say from where on a curve bends, by its line and over the draws, and its efficiency there and at the end."""
    ranks, (low, high) = study.bend(ds, variant), study.bend_range(ds, variant)
    if np.isinf(low):
        return "does not bend, by its line or in the draws"
    end = _about(high) if np.isfinite(high) else "nowhere"
    drawn = f"{_about(low)} to {end} in the middle nine tenths of the draws"
    if np.isnan(ranks):
        return f"does not bend by its line ({drawn})"
    curve = study.curves_at(study.rows(ds, "simulated"), variant).set_index("ranks")["efficiency"]
    told = f"bends from about {_about(ranks)} GPUs on ({drawn}), where its efficiency is {curve[ranks]:.0%}"
    return f"{told}, to {curve[STUDIED]:.0%} at {STUDIED:,}" if ranks < STUDIED else told


def _about(ranks: float) -> str:
    return f"{round(ranks, -1):,.0f}"


def _measured_order(ds: xr.Dataset) -> tuple[bool | None, str]:
    gaps = study.gaps(ds)
    gaps = pooled.widened(gaps[(gaps["ranks"] == gaps["ranks"].max()) & ~gaps["shared"].astype(bool)])
    if gaps.empty:
        return None, "Nothing was measured with both libraries on several ranks."
    told = "; ".join(
        f"{row['arch']}, {row['scaling']} scaling, {row['ratio']:.2f}{_between(row['low'], row['high'])}"
        for row in gaps.to_dict("records")
    )
    signs = [sign(low, high) for low, high in np.log(gaps[["low", "high"]].to_numpy())]
    return _together(signs), (
        f"Measured on {int(gaps['ranks'].iloc[0])} processes of one machine over Gloo, DDP's throughput is that of "
        f"Horovod times: {told}. DDP is ahead in {signs.count(True)} of {len(signs)} cells, behind in "
        f"{signs.count(False)}, and {signs.count(None)} do not tell; intervals rest on the spread within each network "
        f"({gaps['freedom'].min()} to {gaps['freedom'].max()} degrees of freedom)."
    )


def _together(signs: Sequence[bool | None]) -> bool | None:
    """Return False if any contradicts, True if all agree, else None."""
    return False if False in signs else True if all(signs) else None


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
    horovod = table[(table["library"] == "horovod") & ~table["default"].astype(bool)]
    simulated = horovod[horovod["source"] == "simulated"]
    if simulated.empty:
        return "not yet measured", "", "The simulated settings are not among the results."
    best = simulated[simulated["ratio"] > (1 - ALIKE) * simulated["ratio"].max()]
    gain = float(best["ratio"].max()) - 1
    alike = f"; these {len(best)} do not differ" if len(best) > 1 else ""
    marginal, here = _measured_tuning(horovod[horovod["source"] == "measured"])
    ours = (
        f"In simulation, on {best['ranks'].iloc[0]} GPUs of Summit, the best of {len(simulated)} settings other than "
        f"the defaults of {study.OF_ITS_TIME} has {gain:+.1%} of the throughput at these "
        f"({'; '.join(best['setting'])}{alike}). {here}"
    )
    reason = (
        "The GPUs of the claim are simulated; ranks on one machine are measured, with later defaults of Horovod. A "
        f"gain is marginal below {MARGINAL:.0%}. In simulation that of the best setting must be. Measured, tuning "
        "helps only marginally if the intervals of all settings end below that, and more if any begins above it; else "
        "it is not told. Intervals are widened for the number of settings (Bonferroni), and the defaults are none of "
        "them."
    )
    return outcome(gain < MARGINAL, marginal), ours, reason


def _measured_tuning(settings: pd.DataFrame) -> tuple[bool | None, str]:
    """Return whether all measured settings gain little at most, and what they gain."""
    if settings.empty:
        return None, "No setting other than the defaults was measured."
    settings = pooled.widened(settings).sort_values("ratio")
    marginal = _together([_marginal(low, high) for low, high in settings[["low", "high"]].to_numpy() - 1])
    least, most = settings.iloc[0], settings.iloc[-1]
    told = (
        f"Measured on {most['ranks']} processes of one machine, {', '.join(sorted(set(settings['arch'])))}, "
        f"{len(settings)} settings other than the defaults change the throughput by {least['ratio'] - 1:+.1%} to "
        f"{most['ratio'] - 1:+.1%}; the most is by {most['setting']}"
    )
    if np.isnan(most["low"]):
        return marginal, f"{told}. Nothing was repeated, so that has no interval."
    return marginal, f"{told} ({most['low'] - 1:+.1%} to {most['high'] - 1:+.1%})."


def _marginal(low: float, high: float) -> bool | None:
    return True if high < MARGINAL else False if low > MARGINAL else None


def _ring(ds: xr.Dataset, _claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    counted = study.ring_steps(ds)
    if counted.empty:
        return "not yet measured", "", "No ring all-reduce is among the results."
    right = counted["message_steps"] == 2 * (counted["ranks"] - 1)
    told = ", ".join(f"{row.ranks} ranks {row.message_steps:.0f}" for row in counted.itertuples())
    ours = (
        f"In simulation, counted in a ring all-reduce that was carried out part by part: {told}. The ring is one of "
        "our own, so that this checks a definition and cannot fail."
    )
    reason = (
        "Replicated needs 2(N-1) steps at every number of ranks N, after which every rank must hold the exact sum. A "
        "ring that is carried out as it is defined always takes as many, so a slip in our counting alone could make "
        "another verdict. What would test the claim are the messages of a library, and no trace shows these: it has "
        "an all-reduce as one event."
    )
    return outcome(*map(bool, right)), ours, reason


def _ideal(ds: xr.Dataset, _claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    cells = study.cells(ds)
    every = cells[(cells["ranks"] > 1) & ~cells["shared"]] if len(cells) else cells
    several = every[every["high"] / every["low"] < TELLS] if len(every) else every
    if several.empty or len(several) < len(every) / 2:
        lacking = (
            f"Intervals whose ends are less than a factor of {TELLS:g} apart, for at least half of the efficiencies on "
            f"several ranks, are the least; {len(several)} of {len(every)} have one."
        )
        return "not yet measured", "", lacking
    left_out = len(every) - len(several)
    below = several["low"] <= 1
    ordered = several.sort_values("efficiency")
    least, most = ordered.iloc[0], ordered.iloc[-1]
    ours = (
        f"Measured on one machine, {int(below.sum())} of {len(several)} cells of several ranks are at or under K times "
        f"the throughput of one: efficiency goes from {_cell(least)} to {_cell(most)}. {left_out or 'No'} "
        f"further {'cell was' if left_out < 2 else 'cells were'} left out for an interval whose ends are a factor of "
        f"{TELLS:g} or more apart."
    )
    reason = (
        "Efficiency is defined by this ideal, so what can be tested is that it is one: replicated needs no cell whose "
        "whole interval lies above K times the throughput of one rank. A run that is a point of weak and of strong "
        "scaling counts once, under weak."
    )
    return outcome(*map(bool, below)), ours, reason


def _cell(row: pd.Series) -> str:
    return (
        f"{row['efficiency']:.0%} ({row['low']:.0%} to {row['high']:.0%}; {row['variant']}, {row['arch']}, "
        f"{row['scaling']}, {row['ranks']} ranks)"
    )


JUDGES: dict[str, Judge] = {"G18": _scaling, "G21": _tuning, "M8": _ring, "J1": _ideal}
