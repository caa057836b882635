"""The judges of how data-parallel training scales: G18, G21, M8 and J1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import xarray as xr

from dolb.claims.rule import Claim, Judge
from dolb.findings import ddp_vs_horovod as study
from dolb.findings.intervals import Estimate, geometric

SLUG = "ddp-vs-horovod"


def _lead(found: Mapping[str, xr.Dataset], _claim: Claim) -> Sequence[Estimate | None]:
    """G18: DDP's throughput over Horovod's on the most ranks, all networks of a launch being one repetition."""
    leads = study.leads(found[SLUG])
    every = leads[leads["arch"] == study.EVERY]
    if every.empty:
        return [None]
    most = every.sort_values("ranks").iloc[-1]
    return [Estimate(float(most["value"]), float(most["low"]), float(most["high"]), int(most["n"]))]


def _tuning(found: Mapping[str, xr.Dataset], _claim: Claim) -> Sequence[Estimate | None]:
    """G21: the best of Horovod's settings over its defaults, chosen on the other launches than it is judged on."""
    gains = study.best_setting_held_out(found[SLUG])
    return [geometric(gains) if len(gains) > 1 else None]


def _ring(found: Mapping[str, xr.Dataset], _claim: Claim) -> bool | None:
    """M8: the steps counted in a ring all-reduce that the simulator carries out part by part."""
    steps = study.ring_steps(found[SLUG])
    return bool((steps == 2 * (steps.index - 1)).all()) if len(steps) else None


def _ideal(found: Mapping[str, xr.Dataset], _claim: Claim) -> bool | None:
    """J1: K times one worker is an ideal, so no measured cell has an interval above an efficiency of one."""
    several = study.cells(found[SLUG]).query("ranks > 1")
    return not (several["low"] > 1).any() if several["low"].notna().any() else None


JUDGES: dict[str, Judge] = {"G18": _lead, "G21": _tuning, "M8": _ring, "J1": _ideal}
