"""The verdict on what Gahlot et al. suppose of the loss landscape: G16.

The paper measures nothing here, so what smooth means is ours: less curvature where every filter has length one, a
smaller rise of the loss nearby, and of the surface further away. A filter must show it over the loss that training saw
and over the same full data, against full data and against a random set of the same size.
"""

from __future__ import annotations

from collections.abc import Mapping

import xarray as xr

from dolb.claims.claim import Claim, Judge, outcome, sign
from dolb.summary import CONFIDENCE
from dolb.summary import landscape as study

_READINGS = ("own", "full")


def _smoother(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    table = study.ratios(study.values(ds))
    table = table[table["measure"].isin(list(study.NORMALIZED)) & table["reading"].isin(_READINGS) & (table["n"] > 1)]
    if len(set(table["other"])) < 2:
        return "not yet measured", "", "Two seeds on full, network filtered and random data at one batch are the least."
    told, every = [], []
    for reading in _READINGS:
        rows = table[table["reading"] == reading]
        holds = [sign(1 - row["high"], 1 - row["low"]) for row in rows.to_dict("records")]
        every += holds
        told.append(
            f"Each judged over {study.READINGS[reading]}, networks of network filtered data have a smoother landscape "
            f"in {holds.count(True)} and a rougher one in {holds.count(False)} of {len(holds)} comparisons; their "
            f"{study.NORMALIZED['normalized_eigenvalue']} is {study.ratios_in_words(rows, reading)}."
        )
    chance = 1 - CONFIDENCE
    reason = (
        f"A comparison is of one measure ({', '.join(study.NORMALIZED.values())}) at one batch size with full or with "
        "random data: the ratio over networks of one seed, with Student's interval of its logarithm over seeds. It "
        f"says smoother or rougher if the interval does not hold one, as {chance:.0%} would by chance alone. The claim "
        "is replicated if every comparison says smoother, and not replicated if none does and more than "
        f"{chance:.0%} say rougher."
    )
    rougher = True not in every and every.count(False) > chance * len(every)
    return "not replicated" if rougher else outcome(*every), " ".join(told), reason


JUDGES: dict[str, Judge] = {"G16": _smoother}
