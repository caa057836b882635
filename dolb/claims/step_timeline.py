"""The judges of what one training step looks like: G19 and G20."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import xarray as xr

from dolb.claims.rule import Claim, Judge
from dolb.findings import step_timeline as study
from dolb.findings.intervals import Estimate, student

SLUG = "step-timeline"


def _negotiation(found: Mapping[str, xr.Dataset], _claim: Claim) -> Sequence[Estimate | None]:
    """G19: Horovod's negotiation while nothing is reduced, as a share of its all-reduces."""
    runs = study.negotiation_over_reduces(found[SLUG])
    return [student(runs) if len(runs) > 1 else None]


def _overlap(found: Mapping[str, xr.Dataset], _claim: Claim) -> Sequence[Estimate | None]:
    """G20: the share of DDP's communication that is hidden behind computing."""
    runs = study.hidden(found[SLUG])
    return [student(runs) if len(runs) > 1 else None]


JUDGES: dict[str, Judge] = {"G19": _negotiation, "G20": _overlap}
