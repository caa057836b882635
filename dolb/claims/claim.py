"""What a claim and a verdict are, and how a judge makes the second of the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import xarray as xr

MARGIN = 0.5  # of a reported effect: less than half of it is no longer that effect
OUTCOMES = ("replicated", "not replicated", "mixed", "not testable here", "not yet measured")


@dataclass(frozen=True)
class Claim:
    """One claim of one document, in our words, with the numbers it reports."""

    id: str
    source: str
    where: str
    kind: str
    experiment: str
    statement: str
    reported: Any = None
    setting: Any = None


@dataclass(frozen=True)
class Verdict:
    """What our runs say of a claim: the outcome, our finding in numbers, and how the outcome follows from it."""

    claim: Claim
    outcome: str
    ours: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        """Refuse an outcome that the book does not explain."""
        if self.outcome not in OUTCOMES:
            raise ValueError(f"outcome {self.outcome!r} is not known; accepted: {', '.join(OUTCOMES)}")


# A judge reads the experiment's Dataset and the claims by id, and says outcome, finding and reason.
Judge = Callable[[xr.Dataset, Mapping[str, Claim]], tuple[str, str, str]]


def outcome(*holds: bool | None) -> str:
    """Return the outcome of a claim in parts, each of which holds (True), fails (False) or cannot be told (None)."""
    if all(value is True for value in holds):
        return "replicated"
    return "not replicated" if all(value is False for value in holds) else "mixed"


def sign(low: float, high: float) -> bool | None:
    """Return whether an interval lies above zero (True), below (False), or neither."""
    return True if low > 0 else False if high < 0 else None


def beyond(low: float, high: float, least: float) -> bool | None:
    """Return whether an interval shows an effect above zero (True), shows that there is none (False), or neither.

    There is none if the interval lies below zero, or holds zero and nothing as large as ``least``, the smallest effect
    that would still be the one reported. An interval that holds both is too wide to tell.
    """
    return True if low > 0 else False if high < least else None


def reaches(low: float, high: float, least: float) -> bool | None:
    """Return what ``beyond`` does, but of an effect above zero that is smaller than ``least`` neither (None).

    It is an effect, and it is not the one reported.
    """
    return None if low > 0 and high < least else beyond(low, high, least)


def agrees(reported: float, low: float, high: float, most: float) -> bool | None:
    """Return whether a reported value lies in an interval of ours (True) or not (False).

    An interval that holds it and reaches further than ``most`` to either side of its middle cannot tell (None).
    """
    if reported < low or reported > high:
        return False
    return True if (high - low) / 2 <= most else None
