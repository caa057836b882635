"""Figures of how fast a training step is."""

from __future__ import annotations

import altair as alt
import pandas as pd

from dolb.figures.style import COLOURS, REPORTED, Panel, batch_size_axis, by_depth, interval, picked

LEGEND = alt.Legend(orient="top", columns=2, labelLimit=300)
OURS, OTHERS = [COLOURS[1], COLOURS[0]], [COLOURS[4], COLOURS[2], COLOURS[3], COLOURS[5]]


def ratios(table: pd.DataFrame, baseline: str, title: str = "") -> Panel:
    """Draw how many times as fast as the baseline programs are, a group of bars for each network and batch size.

    ``table`` has cell, program, kind, ratio, ratio_low, ratio_high, images_per_second, repeats.
    """
    kinds = list(dict.fromkeys(table["kind"]))
    base = alt.Chart(table).encode(
        y=alt.Y("cell:N", title=None, sort=None).axis(labelLimit=220, ticks=False),
        yOffset=alt.YOffset("kind:N", sort=kinds),
    )
    x = alt.X("ratio:Q", title=f"times as fast as the {baseline}").axis(tickCount=6)
    bars = base.mark_bar().encode(
        x=x,
        color=alt.Color("kind:N", title=None, sort=kinds, legend=LEGEND).scale(domain=kinds, range=OURS),
        tooltip=[
            alt.Tooltip("cell:N", title="network"),
            alt.Tooltip("program:N", title="program"),
            alt.Tooltip("ratio:Q", title=f"times the {baseline}", format=".2f"),
            *interval(".2f", "ratio_"),
            alt.Tooltip("images_per_second:Q", title="images per second", format=",.0f"),
            alt.Tooltip("repeats:Q", title="repetitions"),
        ],
    )
    words = base.transform_calculate(words="format(datum.ratio, '.1f') + '×'")
    return alt.layer(
        alt.Chart(pd.DataFrame({"ratio": [1.0]})).mark_rule(color=REPORTED, strokeDash=[2, 3]).encode(x=x),
        bars,
        base.mark_rule(strokeWidth=1.5).encode(x=alt.X("ratio_low:Q"), x2="ratio_high:Q"),
        words.mark_text(align="left", dx=6).encode(x="ratio_high:Q", text="words:N"),
    ).properties(width="container", height=52 * table["cell"].nunique(), title=title)  # fmt: skip


def speeds(cells: pd.DataFrame, title: str = "") -> Panel:
    """Draw images per second against batch size on a GPU, a line per program, one network at a time, under its limits.

    ``cells`` has arch, batch_size, program, kind, images_per_second, low, high, arithmetic, memory, of_limit.
    """
    names = dict.fromkeys(cells["kind"])
    ours, others = ([name for name in names if name.startswith("dolb") == is_ours] for is_ours in (True, False))
    archs = by_depth(cells["arch"])
    shown = alt.param(name="network", value=archs[0], bind=alt.binding_select(options=archs, name="network "))
    kind = alt.selection_point(fields=["kind"], bind="legend")
    x = batch_size_axis(cells["batch_size"]).title("batch size")
    y = alt.Y("images_per_second:Q", title="images per second").scale(type="log").axis(format="~s", gridOpacity=0.5)
    of_network = alt.Chart(cells).transform_filter("datum.arch === network").encode(x=x)
    base = of_network.encode(
        y=y,
        color=alt.Color("kind:N", title=None, sort=[*others, *ours], legend=LEGEND).scale(
            domain=[*others, *ours], range=[*OTHERS[: len(others)], *OURS[: len(ours)]]
        ),
        opacity=picked(kind),
    )
    tooltip = [
        alt.Tooltip("program:N", title="program"),
        alt.Tooltip("batch_size:Q", title="batch size", format=",d"),
        alt.Tooltip("images_per_second:Q", title="images per second", format=",.0f"),
        *interval(",.0f"),
        alt.Tooltip("of_limit:Q", title="of the limit", format=".0%"),
    ]
    limits = of_network.transform_fold(["arithmetic", "memory"], as_=["limited", "most"]).encode(
        y=alt.Y("most:Q", title="images per second"),
        strokeDash=alt.StrokeDash("limited:N", title="at most, by", legend=LEGEND).scale(
            domain=["arithmetic", "memory"], range=[[2, 3], [8, 4]]
        ),
    )
    return alt.layer(
        limits.mark_line(color=REPORTED),
        base.mark_line(),
        base.mark_point(filled=True, size=70).encode(tooltip=tooltip).add_params(kind, shown),
    ).properties(width="container", height=320, title=title)  # fmt: skip
