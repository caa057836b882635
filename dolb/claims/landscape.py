"""The effect of G16: whether the loss landscape of networks trained on filtered data is smoother.

The paper measures nothing here, so what smooth means is ours: the top eigenvalue of the Hessian where every filter has
length one, over the loss that training saw and over the same full data, against full and against random data, with a
small and with a large batch. Each seed counts by its geometric mean over these eight ratios.
"""

from __future__ import annotations

from collections.abc import Mapping

import xarray as xr
from scipy import stats

from dolb.claims.rule import Claim, Judge
from dolb.findings import landscape as study
from dolb.findings.intervals import Estimate, geometric

MEASURE = "normalized_eigenvalue"
READINGS = ("own", "full")


def _smoother(found: Mapping[str, xr.Dataset], claim: Claim) -> list[Estimate | None]:
    table = study.values(found[claim.experiment])
    decides = table[(table["measure"] == MEASURE) & table["reading"].isin(READINGS)]
    pairs = study.in_pairs(decides).dropna(how="all", axis="columns").dropna()
    others, sizes = (len(set(decides[name])) for name in ("set", "batch_size"))
    if len(pairs) < 2 or others < 3 or sizes < 2:
        return [None]
    return [geometric(stats.gmean(pairs, axis=1))]


JUDGES: dict[str, Judge] = {"G16": _smoother}
