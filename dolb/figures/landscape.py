"""Figures of loss landscapes: curvature ratios between training sets, and the surfaces."""

from collections.abc import Mapping
from typing import Any

import altair as alt
import pandas as pd

from dolb.figures.filtered import SETS, set_colour
from dolb.figures.style import REPORTED, Panel, bars, choice, dots, hover, interval, layered, titled


def curvature_ratios(
    ratios: pd.DataFrame, measures: Mapping[str, str], readings: Mapping[str, str], smallest: float, title: str = ""
) -> Panel:
    """Draw the curvature of networks of other sets over that of filtered data, with intervals.

    ``ratios`` has reading, measure, batch_size, other, ratio, low, high, n; ``measures`` and ``readings`` give words
    for their names, in the order in which they are drawn and offered. Right of one filtered data are smoother; a second
    line is drawn at the ``smallest`` ratio that is the claim's.
    """
    options = [name for name in readings if name in set(ratios["reading"])]
    reading = choice("reading", "loss over", options, menu=True, labels=[readings[name] for name in options])
    table = ratios.assign(
        words=ratios["measure"].map(measures),
        cell=ratios["batch_size"].astype(str).str.zfill(6) + ratios["other"],
        batch=ratios["batch_size"].map("{:,}".format),
    )
    sizes = [f"{size:,}" for size in sorted(set(ratios["batch_size"]))]
    base = alt.Chart(table).transform_filter("datum.reading === reading").encode(
        y=alt.Y("words:N", title=None, sort=list(measures.values())),
        yOffset=alt.YOffset("cell:N").scale(paddingOuter=0.3),
        color=set_colour(ratios["other"], "other"),
    )  # fmt: skip
    tooltip = (
        hover(words="measure") + hover("other", batch="batch size", ratio="ratio:.2f") + interval(".2f") + hover("n")
    )
    ticks = [0.2, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.5, 2, 5]
    x = alt.X("ratio:Q", title="curvature over that of filtered data")
    x = x.scale(type="log", nice=False, padding=8).axis(values=ticks, format="~g", grid=False, labelOverlap="greedy")
    shape = alt.Shape("batch:N", title="batch size", sort=sizes).legend(orient="bottom", symbolFillColor="black")
    shape = shape.scale(domain=sizes, range=["circle", "square", "cross"])
    lines = alt.Chart(pd.DataFrame({"ratio": [1.0, smallest], "what": ["no difference", "the claim"]})).encode(x=x)
    return layered(
        80 * len(measures),
        title,
        lines.mark_rule(color=REPORTED, strokeDash=[4, 3]),
        lines.mark_text(align="right", dx=-4).encode(text="what:N", y=alt.value(8)),
        bars(base, "x"),
        dots(base, x, shape=shape, tooltip=tooltip),
        click="other",
        choices=[reading],
    )


def loss_surfaces(surfaces: pd.DataFrame, contours: pd.DataFrame, highest: float, title: str = "") -> alt.FacetChart:
    """Draw the loss on a plane through the trained weights, a panel per training set and batch size, with contours.

    ``surfaces`` has set, batch_size, alpha, beta, loss, accuracy; ``contours`` set, batch_size, level, x, y, x2, y2.
    All panels have one scale of colour, logarithmic; above the ``highest`` loss the colour stays the same.
    """
    points = sorted(set(surfaces["alpha"]))
    half = (points[1] - points[0]) / 2
    cells = surfaces.assign(
        x=surfaces["alpha"] - half, x2=surfaces["alpha"] + half, y=surfaces["beta"] - half, y2=surfaces["beta"] + half
    )
    both = pd.concat([cells, contours], ignore_index=True).round(4)
    both["panel"] = "batch " + both["batch_size"].map("{:,}".format)
    reach = points[-1] + half
    within: dict[str, Any] = {
        "scale": alt.Scale(domain=[-reach, reach], nice=False),
        "axis": alt.Axis(values=[points[0], 0, points[-1]], grid=False),
    }
    x, y = alt.X("x:Q", title="along one direction", **within), alt.Y("y:Q", title="along another", **within)
    base = alt.Chart(both).encode(x, y, x2="x2:Q", y2="y2:Q")
    # Viridis is read alike with and without colour-blindness, and in grey.
    scale = alt.Scale(scheme="viridis", type="log", reverse=True, domainMax=highest, clamp=True)
    colour = alt.Fill("loss:Q", title="loss, at contours", scale=scale).legend(
        format="~g", values=sorted(set(contours["level"])), symbolType="square", orient="top", columns=4
    )
    edge = alt.Stroke("loss:Q", scale=scale, legend=None)  # without an edge of their own, light shows between cells
    tooltip = hover("set", "batch_size", alpha="alpha:.2f", beta="beta:.2f", loss="loss:.3g", accuracy="accuracy:.1%")
    losses, levels = (base.transform_filter(f"isValid(datum.{name})") for name in ("loss", "level"))
    sizes = [f"batch {size:,}" for size in sorted(set(surfaces["batch_size"]))]
    return (
        alt.layer(
            losses.mark_rect(strokeWidth=0.7, clip=True).encode(fill=colour, stroke=edge, tooltip=tooltip),
            levels.mark_rule(strokeWidth=2, color="black", opacity=0.35),  # dark beside light: seen on every colour
            levels.mark_rule(strokeWidth=0.9, color="white").encode(tooltip=hover(level="contour at loss:~g")),
        )
        .properties(width=182, height=182)
        .facet(
            column=alt.Column("set:N", title=None, sort=SETS),
            row=alt.Row("panel:N", title=None, sort=sizes),
        )
        .properties(title=titled(title))
    )
