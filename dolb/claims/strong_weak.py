"""The judges of C1 to C3, strong against weak scaling on a small set of volumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import xarray as xr

from dolb.claims.rule import Claim, Judge
from dolb.findings import strong_weak as study
from dolb.findings.intervals import Estimate

Found = Mapping[str, xr.Dataset]
STEPS = "strong-weak-steps"


def _first(found: Found, claim: Claim) -> Sequence[Estimate | None]:
    """C1: time to the target of each weak rule over that of strong scaling."""
    if STEPS not in found:
        return [None, None, None]
    timed = study.times(study.volumes(study.runs(found[claim.experiment])), study.step_times(found[STEPS]))
    return [study.time_ratio(timed, rule) for rule in study.RULES[1:]]


def _follows(found: Found, claim: Claim) -> Sequence[Estimate | None]:
    """C2: the loss along the updates over that of one worker, and how many more runs miss the target."""
    ds = found[claim.experiment]
    return [study.follows(ds), study.missed_more(study.volumes(study.runs(ds)))]


def _limit(found: Found, claim: Claim) -> bool | None:
    """C3: batch and rate stay, so an example for each worker is the end."""
    return study.strong_limit(study.volumes(study.runs(found[claim.experiment])))


JUDGES: dict[str, Judge] = {"C1": _first, "C2": _follows, "C3": _limit}
