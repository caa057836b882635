"""Figures of the batch-size study: curves, their optima, equal updates, batch norm, and which batch size to take."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from dolb.figures import style
from dolb.figures.style import ACCURACY, COLOURS, REPORTED, Panel, accuracy_tooltip, bars, dots, hover, layered

# Where the best size lies, by whether its interval is open below and above.
OPTIMA = {
    (False, False): "inside what was run",
    (True, False): "maybe below it",
    (False, True): "maybe above it",
    (True, True): "anywhere",
}
SHAPES = dict(zip(OPTIMA.values(), ("circle", "triangle-down", "triangle-up", "diamond"), strict=True))
ANY = "any"
STATES = ["recommended", "best for its time", "within the limit", "over the limit"]


def accuracy_by_batch_size(
    cells: pd.DataFrame, reported: Sequence[Mapping[str, Any]] = (), title: str = "", columns: int = 2
) -> alt.FacetChart:
    """Draw accuracy against batch size, with intervals: a panel per network and a line per rate.

    ``cells`` has arch, lr, batch_size, accuracy, low, high, n, diverged, which makes a cross of a point, and
    late_drops, which puts a ring around it; ``reported`` the paper's own numbers as arch, batch_size, accuracy, what.
    """
    x = style.batch_size_axis(cells["batch_size"])
    # One table, because a chart in panels has one: reported values are the rows with a text in `what`.
    theirs = pd.DataFrame(list(reported)).assign(lr=cells["lr"].min())
    chart = alt.Chart(pd.concat([cells.assign(what=""), theirs], ignore_index=True))
    ours = chart.transform_filter("datum.what === ''").encode(
        x=x,
        color=style.coloured("lr:O", sorted(set(cells["lr"])), title="learning rate (click)"),
    )
    rings = ours.transform_filter("datum.late_drops > 0").mark_point(size=170, filled=False)
    diamonds = chart.transform_filter("datum.what !== ''").mark_point(
        shape="diamond", size=110, color=REPORTED, strokeWidth=2
    )
    layers = [
        ours.mark_line(strokeWidth=2).encode(ACCURACY),
        bars(ours),
        *_points(ours, accuracy_tooltip(), size=45),
        rings.encode(ACCURACY, tooltip=accuracy_tooltip()),  # they lie over points, so they have to answer the pointer
        diamonds.encode(x, ACCURACY, tooltip=hover(what="reported") + hover("batch_size", "accuracy")),
    ]
    facet = alt.Facet("arch:N", title=None, sort=style.by_depth(cells["arch"])).header(labelFontWeight="bold")
    panels = (
        alt.layer(*style.clickable(layers, "lr"))
        .properties(width=298, height=200)
        .facet(facet=facet, columns=columns, title=title)
    )
    # Axes at every panel: one for all stands far below a panel whose column ends early, and phones have one column.
    return panels.resolve_axis(x="independent", y="independent")


def _points(base: alt.Chart, tooltip: list[alt.Tooltip], size: int) -> list[alt.Chart]:
    """Return a point for each cell, a cross where a run diverged."""
    crosses = base.transform_filter("datum.diverged > 0").mark_point(shape="cross", angle=45, size=110)
    points = dots(base.transform_filter("datum.diverged === 0"), ACCURACY, size=size, tooltip=tooltip)
    return [points, crosses.encode(ACCURACY, tooltip=tooltip)]


def preferred_batch_size(preferred: pd.DataFrame, title: str = "") -> Panel:
    """Draw the batch size of the highest accuracy by learning rate, with its interval: a line per network.

    ``preferred`` has arch, lr, batch_size, smallest, largest, open_below, open_above, accuracy. An interval that is
    open, for it reaches an end of what was run, has a triangle that points there. Networks stand beside one another.
    """
    ends = zip(preferred["open_below"], preferred["open_above"], strict=True)
    table = preferred.assign(optimum=[OPTIMA[bool(below), bool(above)] for below, above in ends])
    rates, archs = sorted(table["lr"].unique()), style.by_depth(table["arch"])
    base = alt.Chart(table).encode(
        x=alt.X("lr:O", title="learning rate", sort=rates).axis(format="~g", labelAngle=0, grid=False),
        xOffset=alt.XOffset("arch:N", sort=archs).scale(paddingOuter=0.6),
        color=style.network_colour(archs),
    )
    sizes = sorted({*table["smallest"], *table["largest"], *table["batch_size"]})
    y = alt.Y("batch_size:Q", title="best batch size").scale(type="log", base=2, padding=12).axis(
        values=sizes, format=",d", grid=True, gridOpacity=0.4, labelOverlap=True
    )  # fmt: skip
    tooltip = hover(
        "arch", "lr", batch_size="best batch size:,", smallest="interval from:,", largest="interval to:,",
        optimum="the best size lies", accuracy="accuracy there:.2%",
    )  # fmt: skip
    kinds = [kind for kind in OPTIMA.values() if kind in set(table["optimum"])]
    legend = alt.Legend(orient="bottom", symbolFillColor="black")
    shape = alt.Shape("optimum:N", title="the best size lies", legend=legend, sort=kinds).scale(
        domain=kinds, range=[SHAPES[kind] for kind in kinds]
    )
    return layered(
        280,
        title,
        base.mark_line(strokeWidth=1.5, strokeDash=[4, 3]).encode(y=y),
        base.mark_rule(strokeWidth=5, strokeOpacity=0.35, strokeCap="round").encode(y="smallest:Q", y2="largest:Q"),
        dots(base, y, size=80, shape=shape, tooltip=tooltip),
        click="arch",
    )


def accuracy_by_updates(table: pd.DataFrame, title: str = "") -> Panel:
    """Draw the accuracy of runs as they go on, against the updates made: a line per batch size.

    ``table`` has arch, lr, batch_size, epoch, accuracy, n, updates and ``last``, which marks the end of a run. One
    network at one rate is drawn at a time, chosen under the chart.
    """
    archs = style.by_depth(table["arch"])
    ordered = [table[table["arch"] == arch].sort_values("lr", kind="stable") for arch in archs]
    named = pd.concat([own.assign(curve=own["arch"] + ", rate " + own["lr"].map("{:g}".format)) for own in ordered])
    curves = named["curve"].drop_duplicates().tolist()
    chosen = style.choice("curve", "network and rate", curves, curves[ordered[0]["lr"].nunique() // 2], menu=True)
    sizes = sorted(table["batch_size"].unique().tolist())
    legend = alt.Legend(orient="bottom", direction="horizontal", titleOrient="top", columns=6)
    base = alt.Chart(named.drop(columns=["arch", "lr"]).round(4)).transform_filter("datum.curve === curve").encode(
        x=alt.X("updates:Q", title="updates so far").scale(type="log", nice=False).axis(
            format="~s", grid=False, tickCount=5
        ),
        y=ACCURACY,
        color=alt.Color("batch_size:O", title="batch size (click)", sort=sizes, legend=legend).scale(
            scheme="viridis", reverse=True
        ),
        order="epoch:Q",
    )  # fmt: skip
    tooltip = hover(curve="network") + hover(
        "batch_size", "accuracy", "n", epoch="after epoch", updates="updates so far:,.0f"
    )
    ends = alt.condition("datum.last", alt.value(60), alt.value(12))
    layers = base.mark_line(strokeWidth=1.5), base.mark_point(filled=True).encode(tooltip=tooltip, size=ends)
    return layered(300, title, *layers, click="batch_size", choices=[chosen])


def accuracy_by_share(cells: pd.DataFrame, title: str = "") -> Panel:
    """Draw accuracy against the examples under one batch-norm statistic: shares of one batch, and whole batches.

    ``cells`` has change, arch, lr, batch_size, share, accuracy, low, high, n, diverged. A cross is a cell of which a
    run diverged.
    """
    changes = sorted(cells["change"].unique())
    x = style.batch_size_axis(cells["share"], "share").title("images under one batch-norm statistic")
    colour = style.coloured("change:N", changes, [COLOURS[0], COLOURS[4]], "made smaller (click)")
    base = alt.Chart(cells).encode(x=x, color=colour)
    tooltip = hover(change="made smaller", share="images under one statistic") + accuracy_tooltip()
    layers = base.mark_line().encode(ACCURACY), bars(base), *_points(base, tooltip, size=70)
    return layered(280, title, *layers, click="change")


# Which batch size to take


def recommendation(cells: pd.DataFrame, title: str = "", at_chance: float = 0.0) -> Panel:
    """Draw accuracy against the time of a run, and mark the batch size to take; the reader's page computes it.

    ``cells`` has arch, lr, batch_size, accuracy, low, high, seconds, priced_by. Network, rate and time limit are chosen
    under the chart. Recommended is the highest accuracy within the limit, and a second line names the fastest cell
    within a point of it, if that is another one; best for its time is a cell that no faster one equals. A
    recommended accuracy of ``at_chance`` or less is said to be near chance, and a rate at which the network was not run
    is said not to have been.
    """
    archs, rates = style.by_depth(cells["arch"]), sorted(cells["lr"].unique())
    of_network = cells.groupby("arch")["lr"].unique().map(lambda own: ", ".join(f"{rate:g}" for rate in sorted(own)))
    cells = cells.assign(rates=cells["arch"].map(of_network))
    network = style.choice("network", "network", archs, menu=True)
    rate = style.choice("rate", "learning rate", [ANY, *rates], menu=True)
    slider = alt.binding_range(min=0, max=100, step=1, name="time limit, from fastest (0) to slowest (100) ")
    limit = alt.param(name="limit", value=50, bind=slider)
    of_it = alt.Chart(cells).transform_filter("datum.arch === network")
    asked = _stated(of_it.transform_joinaggregate(fastest="min(seconds)", slowest="max(seconds)"))
    x = alt.X("seconds:Q", title="seconds of one run").scale(type="log", nice=False, padding=24).axis(
        format="~s", grid=False
    )  # fmt: skip
    # One legend for colour and size, which have to agree on it word for word.
    look: dict[str, Any] = {"title": "cells (click)", "sort": STATES, "legend": alt.Legend(orient="bottom", columns=2)}
    colour = alt.Color("state:O", **look).scale(domain=STATES, range=[COLOURS[4], COLOURS[0], COLOURS[1], "#c8c8c8"])
    size = alt.Size("state:O", **look).scale(domain=STATES, range=[170, 70, 45, 35])
    tooltip = accuracy_tooltip() + hover(seconds="device seconds:,.1f", priced_by="priced by")
    cell = "format(datum.batch_size, ',') + ' at rate ' + datum.lr + ': ' + format(datum.accuracy, '.1%')"
    time = "' in ' + format(datum.seconds, '.1f') + ' s'"
    chosen = asked.transform_filter(f"datum.state === '{STATES[0]}'").transform_calculate(
        words=f"'Batch ' + {cell} + {time} + (datum.accuracy <= {at_chance} ? ', near chance' : '')"
    )
    faster = (  # the recommended cell is among these, and the first of them unless another is faster
        asked.transform_filter("datum.allowed && datum.accuracy >= datum.best - 0.01")
        .transform_window(place="row_number()", sort=_FASTEST_FIRST)
        .transform_filter("datum.place === 1 && datum.accuracy < datum.best")
        .transform_calculate(words=f"'Or, within a point: ' + {cell} + {time}")
    )
    one = asked.transform_aggregate(limit_seconds="max(limit_seconds)", best="max(best)")
    too_slow = one.transform_filter("datum.best === 0").transform_calculate(
        words="'No batch size at this rate is that fast'"
    )
    lacking = (
        of_it.transform_calculate(asked_for=f"rate === '{ANY}' || datum.lr === rate ? 1 : 0")
        .transform_aggregate(points="sum(asked_for)", groupby=["arch", "rates"])
        .transform_filter("datum.points === 0")
        .transform_calculate(words="datum.arch + ' was not run at rate ' + rate + ', only at ' + datum.rates")
    )
    limits = one.transform_calculate(words="'limit ' + format(datum.limit_seconds, '.1f') + ' s'")
    named_limit = limits.mark_text(align="right", dx=-5, color=REPORTED)
    return layered(
        290,
        title,
        asked.mark_point(filled=True).encode(x, ACCURACY, color=colour, size=size, tooltip=tooltip),
        one.mark_rule(color=REPORTED, strokeDash=[4, 3]).encode(x="limit_seconds:Q"),
        named_limit.encode(x="limit_seconds:Q", y=alt.value(280), text="words:N"),
        _above(chosen, COLOURS[4]),
        faster.mark_text(align="left").encode(text="words:N", x=alt.value(0), y=alt.value(-9)),
        _above(too_slow, REPORTED),
        _above(lacking, REPORTED),
        click="state",
        choices=[network, rate, limit],
    )


_FASTEST_FIRST: list[alt.SortField | dict[str, str]] = [
    alt.SortField("seconds"),
    alt.SortField("accuracy", order="descending"),
]


def _stated(cells: alt.Chart) -> alt.Chart:
    """Return the cells at the chosen rate with the limit in seconds and what each of them is within it."""
    recommended, best_so_far, within, over = STATES
    return (
        cells.transform_filter(f"rate === '{ANY}' || datum.lr === rate")
        .transform_calculate(limit_seconds="datum.fastest * pow(datum.slowest / datum.fastest, limit / 100)")
        # A hair of room, so that the slowest run is within a limit that was computed to be its time.
        .transform_calculate(allowed="datum.seconds <= datum.limit_seconds * 1.000001")
        .transform_calculate(reachable="datum.allowed ? datum.accuracy : 0")
        .transform_joinaggregate(best="max(reachable)")
        .transform_window(so_far="max(accuracy)", sort=_FASTEST_FIRST, frame=[None, 0])
        .transform_calculate(
            state=f"datum.allowed && datum.accuracy === datum.best ? '{recommended}' : !datum.allowed ? '{over}' : "
            f"datum.accuracy === datum.so_far ? '{best_so_far}' : '{within}'"
        )
    )


def _above(chart: alt.Chart, colour: str) -> alt.Chart:
    """Return the words of a chart as a line over it."""
    line = chart.mark_text(align="left", fontSize=14, fontWeight="bold", color=colour)
    return line.encode(text="words:N", x=alt.value(0), y=alt.value(-27))
