"""Figures of how fast a training step is."""

import altair as alt
import pandas as pd

from dolb.figures import style
from dolb.figures.style import COLOURS, REPORTED, Panel, coloured, dots, hover, interval, layered

OURS, OTHERS = [COLOURS[1], COLOURS[0]], [COLOURS[4], COLOURS[2], COLOURS[3], COLOURS[5]]


def ratios(table: pd.DataFrame, baseline: str, title: str = "") -> Panel:
    """Draw how many times as fast as the baseline programs are, a group of bars for each network and batch size.

    ``table`` has cell, program, kind, ratio, ratio_low, ratio_high, images_per_second, repeats.
    """
    kinds = list(dict.fromkeys(table["kind"]))
    base = alt.Chart(table).encode(
        y=alt.Y("cell:N", title=None, sort=None).axis(labelLimit=220, ticks=False),
        yOffset=alt.YOffset("kind:N", sort=kinds),
    )
    room = 1.2 * table["ratio_high"].max()  # for the longest bar's number, on a telephone too
    x = alt.X("ratio:Q", title=f"times the {baseline}").axis(tickCount=6).scale(domainMax=room)
    told = hover(cell="network") + hover("program", ratio=f"times the {baseline}:.2f") + interval(".2f", "ratio_")
    bars = base.mark_bar().encode(
        x=x,
        color=coloured("kind:N", kinds, OURS),
        tooltip=told + hover("images_per_second", repeats="repetitions"),
    )
    words = base.transform_calculate(words="format(datum.ratio, '.1f') + '×'")
    return layered(
        52 * table["cell"].nunique(),
        title,
        style.line_at(x, 1.0, dash=(2, 3)),
        bars,
        base.mark_rule(strokeWidth=1.5).encode(x="ratio_low:Q", x2="ratio_high:Q"),
        words.mark_text(align="left", dx=6).encode(x="ratio_high:Q", text="words:N"),
    )


def speeds(cells: pd.DataFrame, title: str = "") -> Panel:
    """Draw images per second against batch size on a GPU, a line per program, one network at a time, under its limits.

    ``cells`` has arch, batch_size, program, kind, images_per_second, low, high, arithmetic, memory, of_limit.
    """
    names = dict.fromkeys(cells["kind"])
    ours, others = ([name for name in names if name.startswith("dolb") == is_ours] for is_ours in (True, False))
    shown = style.choice("network", "network", style.by_depth(cells["arch"]), menu=True)
    x = style.batch_size_axis(cells["batch_size"]).title("batch size")
    y = alt.Y("images_per_second:Q", title="images per second").scale(type="log").axis(format="~s", gridOpacity=0.5)
    of_network = alt.Chart(cells).transform_filter("datum.arch === network").encode(x=x)
    colours = [*OTHERS[: len(others)], *OURS[: len(ours)]]
    base = of_network.encode(y=y, color=coloured("kind:N", [*others, *ours], colours))
    told = hover("program", "batch_size", "images_per_second") + interval(",.0f") + hover(of_limit="of the limit:.0%")
    limits = of_network.transform_fold(["arithmetic", "memory"], as_=["limited", "most"]).encode(
        y="most:Q",
        strokeDash=alt.StrokeDash("limited:N", title="at most, by", legend=alt.Legend(orient="bottom")).scale(
            domain=["arithmetic", "memory"], range=[[2, 3], [8, 4]]
        ),
    )
    layers = limits.mark_line(color=REPORTED), base.mark_line(), dots(base, size=70, tooltip=told)
    return layered(320, title, *layers, click="kind", choices=[shown])
