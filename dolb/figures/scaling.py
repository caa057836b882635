"""Figures of data-parallel training: what was measured is drawn full, what was simulated hollow and dashed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import altair as alt
import pandas as pd

from dolb.figures.style import ABOVE, COLOURS, PERCENT, REPORTED, Panel, interval, picked

DASHED = [6, 4]
LIBRARIES = {"DDP": COLOURS[0], "Horovod": COLOURS[4]}
CURVES = {
    "DDP": COLOURS[0],
    "Horovod 0.20": COLOURS[4],
    "Horovod 0.21": COLOURS[3],
    "Horovod 0.20, no cache": COLOURS[5],
    "Horovod 0.20, no cache, free coordinator": COLOURS[2],
}
LEADS = (0.8, 1.4)  # beyond, the variant without a cache goes on
IN_TWO = alt.Legend(orient="top", columns=2, titleOrient="top", labelLimit=300)


def _ranks(ticks: Iterable[int], title: str) -> alt.X:
    return alt.X("ranks:Q", title=title).scale(type="log", nice=False, padding=14).axis(
        values=sorted({int(count) for count in ticks}), format=",d", grid=False, labelOverlap=True
    )  # fmt: skip


def leads(measured: pd.DataFrame, simulated: pd.DataFrame, every: str, studied: int, title: str = "") -> Panel:
    """Draw DDP's throughput over Horovod's by ranks: measured as points with intervals, simulated as dashed lines.

    Both have ranks, value, low, high; ``measured`` has arch, of which ``every`` is drawn large, and ``simulated`` has
    variant. The rule is where the study ended. What lies outside `LEADS` is cut.
    """
    y = alt.Y("value:Q", title="DDP's throughput over Horovod's").scale(domain=LEADS).axis(format=".1f")
    low = alt.Y("low:Q", title="DDP's throughput over Horovod's")
    x = _ranks([2, 16, 100, studied, *simulated["ranks"].nlargest(1)], "ranks: processes measured, GPUs simulated")
    names = [name for name in CURVES if name in set(simulated["variant"])]
    series = alt.selection_point(fields=["series"], bind="legend")
    about = f"measured, {every}"
    colour = alt.Color("series:N", title=None, sort=None, legend=IN_TWO).scale(
        domain=[about, *(f"simulated, {name}" for name in names)], range=["#000000", *(CURVES[name] for name in names)]
    )
    mean = alt.Chart(measured[measured["arch"] == every].assign(series=about))
    ours = mean.encode(x=x, color=colour, opacity=picked(series))
    each = alt.Chart(measured[measured["arch"] != every]).encode(x=x)
    model = alt.Chart(simulated.assign(series="simulated, " + simulated["variant"])).encode(
        x=x, color=colour, opacity=picked(series)
    )
    hover = [alt.Tooltip("ranks:Q", format=","), alt.Tooltip("value:Q", title="DDP over Horovod", format=".3f")]
    hover += interval(".3f")
    ends = alt.Chart(pd.DataFrame({"ranks": [studied], "words": [f"the study: {studied:,}"]})).encode(x="ranks:Q")
    return alt.layer(
        alt.Chart(pd.DataFrame({"value": [1.0]})).mark_rule(color=REPORTED).encode(y=y),
        model.mark_area(fillOpacity=0.2, clip=True).encode(y=low, y2="high:Q"),
        model.mark_line(strokeWidth=2, strokeDash=DASHED, clip=True).encode(y=y).add_params(series),
        model.mark_point(filled=False, size=30, clip=True).encode(
            y=y, tooltip=[alt.Tooltip("series:N", title="what"), *hover]
        ),
        each.mark_point(filled=True, color=REPORTED, size=28, opacity=0.8).encode(
            y=y, tooltip=[alt.Tooltip("arch:N", title="measured"), *hover]
        ),
        ours.mark_rule(strokeWidth=2).encode(y=low, y2="high:Q"),
        ours.mark_point(filled=True, size=90).encode(y=y, tooltip=[alt.Tooltip("series:N", title="what"), *hover]),
        ends.mark_rule(color=REPORTED, strokeDash=[2, 3]),
        ends.mark_text(align="right", dx=-4, color=REPORTED).encode(y=alt.value(10), text="words:N"),
    ).properties(width="container", height=300, title=title)  # fmt: skip


def measured_scaling(cells: pd.DataFrame, title: str = "") -> Panel:
    """Draw measured efficiency by ranks, a line per library, one network and scaling at a time, weak scaling first.

    ``cells`` has arch, scaling, variant, ranks, images_per_second, efficiency, low, high, batch_size, repeats. The grey
    line is the ideal: K ranks, K times the throughput of one.
    """
    table = cells.assign(setup=cells["arch"] + ", " + cells["scaling"] + " scaling")
    cases = list(dict.fromkeys(table.sort_values("scaling", ascending=False, kind="stable")["setup"]))
    shown = alt.param(name="shown", value=cases[0], bind=alt.binding_select(options=cases, name="network "))
    tooltip = [
        alt.Tooltip("variant:N", title="library, measured"),
        alt.Tooltip("ranks:Q", title="ranks"),
        alt.Tooltip("batch_size:Q", title="global batch size", format=","),
        alt.Tooltip("images_per_second:Q", title="images per second", format=",.1f"),
        alt.Tooltip("efficiency:Q", title="efficiency", format=".1%"),
        *interval(".1%"),
        alt.Tooltip("repeats:Q", title="launches"),
    ]
    base = alt.Chart(table).transform_filter("datum.setup === shown").encode(x=_ranks(table["ranks"], "ranks"))
    y = alt.Y("efficiency:Q", title="efficiency", axis=PERCENT).scale(zero=True)
    return _by_library(
        base, y, tooltip, alt.Chart(pd.DataFrame({"efficiency": [1.0]})).mark_rule(color=REPORTED).encode(y=y), shown
    ).properties(width="container", height=280, title=title)


def by_bandwidth(cells: pd.DataFrame, curve: pd.DataFrame, title: str = "") -> Panel:
    """Draw efficiency by the bandwidth of a host's link, one network and number of hosts at a time.

    ``cells`` are measured, full points with intervals: arch, hosts, variant, link_mbit, achieved_mbit, efficiency, low,
    high, step_seconds, repeats. ``curve`` is simulated, dashed: arch, hosts, library, achieved_mbit, efficiency.
    """
    points, lines = (
        table.assign(setup=table["arch"] + ", " + table["hosts"].astype(str) + " hosts") for table in (cells, curve)
    )
    lines["variant"] = lines["library"].map({"ddp": "DDP", "horovod": "Horovod"})
    cases = list(dict.fromkeys(points["setup"]))
    most = points.groupby("setup", sort=False).size().iloc[::-1].idxmax()  # rates; of as many, the most hosts
    shown = alt.param(name="linked", value=most, bind=alt.binding_select(options=cases, name="network and hosts "))
    x = alt.X("achieved_mbit:Q", title="bandwidth of a link, as measured (Mbit/s)").scale(
        type="log", padding=14, nice=False
    ).axis(values=[10**power for power in range(7)], format=",d", grid=False)  # fmt: skip
    y = alt.Y("efficiency:Q", title="efficiency", axis=PERCENT).scale(zero=True)
    tooltip = [
        alt.Tooltip("variant:N", title="library, measured"),
        alt.Tooltip("link_mbit:Q", title="link held to, Mbit/s", format=","),
        alt.Tooltip("achieved_mbit:Q", title="TCP gets, Mbit/s", format=",.4~r"),
        alt.Tooltip("step_seconds:Q", title="seconds of a step", format=",.3~r"),
        alt.Tooltip("efficiency:Q", title="efficiency", format=".1%"),
        *interval(".1%"),
        alt.Tooltip("repeats:Q", title="launches"),
    ]
    dashed = alt.Chart(lines).transform_filter("datum.setup === linked").mark_line(strokeWidth=2, strokeDash=DASHED)
    simulated = dashed.encode(x=x, y=y, color=_library(), tooltip=[alt.Tooltip("variant:N", title="simulated")])
    base = alt.Chart(points).transform_filter("datum.setup === linked").encode(x=x)
    return _by_library(base, y, tooltip, simulated, shown, joined=False).properties(
        width="container", height=280, title=title
    )


def _library() -> alt.Color:
    return alt.Color("variant:N", title="library", legend=ABOVE).scale(
        domain=list(LIBRARIES), range=list(LIBRARIES.values())
    )


def _by_library(
    base: alt.Chart, y: alt.Y, tooltip: list[alt.Tooltip], behind: alt.Chart, shown: alt.Parameter, joined: bool = True
) -> Panel:
    """Draw points of both libraries with intervals, joined or not, over what is behind them."""
    library = alt.selection_point(fields=["variant"], bind="legend")
    ours = base.encode(color=_library(), opacity=picked(library))
    parts: list[alt.Chart] = [ours.mark_line(strokeWidth=2).encode(y=y)] if joined else []
    rules = ours.mark_rule(strokeWidth=1.5, clip=True).encode(y=alt.Y("low:Q", title="efficiency"), y2="high:Q")
    points = ours.mark_point(filled=True, size=70).encode(y=y, tooltip=tooltip).add_params(library, shown)
    return alt.layer(behind, *parts, rules, points)


def simulated_scaling(curves: pd.DataFrame, studied: int, title: str = "") -> Panel:
    """Draw simulated efficiency by GPUs, a dashed line and a band per library; the rule is where the study ended.

    ``curves`` has variant, ranks, efficiency, efficiency_low, efficiency_high, network, arch. The wheel zooms along the
    axis of GPUs.
    """
    names = [name for name in CURVES if name in set(curves["variant"])]
    variant = alt.selection_point(fields=["variant"], bind="legend")
    colour = alt.Color("variant:N", title="simulated (click)", sort=names, legend=IN_TWO).scale(
        domain=names, range=[CURVES[name] for name in names]
    )
    x = _ranks([1, 10, 100, studied, *curves["ranks"].nlargest(1)], "GPUs, the batch grows with them")
    base = alt.Chart(curves).encode(x=x, color=colour, opacity=picked(variant))
    y = alt.Y("efficiency:Q", title="simulated efficiency", axis=PERCENT).scale(domain=[0, 1])
    tooltip = [
        alt.Tooltip("variant:N", title="simulated"),
        alt.Tooltip("network:N", title="machine"),
        alt.Tooltip("arch:N", title="network"),
        alt.Tooltip("ranks:Q", title="GPUs", format=","),
        alt.Tooltip("efficiency:Q", title="efficiency", format=".1%"),
        alt.Tooltip("efficiency_low:Q", title="band from", format=".1%"),
        alt.Tooltip("efficiency_high:Q", title="band to", format=".1%"),
    ]
    zoom = alt.selection_interval(name="gpus", bind="scales", encodings=["x"])
    ends = alt.Chart(pd.DataFrame({"ranks": [studied], "words": [f"the study: {studied:,}"]})).encode(x="ranks:Q")
    return alt.layer(
        base.mark_area(fillOpacity=0.13).encode(
            y=alt.Y("efficiency_low:Q", title="simulated efficiency"), y2="efficiency_high:Q"
        ),
        base.mark_line(strokeWidth=2, strokeDash=DASHED).encode(y=y).add_params(variant, zoom),
        base.mark_point(filled=False, size=45, strokeWidth=1.5).encode(y=y, tooltip=tooltip),
        ends.mark_rule(color=REPORTED, strokeDash=[2, 3]),
        ends.mark_text(align="right", dx=-4, color=REPORTED).encode(y=alt.value(270), text="words:N"),
    ).properties(width="container", height=280, title=title)  # fmt: skip


def predicted(table: pd.DataFrame, title: str = "") -> Panel:
    """Draw the simulated efficiency of a cluster by its GPUs: a dashed line with its band.

    ``table`` has gpus, nodes, efficiency, efficiency_low, efficiency_high, images_per_second.
    """
    x = alt.X("gpus:Q", title="GPUs").scale(type="log", nice=False, padding=14).axis(
        values=sorted(set(table["gpus"])), format=",d", grid=False, labelOverlap=True
    )  # fmt: skip
    y = alt.Y("efficiency:Q", title="simulated efficiency", axis=PERCENT).scale(domain=[0, 1])
    base = alt.Chart(table).encode(x=x)
    tooltip = [
        alt.Tooltip("nodes:Q", format=","),
        alt.Tooltip("gpus:Q", title="GPUs", format=","),
        alt.Tooltip("images_per_second:Q", title="images/s", format=",.0f"),
        alt.Tooltip("efficiency:Q", format=".1%"),
        alt.Tooltip("efficiency_low:Q", title="band from", format=".1%"),
        alt.Tooltip("efficiency_high:Q", title="band to", format=".1%"),
    ]
    return alt.layer(
        base.mark_area(fillOpacity=0.2).encode(y=alt.Y("efficiency_low:Q"), y2="efficiency_high:Q"),
        base.mark_line(strokeDash=DASHED).encode(y=y).add_params(
            alt.selection_interval(name="gpus", bind="scales", encodings=["x"])
        ),
        base.mark_point(filled=False, size=60).encode(y=y, tooltip=tooltip),
    ).properties(width=560, height=280, title=title)  # fmt: skip


def published(points: pd.DataFrame, title: str = "") -> Panel:
    """Draw simulated efficiencies against published ones: full points judge, hollow ones were fitted.

    ``points`` has key, paper, library, machine, arch, gpus, efficiency, simulated, error, used, read. The diagonal is
    where both are equal; the grey band is 5% to either side.
    """
    least = 0.05 * int(20 * min(points["efficiency"].min(), points["simulated"].min()))
    ends = pd.DataFrame({"efficiency": [least, 1.0]})
    share = alt.Scale(domain=[least, 1.0])
    x = alt.X("efficiency:Q", title="published efficiency", scale=share, axis=PERCENT)
    y = alt.Y("simulated:Q", title="simulated", scale=share, axis=PERCENT)
    told = points.assign(
        policy=points["simulated_as"].str.split().str[0].map({"ddp": "DDP", "horovod": "Horovod"}),
        what=points["used"].map({"fit": "fitted", "judge": "judges"}),
    )
    diagonal, policy = alt.Chart(ends).encode(x=x), alt.selection_point(fields=["policy"], bind="legend")
    tooltip = [
        alt.Tooltip("paper:N"), alt.Tooltip("where:N"), alt.Tooltip("read:N", title="read from"),
        alt.Tooltip("library:N"), alt.Tooltip("machine:N"), alt.Tooltip("arch:N", title="network"),
        alt.Tooltip("gpus:Q", title="GPUs", format=","), alt.Tooltip("efficiency:Q", title="published", format=".1%"),
        alt.Tooltip("simulated:Q", format=".1%"), alt.Tooltip("error:Q", format="+.1%"), alt.Tooltip("what:N"),
    ]  # fmt: skip
    base = alt.Chart(told).encode(
        x=x,
        y=y,
        color=alt.Color("policy:N", title="simulated as", legend=ABOVE).scale(
            domain=list(LIBRARIES), range=list(LIBRARIES.values())
        ),
        shape=alt.Shape("what:N", title=None, legend=ABOVE).scale(
            domain=["judges", "fitted"], range=["circle", "square"]
        ),
        opacity=picked(policy),
        tooltip=tooltip,
    )
    return alt.layer(
        diagonal.transform_calculate(low="0.95 * datum.efficiency", high="min(1, 1.05 * datum.efficiency)")
        .mark_area(color=REPORTED, opacity=0.15, clip=True)
        .encode(y=alt.Y("low:Q", title="simulated", scale=share), y2="high:Q"),
        diagonal.mark_line(color=REPORTED).encode(y=alt.Y("efficiency:Q", scale=share)),
        base.transform_filter("datum.used === 'judge'").mark_point(filled=True, size=70).add_params(policy),
        base.transform_filter("datum.used === 'fit'").mark_point(filled=False, size=60, strokeWidth=1.5),
    ).properties(width="container", height=340, title=title)  # fmt: skip


def tuning(table: pd.DataFrame, title: str = "") -> Panel:
    """Draw what each setting changes against the defaults: measured as full points with intervals, simulated hollow.

    ``table`` has panel, source, library, setting, value, and on measured rows low, high, n.
    """
    panels, settings = (list(dict.fromkeys(table[name])) for name in ("panel", "setting"))
    of_panel = {"measured: DDP": COLOURS[0], "measured: Horovod": COLOURS[4], "simulated: Horovod": COLOURS[3]}
    colours = [next(value for name, value in of_panel.items() if panel.startswith(name)) for panel in panels]
    panel = alt.selection_point(fields=["panel"], bind="legend")
    # On a scale of changes, as people say them; no numbers are made here that the table does not have.
    base = alt.Chart(table).transform_calculate(
        change="datum.value - 1", change_low="datum.low - 1", change_high="datum.high - 1"
    ).encode(
        y=alt.Y("setting:N", title=None, sort=settings).axis(labelLimit=220, grid=True, gridOpacity=0.3),
        color=alt.Color("panel:N", title=None, sort=panels, legend=alt.Legend(orient="top", columns=1, labelLimit=400))
        .scale(domain=panels, range=colours),
        opacity=picked(panel),
    )  # fmt: skip
    x = alt.X("change:Q", title="throughput against the defaults").axis(format="+.0%", tickCount=6)
    tooltip = [
        alt.Tooltip("panel:N", title="what"),
        alt.Tooltip("setting:N", title="setting"),
        alt.Tooltip("change:Q", title="change", format="+.1%"),
        *interval("+.1%", "change_"),
        alt.Tooltip("n:Q", title="launches"),
    ]
    mark: dict[str, Any] = {"size": 60, "strokeWidth": 1.5}
    measured, simulated = (
        base.transform_filter(f"datum.source === '{source}'") for source in ("measured", "simulated")
    )
    return alt.layer(
        alt.Chart(pd.DataFrame({"change": [0.0]})).mark_rule(color=REPORTED).encode(x=x),
        measured.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=1.5)
        .encode(x=alt.X("change_low:Q"), x2="change_high:Q"),
        measured.mark_point(filled=True, **mark).encode(x=x, tooltip=tooltip).add_params(panel),
        simulated.mark_point(filled=False, **mark).encode(x=x, tooltip=tooltip),
    ).properties(width="container", height=alt.Step(22), title=title)  # fmt: skip
