"""What timed training steps say in words: ratios and what they cover, the host's pace, how to time all of it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import xarray as xr

from dolb.findings.batch_size import by_depth
from dolb.findings.coverage import listed

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


def shown(cells: pd.DataFrame, engine: str) -> pd.DataFrame:
    """Return the rows of `compare` that a chart of the engine has: its own, and of others those that took turns.

    ``engine`` is how the names of its programs begin. Left out are loops that were timed alone.
    """
    turns = cells[cells["ratio"].notna()]
    beside = turns.groupby(["device", "arch", "batch_size"])["program"].transform("nunique") > 1
    return cells[cells["program"].str.startswith(engine) | beside.reindex(cells.index, fill_value=False)]


def cells_in_words(cells: pd.DataFrame, baseline: str) -> str:
    """Say a sentence for each row of `shown` with its limits, with a ratio where there is one."""
    return " ".join(
        f"{row['arch']}, batch {row['batch_size']:,}, {row['program']}: {row['images_per_second']:,.0f} images per "
        + (f"second, {row['ratio']:.1f} times the {baseline}, " if pd.notna(row["ratio"]) else "second, ")
        + f"{row['of_limit']:.0%} of the limit."
        for row in cells.to_dict("records")
    )


def _occasions(ds: xr.Dataset) -> pd.DataFrame:
    """Return what was timed, a row each, with what took turns in one process: ``alone`` is a program without others."""
    names = ["arch", "batch_size", "program", "repeat", "step_seconds", "commit"]
    frame = pd.DataFrame({name: ds[name].to_numpy() for name in names})
    frame["measured_at"] = ds["measured_at"].to_numpy() if "measured_at" in ds else ""
    occasion = frame.groupby(["arch", "batch_size", "commit", "measured_at"])
    return frame.assign(occasion=occasion.ngroup(), alone=occasion["program"].transform("nunique") == 1)


def host_in_words(ds: xr.Dataset, program: str, engine: pd.DataFrame | None = None) -> str:
    """Say up to which batch size a program's step hardly grows, since the host starts its kernels no faster.

    Where a network's fastest step among these was timed alone, those that took turns with others are told beside it:
    a ratio to that step is so much lower. With ``engine``, rows of `compare` with ``runs_at_once``, so is what its
    ratios would be by it, and whether they reach the targets.
    """
    frame = _occasions(ds)
    frame = frame[frame["program"] == program]
    by = ["arch", "batch_size", "occasion", "alone"]
    steps = frame.groupby(by)["step_seconds"]
    times = steps.agg(step_seconds="median", least="min", most="max").reset_index()
    told, slower = [], []
    lower = [] if engine is None else [engine]
    for arch in by_depth(times["arch"]):
        own = times[times["arch"] == arch]
        grown = own["step_seconds"] >= HARDLY * own["step_seconds"].iloc[0]
        flat = own[~grown.cummax()]
        if len(flat) < 2:
            continue
        told.append(f"{arch} {_at(flat.iloc[0])} and {_at(flat.iloc[-1])}")
        fastest = flat.loc[flat["step_seconds"].idxmin()]
        for _, row in flat[~flat["alone"] & fastest["alone"]].iterrows():
            share = fastest["step_seconds"] / row["step_seconds"]
            slower.append(
                f"{arch} took {_at(row)} (repetitions from {1e3 * row['least']:.1f} to {1e3 * row['most']:.1f}) with "
                f"the engine in the process, and {_at(fastest)} without, by which ratios are {1 - share:.0%} lower"
                + _ratios_by(engine, row, share)
            )
            if engine is not None:
                same = (engine["arch"] == row["arch"]) & (engine["batch_size"] == row["batch_size"])
                lower.append(engine[same].assign(ratio=share * engine["ratio"]))
    if not told:
        return f"The step of the {program} grows with the batch from the smallest on."
    words = (
        f"While the host sets the pace, the step of the {program} grows little with the batch, here by less than "
        f"{HARDLY - 1:.0%}: {'; '.join(told)}."
    )
    if slower:
        words += (
            " Ratios are to steps that were timed beside the engine, with cuDNN held to deterministic kernels. The "
            "network's fastest such step was timed alone in its process, with torch's defaults, on another occasion: "
            f"{'; '.join(slower)}. What makes the difference was not measured.{_targets_by(lower)}"
        )
    return words


def _targets_by(ratios: Sequence[pd.DataFrame]) -> str:
    """Say which targets the lowest of each cell's ratios still reach, by as many runs at once as were timed."""
    if not ratios:
        return ""
    lowest = pd.concat(ratios).groupby(["arch", "batch_size", "runs_at_once"])["ratio"].min()
    best = lowest.groupby(["arch", "batch_size"]).max()
    timed = {cell: target for cell, target in TARGETS.items() if cell in best.index}
    missed = [f"{arch} at batch {size:,}" for (arch, size), target in timed.items() if best[arch, size] < target]
    if missed:
        return f" By the lower step the ratio is below the target with {listed(missed)}."
    return " The ratios of the table reach every target that was timed by the lower step too, their intervals aside."


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


def ratios_in_words(engine: pd.DataFrame, baseline: str, device: str) -> str:
    """Say in which range the engine's ratios to a loop lie, and of which networks and batch sizes they are."""
    compared = engine[engine["ratio"].notna()]
    cells = [
        f"{arch} at batch {listed(f'{size:,}' for size in sorted(set(rows['batch_size'])))}"
        for arch in by_depth(compared["arch"])
        if len(rows := compared[compared["arch"] == arch])
    ]
    packs = compared[compared["runs_at_once"] > 1].sort_values(["arch", "batch_size"])
    falls = packs.groupby("arch")["ratio"].agg(lambda ratio: bool((ratio.diff().dropna() < 0).all())).all()
    words = (
        f"Timed in turns with a {baseline} of PyTorch on one {device}, the engine trains {', and '.join(cells)}, "
        f"{_ranges(compared, 'ratio', '.1f', ' times as fast')}{', the more the smaller the batch' if falls else ''}."
    )
    others = by_depth(set(engine["arch"]) - set(compared["arch"]))
    return words + (f" With {listed(others)} the two were not timed in one process." if others else "")


def limits_in_words(engine: pd.DataFrame) -> str:
    """Say which share of the limit the engine reaches, over all networks and batch sizes that were timed."""
    archs, sizes = engine["arch"].nunique(), engine.groupby("arch")["batch_size"].nunique().sum()
    return (
        f"Of the lower of the two the engine reaches {_ranges(engine, 'of_limit', '.0%')}, over {archs} networks with "
        f"{sizes} batch sizes in all."
    )


def _ranges(engine: pd.DataFrame, column: str, form: str, unit: str = "") -> str:
    """Say in which range a column lies, for several runs at once and for one alone."""
    packs = engine["runs_at_once"] > 1
    return " and ".join(
        f"{rows[column].min():{form}} to {rows[column].max():{form}}{unit} with {kind}"
        for kind, rows in (("several runs at once", engine[packs]), ("one run alone", engine[~packs]))
        if len(rows)
    )


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
        kind = (
            "faster" if row["ratio_low"] > 1 else "slower" if row["ratio_high"] < 1 else "not surely faster or slower"
        )
        words = (
            f"{program} was {kind} than the {baseline} with {row['arch']} at batch {row['batch_size']:,}: "
            f"{row['ratio']:.2f} times its speed ({row['ratio_low']:.2f} to {row['ratio_high']:.2f})"
        )
        near = 1 / ALIKE < row["ratio"] < ALIKE
        told.append(words + (", so that their points overlap in the chart" if near else ""))
    return f"{'; '.join(told)}."


def commands(ds: xr.Dataset, baseline: str, options: Mapping[str, str]) -> str:
    """Return the commands of ``benchmarks/gpu_step.py`` that time all of ``ds`` again, a line each.

    Networks for which the same was timed share a line; sizes with the baseline alone are of a run with ``--plain``, and
    those without it of one with ``--engine``. ``options`` has the beginning of a program's name by the option that asks
    for it.
    """
    frame = _occasions(ds)
    without = ~(frame["program"] == baseline).groupby(frame["occasion"]).transform("any")
    only = np.select([without, frame["alone"]], [" --engine", " --plain"], "")
    repeats = frame.groupby("occasion")["repeat"].transform("nunique")
    lines: dict[str, list[str]] = {}
    for (which, arch, count), part in frame.groupby([only, "arch", repeats]):
        words = f"--batch-sizes {_sizes(part)}"
        for option, name in options.items():
            asked = part[part["program"].str.startswith(name)]
            words += f" {option} {_sizes(asked)}" if len(asked) else ""
        words += f"{which} --repeats {count}"
        lines.setdefault(words, []).append(str(arch))
    return "\n".join(
        f"python benchmarks/gpu_step.py --arch {' '.join(by_depth(archs))} {words} --output again.nc"
        for words, archs in lines.items()
    )


def _at(row: pd.Series) -> str:
    return f"{1e3 * row['step_seconds']:.1f} ms at batch {row['batch_size']:,}"


def _sizes(part: pd.DataFrame) -> str:
    return " ".join(str(size) for size in sorted(part["batch_size"].unique()))
