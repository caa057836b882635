"""The judges of how images are stored and read: K5 and J2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import xarray as xr

from dolb.claims.rule import Claim, Judge
from dolb.findings import data_pipeline as study
from dolb.findings.intervals import Estimate, geometric, student

SLUG = "data-pipeline"


def _flat(found: Mapping[str, xr.Dataset], _claim: Claim) -> Sequence[Estimate | None]:
    """K5: the flat file over small files, ImageNet-sized images at random from a cold cache, by seed."""
    seeds = study.flat_over_files(found[SLUG])
    return [geometric(seeds) if len(seeds) > 1 else None]


def _starves(found: Mapping[str, xr.Dataset], _claim: Claim) -> Sequence[Estimate | None]:
    """J2: the share starved on small files less that on the best container, chosen on the other seeds."""
    seeds = study.starves_less(found[SLUG])
    return [student(seeds) if len(seeds) > 1 else None]


JUDGES: dict[str, Judge] = {"K5": _flat, "J2": _starves}
