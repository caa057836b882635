"""Training over links of several rates: its numbers, and DDP against Horovod by rate, with intervals and in words.

Slow links set the pace and repetitions hardly differ; on fast ones what else the machine does shows. So what
repetitions differ by is pooled up to ``SLOW`` and beyond it apart.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from dolb.findings import pooled
from dolb.findings.ddp_vs_horovod import SPEED, paired, ratios, rows
from dolb.findings.pooled import Spread

CELL = ("arch", "hosts", "library", "variant", "link_mbit")
GAP = ("arch", "hosts", "link_mbit")
SLOW = 1000.0  # Mbit/s
_CLASSES = (True, False)  # up to SLOW, and beyond


def cells(ds: xr.Dataset) -> pd.DataFrame:
    """Return seconds of a step, throughput and efficiency by network, hosts, library and the rate of links.

    The table is empty where nothing was measured over links.
    """
    measured = _measured(ds)
    of = {name: _spreads(measured.set_index(list(CELL))[name], CELL) for name in (SPEED, "efficiency")}
    made = []
    for values, group in measured.groupby(list(CELL), sort=True):
        batch, rate = int(group["batch_size"].iloc[0]), float(group["link_mbit"].iloc[0])
        speed, efficiency = (
            pooled.geometric(group[name].to_numpy(), of[name][rate <= SLOW]) for name in (SPEED, "efficiency")
        )
        made.append(
            {
                **dict(zip(CELL, values, strict=True)),
                **dict(zip(("step_seconds", "step_high", "step_low"), (batch / value for value in speed), strict=True)),
                **dict(zip(("efficiency", "low", "high"), efficiency, strict=True)),
                SPEED: speed[0],
                "achieved_mbit": float(stats.gmean(group["achieved_mbit"])),
                "link_latency_seconds": float(stats.gmean(group["link_latency_seconds"])),
                "limit": rate_in_words(rate),
                "batch_size": batch,
                "repeats": len(group),
                "device": group["device"].iloc[0],
                "source": "measured",
            }
        )
    return pd.DataFrame(made)


def gaps(ds: xr.Dataset) -> pd.DataFrame:
    """Return by network, hosts and the rate of links how many times Horovod's throughput DDP's is."""
    ratio = paired(_measured(ds), list(GAP))
    spreads, rate = _spreads(ratio, GAP), ratio.index.get_level_values("link_mbit")
    parts = [
        ratios(ratio[(rate <= SLOW) == slow], GAP, dict.fromkeys(ratio.index.get_level_values("arch"), spreads[slow]))
        for slow in _CLASSES
    ]
    known = [part for part in parts if len(part)]
    return pd.concat(known).sort_values(list(GAP), ignore_index=True) if known else parts[0]


def _measured(ds: xr.Dataset) -> pd.DataFrame:
    measured = rows(ds, "measured")
    return measured[measured["hosts"] > 1]


def _spreads(values: pd.Series, by: tuple[str, ...]) -> dict[bool, Spread]:
    """Pool what repetitions differ by up to ``SLOW`` and beyond; where one has none, the other's stands for it."""
    slow = values.index.get_level_values("link_mbit") <= SLOW
    own = {which: pooled.spread(values[slow == which], list(by)) for which in _CLASSES}
    return {which: one if one.freedom else pooled.joined(*own.values()) for which, one in own.items()}


def spread_in_words(ds: xr.Dataset) -> str:
    """Say what repetitions over links differ by, of throughput, and what of that an interval rests on."""
    measured = _measured(ds).set_index(list(CELL))
    found = _spreads(measured[SPEED], CELL)
    if not found[True].freedom:
        return "Nothing was repeated over links, so there are no intervals."
    slow, fast = (f"{found[which].factor:.1%} ({found[which].freedom} degrees of freedom)" for which in _CLASSES)
    return (
        f"Repetitions differ in throughput by a standard deviation of {slow} up to {rate_in_words(SLOW)} and of {fast} "
        "beyond, so intervals rest on these two apart."
    )


def in_words(cells: pd.DataFrame, points: pd.DataFrame) -> str:
    """Say what was measured over links, and by how much the simulator is off where nothing was fitted.

    ``cells`` are those of this module; ``points`` have used (fit or judge), error, link_mbit and compute, as the
    simulator's check has them.
    """
    hosts = ", ".join(map(str, sorted(set(cells["hosts"]))))
    slow_first = cells.sort_values("link_mbit")
    limits = {
        str(arch): ", ".join(dict.fromkeys(group["limit"])) for arch, group in slow_first.groupby("arch", sort=True)
    }
    which = f"on {hosts} hosts, " + "; ".join(f"{arch} with links of {rates}" for arch, rates in limits.items())
    if len(set(limits.values())) == 1:
        which = f"{', '.join(limits)} on {hosts} hosts, with links of {next(iter(limits.values()))}"
    judged = points[points["used"] == "judge"]
    told = f"Measured: {which}. "
    if judged.empty:
        return f"{told}One rate alone does not judge the simulator."
    errors = judged["error"].abs()
    return (
        f"{told}On links that it was not fitted to the simulator is off by {errors.max():.0%} at most, "
        f"{errors.median():.0%} in the median. {_signs(judged)} The factor fitted on computing is "
        f"{points['compute'].min():.2f} to {points['compute'].max():.2f}."
    )


def _signs(judged: pd.DataFrame) -> str:
    """Say at how many of the points that judge the simulator is too fast, and by how much, on slow and fast links."""
    told = []
    for slow, where in zip(_CLASSES, (f"Up to {rate_in_words(SLOW)}", "beyond"), strict=True):
        error = judged.loc[(judged["link_mbit"] <= SLOW) == slow, "error"]
        if len(error):
            told.append(
                f"{where} it is too fast at {(error > 0).sum()} of {len(error)} points, with errors from "
                f"{error.min():+.0%} to {error.max():+.0%} and a mean of {error.mean():+.0%}"
            )
    said = "; ".join(told)
    return f"{said[0].upper()}{said[1:]}."


def rate_in_words(mbit: float) -> str:
    """Say a rate as people say it."""
    if np.isinf(mbit):
        return "no limit"
    return f"{mbit:g} Mbit/s" if mbit < 1000 else f"{mbit / 1000:g} Gbit/s"
