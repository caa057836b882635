"""The one rule by which every verdict follows from an effect and its interval.

A claim becomes one effect for each of its parts: a number with a unit, signed so that the claim says it is above zero
(of a ratio: above one), with a 95% interval. ``smallest`` is the smallest effect that still is the claim's.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import xarray as xr

from dolb.findings.intervals import Estimate

REPLICATED, SMALLER, INCONCLUSIVE, NOT_REPLICATED = (
    "replicated", "smaller than claimed", "inconclusive", "not replicated",
)  # fmt: skip
NOT_TESTABLE, NOT_MEASURED = "not testable here", "not yet measured"
OUTCOMES = (REPLICATED, SMALLER, INCONCLUSIVE, NOT_REPLICATED, NOT_TESTABLE, NOT_MEASURED)
WORST_FIRST = (NOT_REPLICATED, INCONCLUSIVE, SMALLER, REPLICATED)


@dataclass(frozen=True)
class Effect:
    """What a claim is judged by: what is measured, in which unit, and the smallest that still is the claim's."""

    measures: str
    unit: str  # points, share, exponent, or ratio, of which the logarithm is what is compared
    smallest: float
    no_difference: bool = False

    def outcome(self, estimate: Estimate) -> str:
        """Return what an estimate says of this effect."""
        low, high, least = (self._additive(value) for value in (estimate.low, estimate.high, self.smallest))
        if self.no_difference:
            if -least <= low and high <= least:
                return REPLICATED
            return NOT_REPLICATED if low > least or high < -least else INCONCLUSIVE
        if low > 0:
            return REPLICATED if high >= least else SMALLER
        return NOT_REPLICATED if high < least else INCONCLUSIVE

    def _additive(self, value: float) -> float:
        return math.log(value) if self.unit == "ratio" else value


@dataclass(frozen=True)
class Claim:
    """One claim of one document, in our words, with what it reports and the effects by which it is judged."""

    id: str
    source: str
    where: str
    experiment: str
    statement: str
    quoted: str  # what the document reports, for a cell of a table
    decided: str  # before or after its runs were read
    kind: str = "effect"  # or fact; beyond: its setting cannot be had here, and the effects are of what can
    reported: Any = None
    setting: Any = None
    effects: tuple[Effect, ...] = ()
    why: str = ""  # this ``smallest``
    repeated: str = "seeds"  # what n counts
    caveat: str = ""
    not_testable: str = ""  # which part of it, and why


@dataclass(frozen=True)
class Verdict:
    """What our runs say of a claim: an estimate and an outcome for each of its effects, and the worst of them."""

    claim: Claim
    outcome: str
    estimates: tuple[Estimate | None, ...] = ()
    outcomes: tuple[str, ...] = ()


# A judge reads the published results by slug and returns an estimate for each effect of its claim, in their order; None
# where its runs are not there. That of a fact returns whether it holds.
Found = Mapping[str, xr.Dataset]
Estimates = Sequence[Estimate | None]
Judge = Callable[[Found, Claim], Estimates | bool | None]


def verdict(claim: Claim, found: Estimates | bool | None) -> Verdict:
    """Return the verdict on a claim from what its judge found; what was not repeated is not yet measured."""
    if claim.kind == "fact":
        return Verdict(claim, NOT_MEASURED if found is None else REPLICATED if found else NOT_REPLICATED)
    estimates = tuple(one if one and one.n > 1 else None for one in found or ())  # type: ignore[union-attr]
    outcomes = tuple(
        NOT_MEASURED if estimate is None else effect.outcome(estimate)
        for effect, estimate in zip(claim.effects, estimates, strict=bool(estimates))
    )
    if claim.not_testable and (not claim.effects or claim.kind == "beyond"):
        return Verdict(claim, NOT_TESTABLE, estimates, outcomes)
    if not outcomes or NOT_MEASURED in outcomes:
        return Verdict(claim, NOT_MEASURED, estimates, outcomes)
    return Verdict(claim, min(outcomes, key=WORST_FIRST.index), estimates, outcomes)
