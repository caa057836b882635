"""The verdict on what Gahlot et al. suppose of the loss landscape: G16.

The paper measures nothing here, so what smooth means is ours, and one measure decides: the top eigenvalue of the
Hessian where every filter has length one. A filter must lower it over the loss that training saw and over the same full
data, against full data and against a random set of the same size. The other measures are told beside it and decide
nothing: with several that may each decide, some would by chance.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr

from dolb.claims.claim import Claim, Judge, beyond, outcome, sign
from dolb.summary import landscape as study

PRIMARY = "normalized_eigenvalue"
# The least part by which curvature has to be lower to be called smoother. The paper has no number. Between networks of
# small and of large batches, whose accuracies curvature is said to explain, it differs by factors; a fifth is little.
LEAST = 0.2
_READINGS = ("own", "full")


def _smoother(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    values = study.values(ds)
    table = study.ratios(values)
    table = table[table["measure"].isin(list(study.NORMALIZED)) & table["reading"].isin(_READINGS) & (table["n"] > 1)]
    if len(set(table["other"])) < 2:
        return "not yet measured", "", "Two seeds on full, network filtered and random data at one batch are the least."
    # At every batch size, of which there are a small and a large one, with both other sets, in both readings.
    needed = max(2, values["batch_size"].nunique()) * len(set(table["other"])) * len(_READINGS)
    told, every = [], []
    for reading in _READINGS:
        rows = table[table["reading"] == reading]
        # A ratio below one is smoother, so the interval of its logarithm is taken the other way round.
        every += [
            beyond(-np.log(row["high"]), -np.log(row["low"]), -np.log(1 - LEAST))
            for row in rows[rows["measure"] == PRIMARY].to_dict("records")
        ]
        beside = [sign(1 - row["high"], 1 - row["low"]) for row in rows[rows["measure"] != PRIMARY].to_dict("records")]
        told.append(
            f"Each judged over {study.READINGS[reading]}, the {study.NORMALIZED[PRIMARY]} of networks of network "
            f"filtered data is {study.ratios_in_words(rows, reading)}; the other measures say smoother in "
            f"{beside.count(True)} and rougher in {beside.count(False)} of {len(beside)} comparisons."
        )
    others = ", ".join(words for name, words in study.NORMALIZED.items() if name != PRIMARY)
    reason = (
        f"The {study.NORMALIZED[PRIMARY]} decides; {others} are told beside it. A comparison is at one batch size, "
        "with full or with random data: the ratio over networks of one seed, with Student's interval of its logarithm "
        "over seeds. It says smoother if the interval lies below one, and not if the interval lies above "
        f"{1 - LEAST:g}, {LEAST:.0%} less, and is not all below one; one that holds both is too wide to tell, and so "
        "is what lacks of a small and a large batch, two seeds each. The "
        "claim is replicated if every comparison says smoother, and not replicated if none does and most say "
        "that it is not."
    )
    every += [None] * (needed - len(every))
    refuted = True not in every and 2 * every.count(False) > len(every)
    return "not replicated" if refuted else outcome(*every), " ".join(told), reason


JUDGES: dict[str, Judge] = {"G16": _smoother}
