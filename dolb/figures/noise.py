"""Figures of maps and noise: the map, how much on it is noise and what that depends on, and how stable it is."""

from collections.abc import Mapping, Sequence

import altair as alt
import pandas as pd

from dolb.figures import style
from dolb.figures.style import COLOURS, REPORTED, Panel, by_depth, coloured, dots, hover, layered

CLASSES = [
    "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#7f5f3f", "#999999", "#B2DF8A", "#6A3D9A",
]  # fmt: skip
_NO_AXIS = alt.Axis(labels=False, ticks=False, grid=False, domain=False, title=None)
_SHARE = alt.X("removed:Q", title="share called noise").axis(format=".0%", tickCount=6)


def maps(points: pd.DataFrame, classes: Sequence[str]) -> alt.Chart:
    """Draw the map of one extractor to zoom, a point per image by class; extractor and set are chosen below it.

    ``points`` has example, set, class, and for each extractor its places ``EXTRACTOR x`` and ``EXTRACTOR y``.
    """
    extractors = [name.removesuffix(" x") for name in points.columns if name.endswith(" x")]
    sets = list(dict.fromkeys(points["set"]))
    network = style.choice("network", "network", extractors, extractors[-1], menu=True)
    shown = style.choice("shown", "images of the", sets, sets[-1])
    return (
        alt.Chart(points.round(1))
        .transform_filter("datum.set === shown")
        .transform_calculate(x="datum[network + ' x']", y="datum[network + ' y']")
        .mark_circle(size=22, opacity=0.75)
        .encode(
            x=alt.X("x:Q", axis=_NO_AXIS).scale(zero=False),
            y=alt.Y("y:Q", axis=_NO_AXIS).scale(zero=False),
            color=coloured("class:N", classes, CLASSES * len(classes)),
            tooltip=hover("class", "example"),
        )
        .properties(width="container", height=460)
        .add_params(network, shown, alt.selection_interval(bind="scales"))
    )


def noise_by_map(table: pd.DataFrame, reported: float | None = None) -> Panel:
    """Draw the share that is noise at one radius by how the map is made of the same features, and the reported share.

    ``table`` has map, extractor, test_accuracy, removed.
    """
    order = list(table.groupby("map")["removed"].max().sort_values().index)
    named = table.assign(network=[f"test accuracy {share:.0%}" for share in table["test_accuracy"]])
    networks = list(dict.fromkeys(named["network"]))
    points = alt.Chart(named).encode(
        x=_SHARE,
        y=alt.Y("map:N", title=None, sort=order).axis(labelLimit=230),
        color=coloured("network:N", networks),
        tooltip=hover("map", "network", removed="noise:.2%"),
    )
    line = _named_line("removed", reported, f"reported {reported:.2%}") if reported is not None else []
    return layered(34 * len(order) + 20, "", dots(points, size=120), *line)


def _named_line(field: str, value: float, name: str) -> list[alt.Chart]:
    """Draw a value of the horizontal axis as a line across, with its name."""
    base = alt.Chart(pd.DataFrame({field: [value], "name": [name]})).encode(x=f"{field}:Q")
    text = base.mark_text(align="left", dx=5, baseline="top", fontSize=12, color=REPORTED)
    return [
        base.mark_rule(color=REPORTED, strokeDash=[4, 3], strokeWidth=2),
        text.encode(text="name:N", y=alt.value(2)),
    ]


def noise_by_extractor(removed: pd.DataFrame, reported: Mapping[str, float]) -> Panel:
    """Draw the share that is noise by extractor and by how its maps were made, mean and range, beside the reported one.

    ``removed`` has made, extractor, removed, least, most, n; ``reported`` percent by extractor.
    """
    order, made = by_depth(removed["extractor"]), list(removed["made"].unique())
    said = pd.DataFrame({"extractor": reported.keys(), "removed": reported.values(), "made": "reported"})
    names, colours = (["reported", *made], [REPORTED, *COLOURS]) if reported else (made, COLOURS)
    colour = coloured("made:N", names, colours)
    y = alt.Y("extractor:N", title=None, sort=order)
    base = alt.Chart(removed).encode(y=y, color=colour)
    told = hover("extractor", "made", removed="removed:.2%", least="least:.2%", most="most:.2%", n="n")
    diamonds = alt.Chart(said.assign(removed=said["removed"] / 100)).mark_point(shape="diamond", filled=True, size=140)
    return layered(
        34 * len(order) + 20,
        "",
        base.mark_rule(strokeWidth=5, strokeOpacity=0.35).encode(x="least:Q", x2="most:Q"),
        dots(base, _SHARE, size=90, tooltip=told),
        diamonds.encode(_SHARE, y, color=colour, tooltip=hover("extractor", removed="reported:.2%")),
    )


def noise_by_eps(curve: pd.DataFrame, default: float = 0.5, reported: float | None = None) -> Panel:
    """Draw the share that is noise by DBSCAN's eps, a line per extractor, with the library's default marked.

    ``curve`` has extractor, eps, removed.
    """
    names = by_depth(curve["extractor"])
    lines = alt.Chart(curve).mark_line(strokeWidth=2).encode(
        x=alt.X("eps:Q", title="radius eps, in units of the map").scale(type="log", nice=False).axis(
            format="~g", grid=False, tickCount=6
        ),
        y=alt.Y("removed:Q", title="share called noise").axis(format=".0%"),
        color=coloured("extractor:N", names, COLOURS * len(names)),
        tooltip=hover("extractor", eps="eps:.2f", removed="removed:.2%"),
    )  # fmt: skip
    layers = [lines, *_named_line("eps", default, f"default, {default:g}")]
    if reported is not None:
        said = alt.Chart(pd.DataFrame({"removed": [reported], "name": [f"reported {reported:.2%}"]}))
        name = said.mark_text(align="right", dy=-8, fontSize=12, color=REPORTED).encode(
            x=alt.value("width"), text="name:N"
        )
        layers += [each.encode(y="removed:Q") for each in (said.mark_rule(color=REPORTED, strokeDash=[2, 2]), name)]
    return layered(280, "", *layers, click="extractor")


def noise_stability(stability: pd.DataFrame) -> Panel:
    """Draw how far two noise sets agree, by what their maps differ in, beside random sets.

    ``stability`` has differs, overlap, least, most, by_chance, pairs, networks.
    """
    order = list(stability["differs"])
    x = alt.X("overlap:Q", title="images in both over images in either").scale(domain=[0, 1])
    base = alt.Chart(stability).encode(y=alt.Y("differs:N", title=None, sort=order).axis(labelLimit=160))
    told = hover(differs="the other is by", overlap="overlap:.2f", least="least:.2f", most="most:.2f")
    told += hover(by_chance="random sets:.3f", pairs="pairs of maps")
    return layered(
        38 * len(order) + 20,
        "",
        base.mark_tick(thickness=3, color=REPORTED).encode(x="by_chance:Q"),
        base.mark_rule(strokeWidth=5, strokeOpacity=0.35, color=COLOURS[0]).encode(x="least:Q", x2="most:Q"),
        base.mark_point(filled=True, size=100, color=COLOURS[0]).encode(x, tooltip=told),
    )
