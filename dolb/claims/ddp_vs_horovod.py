"""The verdicts on how data-parallel training scales: G18, G21, M8 and J1.

What happens on hundreds of GPUs is simulated here, and every text that rests on that says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from dolb.claims.claim import Claim, Judge, of_parts, outcome, sign
from dolb.findings import ddp_vs_horovod as study
from dolb.findings import links, pooled, simulated_lead
from dolb.findings.measured_lead import between

STUDIED = 1536  # GPUs of the study's curve
NEAR_1000 = (500, 2000)  # a bend that begins within these is one near 1000
SURE = 0.95  # an order holds in simulation if it does in this share of the draws of what is not known
TELLS = 2.0  # an interval of an efficiency whose ends are further apart than by this factor says nothing
MARGINAL = 0.05  # a gain below this is a marginal one
ALIKE = 1e-4  # simulated settings whose throughputs differ by less do not differ


class Part(NamedTuple):
    """One thing that a claim says, what we found of it, whether it holds, and the rest that is to be told."""

    what: str
    ours: str
    holds: bool | None
    more: str


def _scaling(ds: xr.Dataset, _claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    if study.curves(ds).empty:
        return "not yet measured", "", "The simulated curves are not among the results."
    found = parts(ds)
    ours = " ".join(f"{part.what}: {in_words(part.holds)}. {part.ours}. {part.more}" for part in found)
    reason = (
        "The GPUs of the claim are simulated; only ranks on one machine are measured. All of its three parts must hold "
        "for replicated; one that does not, with none that does, makes it not replicated. "
        f"First, DDP is ahead in at least {SURE:.0%} of the draws at every number of GPUs, with the defaults that "
        f"Horovod had then, and on {STUDIED:,} the middle nine tenths of its lead in these draws, which vary both "
        "libraries alike, stay above none when widened by the model's error of the two libraries' ratio: Student's "
        "quantile of how far it is off on pairs measured on one machine and not fitted, as none were on such GPUs. A "
        "smaller lead rests on the model alone and is not told. Second, the curve of that Horovod bends (a doubling of "
        f"GPUs costs more than {100 * study.DROP:.0f} points of efficiency) between {NEAR_1000[0]} and "
        f"{NEAR_1000[1]:,} GPUs in the middle nine tenths of the draws; without the cache is not how Horovod came, so "
        "a bend there alone does not count. Third, measured on the most ranks under weak scaling, as the claim is of "
        "it, DDP's throughput is above Horovod's in every network, its interval too, widened for the number of "
        "networks (Bonferroni); one whose interval lies below contradicts it. Strong scaling and links are told beside "
        "it and decide nothing."
    )
    return of_parts(*(part.holds for part in found)), ours, reason


def parts(ds: xr.Dataset) -> tuple[Part, Part, Part]:
    """Return what G18 says, part by part."""
    curves = study.curves(ds)
    ahead = {name: _ahead(curves, name) for name in (study.OF_ITS_TIME, study.LATER)}
    at = {str(row["variant"]): row for _, row in curves[curves["ranks"] == STUDIED].iterrows()}
    order, lead, trusted = _simulated_order(ds, ahead[study.OF_ITS_TIME])
    simulated = Part(
        f"DDP ahead on {STUDIED:,} GPUs, simulated",
        lead,
        order,
        f"In simulation, on {STUDIED:,} GPUs of Summit, "
        + ", ".join(_efficiency(name, at[name]) for name in (study.DDP, study.OF_ITS_TIME, study.UNCACHED))
        + f". DDP is ahead of {study.OF_ITS_TIME} in {ahead[study.OF_ITS_TIME]:.0%} of the draws of what is not known "
        f"at the worst number of GPUs up to there, and of {study.LATER}, with its later defaults, in "
        f"{ahead[study.LATER]:.0%}. By the lines it leads {study.OF_ITS_TIME} by {_lead(at, study.OF_ITS_TIME)} and "
        f"{study.LATER} by {_lead(at, study.LATER)} of efficiency there. {trusted}Draws vary what is not known of "
        "the machine, not the model.",
    )
    bends = Part(
        "Horovod bends near 1000 GPUs, simulated",
        f"{study.OF_ITS_TIME} {_bend(ds, study.OF_ITS_TIME)}",
        _bends_near_1000(ds, study.OF_ITS_TIME),
        f"Without its response cache it {_bend(ds, study.UNCACHED)}.",
    )
    return simulated, bends, _measured_part(ds)


def parts_table(ds: xr.Dataset) -> pd.DataFrame:
    """Return the parts of G18 for readers: what each says, ours, and whether it holds."""
    rows = [{"part": part.what, "ours": part.ours, "holds": in_words(part.holds)} for part in parts(ds)]
    return pd.DataFrame(rows).set_index("part").rename_axis(index=None, columns="part")


def in_words(holds: bool | None) -> str:
    """Say whether a part of a claim holds."""
    return "cannot be told" if holds is None else "yes" if holds else "no"


def _simulated_order(ds: xr.Dataset, ahead: float) -> tuple[bool | None, str, str]:
    """Return whether DDP leads in paired draws by more than the model may be off (or None), that, and the rest."""
    found, error = simulated_lead.lead(ds, study.OF_ITS_TIME, STUDIED), simulated_lead.model_error(ds)
    told = f"DDP's efficiency is {found.low:.3f} to {found.high:.3f} times that of {study.OF_ITS_TIME} by the model"
    drawn = "The ratio of their efficiencies is the middle nine tenths of draws, each with both libraries. "
    if not error.pairs:
        return None, f"{told}, whose error in this ratio is not known, as no pair of runs here judges it", drawn
    holds = sign(np.log(found.widened_low), np.log(found.widened_high))
    told += f", and {found.widened_low:.2f} to {found.widened_high:.2f} with the model's error" + (
        ", so the order is not told" if holds is None else ""
    )
    off = (
        f"On {error.pairs} pairs measured here that it was not fitted to, the model is off in this ratio by "
        f"{np.expm1(error.log):.0%} in the root of the mean square. "
    )
    return (ahead >= SURE if holds else holds), told, drawn + off


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


def _measured_part(ds: xr.Dataset) -> Part:
    """Return whether DDP is ahead on the most ranks that were measured, under weak scaling, and what else was found."""
    gaps = study.gaps(ds)
    weak = _on_most_ranks(gaps[gaps["scaling"] == "weak"])
    if weak.empty:
        return Part("DDP ahead on the ranks measured", "Nothing was measured with both libraries", None, "")
    signs = [sign(low, high) for low, high in np.log(weak[["low", "high"]].to_numpy())]
    ours = (
        f"DDP is ahead with {signs.count(True)} of {len(signs)} networks, behind with {signs.count(False)}; with "
        f"{signs.count(None)} it is not told"
    )
    strong = _on_most_ranks(gaps[(gaps["scaling"] == "strong") & ~gaps["shared"].astype(bool)])
    beside = f" Under strong scaling, which decides nothing: {_ratios_in_words(strong)}." if len(strong) else ""
    more = (
        "Measured as processes of one machine over Gloo, DDP's throughput is that of Horovod times: "
        f"{_ratios_in_words(weak)}. Intervals rest on the spread within each network ({weak['freedom'].min()} to "
        f"{weak['freedom'].max()} degrees of freedom).{beside}{_over_links(ds)}"
    )
    return Part(f"DDP ahead on {int(weak['ranks'].iloc[0])} ranks, measured", ours, _together(signs), more)


def _on_most_ranks(gaps: pd.DataFrame) -> pd.DataFrame:
    return pooled.widened(gaps[gaps["ranks"] == gaps["ranks"].max()])


def _ratios_in_words(gaps: pd.DataFrame) -> str:
    told = "; ".join(
        f"{row['arch']} {row['ratio']:.2f}{between(row['low'], row['high'])}" for row in gaps.to_dict("records")
    )
    return f"{told}, on {int(gaps['ranks'].iloc[0])} ranks{_widened(gaps)}"


def _widened(gaps: pd.DataFrame) -> str:
    return "" if gaps["low"].isna().any() else f" (widened for {len(gaps)} comparisons)"


def _together(signs: Sequence[bool | None]) -> bool | None:
    """Return False if any contradicts, True if all agree, else None."""
    return False if False in signs else True if all(signs) else None


def _over_links(ds: xr.Dataset) -> str:
    """Say the same over links between hosts; it is told beside the verdict and does not decide it."""
    gaps = links.gaps(ds)
    gaps = pooled.widened(gaps[gaps["hosts"] == gaps["hosts"].max()])
    if gaps.empty:
        return ""
    told = "; ".join(
        f"{row['arch']} at {links.rate_in_words(row['link_mbit'])} {row['ratio']:.2f}{between(row['low'], row['high'])}"
        for row in gaps.to_dict("records")
    )
    where = f" Over rate-limited links between {int(gaps['hosts'].iloc[0])} hosts on one machine{_widened(gaps)}"
    return f"{where}: {told}."


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
    return of_parts(gain < MARGINAL, marginal), ours, reason


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
    told = ", ".join(f"{row.ranks} ranks {row.message_steps:.0f}" for row in counted.itertuples())
    ours = (
        f"In simulation, counted in a ring all-reduce that was carried out part by part: {told}. The ring is one of "
        "our own, so that this checks a definition and cannot fail."
    )
    reason = (
        "A ring that is carried out as it is defined takes 2(N-1) steps on any number of ranks N, so no count of ours "
        "could speak against the claim. What would test it are the messages of a library, and no trace shows these: it "
        "has an all-reduce as one event."
    )
    return "not testable here", ours, reason


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
        f"{row['efficiency']:.1%} ({row['low']:.1%} to {row['high']:.1%}; {row['variant']}, {row['arch']}, "
        f"{row['scaling']}, {row['ranks']} ranks)"
    )


JUDGES: dict[str, Judge] = {"G18": _scaling, "G21": _tuning, "M8": _ring, "J1": _ideal}
