"""What timed training steps say in words: where the host sets the pace, what compiling does, how to time them again."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import xarray as xr

from dolb.summary.batch_size import by_depth

HARDLY = 1.5  # a step that takes less than this many times the smallest batch's hardly grows with the batch
# What the engine was built to reach, in times the speed of the plain loop, by network and batch size.
TARGETS = {
    ("resnet18", 64): 20.0,
    ("resnet18", 256): 12.0,
    ("resnet18", 1024): 5.0,
    ("resnet18", 16384): 1.5,
    ("resnet152", 256): 8.0,
}
ALIKE = 1.25  # speeds less than this many times apart have points that overlap in a chart over decades


def step_times(ds: xr.Dataset, program: str) -> pd.DataFrame:
    """Return a program's median ``step_seconds`` by network and batch size, and the ``commit`` that was timed."""
    frame = pd.DataFrame({name: ds[name].to_numpy() for name in ("arch", "batch_size", "commit", "step_seconds")})
    frame = frame[ds["program"].to_numpy() == program]
    return frame.groupby(["arch", "batch_size", "commit"], as_index=False)["step_seconds"].median()


def host_in_words(ds: xr.Dataset, program: str, engine: pd.DataFrame | None = None) -> str:
    """Say up to which batch size a program's step hardly grows, since the host starts its kernels no faster.

    Where a network's step among these took longer than its fastest, timed on another occasion, that is said as well:
    the host was slower then, and a ratio to the step is so much larger. What the ratios of ``engine``, rows of
    `compare` with ``runs_at_once``, would be by the fastest step is said with it.
    """
    times = step_times(ds, program)
    told, slower = [], []
    for arch in by_depth(times["arch"]):
        own = times[times["arch"] == arch]
        grown = own["step_seconds"] >= HARDLY * own["step_seconds"].iloc[0]
        flat = own[~grown.cummax()]
        if len(flat) < 2:
            continue
        told.append(f"{arch} {_at(flat.iloc[0])} and {_at(flat.iloc[-1])}")
        fastest = flat.loc[flat["step_seconds"].idxmin()]
        for _, row in flat[flat["commit"] != fastest["commit"]].iterrows():
            share = fastest["step_seconds"] / row["step_seconds"]
            slower.append(
                f"{arch} took {_at(row)}, against {_at(fastest)}, by which ratios are {1 - share:.0%} lower"
                + _ratios_by(engine, row, share)
            )
    if not told:
        return f"The step of the {program} grows with the batch from the smallest on."
    words = f"While the host sets the pace, the step of the {program} hardly grows with the batch: {'; '.join(told)}."
    if slower:
        words += (
            " The host was not always equally fast, and part of a ratio is how slow it was on that occasion. Beside "
            f"the network's fastest such step, which was timed on another: {'; '.join(slower)}."
        )
    return words


def _ratios_by(engine: pd.DataFrame | None, row: pd.Series, share: float) -> str:
    """Say what the engine's ratios at a row's network and batch size would be by that share of the step."""
    if engine is None:
        return ""
    rows = engine[(engine["arch"] == row["arch"]) & (engine["batch_size"] == row["batch_size"])]
    told = [
        f"{share * one['ratio']:.1f} instead of {one['ratio']:.1f} with {_at_once(one['runs_at_once'])}"
        for one in rows.to_dict("records")
    ]
    return f" ({', '.join(told)})" if told else ""


def against_targets(engine: pd.DataFrame) -> pd.DataFrame:
    """Return a table for readers of what the engine was built to reach and what it reached, alone and in a pack.

    ``engine`` has rows of `compare` with ``runs_at_once``.
    """
    rows = []
    for (arch, size), target in TARGETS.items():
        own = engine[(engine["arch"] == arch) & (engine["batch_size"] == size)]
        alone, packed = own[own["runs_at_once"] == 1], own[own["runs_at_once"] > 1]
        rows.append(
            {
                "network": arch,
                "batch size": f"{size:,}",
                "at least": f"{target:g}x",
                "one run": _ratio(alone),
                "several runs at once": _ratio(packed),
                "reached": _reached(alone, packed, target),
            }
        )
    return pd.DataFrame(rows).set_index("network").rename_axis(index=None, columns="network")


def _reached(alone: pd.DataFrame, packed: pd.DataFrame, target: float) -> str:
    """Say whether one run or only several reach a target: surely, by the whole interval, or perhaps."""
    if alone["ratio_low"].max() >= target:  # never, of what was not timed
        return "by one run"
    perhaps = "; by one run perhaps" if alone["ratio_high"].max() >= target else ""
    if packed["ratio_low"].max() >= target:
        return f"by several together{perhaps or ' only'}"
    return "perhaps" if perhaps or packed["ratio_high"].max() >= target else "no"


def ratios_in_words(engine: pd.DataFrame) -> str:
    """Say in which range the engine's ratios to the plain loop lie, for several runs at once and for one alone."""
    told = []
    packs = engine["runs_at_once"] > 1
    for kind, rows in (("several runs at once", engine[packs]), ("one run alone", engine[~packs])):
        if len(rows):
            told.append(f"{rows['ratio'].min():.1f} to {rows['ratio'].max():.1f} times as fast with {kind}")
    return " and ".join(told)


def _ratio(rows: pd.DataFrame) -> str:
    if rows.empty:
        return "not timed"
    one = rows.sort_values("runs_at_once").iloc[-1]
    runs = "" if one["runs_at_once"] == 1 else f", {one['runs_at_once']} runs"
    return f"{one['ratio']:.1f}x ({one['ratio_low']:.1f} to {one['ratio_high']:.1f}{runs})"


def _at_once(runs: int) -> str:
    return "one run" if runs == 1 else f"{runs} runs at once"


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
