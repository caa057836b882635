"""What a claim and a verdict are, and how a judge makes the second of the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


def of_parts(*holds: bool | None) -> str:
    """Return the outcome of a claim that says several different things, each of which holds, fails or cannot be told.

    All must hold for it to be replicated. One that fails, with none that holds, refutes it: nothing of it was shown, as
    `ordered` has it for differences. With one that holds beside others that do not, or where none fails, it is mixed.
    """
    return ordered(holds, refuted=False)


def sign(low: float, high: float) -> bool | None:
    """Return whether an interval lies above zero (True), below (False), or neither."""
    return True if low > 0 else False if high < 0 else None


def beyond(low: float, high: float, least: float) -> bool | None:
    """Return whether an interval shows an effect above zero (True), shows that there is none (False), or neither.

    There is none if the interval lies below zero, or holds zero and nothing as large as ``least``, the smallest effect
    that would still be the one reported. An interval that holds both is too wide to tell.
    """
    return True if low > 0 else False if high < least else None


def ordered(signs: Sequence[bool | None], refuted: bool, lacking: int = 0) -> str:
    """Return the outcome of a claim that one thing beats another everywhere, by the sign of each difference.

    A sign is what ``sign`` says of an interval, and ``refuted`` whether a test of all differences together speaks
    against the claim. Every difference above zero replicates it. That test refutes it, and so does one difference below
    zero if none is above. While some were not measured, ``lacking`` says how many, it stays open.
    """
    if lacking:
        return "mixed"
    if refuted or (False in signs and True not in signs):
        return "not replicated"
    return outcome(*signs)


def counted(what: str, holds: Sequence[bool | None], lacking: int = 0) -> str:
    """Say how many parts of a claim speak for it and against it, how many cannot tell, and how many were not measured.

    ``what`` names the parts, such as batch sizes.
    """
    counts = [(holds.count(True), "for the claim"), (holds.count(False), "against it")]
    counts += [(holds.count(None), "that cannot tell"), (lacking, "not run in full")]
    return f"Of {len(holds) + lacking} {what}: {', '.join(f'{count} {words}' for count, words in counts)}."


def agrees(reported: float, low: float, high: float, most: float) -> bool | None:
    """Return whether a reported value lies in an interval of ours (True) or not (False).

    An interval that holds it and reaches further than ``most`` to either side of its middle cannot tell (None).
    """
    if reported < low or reported > high:
        return False
    return True if (high - low) / 2 <= most else None
