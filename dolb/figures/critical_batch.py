"""Figures of the critical batch size: updates against examples, and what predicts where the curve bends."""

from __future__ import annotations

import altair as alt
import pandas as pd

from dolb.figures.style import COLOURS, REPORTED, Panel, by_depth, interval, network_colour, picked, titled

_TICKS = alt.Axis(values=[part * 10**power for power in range(8) for part in (1, 2, 5)], format="~s", grid=False)


def updates_by_examples(points: pd.DataFrame, curves: pd.DataFrame, marks: pd.DataFrame, title: str = "") -> Panel:
    """Draw updates against examples to a training loss, a point per batch size, with the fitted hyperbola.

    ``points`` has arch, batch_size, lr, updates, examples, n, fitted; ``curves`` arch, updates, examples along the
    hyperbola; ``marks`` arch, what, batch, updates, examples: the critical batch size, and the reported one. The
    network is chosen below.
    """
    names = by_depth(points["arch"])
    bind = alt.binding_radio(name="network ", options=names) if len(names) > 1 else alt.Undefined
    chosen = alt.param(name="chosen_arch", value=names[0], bind=bind)
    # On the right there is room for a label.
    x = alt.X("examples:Q", title="images", axis=_TICKS).scale(type="log", nice=False, padding=56)
    y = alt.Y("updates:Q", title="updates", axis=_TICKS).scale(type="log", nice=False, padding=30)
    own = [alt.Chart(table).transform_filter("datum.arch == chosen_arch") for table in (curves, points, marks)]
    curve, dots, places = (chart.encode(x=x, y=y) for chart in own)
    whats = list(dict.fromkeys(marks["what"]))
    shapes = alt.Shape("what:N", title=None, sort=whats).scale(domain=whats, range=["square", "diamond"][: len(whats)])
    shapes = shapes.legend(orient="top", direction="horizontal", labelLimit=300)
    tints = alt.Color("what:N", title=None, sort=whats).scale(domain=whats, range=[COLOURS[4], REPORTED][: len(whats)])
    layers = [
        curve.mark_line(color=COLOURS[0], strokeWidth=1.5).add_params(chosen),
        dots.mark_point(size=70, color=COLOURS[0]).encode(
            fillOpacity=alt.condition("datum.fitted", alt.value(1), alt.value(0)),
            fill=alt.value(COLOURS[0]),
            tooltip=[
                alt.Tooltip("batch_size:Q", title="batch size", format=","),
                alt.Tooltip("updates:Q", format=",.0f"),
                alt.Tooltip("examples:Q", title="images", format=",.0f"),
                alt.Tooltip("lr:Q", title="best learning rate"),
                alt.Tooltip("n:Q", title="seeds"),
            ],
        ),
        dots.mark_text(align="left", dx=8, dy=-6).encode(text=alt.Text("batch_size:Q", format=",")),
        places.mark_point(size=170, strokeWidth=2.5).encode(
            shape=shapes,
            color=tints,
            tooltip=[alt.Tooltip("what:N", title="mark"), alt.Tooltip("batch:Q", title="batch size", format=",.0f")],
        ),
    ]
    return alt.layer(*layers).properties(width="container", height=340, title=titled(title))


def noise_scales(table: pd.DataFrame, reported: float | None = None, title: str = "") -> Panel:
    """Draw the noise scale of each network by phase, and the critical batch size of its trade-off, with intervals.

    ``table`` has arch, what, value, low, high; ``reported`` is a critical batch size, which stands as a line.
    """
    picks = alt.selection_point(fields=["arch"], bind="legend")
    whats, names = list(dict.fromkeys(table["what"])), by_depth(table["arch"])
    ends = [float(table["low"].min()) / 1.5, float(table["value"].max()) * 3]
    scale = alt.Scale(type="log", domain=ends, nice=False)
    base = alt.Chart(table).encode(
        x=alt.X("what:N", title="noise scale after an epoch; trade-off", sort=whats).axis(labelAngle=0),
        xOffset=alt.XOffset("arch:N", sort=names).scale(paddingOuter=0.6),
        color=network_colour(names),
        opacity=picked(picks),
    )
    tooltip = [
        alt.Tooltip("arch:N", title="network"),
        alt.Tooltip("what:N", title="from"),
        alt.Tooltip("value:Q", title="batch size", format=",.0f"),
        *interval(",.0f"),
    ]
    y = alt.Y("value:Q", title="batch size", scale=scale, axis=_TICKS)
    line = alt.Chart(pd.DataFrame({"value": [] if reported is None else [reported]})).mark_rule(
        color=REPORTED, strokeDash=[4, 3]
    )
    bars = base.mark_rule(strokeWidth=1.5, clip=True).encode(
        y=alt.Y("low:Q", title="batch size", scale=scale, axis=_TICKS), y2="high:Q"
    )
    dots = base.mark_point(filled=True, size=60, opacity=1).encode(y=y, tooltip=tooltip)
    return alt.layer(line.encode(y=y), bars.add_params(picks), dots).properties(
        width="container", height=320, title=titled(title)
    )
