"""Figures of maps and noise: the maps, how much is noise, how stable that is, and what it depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import pandas as pd

from dolb.figures.style import ABOVE, COLOURS, PERCENT, REPORTED, Panel, by_depth, picked, titled

CLASSES = [
    "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#000000", "#999999", "#B2DF8A", "#6A3D9A",
]  # fmt: skip
_NO_AXIS = alt.Axis(labels=False, ticks=False, grid=False, domain=False, title=None)


def maps(points: pd.DataFrame, classes: Sequence[str], title: str = "", said: Sequence[str] = ()) -> alt.FacetChart:
    """Draw the map of each extractor to zoom, a point per image by class; training or test set, as chosen below.

    ``points`` has extractor, split, label, x, y; ``classes`` are the names of the labels.
    """
    splits = list(dict.fromkeys(points["split"]))
    split = alt.param(name="split", value=splits[0], bind=alt.binding_radio(options=splits, name="show the "))
    extractors = by_depth(points["extractor"])
    return (
        alt.Chart(_named(points, classes))
        .transform_filter("datum.split === split")
        .mark_circle(size=9, opacity=0.7)
        .encode(
            x=alt.X("x:Q", axis=_NO_AXIS),
            y=alt.Y("y:Q", axis=_NO_AXIS),
            color=_class_colour(classes),
            tooltip=[alt.Tooltip("class:N")],
        )
        .properties(width=260, height=240)
        .add_params(alt.selection_interval(bind="scales"))
        .facet(facet=alt.Facet("extractor:N", title=None, sort=extractors), columns=2)
        .resolve_scale(x="independent", y="independent")
        .add_params(split)
        .properties(title=titled(title, said))
    )


def _named(points: pd.DataFrame, classes: Sequence[str]) -> pd.DataFrame:
    named = points.assign(**{"class": [classes[label] for label in points["label"]]})
    return named.drop(columns="label").round(2)


def _class_colour(classes: Sequence[str]) -> alt.Color:
    return alt.Color("class:N", title=None, legend=ABOVE, sort=list(classes)).scale(
        domain=list(classes), range=(CLASSES * len(classes))[: len(classes)]
    )


def noise_by_extractor(
    removed: pd.DataFrame, reported: Mapping[str, float] | None = None, title: str = "", said: Sequence[str] = ()
) -> Panel:
    """Draw the share that is noise by extractor, with its interval, beside the reported one.

    ``removed`` has extractor, removed, low, high, least, most, n; ``reported`` percent by extractor.
    """
    order = by_depth(removed["extractor"])
    x = alt.X("removed:Q", title="share of training images called noise").axis(format=".1%").scale(zero=True)
    y = alt.Y("extractor:N", title=None, sort=order)
    base = alt.Chart(removed).encode(y=y)
    tooltip = [
        alt.Tooltip("extractor:N"),
        alt.Tooltip("removed:Q", title="noise", format=".2%"),
        alt.Tooltip("low:Q", title="interval from", format=".2%"),
        alt.Tooltip("high:Q", title="interval to", format=".2%"),
        alt.Tooltip("least:Q", title="least of any map", format=".2%"),
        alt.Tooltip("most:Q", title="most of any map", format=".2%"),
        alt.Tooltip("n:Q", title="maps"),
    ]
    layers: list[alt.Chart] = [
        base.mark_rule(strokeWidth=6, strokeOpacity=0.3, color=COLOURS[0]).encode(x="least:Q", x2="most:Q"),
        base.mark_rule(strokeWidth=1.5, color=COLOURS[0]).encode(x="low:Q", x2="high:Q"),
        base.mark_point(filled=True, size=80, color=COLOURS[0]).encode(x=x, tooltip=tooltip),
    ]
    table = pd.DataFrame([{"extractor": name, "removed": value / 100} for name, value in (reported or {}).items()])
    if len(table):
        diamonds = alt.Chart(table).mark_point(shape="diamond", size=110, color=REPORTED, strokeWidth=2)
        about = [alt.Tooltip("extractor:N"), alt.Tooltip("removed:Q", title="reported, Table I", format=".2%")]
        layers.append(diamonds.encode(x=x, y=y, tooltip=about))
    return alt.layer(*layers).properties(width=480, height=36 * len(order) + 20, title=titled(title, said))


def noise_stability(stability: pd.DataFrame, title: str = "") -> Panel:
    """Draw how far two noise sets agree, by what their maps differ in, beside random sets.

    ``stability`` has differs, overlap, least, most, by_chance, pairs, networks.
    """
    order = list(stability["differs"])
    x = alt.X("overlap:Q", title="images in both over images in either (Jaccard index)").scale(domain=[0, 1])
    base = alt.Chart(stability).encode(y=alt.Y("differs:N", title="the other mask is by", sort=order))
    tooltip = [
        alt.Tooltip("differs:N", title="the other is by"),
        alt.Tooltip("overlap:Q", format=".2f"),
        alt.Tooltip("least:Q", format=".2f"),
        alt.Tooltip("most:Q", format=".2f"),
        alt.Tooltip("by_chance:Q", title="random sets", format=".3f"),
        alt.Tooltip("pairs:Q", title="pairs of maps"),
        alt.Tooltip("networks:Q", title="networks, or pairs of them"),
    ]
    return alt.layer(
        base.mark_tick(thickness=3, color=REPORTED).encode(x=alt.X("by_chance:Q")),
        base.mark_rule(strokeWidth=6, strokeOpacity=0.3, color=COLOURS[0]).encode(x="least:Q", x2="most:Q"),
        base.mark_point(filled=True, size=90, color=COLOURS[0]).encode(x=x, tooltip=tooltip),
    ).properties(width=440, height=40 * len(order) + 20, title=titled(title))


def noise_by_eps(curve: pd.DataFrame, radii: Mapping[str, float] | None = None, title: str = "") -> Panel:
    """Draw the share that is noise by DBSCAN's eps, a line per extractor, and mark some ``radii`` by name.

    ``curve`` has extractor, eps, removed.
    """
    names = by_depth(curve["extractor"])
    chosen = alt.selection_point(fields=["extractor"], bind="legend")
    legend = alt.Legend(orient="top", direction="horizontal", titleOrient="top")  # beside its title it is too wide
    colour = alt.Color("extractor:N", title="extractor (click)", legend=legend, sort=names).scale(
        domain=names, range=(COLOURS * len(names))[: len(names)]
    )
    lines = alt.Chart(curve).mark_line(strokeWidth=2).encode(
        x=alt.X("eps:Q", title="eps, in units of the map").scale(type="log", nice=False).axis(format="~g", grid=False),
        y=alt.Y("removed:Q", title="share called noise", axis=PERCENT),
        color=colour,
        opacity=picked(chosen),
        tooltip=["extractor:N", alt.Tooltip("eps:Q", format=".2f"), alt.Tooltip("removed:Q", format=".2%")],
    )  # fmt: skip
    marks = alt.Chart(pd.DataFrame({"eps": list((radii or {}).values()), "name": list(radii or {})})).encode(x="eps:Q")
    rules = marks.mark_rule(color=REPORTED, strokeDash=[4, 3])
    names_of = marks.mark_text(align="left", dx=4, baseline="top", color=REPORTED).encode(text="name:N", y=alt.value(0))
    return alt.layer(lines.add_params(chosen), *([rules, names_of] if radii else [])).properties(
        width=420, height=260, title=titled(title)
    )


def noise_by_map(table: pd.DataFrame, title: str = "") -> Panel:
    """Draw the share that is noise at one radius by how the map is made of the same features; the usual is filled.

    ``table`` has value, first, removed, overlap.
    """
    order = list(table.sort_values("removed")["value"])
    points = alt.Chart(table).mark_point(size=90, strokeWidth=2, color=COLOURS[0]).encode(
        x=alt.X("removed:Q", title="share called noise").axis(format=".0%").scale(zero=True),
        y=alt.Y("value:N", title=None, sort=order).axis(labelLimit=320),
        fill=alt.condition("datum.first", alt.value(COLOURS[0]), alt.value("transparent")),
        tooltip=[
            alt.Tooltip("value:N", title="map"),
            alt.Tooltip("removed:Q", title="noise", format=".2%"),
            alt.Tooltip("overlap:Q", title="overlap with the usual", format=".2f"),
        ],
    )  # fmt: skip
    return alt.layer(points).properties(width=380, height=34 * len(order) + 10, title=titled(title))


def noise_by_parameter(table: pd.DataFrame, title: str = "") -> alt.FacetChart:
    """Draw the share that is noise as one parameter changes, a panel for each of several values; the usual is filled.

    ``table`` has parameter, value, first, removed, overlap.
    """
    table = table[table.groupby("parameter")["value"].transform("size") > 1]
    parameters = list(dict.fromkeys(table["parameter"]))
    ranked = table.assign(rank=table.groupby("parameter").cumcount())  # numbers in text sort by their first digit
    points = alt.Chart(ranked).mark_point(size=90, strokeWidth=2, color=COLOURS[0]).encode(
        x=alt.X("value:O", title=None, sort=alt.EncodingSortField("rank", op="min")).axis(labelAngle=0),
        y=alt.Y("removed:Q", title="share called noise").axis(format=".1%"),
        fill=alt.condition("datum.first", alt.value(COLOURS[0]), alt.value("transparent")),
        tooltip=[
            "parameter:N",
            "value:N",
            alt.Tooltip("removed:Q", title="noise", format=".2%"),
            alt.Tooltip("overlap:Q", title="overlap with the usual", format=".2f"),
        ],
    )  # fmt: skip
    facet = alt.Facet("parameter:N", title=None, sort=parameters)
    panels = points.properties(width=190, height=180).facet(facet=facet, columns=2)
    return panels.resolve_scale(x="independent").properties(title=titled(title))


def noise_shared(table: pd.DataFrame, title: str = "") -> Panel:
    """Draw how much of the noise other ways to choose find too, at equal size, beside what chance would find.

    ``table`` has filter, removed, shared, images, by_chance.
    """
    order = list(table.sort_values("shared", ascending=False)["filter"])
    base = alt.Chart(table).encode(y=alt.Y("filter:N", title=None, sort=order))
    tooltip = [
        alt.Tooltip("filter:N"),
        alt.Tooltip("shared:Q", title="of the noise", format=".1%"),
        alt.Tooltip("images:Q", title="images", format=","),
        alt.Tooltip("by_chance:Q", title="by chance", format=".1%"),
    ]
    x = alt.X("shared:Q", title="share of the noise that it removes too").axis(format=".0%")
    return alt.layer(
        base.mark_bar(color=COLOURS[1], height={"band": 0.6}).encode(x=x, tooltip=tooltip),
        base.mark_tick(thickness=3, color=REPORTED).encode(x=alt.X("by_chance:Q", title="")),
    ).properties(width=480, height=32 * len(order) + 20, title=titled(title))


def noise_rounds(table: pd.DataFrame, title: str = "") -> Panel:
    """Draw what each round of the filter removes, and how much of that other maps call noise too.

    ``table`` has round, examples, images, removed, in_all, shared, by_chance, overlap, network_accuracy.
    """
    names = ["removed by the round", "noise on other maps too", "the same of a random draw"]
    base = alt.Chart(table).encode(y=alt.Y("round:O", title="round"))
    x = alt.X("removed:Q", title="share of all training images").axis(format=".1%")
    tooltip = [
        alt.Tooltip("round:O"),
        alt.Tooltip("images:Q", title="removed images", format=","),
        alt.Tooltip("examples:Q", title="images on its map", format=","),
        alt.Tooltip("removed:Q", title="of all images", format=".2%"),
        alt.Tooltip("shared:Q", title=names[1], format=".2%"),
        alt.Tooltip("by_chance:Q", title=names[2], format=".2%"),
        alt.Tooltip("in_all:Q", title="removed so far", format=".2%"),
        alt.Tooltip("overlap:Q", title="the first round's part of that", format=".1%"),
        alt.Tooltip("network_accuracy:Q", title="the network's test accuracy", format=".1%"),
    ]
    chosen = alt.selection_point(fields=["what"], bind="legend")
    colour = alt.Color("what:N", title=None, legend=ABOVE, sort=names).scale(
        domain=names, range=[COLOURS[1], COLOURS[0], REPORTED]
    )
    parts = [base.transform_calculate(what=f"'{name}'").encode(color=colour, opacity=picked(chosen)) for name in names]
    return alt.layer(
        parts[0].mark_bar(height={"band": 0.6}).encode(x=x, tooltip=tooltip).add_params(chosen),
        parts[1].mark_bar(height={"band": 0.6}).encode(x=alt.X("shared:Q", title=""), tooltip=tooltip),
        parts[2].mark_tick(thickness=3).encode(x=alt.X("by_chance:Q", title="")),
    ).properties(width=480, height=40 * len(table) + 20, title=titled(title))


def noise_costs(table: pd.DataFrame, title: str = "") -> alt.Chart:
    """Draw what a mask costs by method, a bar of its parts.

    ``table`` has method, part, seconds, total.
    """
    order, parts = list(dict.fromkeys(table["method"])), list(dict.fromkeys(table["part"]))
    chosen = alt.selection_point(fields=["part"], bind="legend")
    colour = alt.Color("part:N", title="part (click)", legend=ABOVE, sort=parts).scale(
        domain=parts, range=COLOURS[: len(parts)]
    )
    bars = alt.Chart(table.assign(rank=table["part"].map(parts.index))).mark_bar(height={"band": 0.6}).encode(
        x=alt.X("seconds:Q", title="seconds for one mask"),
        y=alt.Y("method:N", title=None, sort=order),
        color=colour,
        order=alt.Order("rank:Q"),
        opacity=picked(chosen),
        tooltip=[
            alt.Tooltip("method:N"),
            alt.Tooltip("part:N"),
            alt.Tooltip("seconds:Q", format=",.3~f"),
            alt.Tooltip("total:Q", title="all parts, s", format=",.3~f"),
        ],
    )  # fmt: skip
    return bars.add_params(chosen).properties(width=480, height=32 * len(order) + 20, title=titled(title))
