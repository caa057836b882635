"""Figures of what runs cost: which batch size a time limit allows, and the device time of a grid."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from dolb.figures.style import (
    COLOURS,
    PERCENT,
    REPORTED,
    Panel,
    accuracy_tooltip,
    batch_size_axis,
    by_depth,
    network_colour,
    picked,
    titled,
)

ANY = "any"
ALONE, MANY_RUNS = "one run alone", "many runs, by its part"
STATES = ["recommended", "best for its time", "within the limit", "over the limit"]


def recommendation(cells: pd.DataFrame, title: str = "", at_chance: float = 0.0) -> Panel:
    """Draw accuracy against device time, and mark the batch size to take; everything is computed in the reader's page.

    ``cells`` has arch, lr, batch_size, accuracy, low, high, n, interval, run_seconds, alone_seconds, priced_by. Under
    the chart the reader chooses whether a run has the device alone or shares it with many, a network, a rate or any,
    and a time limit: a slider that goes, on a logarithmic scale, from the network's fastest run to its slowest.
    Recommended is the highest accuracy within the limit, and a second line names
    the fastest cell whose interval reaches it, if that is another one; best for its time is a cell that no faster one
    equals. A recommended accuracy of ``at_chance`` or less is said to be near chance, and a rate at which the network
    was not run is said not to have been.
    """
    archs, rates = by_depth(cells["arch"]), sorted(cells["lr"].unique())
    of_network = cells.groupby("arch")["lr"].unique().map(lambda own: ", ".join(f"{rate:g}" for rate in sorted(own)))
    # Of another name than what is computed from it: Vega computes in place, and again at every change.
    cells = cells.assign(rates=cells["arch"].map(of_network)).rename(columns={"run_seconds": "shared_seconds"})
    mode = alt.param(
        name="mode", value=ALONE, bind=alt.binding_select(options=[ALONE, MANY_RUNS], name="the device has ")
    )
    network = alt.param(name="network", value=archs[0], bind=alt.binding_select(options=archs, name="network "))
    rate = alt.param(name="rate", value=ANY, bind=alt.binding_select(options=[ANY, *rates], name="learning rate "))
    slider = alt.binding_range(
        min=0, max=100, step=1, name="time limit, from the fastest run (0) to the slowest (100) "
    )
    limit = alt.param(name="limit", value=50, bind=slider)
    state = alt.selection_point(fields=["state"], bind="legend")
    asked = (
        alt.Chart(cells)
        .transform_filter("datum.arch === network")
        .transform_calculate(run_seconds=f"mode === '{ALONE}' ? datum.alone_seconds : datum.shared_seconds")
        .transform_filter("isValid(datum.run_seconds)")
        .transform_joinaggregate(fastest="min(run_seconds)", slowest="max(run_seconds)")
        .transform_filter(f"rate === '{ANY}' || datum.lr === rate")
        .transform_calculate(limit_seconds="datum.fastest * pow(datum.slowest / datum.fastest, limit / 100)")
        # A hair of room, so that the slowest run is within a limit that was computed to be its time.
        .transform_calculate(allowed="datum.run_seconds <= datum.limit_seconds * 1.000001")
        .transform_calculate(reachable="datum.allowed ? datum.accuracy : 0")
        .transform_joinaggregate(best="max(reachable)")
        .transform_window(
            so_far="max(accuracy)",
            sort=[alt.SortField("run_seconds"), alt.SortField("accuracy", order="descending")],
            frame=[None, 0],
        )
        .transform_calculate(
            state=f"datum.allowed && datum.accuracy === datum.best ? '{STATES[0]}' : !datum.allowed ? '{STATES[3]}' : "
            f"datum.accuracy === datum.so_far ? '{STATES[1]}' : '{STATES[2]}'"
        )
    )
    x = alt.X("run_seconds:Q", title="seconds of one run").scale(type="log", nice=False, padding=24).axis(
        format="~s", grid=False
    )  # fmt: skip
    y = alt.Y("accuracy:Q", title="test accuracy", axis=PERCENT).scale(zero=False)
    # One legend for colour and size, which have to agree on it word for word.
    look: dict[str, Any] = {"title": "cells (click)", "sort": STATES}
    legend = alt.Legend(orient="bottom", titleOrient="left")
    colour = alt.Color("state:O", legend=legend, **look).scale(
        domain=STATES, range=[COLOURS[4], COLOURS[0], COLOURS[1], "#c8c8c8"]
    )
    size = alt.Size("state:O", legend=legend, **look).scale(domain=STATES, range=[170, 70, 45, 35])
    tooltip = [*accuracy_tooltip("run_seconds"), alt.Tooltip("priced_by:N", title="priced by")]
    chosen = asked.transform_filter(f"datum.state === '{STATES[0]}'")
    cell = "format(datum.batch_size, ',') + ' at rate ' + datum.lr + ': ' + format(datum.accuracy, '.1%')"
    time = f"' in ' + format(datum.run_seconds, '.1f') + ' s' + (mode === '{ALONE}' ? ' alone' : ' of the device')"
    interval = "' (' + format(datum.low, '.1%') + ' to ' + format(datum.high, '.1%') + ')'"
    sentence = f"'Batch ' + {cell} + {time} + (datum.accuracy <= {at_chance} ? ', near chance' : '')"
    as_good = (  # the recommended cell is among these, and the first of them unless another is faster
        asked.transform_filter("datum.allowed && datum.high >= datum.best")
        .transform_window(
            place="row_number()",
            sort=[alt.SortField("run_seconds"), alt.SortField("accuracy", order="descending")],
        )
        .transform_filter("datum.place === 1 && datum.accuracy < datum.best")
        .transform_calculate(words=f"'Not told apart, and faster: batch ' + {cell} + {interval} + {time}")
    )
    one = asked.transform_aggregate(limit_seconds="max(limit_seconds)", best="max(best)")
    lacking = (
        alt.Chart(cells)
        .transform_filter("datum.arch === network")
        .transform_calculate(asked_for=f"rate === '{ANY}' || datum.lr === rate ? 1 : 0")
        .transform_aggregate(points="sum(asked_for)", groupby=["arch", "rates"])
        .transform_filter("datum.points === 0")
        .transform_calculate(words="datum.arch + ' was not run at rate ' + rate + ', only at ' + datum.rates")
    )
    above: dict[str, Any] = {"align": "left", "fontSize": 14, "fontWeight": "bold"}
    place = {"x": alt.value(6), "y": alt.value(-24)}
    return alt.layer(
        asked.mark_point(filled=True)
        .encode(x=x, y=y, color=colour, size=size, opacity=picked(state), tooltip=tooltip)
        .add_params(state, network, rate, mode, limit),
        one.mark_rule(color=REPORTED, strokeDash=[4, 3]).encode(x="limit_seconds:Q"),
        one.transform_calculate(words="'limit ' + format(datum.limit_seconds, '.1f') + ' s'")
        .mark_text(align="left", dx=5, color=REPORTED)
        .encode(x="limit_seconds:Q", y=alt.value(272), text="words:N"),
        chosen.transform_calculate(words=sentence).mark_text(color=COLOURS[4], **above).encode(text="words:N", **place),
        as_good.mark_text(align="left", fontSize=12).encode(text="words:N", x=alt.value(6), y=alt.value(-7)),
        one.transform_filter("datum.best === 0")
        .transform_calculate(words="'No batch size at this rate is that fast'")
        .mark_text(color=REPORTED, **above)
        .encode(text="words:N", **place),
        lacking.mark_text(color=REPORTED, **above).encode(text="words:N", **place),
    ).properties(width=540, height=290, title=titled(title))


def seconds_by_batch_size(times: pd.DataFrame, title: str = "") -> Panel:
    """Draw the device time of one run by batch size, a line per network.

    ``times`` has arch, batch_size, runs, run_seconds, priced_by, seconds, eager_run_seconds; a time at eager speed that
    is known is drawn as a hollow point.
    """
    network = alt.selection_point(fields=["arch"], bind="legend")
    base = alt.Chart(times).encode(
        x=batch_size_axis(times["batch_size"]), color=network_colour(times["arch"]), opacity=picked(network)
    )
    y = (
        alt.Y("run_seconds:Q", title="device seconds of one run")
        .scale(type="log", nice=False, padding=12)
        .axis(format="~s", gridOpacity=0.5)
    )
    tooltip = [
        alt.Tooltip("arch:N", title="network"),
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("run_seconds:Q", title="seconds of one run", format=",.1f"),
        alt.Tooltip("priced_by:N", title="priced by"),
        alt.Tooltip("runs:Q", title="runs"),
        alt.Tooltip("seconds:Q", title="seconds of all of them", format=",.1f"),
        alt.Tooltip("eager_run_seconds:Q", title="seconds of one at eager speed", format=",.1f"),
    ]
    return alt.layer(
        base.mark_line(strokeWidth=2).encode(y=y).add_params(network),
        base.mark_point(filled=True, size=55).encode(y=y, tooltip=tooltip),
        base.transform_filter("isValid(datum.eager_run_seconds)")
        .mark_point(filled=False, size=55)
        .encode(y="eager_run_seconds:Q", tooltip=tooltip),
    ).properties(width=540, height=290, title=titled(title))
