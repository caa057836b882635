"""Figures of data-parallel training: what was measured is drawn full, what was simulated hollow and dashed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt
import pandas as pd

from dolb.figures.style import ABOVE, COLOURS, PERCENT, REPORTED, Panel, picked, stacked, titled

DASHED = [6, 4]
CUT = 1.15  # intervals are drawn up to so much above the highest value
WIDE = 20  # values further apart than this, as a ratio, have a logarithmic axis
LEADS = [0.97, 1.06]  # of DDP in simulation: what is compared lies within
LIBRARIES = {"DDP": COLOURS[0], "Horovod": COLOURS[4]}
CURVES = {
    "DDP": COLOURS[0],
    "Horovod 0.20": COLOURS[4],
    "Horovod 0.20, no cache": COLOURS[5],
    "Horovod 0.21": COLOURS[3],
}
MECHANISMS = ("negotiation", "cycle", "jitter", "latency", "bandwidth", "fusion", "overlap")


def _ranks_axis(ranks: Iterable[int], title: str) -> alt.X:
    ticks = sorted({int(count) for count in ranks})
    return alt.X("ranks:Q", title=title).scale(type="log", base=2, nice=False, padding=14).axis(
        values=ticks, format="~s", grid=False, labelOverlap=True
    )  # fmt: skip


def measured_scaling(cells: pd.DataFrame, title: str = "", said: Sequence[str] = ()) -> alt.HConcatChart:
    """Draw measured throughput and efficiency by ranks, a line per library, one network and scaling at a time.

    ``cells`` has arch, scaling, variant, ranks, images_per_second, speed_low, speed_high, efficiency, low, high,
    batch_size, repeats, device. The grey line is the ideal: K ranks, K times the throughput of one. Throughput has a
    logarithmic axis, as that ideal is far above what strong scaling gains. Weak scaling is shown first.
    """
    table = cells.assign(setup=cells["arch"] + ", " + cells["scaling"] + " scaling")
    of_each = table["images_per_second"] / table["efficiency"]  # ranks times one rank; libraries may differ in that
    table["ideal"] = of_each.groupby([table["setup"], table["ranks"]]).transform("mean")
    # An interval of few repetitions may be far longer than the axis: it is drawn up to there, and the hover tells it.
    table["speed_top"] = table["speed_high"].clip(upper=CUT * table.groupby("setup")["ideal"].transform("max"))
    table["top"] = table["high"].clip(upper=CUT * max(1.0, float(table["efficiency"].max())))
    table["speed_bottom"] = table["speed_low"].clip(
        lower=table.groupby("setup")["images_per_second"].transform("min") / 2
    )
    cases = list(dict.fromkeys(table.sort_values("scaling", ascending=False, kind="stable")["setup"]))
    shown = alt.param(name="shown", value=cases[0], bind=alt.binding_select(options=cases, name="measured "))
    library = alt.selection_point(fields=["variant"], bind="legend")
    colour = alt.Color("variant:N", title="measured (click)", legend=ABOVE).scale(
        domain=list(LIBRARIES), range=list(LIBRARIES.values())
    )
    tooltip = [
        alt.Tooltip("variant:N", title="library, measured"),
        alt.Tooltip("setup:N", title="network"),
        alt.Tooltip("ranks:Q", title="ranks"),
        alt.Tooltip("batch_size:Q", title="global batch size", format=","),
        alt.Tooltip("images_per_second:Q", title="images per second", format=",.1f"),
        alt.Tooltip("speed_low:Q", title="interval from", format=",.1f"),
        alt.Tooltip("speed_high:Q", title="interval to", format=",.1f"),
        alt.Tooltip("efficiency:Q", title="efficiency", format=".1%"),
        alt.Tooltip("low:Q", title="interval from", format=".1%"),
        alt.Tooltip("high:Q", title="interval to", format=".1%"),
        alt.Tooltip("repeats:Q", title="repetitions"),
        alt.Tooltip("device:N", title="device"),
    ]
    base = alt.Chart(table).transform_filter("datum.setup === shown").encode(x=_ranks_axis(table["ranks"], "ranks"))
    panels: list[Panel] = []
    speeds: dict[str, Any] = {"type": "log", "base": 2, "nice": False, "padding": 14}
    for value, low, high, ideal, axis, scale in (
        ("images_per_second", "speed_bottom", "speed_top", "datum.ideal", alt.Axis(format=",.4~r"), speeds),
        ("efficiency", "low", "top", "1", PERCENT, {"zero": True}),
    ):
        words = value.replace("_", " ")
        y = alt.Y(f"{value}:Q", title=words, axis=axis).scale(**scale)
        ours = base.encode(color=colour, opacity=picked(library))
        lines = ours.mark_line(strokeWidth=2).encode(y=y)
        panels.append(
            alt.layer(
                base.transform_calculate(of_ideal=ideal)
                .mark_line(color=REPORTED, strokeWidth=1.5)
                .encode(y=alt.Y("of_ideal:Q", title=words)),
                lines if panels else lines.add_params(library, shown),
                ours.mark_rule(strokeWidth=1.5).encode(y=alt.Y(f"{low}:Q", title=words), y2=f"{high}:Q"),
                ours.mark_point(filled=True, size=70).encode(y=y, tooltip=tooltip),
            ).properties(width=236, height=250)
        )
    return alt.hconcat(*panels, spacing=30, title=titled(title, said))


def simulated_scaling(
    curves: pd.DataFrame, lead: pd.DataFrame, studied: int, title: str = "", said: Sequence[str] = ()
) -> alt.VConcatChart:
    """Draw simulated efficiency by GPUs, a dashed line and a band per library; the rule is where the study ended.

    ``curves`` has variant, ranks, efficiency, efficiency_low, efficiency_high, ddp_ahead, images_per_second,
    batch_size, network, arch. As its lines lie close to one another and its bands are mostly what all share, a second
    panel has ``lead``: DDP's efficiency over that of each other variant, with the band of paired draws; it has variant,
    ranks, ratio, low, high, and is cut at ``LEADS``, far above which the variant without a cache goes. The mouse wheel
    zooms along the axis of GPUs.
    """
    variant = alt.selection_point(fields=["variant"], bind="legend")
    names = [name for name in CURVES if name in set(curves["variant"])]
    table = curves.assign(curve=curves["variant"] + ", simulated")
    colour = alt.Color("variant:N", title="simulated (click)", sort=names, legend=ABOVE).scale(
        domain=names, range=[CURVES[name] for name in names]
    )
    x = alt.X("ranks:Q", title="GPUs, the batch grows with them").scale(type="log", nice=False, padding=8).axis(
        format=",d", grid=False, tickCount=6
    )  # fmt: skip
    base = alt.Chart(table).encode(x=x, color=colour, opacity=picked(variant))
    tooltip = [
        alt.Tooltip("curve:N", title="library"),
        alt.Tooltip("network:N", title="machine"),
        alt.Tooltip("arch:N", title="network"),
        alt.Tooltip("ranks:Q", title="GPUs", format=","),
        alt.Tooltip("efficiency:Q", title="efficiency", format=".1%"),
        alt.Tooltip("efficiency_low:Q", title="band from", format=".1%"),
        alt.Tooltip("efficiency_high:Q", title="band to", format=".1%"),
        alt.Tooltip("ddp_ahead:Q", title="draws with DDP ahead", format=".0%"),
        alt.Tooltip("images_per_second:Q", title="images per second", format=",.0f"),
        alt.Tooltip("batch_size:Q", title="global batch size", format=","),
    ]
    y = alt.Y("efficiency:Q", title="simulated efficiency", axis=PERCENT).scale(domain=[0, 1])
    low = alt.Y("efficiency_low:Q", title="simulated efficiency")
    end = alt.Chart(pd.DataFrame({"ranks": [studied], "words": [f"the study: {studied:,}"]})).encode(x="ranks:Q")
    rule = end.mark_rule(color=REPORTED, strokeDash=[2, 3])
    zoom = alt.selection_interval(name="gpus", bind="scales", encodings=["x"])
    efficiency = alt.layer(
        base.mark_area(fillOpacity=0.13).encode(y=low, y2="efficiency_high:Q"),
        base.mark_line(strokeWidth=2, strokeDash=DASHED).encode(y=y).add_params(variant, zoom),
        base.mark_point(filled=False, size=45, strokeWidth=1.5).encode(y=y, tooltip=tooltip),
        rule,
        end.mark_text(align="left", dx=4, color=REPORTED).encode(y=alt.value(242), text="words:N"),
    ).properties(width=540, height=280)  # fmt: skip
    over = "DDP over Horovod, simulated"
    ratio = alt.Y("ratio:Q", title=over).scale(domain=LEADS).axis(format=".2f")
    ahead = alt.Chart(lead).encode(x=x, color=colour, opacity=picked(variant))
    hover = [
        alt.Tooltip("variant:N", title="DDP over, simulated"),
        alt.Tooltip("ranks:Q", title="GPUs", format=","),
        alt.Tooltip("ratio:Q", title="efficiency over efficiency", format=".3f"),
        alt.Tooltip("low:Q", title="paired draws from", format=".3f"),
        alt.Tooltip("high:Q", title="to", format=".3f"),
    ]
    above = alt.layer(
        alt.Chart(pd.DataFrame({"ratio": [1.0]})).mark_rule(color=REPORTED).encode(y=ratio),
        ahead.mark_area(fillOpacity=0.2, clip=True).encode(y=alt.Y("low:Q", title=over), y2="high:Q"),
        ahead.mark_line(strokeWidth=2, strokeDash=DASHED, clip=True).encode(y=ratio).add_params(zoom),
        ahead.mark_point(filled=False, size=45, strokeWidth=1.5, clip=True).encode(y=ratio, tooltip=hover),
        rule,
    ).properties(width=540, height=170)  # fmt: skip
    return stacked(efficiency, above, title=titled(title, said))


def ablation(table: pd.DataFrame, title: str = "") -> Panel:
    """Draw simulated efficiency with one mechanism off at a time, dashed; the black line has all of them on.

    ``table`` has switched_off (``none`` for all on), ranks, efficiency, gained, negotiation_seconds, variant.
    """
    off = alt.selection_point(fields=["switched_off"], bind="legend")
    colours = dict(zip(MECHANISMS, [*COLOURS[:6], "#8c6d31"], strict=True))
    base = alt.Chart(table).encode(
        x=alt.X("ranks:Q", title="GPUs").scale(type="log", nice=False, padding=8).axis(format=",d", grid=False),
        y=alt.Y("efficiency:Q", title="simulated efficiency", axis=PERCENT).scale(domain=[0, 1]),
    )
    tooltip = [
        alt.Tooltip("variant:N", title="library, simulated"),
        alt.Tooltip("switched_off:N", title="switched off"),
        alt.Tooltip("ranks:Q", title="GPUs", format=","),
        alt.Tooltip("efficiency:Q", title="efficiency", format=".1%"),
        alt.Tooltip("gained:Q", title="against all on", format="+.1%"),
        alt.Tooltip("negotiation_seconds:Q", title="seconds of negotiation a step", format=".2~s"),
    ]
    legend = ABOVE.copy(deep=True)
    legend.columns = 4  # a page is no wider
    each = base.transform_filter("datum.switched_off !== 'none'").encode(
        color=alt.Color("switched_off:N", title="without (click)", sort=list(MECHANISMS), legend=legend).scale(
            domain=list(MECHANISMS), range=[colours[name] for name in MECHANISMS]
        ),
        opacity=picked(off),
    )
    whole = base.transform_filter("datum.switched_off === 'none'")
    return alt.layer(
        each.mark_line(strokeWidth=2, strokeDash=DASHED).add_params(off),
        each.mark_point(filled=False, size=35).encode(tooltip=tooltip),
        whole.mark_line(strokeWidth=3, color="#000000", strokeDash=[2, 2]),
        whole.mark_point(filled=False, size=45, color="#000000").encode(tooltip=tooltip),
    ).properties(width=540, height=280, title=titled(title))


def tuning(table: pd.DataFrame, title: str = "", said: Sequence[str] = ()) -> Panel:
    """Draw what each setting changes against the defaults: measured as full points with intervals, simulated hollow.

    ``table`` has panel, source, library, setting, ratio, and on measured rows low, high, repeats.
    """
    panels = list(dict.fromkeys(table["panel"]))
    # On a scale of changes, as people say them; no numbers are made here that the table does not have.
    base = alt.Chart(table).transform_calculate(
        change="datum.ratio - 1", change_low="datum.low - 1", change_high="datum.high - 1"
    )
    base = base.encode(y=alt.Y("setting:N", title=None, sort=None).axis(labelLimit=220, grid=True, gridOpacity=0.3))
    # Long intervals are cut at twice the reach of the points.
    reach = 2 * max(0.1, float((table["ratio"] - 1).abs().max()))
    x = alt.X("change:Q", title="change of throughput against the defaults").axis(format="+.0%", tickCount=6).scale(
        domain=[-reach, reach]
    )  # fmt: skip
    tooltip = [
        alt.Tooltip("panel:N", title="what"),
        alt.Tooltip("setting:N", title="setting"),
        alt.Tooltip("change:Q", title="change", format="+.1%"),
        alt.Tooltip("change_low:Q", title="interval from", format="+.1%"),
        alt.Tooltip("change_high:Q", title="interval to", format="+.1%"),
        alt.Tooltip("repeats:Q", title="repetitions"),
        alt.Tooltip("source:N", title="source"),
    ]
    library = alt.selection_point(fields=["library"], bind="legend")
    colour = alt.Color("library:N", title="library (click)", legend=ABOVE).scale(
        domain=["ddp", "horovod"], range=list(LIBRARIES.values())
    )
    base = base.encode(opacity=picked(library))
    is_measured = base.transform_filter("datum.source === 'measured'")
    is_simulated = base.transform_filter("datum.source === 'simulated'")
    # The choice belongs to the first layer, which must have the legend it is bound to.
    layers = alt.layer(
        is_measured.mark_point(filled=True, size=60).encode(x=x, color=colour, tooltip=tooltip).add_params(library),
        is_measured.mark_rule(strokeWidth=1.5, clip=True).encode(x="change_low:Q", x2="change_high:Q", color=colour),
        is_simulated.mark_point(filled=False, size=50, strokeWidth=1.5).encode(x=x, color=colour, tooltip=tooltip),
        alt.Chart(table).mark_rule(color=REPORTED).encode(x=alt.datum(0)),
    ).properties(width=340)  # fmt: skip
    facet = alt.Row("panel:N", title=None, sort=panels).header(
        labelAngle=0, labelAlign="left", labelAnchor="start", labelOrient="top", labelFontWeight="bold"
    )
    return layers.facet(row=facet, spacing=14).resolve_scale(y="independent").properties(title=titled(title, said))


def validation(points: pd.DataFrame, title: str = "") -> Panel:
    """Draw simulated against measured values: points to which the simulator was fitted, and points that judge it.

    ``points`` has label, used (fit or judge), measured, simulated, error. On the grey line both agree.
    """
    # A name of its own, as several of these stand side by side.
    used = alt.selection_point(name="used_" + re.sub(r"\W+", "_", title), fields=["used"], bind="legend")
    ends = [float(points[["measured", "simulated"]].min().min()), float(points[["measured", "simulated"]].max().max())]
    line = alt.Chart(pd.DataFrame({"measured": ends, "simulated": ends}))
    wide = points["measured"].max() > WIDE * points["measured"].min()
    scale: dict[str, Any] = {"type": "log" if wide else "linear", "nice": not wide, "padding": 10}
    scale |= {} if wide else {"zero": False}
    numbers = "~s" if points["measured"].max() > 1 else ".0%"  # throughputs, or efficiencies
    x = alt.X("measured:Q", title="measured").scale(**scale).axis(format=numbers)
    y = alt.Y("simulated:Q", title="simulated").scale(**scale).axis(format=numbers)
    tooltip = [
        alt.Tooltip("label:N", title="what"),
        alt.Tooltip("used:N", title="used to"),
        alt.Tooltip("measured:Q", title="measured", format=",.3~r"),
        alt.Tooltip("simulated:Q", title="simulated", format=",.3~r"),
        alt.Tooltip("error:Q", title="error of the simulation", format="+.1%"),
    ]
    dots = alt.Chart(points).mark_point(filled=False, size=90, strokeWidth=2).encode(
        x=x, y=y, tooltip=tooltip, opacity=picked(used),
        color=alt.Color("used:N", title="point used to (click)", legend=ABOVE).scale(
            domain=["fit", "judge"], range=[COLOURS[1], COLOURS[4]]
        ),
    )  # fmt: skip
    return alt.layer(line.mark_line(color=REPORTED).encode(x=x, y=y), dots.add_params(used)).properties(
        width=236, height=236, title=titled(title)
    )


def side_by_side(*charts: Panel) -> alt.HConcatChart:
    """Put charts beside one another, each with a legend of its own."""
    return alt.hconcat(*charts, spacing=40).resolve_scale(color="independent", opacity="independent")
