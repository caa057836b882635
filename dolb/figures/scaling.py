"""Figures of data-parallel training: what was measured is drawn full, what was simulated hollow and dashed."""

import altair as alt
import pandas as pd

from dolb.figures import style
from dolb.figures.style import COLOURS, DASHED, PERCENT, REPORTED, Panel, bars, dots, hover, interval, layered

LIBRARIES = {"DDP": COLOURS[0], "Horovod": COLOURS[4]}
CURVES = {
    "DDP": COLOURS[0],
    "Horovod 0.20": COLOURS[4],
    "Horovod 0.21": COLOURS[3],
    "Horovod 0.20, no cache": COLOURS[5],
    "Horovod 0.20, no cache, free coordinator": COLOURS[2],
}
LEADS = (0.8, 1.4)  # beyond, the variant without a cache goes on
_EFFICIENCY = alt.Y("efficiency:Q", title="efficiency", axis=PERCENT).scale(zero=True)


def leads(measured: pd.DataFrame, simulated: pd.DataFrame, every: str, studied: int, title: str = "") -> Panel:
    """Draw DDP's throughput over Horovod's by ranks: measured as points with intervals, simulated as dashed lines.

    Both have ranks, value, low, high; ``measured`` has arch, of which ``every`` is drawn large, and ``simulated`` has
    variant. The rule is where the study ended. What lies outside `LEADS` is cut.
    """
    y = alt.Y("value:Q", title="DDP's throughput over Horovod's").scale(domain=LEADS).axis(format=".1f")
    ticks = [2, 16, 100, studied, *simulated["ranks"].nlargest(1)]
    x = style.log_axis("ranks", "ranks: processes measured, GPUs simulated", ticks)
    colours = {f"measured, {every}": "#000000"}
    colours |= {f"simulated, {name}": CURVES[name] for name in CURVES if name in set(simulated["variant"])}
    colour = style.coloured("series:N", list(colours), list(colours.values()))
    ours = alt.Chart(measured[measured["arch"] == every].assign(series=f"measured, {every}")).encode(x, colour)
    model = alt.Chart(simulated.assign(series="simulated, " + simulated["variant"])).encode(x, colour)
    each = alt.Chart(measured[measured["arch"] != every]).encode(x=x)
    told = hover(ranks="ranks:,", value="DDP over Horovod:.3f") + interval(".3f")
    small = each.mark_point(filled=True, color=REPORTED, size=28, opacity=0.8)
    return layered(
        300,
        title,
        style.line_at(y, 1.0, dash=()),
        *_simulated(model, y, hover(series="what") + told),
        small.encode(y=y, tooltip=hover(arch="measured") + told),
        bars(ours),
        dots(ours, y, size=90, tooltip=hover(series="what") + told),
        *_end_of_study(studied, 10),
        click="series",
    )


def measured_scaling(cells: pd.DataFrame, title: str = "") -> Panel:
    """Draw measured efficiency by ranks, a line per library, one network and scaling at a time, weak scaling first.

    ``cells`` has arch, scaling, variant, ranks, images_per_second, efficiency, low, high, batch_size, repeats. The grey
    line is the ideal: K ranks, K times the throughput of one.
    """
    table = cells.assign(setup=cells["arch"] + ", " + cells["scaling"] + " scaling")
    cases = list(table.sort_values("scaling", ascending=False, kind="stable")["setup"].unique())
    shown = style.choice("shown", "network", cases, menu=True)
    told = hover(variant="library, measured", ranks="ranks", batch_size="global batch size:,")
    told += hover("images_per_second", "efficiency") + interval(".1%") + hover("repeats")
    x = style.log_axis("ranks", "ranks", table["ranks"])
    base = alt.Chart(table).transform_filter("datum.setup === shown").encode(x=x)
    layers = (
        style.line_at(_EFFICIENCY, 1.0, dash=()),
        base.mark_line(strokeWidth=2).encode(_EFFICIENCY, _library("variant")),
    )
    return layered(280, title, *layers, *_by_library(base, told), click="variant", choices=[shown])


def by_bandwidth(cells: pd.DataFrame, curve: pd.DataFrame, title: str = "") -> Panel:
    """Draw efficiency by the bandwidth of a host's link, one network and number of hosts at a time.

    ``cells`` are measured, full points with intervals: arch, hosts, variant, link_mbit, achieved_mbit, efficiency, low,
    high, step_seconds, repeats. ``curve`` is simulated, dashed: arch, hosts, library, achieved_mbit, efficiency.
    """
    points, lines = (
        table.assign(setup=table["arch"] + ", " + table["hosts"].astype(str) + " hosts") for table in (cells, curve)
    )
    lines["variant"] = lines["library"].map({"ddp": "DDP", "horovod": "Horovod"})
    most = points.groupby("setup", sort=False).size().iloc[::-1].idxmax()  # rates; of as many, the most hosts
    shown = style.choice("linked", "network and hosts", list(points["setup"].unique()), most, menu=True)
    x = alt.X("achieved_mbit:Q", title="bandwidth of a link, as measured (Mbit/s)").scale(
        type="log", padding=14, nice=False
    ).axis(values=[10**power for power in range(7)], format=",d", grid=False)  # fmt: skip
    told = hover(variant="library, measured", link_mbit="link held to, Mbit/s:,")
    told += hover(achieved_mbit="TCP gets, Mbit/s:,.4~r", step_seconds="seconds of a step:,.3~r")
    told += hover("efficiency") + interval(".1%") + hover("repeats")
    base, model = (alt.Chart(table).transform_filter("datum.setup === linked").encode(x=x) for table in (points, lines))
    dashed = model.mark_line(strokeWidth=2, strokeDash=DASHED)
    simulated = dashed.encode(_EFFICIENCY, _library("variant"), tooltip=hover(variant="simulated"))
    return layered(280, title, simulated, *_by_library(base, told), click="variant", choices=[shown])


def _library(field: str, title: str = "library") -> alt.Color:
    return style.coloured(f"{field}:N", list(LIBRARIES), list(LIBRARIES.values()), title)


def _by_library(base: alt.Chart, told: list[alt.Tooltip]) -> list[alt.Chart]:
    """Return measured efficiencies of both libraries with their intervals."""
    ours = base.encode(_library("variant"))
    return [bars(ours, clip=True), dots(ours, _EFFICIENCY, size=70, tooltip=told)]


def _simulated(base: alt.Chart, y: alt.Y, told: list[alt.Tooltip], of: str = "") -> list[alt.Chart]:
    """Return simulated values as dashed lines with hollow points, and bands from ``low`` to ``high``, after ``of``."""
    return [
        base.mark_area(fillOpacity=0.15, clip=True).encode(y=f"{of}low:Q", y2=f"{of}high:Q"),
        base.mark_line(strokeWidth=2, strokeDash=DASHED, clip=True).encode(y),
        base.mark_point(filled=False, size=40, clip=True).encode(y, tooltip=told),
    ]


def _efficiency(title: str, base: alt.Chart, told: list[alt.Tooltip], *more: alt.Chart, click: str = "") -> Panel:
    """Draw simulated efficiencies; the wheel zooms along the horizontal axis."""
    y = alt.Y("efficiency:Q", title="simulated efficiency", axis=PERCENT).scale(domain=[0, 1])
    told = told + hover("efficiency") + interval(".1%", "efficiency_", "band")
    zoom = alt.selection_interval(name="gpus", bind="scales", encodings=["x"])
    return layered(280, title, *_simulated(base, y, told, "efficiency_"), *more, click=click, choices=[zoom])


def _end_of_study(ranks: int, height: int) -> list[alt.Chart]:
    """Return a rule where the study ended, with words at a height."""
    base = alt.Chart(pd.DataFrame({"ranks": [ranks], "words": [f"the study: {ranks:,}"]})).encode(x="ranks:Q")
    words = base.mark_text(align="right", dx=-4, color=REPORTED).encode(y=alt.value(height), text="words:N")
    return [base.mark_rule(color=REPORTED, strokeDash=[2, 3]), words]


def simulated_scaling(curves: pd.DataFrame, studied: int, title: str = "") -> Panel:
    """Draw simulated efficiency by GPUs, a dashed line and a band per library; the rule is where the study ended.

    ``curves`` has variant, ranks, efficiency, efficiency_low, efficiency_high, network, arch.
    """
    names = [name for name in CURVES if name in set(curves["variant"])]
    colour = style.coloured("variant:N", names, [CURVES[name] for name in names], "simulated (click)")
    ticks = [1, 10, 100, studied, *curves["ranks"].nlargest(1)]
    x = style.log_axis("ranks", "GPUs, the batch grows with them", ticks)
    base = alt.Chart(curves).encode(x, colour)
    told = hover(variant="simulated", network="machine") + hover("arch", ranks="GPUs:,")
    return _efficiency(title, base, told, *_end_of_study(studied, 270), click="variant")


def predicted(table: pd.DataFrame, title: str = "") -> Panel:
    """Draw the simulated efficiency of a cluster by its GPUs: a dashed line with its band.

    ``table`` has gpus, nodes, efficiency, efficiency_low, efficiency_high, images_per_second.
    """
    base = alt.Chart(table).encode(style.log_axis("gpus", "GPUs", table["gpus"]))
    told = hover(nodes="nodes:,", gpus="GPUs:,") + hover("images_per_second")
    return _efficiency(title, base, told).properties(width=560)


def published(points: pd.DataFrame, title: str = "") -> Panel:
    """Draw simulated efficiencies against published ones: full points judge, hollow ones were fitted.

    ``points`` has key, paper, library, machine, arch, gpus, efficiency, simulated, error, used, read. The diagonal is
    where both are equal; the grey band is 5% to either side.
    """
    least = 0.05 * int(20 * min(points["efficiency"].min(), points["simulated"].min()))
    share = alt.Scale(domain=[least, 1.0])
    x = alt.X("efficiency:Q", title="published efficiency", scale=share, axis=PERCENT)
    y = alt.Y("simulated:Q", title="simulated", scale=share, axis=PERCENT)
    table = points.assign(
        policy=points["simulated_as"].str.split().str[0].map({"ddp": "DDP", "horovod": "Horovod"}),
        what=points["used"].map({"fit": "fitted", "judge": "judges"}),
    )
    told = hover("paper", "where", read="read from") + hover("library", "machine", "arch", gpus="GPUs:,")
    told += hover("what", efficiency="published:.1%", simulated="simulated:.1%", error="error:+.1%")
    shape = alt.Shape("what:N", title=None, legend=alt.Legend(orient="bottom")).scale(
        domain=["judges", "fitted"], range=["circle", "square"]
    )
    base = alt.Chart(table).encode(x, y, _library("policy", "simulated as"), shape, tooltip=told)
    judges, fitted = (base.transform_filter(f"datum.used === '{used}'") for used in ("judge", "fit"))
    diagonal = alt.Chart(pd.DataFrame({"efficiency": [least, 1.0]})).encode(x=x)
    band = diagonal.transform_calculate(low="0.95 * datum.efficiency", high="min(1, 1.05 * datum.efficiency)")
    return layered(
        340,
        title,
        band.mark_area(color=REPORTED, opacity=0.15, clip=True).encode(alt.Y("low:Q", scale=share), y2="high:Q"),
        diagonal.mark_line(color=REPORTED).encode(alt.Y("efficiency:Q", scale=share)),
        dots(judges, size=70),
        fitted.mark_point(filled=False, size=60, strokeWidth=1.5),
        click="policy",
    )


def tuning(table: pd.DataFrame, title: str = "") -> Panel:
    """Draw what each setting changes against the defaults: measured as full points with intervals, simulated hollow.

    ``table`` has panel, source, library, setting, value, and on measured rows low, high, n.
    """
    panels, settings = (list(table[name].unique()) for name in ("panel", "setting"))
    of_panel = {"measured: DDP": COLOURS[0], "measured: Horovod": COLOURS[4], "simulated: Horovod": COLOURS[3]}
    colours = [next(value for name, value in of_panel.items() if panel.startswith(name)) for panel in panels]
    # On a scale of changes, as people say them; no numbers are made here that the table does not have.
    base = alt.Chart(table).transform_calculate(
        change="datum.value - 1", change_low="datum.low - 1", change_high="datum.high - 1"
    ).encode(
        y=alt.Y("setting:N", title=None, sort=settings).axis(labelLimit=220, grid=True, gridOpacity=0.3),
        color=style.coloured("panel:N", panels, colours),
    )  # fmt: skip
    x = alt.X("change:Q", title="throughput against the defaults").axis(format="+.0%", tickCount=6)
    told = hover(panel="what") + hover("setting", change="change:+.1%") + interval("+.1%", "change_")
    told += hover(n="launches")
    measured, simulated = (base.transform_filter(f"datum.source === '{name}'") for name in ("measured", "simulated"))
    return layered(
        alt.Step(22),
        title,
        style.line_at(x, 0.0, dash=()),
        bars(measured.transform_filter("isValid(datum.low)"), "x", "change_"),
        dots(measured, x, tooltip=told),
        simulated.mark_point(filled=False, size=60, strokeWidth=1.5).encode(x, tooltip=told),
        click="panel",
    )
