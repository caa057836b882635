"""Figures of the benchmarks: how fast a training step is."""

from __future__ import annotations

import altair as alt
import pandas as pd

from dolb.figures.style import ABOVE, COLOURS


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
    return layers.properties(width=500, height=78).facet(row=row).properties(title=title)
