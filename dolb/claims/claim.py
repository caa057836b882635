"""What a claim and a verdict are, and how a judge makes the second of the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from dolb.findings import CONFIDENCE, holm

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


def signs(rows: Sequence[Mapping[Any, Any]]) -> list[bool | None]:
    """Return whether each of several differences speaks for a claim that all are above zero, against it, or neither.

    For it speaks an interval above zero, as all of them have to. One alone may refute, so one speaks against it only if
    it is below zero after Holm's correction for how many they are; else some would by chance.
    """
    corrected = holm(np.array([row["p"] for row in rows], dtype=float))
    told = [sign(row["low"], row["high"]) for row in rows]
    return [None if one is False and p >= 1 - CONFIDENCE else one for one, p in zip(told, corrected, strict=True)]


def ordered(holds: Sequence[bool | None], refuted: bool, lacking: int = 0) -> str:
    """Return the outcome of a claim that one thing beats another everywhere, by the sign of each difference.

    ``holds`` is of ``signs``, and ``refuted`` whether a test of all differences together speaks against the claim.
    Every difference above zero replicates it. That test refutes it, and so does one difference below zero if none is
    above. ``lacking`` says how many were not measured.
    """
    against = refuted or (False in holds and True not in holds)
    return so_far("not replicated" if against else outcome(*holds), holds, lacking)


def so_far(found: str, holds: Sequence[bool | None], lacking: int) -> str:
    """Return the outcome of a claim in parts of which some are not measured: the one found, if the rest cannot mend it.

    What fails cannot come to hold everywhere, and what holds in part and fails in part stays mixed. What holds wherever
    it was measured, or cannot be told there, waits for the rest.
    """
    settled = not lacking or found == "not replicated" or {True, False} <= set(holds)
    return found if settled else "not yet measured"


def counted(what: str, holds: Sequence[bool | None], lacking: int = 0) -> str:
    """Say how many parts of a claim speak for it and against it, how many cannot tell, and how many were not measured.

    ``what`` names the parts, such as batch sizes.
    """
    counts = [(holds.count(True), "for the claim"), (holds.count(False), "against it")]
    counts += [(holds.count(None), "that cannot tell")]
    every = len(holds) + lacking
    of = f"So far {len(holds)} of {every} {what} are run in full" if lacking else f"Of {every} {what}"
    return f"{of}: {', '.join(f'{count} {words}' for count, words in counts)}."


def agrees(reported: float, low: float, high: float, most: float) -> bool | None:
    """Return whether a reported value lies in an interval of ours (True) or not (False).

    An interval that holds it and reaches further than ``most`` to either side of its middle cannot tell (None).
    """
    if reported < low or reported > high:
        return False
    return True if (high - low) / 2 <= most else None
