"""Figures of maps and noise: the map, how much on it is noise and what that depends on, and how stable it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import pandas as pd

from dolb.figures.style import COLOURS, REPORTED, Panel, by_depth, picked

CLASSES = [
    "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#7f5f3f", "#999999", "#B2DF8A", "#6A3D9A",
]  # fmt: skip
_NO_AXIS = alt.Axis(labels=False, ticks=False, grid=False, domain=False, title=None)
_SHARE = "share of training images called noise"


def maps(points: pd.DataFrame, classes: Sequence[str]) -> alt.Chart:
    """Draw the map of one extractor to zoom, a point per image by class; extractor and set are chosen below it.

    ``points`` has example, set, class, and for each extractor its places ``EXTRACTOR x`` and ``EXTRACTOR y``.
    """
    extractors = [name.removesuffix(" x") for name in points.columns if name.endswith(" x")]
    sets = list(dict.fromkeys(points["set"]))
    network = alt.param(
        name="network", value=extractors[-1], bind=alt.binding_select(options=extractors, name="network ")
    )
    shown = alt.param(name="shown", value=sets[-1], bind=alt.binding_radio(options=sets, name="images of the "))
    colour = alt.Color("class:N", title=None, legend=alt.Legend(orient="top", columns=5, symbolLimit=0)).scale(
        domain=list(classes), range=(CLASSES * len(classes))[: len(classes)]
    )
    return (
        alt.Chart(points.round(1))
        .transform_filter("datum.set === shown")
        .transform_calculate(x="datum[network + ' x']", y="datum[network + ' y']")
        .mark_circle(size=22, opacity=0.75)
        .encode(
            x=alt.X("x:Q", axis=_NO_AXIS).scale(zero=False),
            y=alt.Y("y:Q", axis=_NO_AXIS).scale(zero=False),
            color=colour,
            tooltip=[alt.Tooltip("class:N"), alt.Tooltip("example:N")],
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
    x = alt.X("removed:Q", title=_SHARE).axis(format=".0%", tickCount=6).scale(zero=True)
    y = alt.Y("map:N", title=None, sort=order).axis(labelLimit=230)
    colour = (
        alt.Color("network:N", title=None, sort=networks)
        .legend(orient="top", columns=1)
        .scale(domain=networks, range=COLOURS[: len(networks)])
    )
    tooltip = ["map:N", "network:N", alt.Tooltip("removed:Q", title="noise", format=".2%")]
    points = alt.Chart(named).mark_point(filled=True, size=120).encode(x=x, y=y, color=colour, tooltip=tooltip)
    layers: list[alt.Chart] = [points, *_rule(reported)]
    return alt.layer(*layers).properties(width="container", height=34 * len(order) + 20)


def _rule(reported: float | None) -> list[alt.Chart]:
    """Draw what the paper reports as a line across, with its name."""
    if reported is None:
        return []
    base = alt.Chart(pd.DataFrame({"removed": [reported], "what": [f"reported {reported:.2%}"]})).encode(x="removed:Q")
    name = base.mark_text(align="left", dx=5, baseline="top", fontSize=12, color=REPORTED).encode(
        text="what:N", y=alt.value(2)
    )
    return [base.mark_rule(color=REPORTED, strokeDash=[4, 3], strokeWidth=2), name]


def noise_by_extractor(removed: pd.DataFrame, reported: Mapping[str, float] | None = None) -> Panel:
    """Draw the share that is noise by extractor and by how its maps were made, mean and range, beside the reported one.

    ``removed`` has made, extractor, removed, least, most, n; ``reported`` percent by extractor.
    """
    order = by_depth(removed["extractor"])
    x = alt.X("removed:Q", title=_SHARE).axis(format=".0%", tickCount=6).scale(zero=True)
    y = alt.Y("extractor:N", title=None, sort=order)
    made = list(dict.fromkeys(removed["made"]))
    said = pd.DataFrame(
        [{"extractor": name, "removed": value / 100, "made": "reported"} for name, value in (reported or {}).items()],
        columns=["extractor", "removed", "made"],
    )
    colour = (
        alt.Color("made:N", title=None)
        .legend(orient="top", columns=2)
        .scale(
            domain=[*(["reported"] if len(said) else []), *made],
            range=[*([REPORTED] if len(said) else []), *COLOURS[: len(made)]],
        )
    )
    base = alt.Chart(removed).encode(y=y, color=colour)
    shares = (alt.Tooltip(f"{name}:Q", format=".2%") for name in ("removed", "least", "most"))
    diamonds = alt.Chart(said).mark_point(shape="diamond", filled=True, size=140).encode(
        x=x, y=y, color=colour, tooltip=["extractor:N", alt.Tooltip("removed:Q", title="reported", format=".2%")]
    )  # fmt: skip
    return alt.layer(
        base.mark_rule(strokeWidth=5, strokeOpacity=0.35).encode(x="least:Q", x2="most:Q"),
        base.mark_point(filled=True, size=90).encode(x=x, tooltip=["extractor:N", "made:N", *shares, "n:Q"]),
        diamonds,
    ).properties(width="container", height=34 * len(order) + 20)


def noise_by_eps(curve: pd.DataFrame, default: float = 0.5, reported: float | None = None) -> Panel:
    """Draw the share that is noise by DBSCAN's eps, a line per extractor, with the library's default marked.

    ``curve`` has extractor, eps, removed.
    """
    names = by_depth(curve["extractor"])
    chosen = alt.selection_point(fields=["extractor"], bind="legend")
    colour = (
        alt.Color("extractor:N", title=None, sort=names)
        .legend(orient="top", columns=3)
        .scale(domain=names, range=(COLOURS * len(names))[: len(names)])
    )
    x = alt.X("eps:Q", title="radius eps, in units of the map").scale(type="log", nice=False)
    lines = alt.Chart(curve).mark_line(strokeWidth=2).encode(
        x=x.axis(format="~g", grid=False, tickCount=6),
        y=alt.Y("removed:Q", title="share called noise").axis(format=".0%"),
        color=colour,
        opacity=picked(chosen),
        tooltip=["extractor:N", alt.Tooltip("eps:Q", format=".2f"), alt.Tooltip("removed:Q", format=".2%")],
    )  # fmt: skip
    mark = alt.Chart(pd.DataFrame({"eps": [default], "name": [f"default, {default:g}"]})).encode(x="eps:Q")
    layers = [lines.add_params(chosen), mark.mark_rule(color=REPORTED, strokeDash=[4, 3])]
    layers.append(
        mark.mark_text(align="left", dx=5, baseline="top", fontSize=12, color=REPORTED).encode(
            text="name:N", y=alt.value(2)
        )
    )
    if reported is not None:
        said = alt.Chart(pd.DataFrame({"removed": [reported], "name": [f"reported {reported:.2%}"]})).encode(
            y="removed:Q"
        )
        layers.append(said.mark_rule(color=REPORTED, strokeDash=[2, 2]))
        layers.append(
            said.mark_text(align="right", dy=-8, fontSize=12, color=REPORTED).encode(
                text="name:N", x=alt.value("width")
            )
        )
    return alt.layer(*layers).properties(width="container", height=280)


def noise_stability(stability: pd.DataFrame) -> Panel:
    """Draw how far two noise sets agree, by what their maps differ in, beside random sets.

    ``stability`` has differs, overlap, least, most, by_chance, pairs, networks.
    """
    order = list(stability["differs"])
    x = alt.X("overlap:Q", title="images in both over images in either").scale(domain=[0, 1])
    base = alt.Chart(stability).encode(y=alt.Y("differs:N", title=None, sort=order).axis(labelLimit=160))
    tooltip = [
        alt.Tooltip("differs:N", title="the other is by"),
        *(alt.Tooltip(f"{name}:Q", format=".2f") for name in ("overlap", "least", "most")),
        alt.Tooltip("by_chance:Q", title="random sets", format=".3f"),
        alt.Tooltip("pairs:Q", title="pairs of maps"),
    ]
    return alt.layer(
        base.mark_tick(thickness=3, color=REPORTED).encode(x=alt.X("by_chance:Q")),
        base.mark_rule(strokeWidth=5, strokeOpacity=0.35, color=COLOURS[0]).encode(x="least:Q", x2="most:Q"),
        base.mark_point(filled=True, size=100, color=COLOURS[0]).encode(x=x, tooltip=tooltip),
    ).properties(width="container", height=38 * len(order) + 20)
