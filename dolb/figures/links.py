"""The figure of training over links of several rates: measured points on the curve that the simulator draws."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from dolb.figures.scaling import CUT, DASHED, LIBRARIES
from dolb.figures.style import ABOVE, PERCENT, Panel, picked, titled

NAMES = {"ddp": "DDP", "horovod": "Horovod"}


def by_bandwidth(cells: pd.DataFrame, curve: pd.DataFrame, title: str = "") -> alt.HConcatChart:
    """Draw efficiency and seconds of a step by the bandwidth of a host's link, one network and number of hosts a time.

    ``cells`` are measured, full points with intervals: arch, hosts, variant, link_mbit, achieved_mbit, step_seconds,
    step_low, step_high, efficiency, low, high, limit, link_latency_seconds, repeats, device. ``curve`` is simulated,
    dashed: arch, hosts, library, achieved_mbit, step_seconds, efficiency.
    """
    points = _of_setup(cells)
    # An interval of few repetitions may be far longer than the axis: it is drawn up to there, and the hover tells it.
    points["top"] = points["high"].clip(upper=CUT * max(1.0, float(points["efficiency"].max())))
    points["bottom"] = points["low"].clip(lower=0)
    points["step_top"] = points["step_high"].clip(upper=CUT * points.groupby("setup")["step_seconds"].transform("max"))
    points["step_bottom"] = points["step_low"].clip(
        lower=points.groupby("setup")["step_seconds"].transform("min") / CUT
    )
    lines = _of_setup(curve).assign(variant=curve["library"].map(NAMES))
    cases = list(dict.fromkeys(points["setup"]))
    shown = alt.param(name="linked", value=cases[0], bind=alt.binding_select(options=cases, name="network and hosts "))
    library = alt.selection_point(fields=["variant"], bind="legend")
    look: dict[str, Any] = {
        "x": alt.X("achieved_mbit:Q", title="bandwidth of a link, as measured (Mbit/s)")
        .scale(type="log", padding=14, nice=False)
        .axis(values=[10**power for power in range(7)], format=",d", grid=False),
        "color": alt.Color("variant:N", title="library (click)", legend=ABOVE).scale(
            domain=list(LIBRARIES), range=list(LIBRARIES.values())
        ),
        "opacity": picked(library),
    }
    ours = alt.Chart(points).transform_filter("datum.setup === linked").encode(**look)
    simulated = alt.Chart(lines).transform_filter("datum.setup === linked").encode(**look)
    panels: list[Panel] = []
    for value, words, low, high, axis, scale in (
        ("efficiency", "efficiency", "bottom", "top", PERCENT, {"zero": True}),
        (
            "step_seconds",
            "seconds of a step",
            "step_bottom",
            "step_top",
            alt.Axis(format="~g", tickCount=5),
            {"type": "log", "padding": 14},
        ),
    ):
        y = alt.Y(f"{value}:Q", title=words, axis=axis).scale(**scale)
        dashed = simulated.mark_line(strokeWidth=2, strokeDash=DASHED).encode(y=y, tooltip=_simulated_tooltip())
        panels.append(
            alt.layer(
                dashed if panels else dashed.add_params(library, shown),
                ours.mark_rule(strokeWidth=1.5, clip=True).encode(y=alt.Y(f"{low}:Q", title=words), y2=f"{high}:Q"),
                ours.mark_point(filled=True, size=70).encode(y=y, tooltip=_measured_tooltip()),
            ).properties(width=236, height=250)
        )
    return alt.hconcat(*panels, spacing=30, title=titled(title, ["Points: measured. Dashed: simulated."]))


def _of_setup(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(setup=table["arch"] + ", " + table["hosts"].astype(str) + " hosts")


def _measured_tooltip() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("variant:N", title="library, measured"),
        alt.Tooltip("setup:N", title="network and hosts"),
        alt.Tooltip("limit:N", title="link held to"),
        alt.Tooltip("achieved_mbit:Q", title="TCP gets, Mbit/s", format=",.4~r"),
        alt.Tooltip("link_latency_seconds:Q", title="latency of a link, s", format=".2~s"),
        alt.Tooltip("step_seconds:Q", title="seconds of a step", format=",.3~r"),
        alt.Tooltip("step_low:Q", title="interval from", format=",.3~r"),
        alt.Tooltip("step_high:Q", title="interval to", format=",.3~r"),
        alt.Tooltip("efficiency:Q", title="efficiency", format=".1%"),
        alt.Tooltip("low:Q", title="interval from", format=".1%"),
        alt.Tooltip("high:Q", title="interval to", format=".1%"),
        alt.Tooltip("repeats:Q", title="repetitions"),
        alt.Tooltip("device:N", title="device"),
    ]


def _simulated_tooltip() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("variant:N", title="library, simulated"),
        alt.Tooltip("setup:N", title="network and hosts"),
        alt.Tooltip("achieved_mbit:Q", title="bandwidth, Mbit/s", format=",.4~r"),
        alt.Tooltip("step_seconds:Q", title="seconds of a step", format=",.3~r"),
        alt.Tooltip("efficiency:Q", title="efficiency", format=".1%"),
    ]
