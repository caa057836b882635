"""What of the batch-size study was run: where there is one seed alone, and what lacks."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from dolb import summary
from dolb.summary.batch_size import CELL, by_depth


def one_seed_in_words(runs: pd.DataFrame) -> str:
    """Say which networks have one seed to a cell, so that intervals hold nothing of another's; empty where none has."""
    alone = summary.over_seeds(runs, CELL).groupby("arch")["n"].agg(one=lambda n: (n == 1).sum(), cells="size")
    whole = [arch for arch in by_depth(alone.index) if alone.loc[arch, "one"] == alone.loc[arch, "cells"]]
    part = [arch for arch in by_depth(alone.index) if arch not in whole and alone.loc[arch, "one"]]
    told = [f"all cells of {listed(whole)}"] if whole else []
    told += [f"{alone.loc[arch, 'one']} of {alone.loc[arch, 'cells']} of {arch}" for arch in part]
    if not told:
        return ""
    return f"Intervals hold the test set's noise and not that between seeds where there is one seed: {listed(told)}."


def listed(names: Iterable[str]) -> str:
    """Return the names as a sentence lists them, with `and` before the last."""
    *before, last = names
    return f"{', '.join(before)} and {last}" if before else last
