"""Figures on strong and weak scaling: time to a target loss, the loss on its way, and what the generator makes."""

from __future__ import annotations

import altair as alt
import pandas as pd

from dolb.figures.style import COLOURS, REPORTED, Panel, picked, titled

RULES = ("strong", "weak", "weak, linear rate", "weak, linear rate, warmup")


def _colour() -> alt.Color:
    legend = alt.Legend(orient="top", direction="horizontal", columns=2, titleOrient="top")
    range_ = [COLOURS[0], COLOURS[3], COLOURS[4], COLOURS[5]]
    return alt.Color("rule:N", title="scaling (click)", sort=list(RULES), legend=legend).scale(
        domain=list(RULES), range=range_
    )


def _radio(name: str, label: str, values: list) -> alt.Parameter:
    bind = alt.binding_radio(name=label, options=values) if len(values) > 1 else alt.Undefined
    return alt.param(name=name, value=values[0], bind=bind)


def time_to_target(cells: pd.DataFrame, title: str = "") -> Panel:
    """Draw time to the target by workers, a line per rule: full points where steps are measured, hollow simulated ones.

    ``cells`` has workload, clock, rule, workers, seconds, low, high, updates, step_seconds, source, reached, n.
    A cross at the top is a cell in which runs miss the target; grey is one worker's time over the number of workers.
    """
    load = _radio("chosen_load", "workload ", list(dict.fromkeys(cells["workload"])))
    clock = _radio("chosen_clock", "a worker is ", list(dict.fromkeys(cells["clock"])))
    alone = cells[cells["workers"] == 1].drop_duplicates(["workload", "clock"])[["workload", "clock", "seconds"]]
    counts = sorted(int(count) for count in cells["workers"].unique())
    ideal = alone.merge(pd.DataFrame({"workers": counts}), how="cross")
    ideal["seconds"] = ideal["seconds"] / ideal["workers"]
    chosen = "datum.workload == chosen_load && datum.clock == chosen_clock"
    x = alt.X("workers:Q", title="workers").scale(type="log", base=2, nice=False, padding=14).axis(
        values=counts, format="d", grid=False
    )  # fmt: skip
    y = (
        alt.Y("seconds:Q", title="seconds to the target loss")
        .scale(type="log", nice=False, padding=62)  # room for crosses
        .axis(format="~g")
    )
    picks = alt.selection_point(fields=["rule"], bind="legend")
    drawn = alt.Chart(cells).transform_filter(chosen).encode(color=_colour(), opacity=picked(picks))
    base = drawn.transform_filter("datum.reached == datum.n")
    line = base.mark_line(strokeWidth=2).encode(x=x, y=y)
    bars = base.mark_rule(strokeWidth=1.5).encode(x=x, y=alt.Y("low:Q"), y2="high:Q")
    told = {
        "tooltip": [
            alt.Tooltip("rule:N", title="scaling"), alt.Tooltip("workers:Q"),
            alt.Tooltip("batch_size:Q", title="global batch"), alt.Tooltip("updates:Q", format=",.0f"),
            alt.Tooltip("step_seconds:Q", title="seconds of a step", format=".3g"),
            alt.Tooltip("source:N", title="step"),
            alt.Tooltip("seconds:Q", title="seconds to the target", format=".3g"),
            alt.Tooltip("low:Q", title="interval from", format=".3g"),
            alt.Tooltip("high:Q", title="interval to", format=".3g"),
            alt.Tooltip("reached:Q", title="runs that reach it"), alt.Tooltip("n:Q", title="of runs"),
        ],
    }  # fmt: skip
    marks = base.transform_calculate(drawn="datum.source + ' steps'").mark_point(
        size=80, strokeWidth=2, opacity=1
    ).encode(
        x=x, y=y, **told,
        shape=alt.Shape("drawn:N", title=None, legend=alt.Legend(orient="bottom", direction="vertical")).scale(
            domain=["measured steps", "simulated steps", "misses the target"], range=["circle", "square", "cross"]
        ),
        fill=alt.condition("datum.drawn == 'measured steps'", _colour().legend(None), alt.value("transparent")),
    )  # fmt: skip
    missed = [
        drawn.transform_filter(f"datum.reached < datum.n && datum.rule == '{rule}'")
        .mark_point(size=80, shape="cross", filled=True)
        .encode(x=x, y=alt.value(10 + 14 * place), **told)
        for place, rule in enumerate(RULES)
    ]
    under = alt.Chart(ideal).transform_filter(chosen).mark_line(color=REPORTED, strokeDash=[4, 3]).encode(x=x, y=y)
    return alt.layer(under, line.add_params(picks, load, clock), bars, marks, *missed).properties(
        width="container", height=340, title=titled(title)
    )


def loss_on_the_way(curves: pd.DataFrame, title: str = "") -> Panel:
    """Draw the test loss of one seed by time or by updates, a line per rule; workload, clock and workers are chosen.

    ``curves`` has workload, clock, rule, workers, updates, seconds, loss, target_loss.
    """
    one = curves[curves["workers"] == 1]
    counts = sorted(
        {int(count) for count in curves["workers"]} - {1}, key=lambda count: abs(count - 8)
    )  # many, not all
    params = [
        _radio("along", "along ", ["updates", "seconds"]), _radio("chosen_workers", "workers ", counts or [1]),
        _radio("curve_load", "workload ", list(dict.fromkeys(curves["workload"]))),
        _radio("curve_clock", "a worker is ", list(dict.fromkeys(curves["clock"]))),
    ]  # fmt: skip
    here = "datum.workload == curve_load && datum.clock == curve_clock"
    picks = alt.selection_point(fields=["rule"], bind="legend")
    x = alt.X("along_x:Q", title="updates, or seconds").scale(type="log", nice=False).axis(format="~g")
    y = alt.Y("loss:Q", title="test loss").scale(type="log", nice=False, padding=8).axis(format="~g")

    def drawn(table: pd.DataFrame, wanted: str) -> alt.Chart:
        return alt.Chart(table).transform_filter(f"{here}{wanted}").transform_calculate(along_x="datum[along]")

    alone = drawn(one, "").mark_line(color=REPORTED, strokeWidth=3, opacity=0.5).encode(x=x, y=y)
    tooltip = [alt.Tooltip("rule:N", title="scaling"), alt.Tooltip("updates:Q", format=","),
               alt.Tooltip("seconds:Q", format=".3g"), alt.Tooltip("loss:Q", format=".4g")]  # fmt: skip
    many = drawn(curves[curves["workers"] > 1], " && datum.workers == chosen_workers").encode(x=x, y=y)
    lines = many.mark_line(strokeWidth=2, point={"size": 12}).encode(color=_colour(), opacity=picked(picks))
    to_point_at = many.mark_point(size=250, filled=True, opacity=0).encode(tooltip=tooltip)
    target = drawn(one.drop_duplicates(["workload", "clock"]), "").mark_rule(color=REPORTED, strokeDash=[4, 3]).encode(
        y=alt.Y("target_loss:Q")
    )  # fmt: skip
    return alt.layer(target, alone, lines.add_params(picks, *params), to_point_at).properties(
        width="container", height=320, title=titled(title)
    )


def made_volumes(pictures: pd.DataFrame, title: str = "") -> Panel:
    """Draw, under the name of each run, test volumes and below them what its network makes of them.

    ``pictures`` has label, loss, and picture, a PNG in base64.
    """
    rows = pictures.assign(url="data:image/png;base64," + pictures["picture"])
    y = alt.Y("label:N", title=None, sort=list(rows["label"])).axis(None)
    base = alt.Chart(rows).encode(y=y)
    images = base.mark_image(width=330, height=110, align="left").encode(url="url:N", x=alt.value(0))
    names = base.mark_text(align="left", baseline="bottom", dy=-60).encode(text="label:N", x=alt.value(0))
    tooltip = [alt.Tooltip("label:N", title="run"), alt.Tooltip("loss:Q", title="test loss", format=".4f")]
    frames = base.mark_rect(fillOpacity=0).encode(x=alt.value(0), x2=alt.value(330), tooltip=tooltip)
    drawn = alt.layer(images, names, frames).configure_view(stroke=None)
    return drawn.properties(width="container", height={"step": 150}, title=titled(title))
