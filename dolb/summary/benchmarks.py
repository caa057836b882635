"""What timed training steps say in words: where the host sets the pace, what compiling does, how to time them again."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import xarray as xr

from dolb.summary.batch_size import by_depth

HARDLY = 1.5  # a step that takes less than this many times the smallest batch's hardly grows with the batch
ALIKE = 1.25  # speeds less than this many times apart have points that overlap in a chart over decades


def step_times(ds: xr.Dataset, program: str) -> pd.DataFrame:
    """Return a program's median ``step_seconds`` by network and batch size, and the ``commit`` that was timed."""
    frame = pd.DataFrame({name: ds[name].to_numpy() for name in ("arch", "batch_size", "commit", "step_seconds")})
    frame = frame[ds["program"].to_numpy() == program]
    return frame.groupby(["arch", "batch_size", "commit"], as_index=False)["step_seconds"].median()


def host_in_words(ds: xr.Dataset, program: str) -> str:
    """Say up to which batch size a program's step hardly grows, since the host starts its kernels no faster.

    If a network's step of fewer images took longer than one of more, timed on another occasion, that is said as well:
    the host was slower then, and a ratio to the step is so much larger.
    """
    times = step_times(ds, program)
    told = []
    for arch in by_depth(times["arch"]):
        own = times[times["arch"] == arch]
        grown = own["step_seconds"] >= HARDLY * own["step_seconds"].iloc[0]
        flat = own[~grown.cummax()]
        if len(flat) > 1:
            told.append(f"{arch} {_at(flat.iloc[0])} and {_at(flat.iloc[-1])}")
    if not told:
        return f"The step of the {program} grows with the batch from the smallest on."
    words = f"While the host sets the pace, the step of the {program} hardly grows with the batch: {'; '.join(told)}."
    pairs = times.merge(times, on="arch", suffixes=("", "_of_more"))
    pairs = pairs[(pairs["batch_size"] < pairs["batch_size_of_more"]) & (pairs["commit"] != pairs["commit_of_more"])]
    less = 1 - pairs["step_seconds_of_more"] / pairs["step_seconds"]
    if less.max() > 0:
        pair = pairs.iloc[int(less.to_numpy().argmax())]
        words += (
            f" The host was not always equally fast: {pair['arch']} took {_at(pair)} and, on another occasion, "
            f"{_at(pair, '_of_more')}. With the launches of the second the ratios at the first would be about "
            f"{less.max():.0%} lower."
        )
    return words


def beside_in_words(cells: pd.DataFrame, program: str, baseline: str) -> str:
    """Say whether a program was faster than the baseline, by rows of `compare`, wherever both were timed."""
    rows = cells[cells["program"] == program]
    if rows.empty:
        return f"{program} was not timed."
    told = []
    for row in rows.to_dict("records"):
        kind = "faster" if row["ratio_low"] > 1 else "no faster" if row["ratio"] <= 1 else "not clearly faster"
        words = (
            f"{program} was {kind} than the {baseline} with {row['arch']} at batch {row['batch_size']:,}: "
            f"{row['ratio']:.2f} times its speed ({row['ratio_low']:.2f} to {row['ratio_high']:.2f})"
        )
        near = 1 / ALIKE < row["ratio"] < ALIKE
        told.append(words + (", so that their points overlap in the chart" if near else ""))
    return f"{'; '.join(told)}."


def commands(ds: xr.Dataset, baseline: str, options: Mapping[str, str]) -> str:
    """Return the commands of ``benchmarks/gpu_step.py`` that time all of ``ds`` again, a line each.

    Networks for which the same was timed share a line; sizes with the baseline alone are of a run with ``--plain``.
    ``options`` has the beginning of a program's name by the option that asks for it.
    """
    frame = pd.DataFrame({name: ds[name].to_numpy() for name in ("arch", "batch_size", "program", "repeat")})
    alone = frame.groupby(["arch", "batch_size"])["program"].transform("nunique") == 1
    frame = frame.assign(plain=alone & (frame["program"] == baseline))
    repeats = frame.groupby(["arch", "plain", "batch_size"])["repeat"].transform("nunique")
    lines: dict[str, list[str]] = {}
    for (plain, arch, count), part in frame.groupby(["plain", "arch", repeats]):
        words = f"--batch-sizes {_sizes(part)}"
        for option, name in options.items():
            asked = part[part["program"].str.startswith(name)]
            words += f" {option} {_sizes(asked)}" if len(asked) else ""
        words += f"{' --plain' if plain else ''} --repeats {count}"
        lines.setdefault(words, []).append(str(arch))
    return "\n".join(
        f"python benchmarks/gpu_step.py --arch {' '.join(by_depth(archs))} {words} --output again.nc"
        for words, archs in lines.items()
    )


def _at(row: pd.Series, suffix: str = "") -> str:
    return f"{1e3 * row[f'step_seconds{suffix}']:.1f} ms at batch {row[f'batch_size{suffix}']:,}"


def _sizes(part: pd.DataFrame) -> str:
    return " ".join(str(size) for size in sorted(part["batch_size"].unique()))
