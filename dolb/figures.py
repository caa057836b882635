"""Figures: a table in, an altair chart out; no computing, no reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

# Okabe and Ito's colours, which people with colour-blindness tell apart, in an order from cold to warm.
COLOURS = ["#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#000000"]
Panel = alt.LayerChart | alt.FacetChart

ABOVE = alt.Legend(orient="top", direction="horizontal", titleOrient="left", titleLimit=300)
REPORTED = "#6b6b6b"


def batch_size_axis(sizes: Sequence[int]) -> alt.X:
    """Return a logarithmic batch-size axis with a tick at every measured size."""
    ticks = sorted({int(size) for size in sizes})
    shown = [size for size in ticks if not any(size < other < size * 1.5 for other in ticks)]
    return alt.X("batch_size:Q", title="global batch size").scale(type="log", base=2, nice=False, padding=12).axis(
        values=shown, format="d", labelAngle=-45, grid=False
    )  # fmt: skip


def accuracy_by_batch_size(cells: pd.DataFrame, reported: Sequence[Mapping[str, Any]] = ()) -> alt.FacetChart:
    """Draw accuracy against batch size: a line per learning rate, a panel per network, intervals, reported values.

    ``cells`` has arch, lr, batch_size, accuracy, low, high, n, interval, diverged; ``reported`` the same paper's own
    numbers as arch, batch_size, accuracy, what.
    """
    selection = alt.selection_point(fields=["lr"], bind="legend")
    rates = sorted(cells["lr"].unique())
    x = batch_size_axis(cells["batch_size"].tolist())
    y = alt.Y("accuracy:Q", title="test accuracy").axis(format=".0%").scale(zero=False, nice=True)
    # One table, because a chart in panels has one: reported values are the rows with a text in `what`.
    table = pd.concat([cells.assign(what=""), pd.DataFrame(list(reported)).assign(lr=rates[0])], ignore_index=True)
    chart = alt.Chart(table)
    ours = chart.transform_filter("datum.what === ''").encode(
        x=x,
        color=alt.Color("lr:O", title="learning rate (click)", legend=ABOVE).scale(
            domain=rates, range=COLOURS[: len(rates)]
        ),
        opacity=alt.condition(selection, alt.value(1.0), alt.value(0.12)),
    )
    tooltip = [
        alt.Tooltip("arch:N", title="network"),
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("lr:Q", title="learning rate"),
        alt.Tooltip("accuracy:Q", title="test accuracy", format=".2%"),
        alt.Tooltip("low:Q", title="interval from", format=".2%"),
        alt.Tooltip("high:Q", title="interval to", format=".2%"),
        alt.Tooltip("interval:N", title="95% interval"),
        alt.Tooltip("n:Q", title="seeds"),
        alt.Tooltip("updates:Q", title="updates", format=","),
        alt.Tooltip("diverged:Q", title="diverged"),
    ]
    theirs = [
        alt.Tooltip("what:N", title="reported"),
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("accuracy:Q", title="test accuracy", format=".1%"),
    ]
    layers = alt.layer(
        ours.mark_line(strokeWidth=2).encode(y=y).add_params(selection),
        ours.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q", title="test accuracy"), y2="high:Q"),
        ours.mark_point(filled=True, size=55).encode(y=y, tooltip=tooltip),
        chart.transform_filter("datum.what !== ''")
        .mark_point(shape="diamond", size=110, color=REPORTED, strokeWidth=2)
        .encode(x=x, y=y, tooltip=theirs),
    )
    archs = list(dict.fromkeys(cells["arch"]))
    width = 340 if len(archs) == 1 else 250
    return layers.properties(width=width, height=300).facet(column=alt.Column("arch:N", title=None, sort=archs))


def preferred_batch_size(preferred: pd.DataFrame) -> Panel:
    """Draw the batch size of the highest accuracy by learning rate, and the span of sizes that may equal it.

    ``preferred`` has arch, lr, batch_size, smallest, largest, accuracy, measured_from, measured_to.
    """
    rates = sorted(preferred["lr"].unique())
    sizes = sorted({*preferred["smallest"], *preferred["largest"], *preferred["batch_size"]})
    y = alt.Y("batch_size:Q", title="preferred batch size").scale(type="log", base=2, padding=12).axis(
        values=sizes, format="d", grid=False
    )  # fmt: skip
    x = alt.X("lr:Q", title="learning rate").scale(type="log", padding=18).axis(values=rates, format="~g", grid=False)
    network = alt.selection_point(fields=["arch"], bind="legend")
    base = alt.Chart(preferred).encode(
        x=x,
        color=alt.Color("arch:N", title="network (click)", legend=ABOVE).scale(range=COLOURS),
        opacity=alt.condition(network, alt.value(1.0), alt.value(0.12)),
    )
    tooltip = [
        alt.Tooltip("arch:N", title="network"),
        alt.Tooltip("lr:Q", title="learning rate"),
        alt.Tooltip("batch_size:Q", title="preferred batch size", format=","),
        alt.Tooltip("smallest:Q", title="not told apart from", format=","),
        alt.Tooltip("largest:Q", title="not told apart to", format=","),
        alt.Tooltip("accuracy:Q", title="accuracy there", format=".2%"),
        alt.Tooltip("measured_from:Q", title="smallest measured", format=","),
        alt.Tooltip("measured_to:Q", title="largest measured", format=","),
    ]
    return alt.layer(
        base.mark_line(strokeWidth=1.5, strokeDash=[4, 3]).encode(y=y).add_params(network),
        base.mark_rule(strokeWidth=6).encode(y=alt.Y("smallest:Q"), y2="largest:Q", opacity=alt.value(0.35)),
        base.mark_point(filled=True, size=80).encode(y=y, tooltip=tooltip),
    ).properties(width=175, height=300)


def batch_size_study(
    cells: pd.DataFrame, preferred: pd.DataFrame, reported: Sequence[Mapping[str, Any]] = (), title: str = ""
) -> alt.HConcatChart:
    """Draw accuracy against batch size, and the preferred batch size by learning rate beside it."""
    left, right = accuracy_by_batch_size(cells, reported), preferred_batch_size(preferred)
    return alt.hconcat(left, right, spacing=30, title=title).resolve_scale(color="independent", opacity="independent")


def accuracy_by_cost(cells: pd.DataFrame, title: str = "") -> alt.HConcatChart:
    """Draw the accuracy of whole runs against their updates and device time: a line per rate, a point per batch size.

    ``cells`` has arch, lr, batch_size, accuracy, updates, device_seconds.
    """
    rates = sorted(cells["lr"].unique())
    selection = alt.selection_point(fields=["lr"], bind="legend")
    y = alt.Y("accuracy:Q", title="test accuracy").axis(format=".0%").scale(zero=False)
    tooltip = [
        alt.Tooltip("arch:N", title="network"),
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("lr:Q", title="learning rate"),
        alt.Tooltip("accuracy:Q", title="test accuracy", format=".2%"),
        alt.Tooltip("updates:Q", title="updates", format=","),
        alt.Tooltip("device_seconds:Q", title="device seconds", format=",.1f"),
    ]
    base = alt.Chart(cells).encode(
        y=y,
        color=alt.Color("lr:O", title="learning rate (click)", legend=ABOVE).scale(
            domain=rates, range=COLOURS[: len(rates)]
        ),
        detail="arch:N",
        order="batch_size:Q",
        opacity=alt.condition(selection, alt.value(1.0), alt.value(0.12)),
    )
    panels: list[Panel] = []
    for column, label in (("updates", "updates in the run"), ("device_seconds", "device seconds of the run")):
        x = alt.X(f"{column}:Q", title=label).scale(type="log", nice=False, padding=12).axis(format="~s", grid=False)
        lines = base.mark_line(strokeWidth=2).encode(x=x)
        points = base.mark_point(filled=True, size=55).encode(x=x, tooltip=tooltip)
        first = lines if panels else lines.add_params(selection)  # one selection, which both panels follow
        panels.append(alt.layer(first, points).properties(width=270, height=260))
    return alt.hconcat(*panels, title=title)


def accuracy_by_share(cells: pd.DataFrame, title: str = "") -> Panel:
    """Draw accuracy against the examples in one worker's share, where only the batch-norm statistics change.

    ``cells`` has arch, share, accuracy, low, high, n, interval.
    """
    network = alt.selection_point(fields=["arch"], bind="legend")
    x = alt.X("share:Q", title="examples under one batch-norm statistic").scale(type="log", base=2, padding=12).axis(
        values=sorted(cells["share"].unique()), format="d", grid=False
    )  # fmt: skip
    y = alt.Y("accuracy:Q", title="test accuracy").axis(format=".0%").scale(zero=False)
    base = alt.Chart(cells).encode(
        x=x,
        color=alt.Color("arch:N", title="network (click)", legend=ABOVE).scale(range=COLOURS),
        opacity=alt.condition(network, alt.value(1.0), alt.value(0.12)),
    )
    tooltip = [
        alt.Tooltip("share:Q", title="examples in a share"),
        alt.Tooltip("accuracy:Q", title="test accuracy", format=".2%"),
        alt.Tooltip("low:Q", title="interval from", format=".2%"),
        alt.Tooltip("high:Q", title="interval to", format=".2%"),
        alt.Tooltip("n:Q", title="seeds"),
    ]
    return alt.layer(
        base.mark_line().encode(y=y).add_params(network),
        base.mark_rule().encode(y=alt.Y("low:Q", title="test accuracy"), y2="high:Q"),
        base.mark_point(filled=True, size=70).encode(y=y, tooltip=tooltip),
    ).properties(width=430, height=260, title=title)


def step_speed(cells: pd.DataFrame, title: str = "") -> alt.FacetChart:
    """Draw images per second by program, a panel for each network and batch size, with intervals and ratios.

    ``cells`` has arch, batch_size, program, milliseconds, images_per_second, low, high, ratio, ratio_low, ratio_high,
    repeats; ratios are to the first program.
    """
    program = alt.selection_point(fields=["program"], bind="legend")
    programs = list(dict.fromkeys(cells["program"]))
    panels = cells["arch"] + ", batch " + cells["batch_size"].astype(str)
    base = alt.Chart(cells.assign(panel=panels)).encode(
        y=alt.Y("program:N", title=None, sort=programs).axis(None),
        opacity=alt.condition(program, alt.value(1.0), alt.value(0.15)),
    )
    tooltip = [
        alt.Tooltip("panel:N", title="network"),
        alt.Tooltip("program:N", title="program"),
        alt.Tooltip("milliseconds:Q", title="milliseconds a step", format=",.0f"),
        alt.Tooltip("images_per_second:Q", title="images per second", format=",.1f"),
        alt.Tooltip("low:Q", title="interval from", format=",.1f"),
        alt.Tooltip("high:Q", title="interval to", format=",.1f"),
        alt.Tooltip("ratio:Q", title=f"times {programs[0]}", format=".2f"),
        alt.Tooltip("ratio_low:Q", title="ratio from", format=".2f"),
        alt.Tooltip("ratio_high:Q", title="ratio to", format=".2f"),
        alt.Tooltip("repeats:Q", title="repetitions"),
    ]
    bars = base.mark_bar(height={"band": 0.8}).encode(
        x=alt.X("images_per_second:Q", title="images per second").axis(tickCount=6),
        color=alt.Color("program:N", title="program (click)", sort=programs, legend=ABOVE).scale(
            domain=programs, range=[COLOURS[1], COLOURS[3], COLOURS[0]]
        ),
        tooltip=tooltip,
    )
    intervals = base.mark_rule(strokeWidth=1.5).encode(x=alt.X("low:Q", title="images per second"), x2="high:Q")
    labels = base.transform_calculate(label="format(datum.ratio, '.1f') + '×'").mark_text(align="left", dx=6)
    row = alt.Row("panel:N", title=None, sort=list(dict.fromkeys(panels))).header(labelAngle=0, labelAlign="left")
    layers = alt.layer(bars.add_params(program), intervals, labels.encode(x="high:Q", text="label:N"))
    return layers.properties(width=500, height=78).facet(row=row).properties(title=title)
