"""Progress as people see it: a bar where it can move, and in a log a plain line now and then."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from tqdm.auto import tqdm

SECONDS = 15.0  # between two lines


class Lines:
    """Progress in plain lines, with what a bar of tqdm offers and is used here."""

    def __init__(self, total: float, desc: str, unit: str):
        self.total, self.desc, self.unit = total, desc, unit
        self.done, self._said, self._told = 0.0, "", "nothing"
        self._begun, self._next = time.monotonic(), 0.0
        self._first: tuple[float, float] | None = None  # when the first part was done, and how much that was

    def update(self, amount: float = 1) -> None:
        """Count what is done, and say so if the last line is old."""
        self.done += amount
        self._first = self._first or (time.monotonic(), self.done)
        if time.monotonic() >= self._next:
            self._tell()

    def set_postfix_str(self, said: str, refresh: bool = False) -> None:
        """Note what the next line is to end with."""
        self._said = said

    def _tell(self) -> None:
        self._next = time.monotonic() + SECONDS
        done = f"{self.desc}: {self.done:g} of {self.total:g} ({self.unit})"
        if done != self._told:
            now = time.monotonic()
            took, (since, before) = now - self._begun, self._first or (now, 0.0)
            # By the pace since the first part, which has what starting costs, or was done before.
            seconds, parts = (now - since, self.done - before) if self.done > before else (took, self.done)
            left = seconds / parts * (self.total - self.done) if parts else 0.0
            about = f"about {left:.0f} s left" if left >= 1 else ""
            print(", ".join(filter(None, [done, f"{took:.0f} s", about, self._said])), file=sys.stderr, flush=True)
        self._told = done

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        self._tell()


def bar(total: float, desc: str, unit: str, show: bool = True) -> Any:
    """Return a bar of tqdm on a terminal and in JupyterLab, and elsewhere one that writes plain lines."""
    moves = sys.stderr.isatty() or os.environ.get("JPY_SESSION_NAME")
    if moves or not show:
        return tqdm(total=total, desc=desc, unit=unit, disable=not show, mininterval=1.0)
    return Lines(total, desc, unit)
