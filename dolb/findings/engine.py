"""How fast a training step is, and whether the fast path computes what the plain one does."""

from __future__ import annotations

import pandas as pd
import xarray as xr

from dolb.findings.intervals import bootstrapped, quantiles
from dolb.findings.runs import final_accuracy

CELL = ["arch", "batch_size", "lr"]
PLAIN, FAST = "plain: float32, eager", "fast: bfloat16, fused"
PATHS = {"eager": PLAIN, "fused": FAST}


def beside_the_engine(cells: pd.DataFrame, engine: str) -> pd.DataFrame:
    """Return the rows of `steps.compare` that are the engine's, and of other programs those that took turns with it.

    ``engine`` is how the names of its programs begin. Left out are loops that were timed alone.
    """
    turns = cells[cells["ratio"].notna()]
    beside = turns.groupby(["device", "arch", "batch_size"])["program"].transform("nunique") > 1
    return cells[cells["program"].str.startswith(engine) | beside.reindex(cells.index, fill_value=False)]


def named(cells: pd.DataFrame) -> pd.DataFrame:
    """Add what a chart calls rows: ``cell``, network and batch size; ``kind``, the program without its runs at once."""
    kind = cells["program"].str.replace(r"\d+ runs at once", "several runs at once", regex=True)
    cell = [f"{arch}, batch {size:,}" for arch, size in zip(cells["arch"], cells["batch_size"], strict=True)]
    return cells.assign(cell=cell, kind=kind)


def ratios(cells: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Return the rows of `named` cells that took turns with the baseline, in the order of a chart, without itself."""
    timed = named(cells[cells["ratio"].notna() & (cells["program"] != baseline)])
    return timed.sort_values(["arch", "batch_size"], ascending=[False, True], ignore_index=True, kind="stable")


def accuracies(ds: xr.Dataset) -> pd.DataFrame:
    """Return the final accuracy of every run, and which ``path`` computed it."""
    frame = final_accuracy(ds)
    return frame.assign(path=frame["engine"].map(PATHS))


def differences(frame: pd.DataFrame) -> pd.DataFrame:
    """Return, for each cell of `accuracies` that both paths ran, what the fast path changes, with a bootstrap interval.

    ``collapsed`` counts the runs of either path whose accuracy collapsed near the end.
    """
    cells, draws = bootstrapped(frame, [*CELL, "path"])
    rows = []
    for values, group in cells.groupby(CELL, sort=True):
        at = {str(path): int(position) for path, position in zip(group["path"], group.index.to_numpy(), strict=True)}
        if set(at) != {PLAIN, FAST}:
            continue
        plain, fast = (cells.iloc[at[path]].to_dict() for path in (PLAIN, FAST))
        low, high = quantiles(draws[:, at[FAST]] - draws[:, at[PLAIN]])
        rows.append(
            {
                **dict(zip(CELL, values, strict=True)),
                "plain": plain["accuracy"],
                "fast": fast["accuracy"],
                "difference": fast["accuracy"] - plain["accuracy"],
                "low": low,
                "high": high,
                "seeds": int(min(plain["n"], fast["n"])),
                "collapsed": int(plain["late_drops"] + fast["late_drops"]),
            }
        )
    return pd.DataFrame(rows)


def differences_table(found: pd.DataFrame) -> pd.DataFrame:
    """Return `differences` for readers, in percent and points."""
    return pd.DataFrame(
        {
            "network": found["arch"],
            "batch size": found["batch_size"].map("{:,}".format),
            "rate": found["lr"],
            "plain": found["plain"].map("{:.1%}".format),
            "fast": found["fast"].map("{:.1%}".format),
            "difference in points": [
                f"{100 * row['difference']:+.1f} ({100 * row['low']:+.1f} to {100 * row['high']:+.1f})"
                for row in found.to_dict("records")
            ],
            "seeds": found["seeds"],
            "collapsed near the end": found["collapsed"],
        }
    )
