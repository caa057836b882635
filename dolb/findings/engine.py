"""How fast a training step is, and whether the fast path computes what the plain one does."""

import numpy as np
import pandas as pd
import xarray as xr

from dolb.findings.intervals import quantiles, student, written_rows
from dolb.findings.runs import final_accuracy, table

CELL = ["arch", "batch_size", "lr"]
SAME = ["benchmark", "device", "arch", "batch_size"]  # of programs that are compared
MEDIAN_DRAWS = 10_000
PLAIN, FAST = "plain: float32", "fast: bfloat16, fused"
PATHS = {"fp32": PLAIN, "bf16": FAST}


def compare(ds: xr.Dataset, baseline: str) -> pd.DataFrame:
    """Return a row per program, network and batch size: images per second, and how many times faster than ``baseline``.

    Both are of the median over repetitions, with bootstrap intervals over repetitions. Programs of one repetition are
    resampled together: what slowed the machine meanwhile slowed both sides of the ratio. A program that did not take
    turns with the baseline, in one process, has nan for a ratio.
    """
    rows = []
    for values, group in table(ds).groupby([*SAME, "measured_at"], sort=True):
        seconds = group.pivot_table(index="repeat", columns="program", values="step_seconds")
        picks = np.random.default_rng(0).integers(len(seconds), size=(MEDIAN_DRAWS, len(seconds)))
        drawn = {name: np.median(times.to_numpy()[picks], axis=1) for name, times in seconds.items()}
        median = seconds.median()
        same = dict(zip(SAME, values[:-1], strict=True))
        for name in group["program"].unique():
            low, high = quantiles(same["batch_size"] / drawn[name])
            found = {"ratio": np.nan, "ratio_low": np.nan, "ratio_high": np.nan}
            if baseline in drawn:
                ratio_low, ratio_high = quantiles(drawn[baseline] / drawn[name])
                ratio = float(median[baseline] / median[name])
                found = {"ratio": ratio, "ratio_low": ratio_low, "ratio_high": ratio_high}
            speed = {"images_per_second": same["batch_size"] / median[name], "low": low, "high": high}
            about = {"program": name, "milliseconds": 1e3 * median[name], "repeats": len(seconds)}
            rows.append({**same, **about, **speed, **found})
    return pd.DataFrame(rows)


def with_floors(cells: pd.DataFrame, ds: xr.Dataset) -> pd.DataFrame:
    """Add to the rows of `compare` the runs at once, and images per second that the device would allow at most.

    ``arithmetic`` is what its fastest matrix product allows the counted operations, ``memory`` what its fastest copy
    allows the counted bytes, ``limit`` the lower of the two, and ``of_limit`` the share of it that was reached.
    """
    names = [*SAME, "program", "runs_at_once", "step_flops", "step_bytes", "peak_flops", "peak_bandwidth"]
    about = table(ds)[names].drop_duplicates([*SAME, "program"])
    joined = cells.merge(about, on=[*SAME, "program"], how="left")
    joined["arithmetic"] = joined["batch_size"] / (joined["step_flops"] / joined["peak_flops"])
    joined["memory"] = joined["batch_size"] / (joined["step_bytes"] / joined["peak_bandwidth"])
    joined["limit"] = joined[["arithmetic", "memory"]].min(axis=1)
    joined["of_limit"] = joined["images_per_second"] / joined["limit"]
    return joined


def beside_the_engine(cells: pd.DataFrame, engine: str) -> pd.DataFrame:
    """Return the rows of `compare` that are the engine's, and of other programs those that took turns with it.

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
    return frame.assign(path=frame["precision"].map(PATHS))


def differences(frame: pd.DataFrame) -> pd.DataFrame:
    """Return, for each cell of `accuracies`, what the fast path changes, by the seeds of both paths, if two or more.

    ``collapsed`` counts the runs of either path whose accuracy collapsed near the end.
    """
    rows = []
    for values, group in frame.groupby(CELL, sort=True):
        both = (
            group.pivot_table(index="seed", columns="path", values="accuracy").reindex(columns=[PLAIN, FAST]).dropna()
        )
        if len(both) < 2:  # one pair has no interval
            continue
        change = student(both[FAST] - both[PLAIN])
        rows.append(
            {
                **dict(zip(CELL, values, strict=True)),
                "plain": both[PLAIN].mean(),
                "fast": both[FAST].mean(),
                "difference": change.value,
                "low": change.low,
                "high": change.high,
                "seeds": change.n,
                "collapsed": int(group["late_drop"][group["seed"].isin(both.index)].sum()),
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
            "difference in points": written_rows("+.1f", 100 * found[["difference", "low", "high"]]),
            "seeds": found["seeds"],
            "collapsed near the end": found["collapsed"],
        }
    )
