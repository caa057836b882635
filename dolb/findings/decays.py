"""How accuracy goes with weight decay, and whether the decays that were run hold the best one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from dolb import findings as summary
from dolb.findings.coverage import listed


def in_words(cells: pd.DataFrame, reported: Sequence[Mapping[str, Any]]) -> str:
    """Say by batch size on how many sets accuracy rises from each decay to the next, and what that means for the best.

    ``cells`` are those of one comparison, ``reported`` the paper's best accuracies by set and batch size. The grid has
    all decays that were run at any batch size; of a set that lacks some of them nothing is said.
    """
    sizes, grid = sorted(set(cells["batch_size"].astype(int))), sorted(set(cells["weight_decay"]))
    return " ".join(_at(size, cells[cells["batch_size"] == size], grid, reported) for size in sizes)


def _at(size: int, cells: pd.DataFrame, grid: list[float], reported: Sequence[Mapping[str, Any]]) -> str:
    if len(grid) < 2:
        return f"At batch {size:,} no set was run with two weight decays."
    every = cells.pivot_table(index="set", columns="weight_decay", values="accuracy").reindex(columns=grid)
    table = every.dropna()
    if table.empty:
        begun = "; ".join(
            f"{name} at {listed(f'{decay:g}' for decay in row.dropna().index)}" for name, row in every.iterrows()
        )
        return f"At batch {size:,} no set was run with all {len(grid)} weight decays yet ({begun})."
    smallest, largest = grid[0], grid[-1]
    at_edge = int((table.idxmax(axis="columns") == largest).sum())
    if (table.diff(axis="columns").iloc[:, 1:] > 0).all(axis=None):
        on, each = (f"{table.index[0]} data", "it") if len(table) == 1 else (f"all {len(table)} sets", "each")
        on = on if len(table) == len(every) else f"{on}, run with all of them"
        ends = ", ".join(f"{summary.span(100 * table[decay])}% at {decay:g}" for decay in (smallest, largest))
        told = (
            f"At batch {size:,} accuracy rises with the weight decay on {on} ({ends}), so the best "
            f"cell of {each} is at the edge of the grid, and the best decay may lie beyond it."
        )
    else:
        told = f"At batch {size:,} {at_edge} of {len(table)} sets do best at the largest weight decay, {largest:g}."
    best = table.max(axis="columns")
    beside = [
        f"{best[row['set']]:.1%} on {row['set']} data (in the paper {row['accuracy']:.1%})"
        for row in reported
        if row["batch_size"] == size and row["set"] in best.index
    ]
    return f"{told} The best are {listed(beside)}." if beside else told
