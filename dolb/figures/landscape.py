"""Figures of loss landscapes: curvature by training set, ratios between sets in pairs, and the surfaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import pandas as pd

from dolb.figures.filtered import SETS, set_colour
from dolb.figures.style import REPORTED, picked, titled

_SIZE = {"width": 102, "height": 150}


def _reading(words: Mapping[str, str]) -> alt.Parameter:
    """Return the choice of the examples over which the loss is taken, for under a chart whose rows have ``reading``."""
    options = list(words)
    bind = alt.binding_select(options=options, labels=list(words.values()), name="loss over ")
    return alt.param(name="reading", value=options[0], bind=bind)


def curvature_by_set(
    cells: pd.DataFrame,
    measures: Mapping[str, str],
    readings: Mapping[str, str],
    title: str = "",
    said: Sequence[str] = (),
) -> alt.FacetChart:
    """Draw curvature by batch size, a panel per measure and a colour per training set, with intervals over seeds.

    ``cells`` has reading, measure, batch_size, set, value, low, high, n; ``measures`` and ``readings`` give the words
    for their names, in the order in which they are drawn and offered.
    """
    chosen = alt.selection_point(fields=["set"], bind="legend")
    table = cells[cells["measure"].isin(list(measures))].assign(panel=lambda rows: rows["measure"].map(measures))
    base = alt.Chart(table).transform_filter("datum.reading === reading").encode(
        x=alt.X("batch_size:O", title="batch size").axis(labelAngle=0),
        xOffset=alt.XOffset("set:N", sort=SETS).scale(paddingOuter=0.3),
        color=set_colour(cells["set"]),
        opacity=picked(chosen),
    )  # fmt: skip
    value = (
        alt.Y("value:Q", title=None)
        .scale(type="log", nice=False, padding=8)
        .axis(format="~g", tickCount=4, gridOpacity=0.4)
    )
    tooltip = [
        alt.Tooltip("panel:N", title="measure"),
        alt.Tooltip("set:N", title="training set"),
        alt.Tooltip("batch_size:O", title="batch size"),
        alt.Tooltip("value:Q", title="geometric mean", format=".3g"),
        alt.Tooltip("low:Q", title="interval from", format=".3g"),
        alt.Tooltip("high:Q", title="interval to", format=".3g"),
        alt.Tooltip("n:Q", title="seeds"),
    ]
    drawn = alt.layer(
        base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q", title=None), y2="high:Q").add_params(chosen),
        base.mark_point(filled=True, size=50).encode(y=value, tooltip=tooltip),
    ).properties(**_SIZE)
    facet = alt.Facet("panel:N", title=None, sort=list(measures.values())).header(labelFontSize=11)
    panels = drawn.facet(facet=facet, columns=4).resolve_scale(y="independent").resolve_axis(x="independent")
    return panels.add_params(_reading(readings)).properties(title=titled(title, said))


def curvature_ratios(
    ratios: pd.DataFrame, measures: Mapping[str, str], readings: Mapping[str, str], title: str = ""
) -> alt.FacetChart:
    """Draw curvature with network filtered data relative to other sets, networks of one seed in pairs, with intervals.

    ``ratios`` has reading, measure, batch_size, other, ratio, low, high, p, n; a row per measure, a column per batch
    size. Below one network filtered data are smoother.
    """
    chosen = alt.selection_point(fields=["other"], bind="legend")
    table = ratios[ratios["measure"].isin(list(measures))].assign(
        words=lambda rows: rows["measure"].map(measures), panel=lambda rows: "batch " + rows["batch_size"].astype(str)
    )
    base = alt.Chart(table).transform_filter("datum.reading === reading").encode(
        y=alt.Y("words:N", title=None, sort=list(measures.values())).axis(labelLimit=220),
        yOffset=alt.YOffset("other:N", sort=SETS).scale(paddingOuter=0.3),
        color=set_colour(ratios["other"], "other", "compared with (click)"),
        opacity=picked(chosen),
    )  # fmt: skip
    tooltip = [
        alt.Tooltip("words:N", title="measure"),
        alt.Tooltip("other:N", title="compared with"),
        alt.Tooltip("batch_size:O", title="batch size"),
        alt.Tooltip("ratio:Q", format=".3f"),
        alt.Tooltip("low:Q", title="interval from", format=".3f"),
        alt.Tooltip("high:Q", title="interval to", format=".3f"),
        alt.Tooltip("p:Q", title="p, paired t-test", format=".3f"),
        alt.Tooltip("n:Q", title="seeds"),
    ]
    ratio = alt.X("ratio:Q", title="network filtered over the other set")
    ratio = ratio.scale(type="log", nice=False, padding=8).axis(format="~g", grid=False, labelOverlap="greedy")
    drawn = alt.layer(
        base.mark_rule(color=REPORTED, strokeDash=[4, 3]).encode(
            x=alt.datum(1.0), y=alt.value(0), y2=alt.value("height"), yOffset=alt.value(0), color=alt.value(REPORTED)
        ),
        base.mark_rule(strokeWidth=1.5).encode(x=alt.X("low:Q"), x2="high:Q").add_params(chosen),
        base.mark_point(filled=True, size=55).encode(x=ratio, tooltip=tooltip),
    ).properties(width=220, height=30 * len(measures))
    order = [f"batch {size}" for size in sorted(set(table["batch_size"]))]
    facet = alt.Facet("panel:N", title=None, sort=order).header(labelFontSize=12, labelFontWeight="bold")
    return drawn.facet(facet=facet, columns=2).add_params(_reading(readings)).properties(title=titled(title))


def loss_surfaces(
    surfaces: pd.DataFrame, contours: pd.DataFrame, highest: float, title: str = "", said: Sequence[str] = ()
) -> alt.FacetChart:
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
    both["panel"] = "batch " + both["batch_size"].astype(str)
    reach = points[-1] + half
    along = {"x": "along one direction", "y": "along another"}
    place = {
        name: getattr(alt, name.upper())(f"{name}:Q", title=words)
        .scale(domain=[-reach, reach], nice=False)
        .axis(values=[points[0], 0, points[-1]], grid=False)
        for name, words in along.items()
    }
    base = alt.Chart(both).encode(**place, x2="x2:Q", y2="y2:Q")
    # Viridis is read alike with and without colour-blindness, and in grey.
    scale = alt.Scale(scheme="viridis", type="log", reverse=True, domainMax=highest, clamp=True)
    colour = alt.Fill("loss:Q", title="loss, at contours", scale=scale).legend(
        format="~g", values=sorted(set(contours["level"])), symbolType="square"
    )
    edge = alt.Stroke("loss:Q", scale=scale, legend=None)  # without an edge of their own, light shows between cells
    tooltip = [
        alt.Tooltip("set:N", title="training set"),
        alt.Tooltip("batch_size:O", title="batch size"),
        alt.Tooltip("alpha:Q", format=".2f"),
        alt.Tooltip("beta:Q", format=".2f"),
        alt.Tooltip("loss:Q", format=".3g"),
        alt.Tooltip("accuracy:Q", format=".1%"),
    ]
    losses, levels = (base.transform_filter(f"isValid(datum.{name})") for name in ("loss", "level"))
    about = [alt.Tooltip("level:Q", title="contour at loss", format="~g")]
    sizes = [f"batch {size}" for size in sorted(set(surfaces["batch_size"]))]
    return (
        alt.layer(
            losses.mark_rect(strokeWidth=0.7, clip=True).encode(fill=colour, stroke=edge, tooltip=tooltip),
            levels.mark_rule(strokeWidth=2, color="black", opacity=0.35),  # dark beside light: seen on every colour
            levels.mark_rule(strokeWidth=0.9, color="white").encode(tooltip=about),
        )
        .properties(width=128, height=128)
        .facet(
            column=alt.Column("set:N", title=None, sort=SETS).header(labelFontSize=12, labelFontWeight="bold"),
            row=alt.Row("panel:N", title=None, sort=sizes).header(labelFontSize=12, labelFontWeight="bold"),
        )
        .properties(title=titled(title, said))
    )
