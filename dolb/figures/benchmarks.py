"""Figures of the benchmarks: how fast a training step is."""

from __future__ import annotations

import altair as alt
import pandas as pd

from dolb.figures.style import ABOVE, COLOURS, REPORTED, batch_size_axis, by_depth, picked

IN_A_ROW = 3  # panels, within the width of a page


def step_speed(cells: pd.DataFrame, title: str = "") -> alt.FacetChart:
    """Draw images per second by program, a panel for each network and batch size, with intervals and ratios.

    ``cells`` has arch, batch_size, program, milliseconds, images_per_second, low, high, ratio, ratio_low, ratio_high,
    repeats; ratios are to the first program.
    """
    program = alt.selection_point(fields=["program"], bind="legend")
    programs = list(dict.fromkeys(cells["program"]))
    panels = cells["arch"] + ", batch " + cells["batch_size"].astype(str)
    base = alt.Chart(cells.assign(panel=panels)).encode(
        y=alt.Y("program:N", title=None, sort=programs).axis(None),
        opacity=alt.condition(program, alt.value(1.0), alt.value(0.15)),
    )
    tooltip = [
        alt.Tooltip("panel:N", title="network"),
        alt.Tooltip("program:N", title="program"),
        alt.Tooltip("milliseconds:Q", title="milliseconds a step", format=",.0f"),
        alt.Tooltip("images_per_second:Q", title="images per second", format=",.1f"),
        alt.Tooltip("low:Q", title="interval from", format=",.1f"),
        alt.Tooltip("high:Q", title="interval to", format=",.1f"),
        alt.Tooltip("ratio:Q", title=f"times {programs[0]}", format=".2f"),
        alt.Tooltip("ratio_low:Q", title="ratio from", format=".2f"),
        alt.Tooltip("ratio_high:Q", title="ratio to", format=".2f"),
        alt.Tooltip("repeats:Q", title="repetitions"),
    ]
    bars = base.mark_bar(height={"band": 0.8}).encode(
        x=alt.X("images_per_second:Q", title="images per second").axis(tickCount=6),
        color=alt.Color("program:N", title="program (click)", sort=programs, legend=ABOVE).scale(
            domain=programs, range=[COLOURS[1], COLOURS[3], COLOURS[0]]
        ),
        tooltip=tooltip,
    )
    intervals = base.mark_rule(strokeWidth=1.5).encode(x=alt.X("low:Q", title="images per second"), x2="high:Q")
    labels = base.transform_calculate(label="format(datum.ratio, '.1f') + '×'").mark_text(align="left", dx=6)
    row = alt.Row("panel:N", title=None, sort=list(dict.fromkeys(panels))).header(labelAngle=0, labelAlign="left")
    layers = alt.layer(bars.add_params(program), intervals, labels.encode(x="high:Q", text="label:N"))
    return layers.properties(width=470, height=78).facet(row=row).properties(title=title)


def engine_speed(cells: pd.DataFrame, title: str = "") -> alt.ConcatChart:
    """Draw images per second against batch size on a GPU, a line per program and a panel per network, under its limits.

    ``cells`` has what `step_speed` wants and, from the roofline, runs_at_once, arithmetic, memory, of_limit. Programs
    that differ only in how many runs share the device are one line. Where the eager loop was not timed in the same
    process there is no ratio, and the hover says so. Panels share both scales, `IN_A_ROW` of them beside each other.
    """
    cells = cells.assign(kind=cells["program"].str.replace(r"\d+ runs at once", "several runs at once", regex=True))
    kinds = sorted(dict.fromkeys(cells["kind"]), key=lambda name: name.startswith("dolb"))
    colours = [*COLOURS[3:6], COLOURS[1], COLOURS[0]] if len(kinds) == 5 else [*COLOURS[3:6], *COLOURS[:3]]
    kind = alt.selection_point(fields=["kind"], bind="legend", name="program")
    times = "isValid(datum.ratio) ? format(datum.ratio, '.1f') : 'not timed in the same process'"
    panels: list[alt.LayerChart] = []
    for arch in by_depth(cells["arch"]):
        of_arch = cells[cells["arch"] == arch]
        x = batch_size_axis(cells["batch_size"]).title("batch size")
        first = len(panels) % IN_A_ROW == 0
        axis = alt.Axis(labels=first, ticks=first, format="~s", gridOpacity=0.5)
        said = "images per second" if first else None
        base = (
            alt.Chart(of_arch)
            .transform_calculate(times=times)
            .encode(
                x=x,
                y=alt.Y("images_per_second:Q", title=said, axis=axis).scale(type="log"),
                color=alt.Color(
                    "kind:N",
                    title="program (click)",
                    sort=kinds,
                    legend=alt.Legend(orient="top", columns=2, titleLimit=300),
                ).scale(domain=kinds, range=colours[: len(kinds)]),
                opacity=picked(kind),
            )
        )
        tooltip = [
            alt.Tooltip("program:N", title="program"),
            alt.Tooltip("batch_size:Q", title="batch size", format=",d"),
            alt.Tooltip("images_per_second:Q", title="images per second", format=",.0f"),
            alt.Tooltip("low:Q", title="interval from", format=",.0f"),
            alt.Tooltip("high:Q", title="interval to", format=",.0f"),
            alt.Tooltip("times:N", title="times the eager loop"),
            alt.Tooltip("of_limit:Q", title="of the limit", format=".0%"),
        ]
        lines = base.mark_line()
        if not panels:
            lines = lines.add_params(kind)
        points = base.mark_point(filled=True, size=70).encode(tooltip=tooltip)
        limits = of_arch.drop_duplicates("batch_size").melt(
            ["batch_size"], ["arithmetic", "memory"], var_name="limited", value_name="most"
        )
        floor = alt.Chart(limits).encode(
            x=x,
            y=alt.Y("most:Q", title=said, axis=axis),
            strokeDash=alt.StrokeDash("limited:N", title="at most, by", legend=ABOVE.copy(deep=True)).scale(
                domain=["arithmetic", "memory"], range=[[2, 3], [8, 4]]
            ),
            tooltip=[
                alt.Tooltip("limited:N", title="limit by"),
                alt.Tooltip("batch_size:Q", title="batch size", format=",d"),
                alt.Tooltip("most:Q", title="images per second at most", format=",.0f"),
            ],
        )
        limit = floor.mark_line(color=REPORTED) + floor.mark_tick(color=REPORTED, thickness=2, width=12)
        panels.append((lines + points + limit).properties(width=160, height=250, title=arch))
    return alt.concat(*panels, columns=IN_A_ROW).resolve_scale(x="shared", y="shared").properties(title=title)
