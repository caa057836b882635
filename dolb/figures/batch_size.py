"""Figures of the batch-size study: the curves, their optima, what they cost, and what batch norm does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from dolb.figures.style import (
    ABOVE,
    COLOURS,
    PERCENT,
    REPORTED,
    Panel,
    accuracy_tooltip,
    batch_size_axis,
    by_depth,
    network_colour,
    picked,
    rate_colour,
    titled,
)

COLUMNS = 2  # panels side by side, as many as a page of the book is wide
# Where the best size lies, by whether its interval is open below and above.
OPTIMA = {
    (False, False): "inside what was run",
    (True, False): "maybe below it",
    (False, True): "maybe above it",
    (True, True): "anywhere",
}
SHAPES = dict(zip(OPTIMA.values(), ("circle", "triangle-down", "triangle-up", "diamond"), strict=True))


def accuracy_by_batch_size(
    cells: pd.DataFrame,
    reported: Sequence[Mapping[str, Any]] = (),
    panel: str = "arch",
    title: str = "",
    said: Sequence[str] = (),
    columns: int = COLUMNS,
) -> alt.FacetChart:
    """Draw accuracy against batch size, with intervals: a panel per network and a line per rate, or the other way.

    ``cells`` has arch, lr, batch_size, accuracy, low, high, n, interval, diverged, which make a cross of a point, and
    late_drops, which put a ring around it; ``panel`` is ``arch`` or ``lr``; ``reported`` the paper's own numbers as
    arch, batch_size, accuracy, what, for panels of networks; ``said`` what it says in words.
    """
    if panel not in ("arch", "lr"):
        raise ValueError(f"panel {panel!r} is not known; accepted: arch, lr")
    line = "lr" if panel == "arch" else "arch"
    selection = alt.selection_point(fields=[line], bind="legend")
    rates, archs = sorted(cells["lr"].unique()), by_depth(cells["arch"])
    x = batch_size_axis(cells["batch_size"])
    y = alt.Y("accuracy:Q", title="test accuracy", axis=PERCENT).scale(zero=False, nice=True)
    # One table, because a chart in panels has one: reported values are the rows with a text in `what`.
    table = pd.concat([cells.assign(what=""), pd.DataFrame(list(reported)).assign(lr=rates[0])], ignore_index=True)
    if panel == "lr":
        table = table.assign(panel="rate " + table["lr"].map("{:g}".format))
        order = [f"rate {rate:g}" for rate in rates]
    else:
        table, order = table.assign(panel=table["arch"]), archs
    chart = alt.Chart(table)
    ours = chart.transform_filter("datum.what === ''").encode(
        x=x,
        color=rate_colour(cells["lr"]) if line == "lr" else network_colour(cells["arch"]),
        opacity=picked(selection),
    )
    theirs = [
        alt.Tooltip("what:N", title="reported"),
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("accuracy:Q", title="test accuracy", format=".1%"),
    ]
    layers = [
        ours.mark_line(strokeWidth=2).encode(y=y).add_params(selection),
        ours.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q", title="test accuracy"), y2="high:Q"),
        ours.transform_filter("datum.diverged === 0")
        .mark_point(filled=True, size=45)
        .encode(y=y, tooltip=accuracy_tooltip()),
        ours.transform_filter("datum.diverged > 0")
        .mark_point(shape="cross", angle=45, size=110)
        .encode(y=y, tooltip=accuracy_tooltip()),
        # The ring lies over the point, so it has to answer the pointer as well.
        ours.transform_filter("datum.late_drops > 0")
        .mark_point(size=170, filled=False)
        .encode(y=y, tooltip=accuracy_tooltip()),
    ]
    if reported:
        diamonds = chart.transform_filter("datum.what !== ''").mark_point(
            shape="diamond", size=110, color=REPORTED, strokeWidth=2
        )
        layers.append(diamonds.encode(x=x, y=y, tooltip=theirs))
    facet = alt.Facet("panel:N", title=None, sort=order).header(labelFontSize=12, labelFontWeight="bold")
    drawn = alt.layer(*layers).properties(width=420 if len(order) == 1 else 256, height=260)
    panels = drawn.facet(facet=facet, columns=columns).properties(title=titled(title, said))
    # An axis under every panel: with one for all, it stands far below a panel whose column ends early.
    return panels.resolve_axis(x="independent")


def preferred_batch_size(preferred: pd.DataFrame, title: str = "", said: Sequence[str] = ()) -> Panel:
    """Draw the batch size of the highest accuracy by learning rate, with its interval: a line per network.

    ``preferred`` has arch, lr, batch_size, smallest, largest, open_below, open_above, accuracy, measured_from,
    measured_to, fewest_seeds, most_seeds. An interval that is open, for it reaches an end of what was run, has a
    triangle that points there instead of a point. Networks are drawn a little beside one another, so that intervals
    at one rate can be told apart.
    """
    ends = zip(preferred["open_below"], preferred["open_above"], strict=True)
    table = preferred.assign(optimum=[OPTIMA[bool(below), bool(above)] for below, above in ends])
    base, network, width = _by_rate(table)
    sizes = sorted({*preferred["smallest"], *preferred["largest"], *preferred["batch_size"]})
    y = alt.Y("batch_size:Q", title="preferred batch size").scale(type="log", base=2, padding=12).axis(
        values=sizes, format="d", grid=True, gridOpacity=0.4
    )  # fmt: skip
    tooltip = [
        alt.Tooltip("arch:N", title="network"),
        alt.Tooltip("lr:Q", title="learning rate"),
        alt.Tooltip("batch_size:Q", title="preferred batch size", format=","),
        alt.Tooltip("smallest:Q", title="interval from", format=","),
        alt.Tooltip("largest:Q", title="interval to", format=","),
        alt.Tooltip("optimum:N", title="the best size lies"),
        alt.Tooltip("accuracy:Q", title="accuracy there", format=".2%"),
        alt.Tooltip("fewest_seeds:Q", title="seeds of a cell, fewest"),
        alt.Tooltip("most_seeds:Q", title="seeds of a cell, most"),
        alt.Tooltip("measured_from:Q", title="smallest measured", format=","),
        alt.Tooltip("measured_to:Q", title="largest measured", format=","),
    ]
    kinds = [kind for kind in OPTIMA.values() if kind in set(table["optimum"])]
    shape = alt.Shape("optimum:N", title="the best size lies", legend=alt.Legend(orient="bottom"), sort=kinds).scale(
        domain=kinds, range=[SHAPES[kind] for kind in kinds]
    )
    bars = base.mark_rule(strokeWidth=5, strokeOpacity=0.35, strokeCap="round")
    return alt.layer(
        base.mark_line(strokeWidth=1.5, strokeDash=[4, 3]).encode(y=y).add_params(network),
        bars.encode(y=alt.Y("smallest:Q"), y2="largest:Q"),
        base.mark_point(filled=True, size=80).encode(y=y, shape=shape, tooltip=tooltip),
    ).properties(width=width, height=260, title=titled(title, said))


def suddenness_by_rate(falls: pd.DataFrame, title: str = "", said: Sequence[str] = ()) -> Panel:
    """Draw how suddenly accuracy falls past the optimum, by learning rate, with intervals: a point per network.

    ``falls`` has arch, lr, suddenness, low, high, fall, batch_size, steepest.
    """
    table = falls[["arch", "lr", "suddenness", "low", "high", "fall", "batch_size", "steepest"]]
    base, network, width = _by_rate(table)
    y = alt.Y("suddenness:Q", title="suddenness: 0 a slope, 1 a cliff").scale(domain=[0, 1])
    tooltip = [
        alt.Tooltip("arch:N", title="network"),
        alt.Tooltip("lr:Q", title="learning rate"),
        alt.Tooltip("suddenness:Q", format=".2f"),
        alt.Tooltip("low:Q", title="interval from", format=".2f"),
        alt.Tooltip("high:Q", title="interval to", format=".2f"),
        alt.Tooltip("steepest:Q", title="steepest from batch", format=",.0f"),
        alt.Tooltip("fall:Q", title="accuracy lost in all", format=".1%"),
        alt.Tooltip("batch_size:Q", title="since batch", format=","),
    ]
    return alt.layer(
        base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q"), y2="high:Q").add_params(network),
        base.mark_point(filled=True, size=70).encode(y=y, tooltip=tooltip),
    ).properties(width=width, height=220, title=titled(title, said))


def _by_rate(table: pd.DataFrame) -> tuple[alt.Chart, alt.Parameter, int]:
    """Return a chart by learning rate with networks beside one another, what picks a network, and a width for it."""
    rates, archs = sorted(table["lr"].unique()), by_depth(table["arch"])
    network = alt.selection_point(fields=["arch"], bind="legend")
    base = alt.Chart(table).encode(
        x=alt.X("lr:O", title="learning rate", sort=rates).axis(format="~g", labelAngle=0, grid=False),
        xOffset=alt.XOffset("arch:N", sort=archs).scale(paddingOuter=0.6),
        color=network_colour(archs),
        opacity=picked(network),
    )
    return base, network, min(480, len(rates) * (44 + 18 * len(archs)))  # a column of the page is no wider


def batch_size_study(
    cells: pd.DataFrame, preferred: pd.DataFrame, reported: Sequence[Mapping[str, Any]] = (), title: str = ""
) -> alt.HConcatChart | alt.VConcatChart:
    """Draw accuracy against batch size, a panel per network, with the preferred batch size by rate beside or below."""
    curves, optima = accuracy_by_batch_size(cells, reported, columns=3), preferred_batch_size(preferred)
    join = alt.hconcat if len(set(cells["arch"])) == 1 else alt.vconcat
    return join(curves, optima, spacing=30, title=title).resolve_scale(color="independent", opacity="independent")


def accuracy_by_progress(table: pd.DataFrame, title: str = "") -> alt.HConcatChart:
    """Draw the accuracy of runs as they go on, against updates made and device time spent: a line per batch size.

    ``table`` has arch, lr, batch_size, epoch, accuracy, n, updates, seconds and ``last``, which marks the end of a run.
    One network at one rate is drawn at a time, chosen under the chart.
    """
    named = table.assign(curve=table["arch"] + ", rate " + table["lr"].map("{:g}".format))
    curves = [curve for arch in by_depth(table["arch"]) for curve in _in_order(named[named["arch"] == arch])]
    first = curves[len(set(named.loc[named["arch"] == by_depth(table["arch"])[0], "curve"])) // 2]
    chosen = alt.param(name="curve", value=first, bind=alt.binding_select(options=curves, name="network and rate "))
    sizes = sorted(table["batch_size"].unique().tolist())
    size = alt.selection_point(fields=["batch_size"], bind="legend")
    legend = alt.Legend(orient="bottom", direction="horizontal", titleOrient="left", columns=6)
    base = alt.Chart(named.drop(columns=["arch", "lr"])).transform_filter("datum.curve === curve").encode(
        y=alt.Y("accuracy:Q", title="test accuracy", axis=PERCENT).scale(zero=False),
        color=alt.Color("batch_size:O", title="batch size (click)", sort=sizes, legend=legend).scale(
            scheme="viridis", reverse=True
        ),
        opacity=picked(size),
        order="epoch:Q",
    )  # fmt: skip
    tooltip = [
        alt.Tooltip("curve:N", title="network"),
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("epoch:Q", title="after epoch"),
        alt.Tooltip("accuracy:Q", title="test accuracy", format=".1%"),
        alt.Tooltip("updates:Q", title="updates so far", format=",.0f"),
        alt.Tooltip("seconds:Q", title="device seconds so far", format=",.2f"),
        alt.Tooltip("n:Q", title="seeds"),
    ]
    panels: list[Panel] = []
    for column, label in (("updates", "updates so far"), ("seconds", "device seconds so far")):
        x = alt.X(f"{column}:Q", title=label).scale(type="log", nice=False).axis(format="~s", grid=False, tickCount=5)
        lines = base.mark_line(strokeWidth=1.5).encode(x=x)
        points = base.mark_point(filled=True).encode(
            x=x, tooltip=tooltip, size=alt.condition("datum.last", alt.value(60), alt.value(12))
        )
        # One selection and one choice, which both panels follow.
        panels.append(
            alt.layer(lines if panels else lines.add_params(size, chosen), points).properties(width=236, height=300)
        )
    return alt.hconcat(*panels, title=titled(title))


def _in_order(table: pd.DataFrame) -> list[str]:
    """Return the curves of one network, from the lowest rate to the highest."""
    return table.sort_values("lr")["curve"].drop_duplicates().tolist()


def accuracy_by_share(cells: pd.DataFrame, title: str = "", said: Sequence[str] = ()) -> Panel:
    """Draw accuracy against the examples under one batch-norm statistic: shares of one batch, and whole batches.

    ``cells`` has change, arch, lr, batch_size, share, accuracy, low, high, n, interval, diverged. A cross is a cell of
    which a run diverged.
    """
    change = alt.selection_point(fields=["change"], bind="legend")
    changes = sorted(cells["change"].unique())
    x = batch_size_axis(cells["share"], "share").title("examples under one batch-norm statistic")
    y = alt.Y("accuracy:Q", title="test accuracy", axis=PERCENT).scale(zero=False)
    colour = alt.Color("change:N", title="what is made smaller (click)", legend=ABOVE).scale(
        domain=changes, range=[COLOURS[0], COLOURS[4]][: len(changes)]
    )
    base = alt.Chart(cells).encode(x=x, color=colour, opacity=picked(change))
    tooltip = [
        alt.Tooltip("change:N", title="made smaller"),
        alt.Tooltip("share:Q", title="examples under one statistic"),
        *accuracy_tooltip(),
    ]
    return alt.layer(
        base.mark_line().encode(y=y).add_params(change),
        base.mark_rule().encode(y=alt.Y("low:Q", title="test accuracy"), y2="high:Q"),
        base.transform_filter("datum.diverged === 0").mark_point(filled=True, size=70).encode(y=y, tooltip=tooltip),
        base.transform_filter("datum.diverged > 0")
        .mark_point(shape="cross", angle=45, size=110)
        .encode(y=y, tooltip=[*tooltip, alt.Tooltip("diverged:Q", title="runs that diverged")]),
    ).properties(width=480, height=280, title=titled(title, said))


def accuracy_by_workers(cells: pd.DataFrame, title: str = "") -> alt.HConcatChart:
    """Draw accuracy by batch size with one worker's batch-norm statistics and eight workers', and the difference.

    ``cells`` has arch, lr, batch_size, bn_workers, accuracy, low, high, and on the rows of the eight effect,
    effect_low, effect_high.
    """
    workers = alt.selection_point(fields=["bn_workers"], bind="legend")
    x = batch_size_axis(cells["batch_size"])
    colour = alt.Color("bn_workers:O", title="workers that share the batch (click)", legend=ABOVE).scale(
        range=[COLOURS[0], COLOURS[4]]
    )
    base = alt.Chart(cells).encode(x=x, color=colour, opacity=picked(workers))
    y = alt.Y("accuracy:Q", title="test accuracy", axis=PERCENT).scale(zero=False)
    tooltip = [alt.Tooltip("bn_workers:Q", title="workers"), *accuracy_tooltip()]
    left = alt.layer(
        base.mark_line().encode(y=y).add_params(workers),
        base.mark_rule().encode(y=alt.Y("low:Q", title="test accuracy"), y2="high:Q"),
        base.mark_point(filled=True, size=55).encode(y=y, tooltip=tooltip),
    ).properties(width=226, height=260)
    differences = alt.Chart(cells).transform_filter("isValid(datum.effect)").encode(x=x)
    # A difference of shares is told in points: a percentage would be read as one of the accuracy.
    points = {f"{name}_points": f"100 * datum.{name}" for name in ("effect", "effect_low", "effect_high")}
    differences = differences.transform_calculate(**points)
    change = alt.Y("effect_points:Q", title="change with eight workers, points of accuracy").axis(format="+.1f")
    about = [
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("effect_points:Q", title="change, points", format="+.2f"),
        alt.Tooltip("effect_low_points:Q", title="interval from", format="+.2f"),
        alt.Tooltip("effect_high_points:Q", title="interval to", format="+.2f"),
    ]
    right = alt.layer(
        alt.Chart(pd.DataFrame({"none": [0.0]})).mark_rule(color=REPORTED, strokeDash=[4, 3]).encode(y="none:Q"),
        differences.mark_rule(strokeWidth=1.5).encode(y=alt.Y("effect_low_points:Q"), y2="effect_high_points:Q"),
        differences.mark_point(filled=True, size=55, color="#000000").encode(y=change, tooltip=about),
    ).properties(width=226, height=260)
    return alt.hconcat(left, right, spacing=30, title=titled(title))
