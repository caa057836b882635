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

from dolb.claims.claim import Claim, Judge, beyond, counted, outcome, so_far
from dolb.findings import landscape as study
from dolb.findings import smoothness

PRIMARY = smoothness.DECIDES
# What a comparison has to rule out to speak against the claim: curvature lower by this part. One whose interval lies
# below one speaks for it, by however little. The paper has no number. Between networks of small and of large batches,
# whose accuracies curvature is said to explain, it differs by factors; a fifth is little.
LEAST = 0.2
_READINGS = ("own", "full")


def _smoother(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    values = study.values(ds)
    ratios = study.ratios(values)
    table = ratios[(ratios["measure"] == PRIMARY) & ratios["reading"].isin(_READINGS) & (ratios["n"] > 1)]
    if len(set(table["other"])) < 2:
        return "not yet measured", "", "Two seeds on full, network filtered and random data at one batch are the least."
    # At every batch size, of which there are a small and a large one, with both other sets, in both readings.
    needed = max(2, values["batch_size"].nunique()) * len(set(table["other"])) * len(_READINGS)
    # A ratio below one is smoother, so the interval of its logarithm is taken the other way round.
    every = [beyond(-np.log(row["high"]), -np.log(row["low"]), -np.log(1 - LEAST)) for row in table.to_dict("records")]
    others = {name: words for name, words in study.NORMALIZED.items() if name != PRIMARY}
    told = [counted("comparisons that decide", every, max(0, needed - len(every))), smoothness.meaning_in_words(ratios)]
    for reading in _READINGS:
        beside = "; ".join(
            f"{words} {smoothness.tally_in_words(smoothness.compared(ratios, (reading,), name))}"
            for name, words in others.items()
        )
        told.append(
            f"Each judged over {study.READINGS[reading]}, the {study.NORMALIZED[PRIMARY]} of networks of network "
            f"filtered data is {study.ratios_in_words(table, reading)}. Beside it, in comparisons: {beside}."
        )
    told.append(smoothness.traces_in_words(ratios))
    reason = (
        f"The {study.NORMALIZED[PRIMARY]} decides; {', '.join(others.values())} are told beside it. A comparison is at "
        "one batch size, with full or with random data, each network judged over its own training set or all over full "
        "data: the ratio over networks of one seed, with Student's interval of its logarithm over seeds. It says "
        f"smoother if the interval lies below one, and not if the interval lies above {1 - LEAST:g}, {LEAST:.0%} less, "
        "and is not all below one; one that holds both is too wide to tell. There must be a small and a large batch, "
        "two seeds each. The claim is replicated if every comparison says smoother, and not replicated "
        "if none does and most say that it is not; this was fixed before the published landscapes were measured. "
        "Comparisons at the same weights do not decide: in them nothing was trained on filtered data, so they do not "
        "say what a filter does to training."
    )
    refuted = True not in every and 2 * every.count(False) > needed
    found = "not replicated" if refuted else outcome(*every)
    return so_far(found, every, needed - len(every)), " ".join(told), reason


JUDGES: dict[str, Judge] = {"G16": _smoother}
