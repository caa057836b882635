"""Figures of the critical batch size: updates against examples, and what predicts where the curve bends."""

import altair as alt
import pandas as pd

from dolb.figures import style
from dolb.figures.style import COLOURS, REPORTED, Panel, bars, by_depth, dots, hover, interval, layered

_TICKS = alt.Axis(values=[part * 10**power for power in range(8) for part in (1, 2, 5)], format="~s", grid=False)


def updates_by_examples(points: pd.DataFrame, curves: pd.DataFrame, marks: pd.DataFrame, title: str = "") -> Panel:
    """Draw updates against examples to a training loss, a point per batch size, with the fitted hyperbola.

    ``points`` has arch, batch_size, lr, updates, examples, n, fitted; ``curves`` arch, updates, examples along the
    hyperbola; ``marks`` arch, what, batch, updates, examples: the critical batch size, and the reported one. The
    network is chosen below.
    """
    chosen = style.choice("chosen_arch", "network", by_depth(points["arch"]))
    # On the right there is room for a label.
    x = alt.X("examples:Q", title="images", axis=_TICKS).scale(type="log", nice=False, padding=56)
    y = alt.Y("updates:Q", title="updates", axis=_TICKS).scale(type="log", nice=False, padding=30)
    own = [alt.Chart(table).transform_filter("datum.arch == chosen_arch") for table in (curves, points, marks)]
    curve, sizes, places = (chart.encode(x=x, y=y) for chart in own)
    whats = list(dict.fromkeys(marks["what"]))
    shapes = alt.Shape("what:N", title=None, sort=whats).scale(domain=whats, range=["square", "diamond"][: len(whats)])
    shapes = shapes.legend(orient="top", direction="horizontal", labelLimit=300)
    tints = alt.Color("what:N", title=None, sort=whats).scale(domain=whats, range=[COLOURS[4], REPORTED][: len(whats)])
    about = hover("batch_size", "updates", examples="images:,.0f", lr="best learning rate", n="seeds")
    full = alt.condition("datum.fitted", alt.value(1), alt.value(0))
    return layered(
        340,
        title,
        curve.mark_line(color=COLOURS[0], strokeWidth=1.5),
        sizes.mark_point(size=70, color=COLOURS[0]).encode(fillOpacity=full, fill=alt.value(COLOURS[0]), tooltip=about),
        sizes.mark_text(align="left", dx=8, dy=-6).encode(text=alt.Text("batch_size:Q", format=",")),
        places.mark_point(size=170, strokeWidth=2.5).encode(
            shape=shapes, color=tints, tooltip=hover(what="mark", batch="batch size:,.0f")
        ),
        choices=[chosen],
    )


def noise_scales(table: pd.DataFrame, reported: float | None = None, title: str = "") -> Panel:
    """Draw the noise scale of each network by phase, and the critical batch size of its trade-off, with intervals.

    ``table`` has arch, what, value, low, high; ``reported`` is a critical batch size, which stands as a line.
    """
    whats, names = list(dict.fromkeys(table["what"])), by_depth(table["arch"])
    ends = [float(table["low"].min()) / 1.5, float(table["value"].max()) * 3]
    scale = alt.Scale(type="log", domain=ends, nice=False)
    base = alt.Chart(table).encode(
        x=alt.X("what:N", title="noise scale after an epoch; trade-off", sort=whats).axis(labelAngle=0),
        xOffset=alt.XOffset("arch:N", sort=names).scale(paddingOuter=0.6),
        color=style.network_colour(names),
    )
    y = alt.Y("value:Q", title="batch size", scale=scale, axis=_TICKS)
    told = hover("arch", what="from", value="batch size:,.0f") + interval(",.0f")
    line = [] if reported is None else [style.line_at(y, reported)]
    return layered(320, title, *line, bars(base, clip=True), dots(base, y, tooltip=told), click="arch")
