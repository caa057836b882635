"""Figures on strong and weak scaling: time to a target loss, the loss on its way, and what the generator makes."""

import altair as alt
import pandas as pd

from dolb.figures import style
from dolb.figures.style import COLOURS, REPORTED, Panel, bars, choice, hover, interval, layered

RULES = ("strong", "weak", "weak, linear rate", "weak, linear rate, warmup")


def _colour() -> alt.Color:
    colours = [COLOURS[0], COLOURS[3], COLOURS[4], COLOURS[5]]
    return style.coloured("rule:N", RULES, colours, "scaling (click)")


def time_to_target(cells: pd.DataFrame, title: str = "") -> Panel:
    """Draw time to the target by workers, a line per rule: full points where steps are measured, hollow simulated ones.

    ``cells`` has workload, clock, rule, workers, seconds, low, high, updates, step_seconds, source, reached, n.
    A cross at the top is a cell in which runs miss the target; grey is one worker's time over the number of workers.
    """
    load = choice("chosen_load", "workload", list(cells["workload"].unique()))
    clock = choice("chosen_clock", "a worker is", list(cells["clock"].unique()))
    alone = cells[cells["workers"] == 1].drop_duplicates(["workload", "clock"])[["workload", "clock", "seconds"]]
    counts = sorted(cells["workers"].unique())
    ideal = alone.merge(pd.DataFrame({"workers": counts}), how="cross")
    ideal["seconds"] = ideal["seconds"] / ideal["workers"]
    chosen = "datum.workload == chosen_load && datum.clock == chosen_clock"
    x = style.log_axis("workers", "workers", counts)
    y = alt.Y("seconds:Q", title="seconds to the target loss").axis(format="~g")
    y = y.scale(type="log", nice=False, padding=62)  # room for crosses
    drawn = alt.Chart(cells).transform_filter(chosen).encode(color=_colour())
    base = drawn.transform_filter("datum.reached == datum.n")
    told = hover(rule="scaling", workers="workers", batch_size="global batch") + hover("updates")
    told += hover(step_seconds="seconds of a step:.3g", source="step", seconds="seconds to the target:.3g")
    told += interval(".3g") + hover(reached="runs that reach it", n="of runs")
    shape = alt.Shape("drawn:N", title=None, legend=alt.Legend(orient="bottom", direction="vertical")).scale(
        domain=["measured steps", "simulated steps", "misses the target"], range=["circle", "square", "cross"]
    )
    fill = alt.condition("datum.drawn == 'measured steps'", _colour().legend(None), alt.value("transparent"))
    marks = base.transform_calculate(drawn="datum.source + ' steps'").mark_point(size=80, strokeWidth=2)
    missed = [
        drawn.transform_filter(f"datum.reached < datum.n && datum.rule == '{rule}'")
        .mark_point(size=80, shape="cross", filled=True)
        .encode(x=x, y=alt.value(10 + 14 * place), tooltip=told)
        for place, rule in enumerate(RULES)
    ]
    under = alt.Chart(ideal).transform_filter(chosen).mark_line(color=REPORTED, strokeDash=[4, 3]).encode(x=x, y=y)
    return layered(
        340,
        title,
        under,
        base.mark_line(strokeWidth=2).encode(x=x, y=y),
        bars(base.encode(x=x)),
        marks.encode(x=x, y=y, shape=shape, fill=fill, tooltip=told),
        *missed,
        click="rule",
        choices=[load, clock],
    )


def loss_on_the_way(curves: pd.DataFrame, title: str = "") -> Panel:
    """Draw the test loss of one seed by time or by updates, a line per rule; workload, clock and workers are chosen.

    ``curves`` has workload, clock, rule, workers, updates, seconds, loss, target_loss.
    """
    one = curves[curves["workers"] == 1]
    counts = sorted(set(curves["workers"].tolist()) - {1}, key=lambda count: abs(count - 8))  # many, not all
    params = [
        choice("along", "along", ["updates", "seconds"]),
        choice("chosen_workers", "workers", counts or [1]),
        choice("curve_load", "workload", list(curves["workload"].unique())),
        choice("curve_clock", "a worker is", list(curves["clock"].unique())),
    ]
    here = "datum.workload == curve_load && datum.clock == curve_clock"
    x = alt.X("along_x:Q", title="updates, or seconds").scale(type="log", nice=False).axis(format="~g")
    y = alt.Y("loss:Q", title="test loss").scale(type="log", nice=False, padding=8).axis(format="~g")

    def drawn(table: pd.DataFrame, wanted: str) -> alt.Chart:
        return alt.Chart(table).transform_filter(f"{here}{wanted}").transform_calculate(along_x="datum[along]")

    alone = drawn(one, "").mark_line(color=REPORTED, strokeWidth=3, opacity=0.5).encode(x=x, y=y)
    told = hover(rule="scaling", updates="updates:,", seconds="seconds:.3g", loss="loss:.4g")
    many = drawn(curves[curves["workers"] > 1], " && datum.workers == chosen_workers").encode(x=x, y=y)
    lines = many.mark_line(strokeWidth=2, point={"size": 12}).encode(color=_colour())
    to_point_at = many.mark_point(size=250, filled=True, opacity=0).encode(tooltip=told)
    target = drawn(one.drop_duplicates(["workload", "clock"]), "").mark_rule(color=REPORTED, strokeDash=[4, 3])
    layers = target.encode(y="target_loss:Q"), alone, lines, to_point_at
    return layered(320, title, *layers, click="rule", choices=params)


def made_volumes(pictures: pd.DataFrame, title: str = "") -> Panel:
    """Draw, under the name of each run, test volumes and below them what its network makes of them.

    ``pictures`` has label, loss, and picture, a PNG in base64.
    """
    rows = pictures.assign(url="data:image/png;base64," + pictures["picture"])
    y = alt.Y("label:N", title=None, sort=list(rows["label"])).axis(None)
    base = alt.Chart(rows).encode(y=y)
    images = base.mark_image(width=330, height=110, align="left").encode(url="url:N", x=alt.value(0))
    names = base.mark_text(align="left", baseline="bottom", dy=-60).encode(text="label:N", x=alt.value(0))
    told = hover(label="run", loss="test loss:.4f")
    frames = base.mark_rect(fillOpacity=0).encode(x=alt.value(0), x2=alt.value(330), tooltip=told)
    return layered(alt.Step(150), title, images, names, frames).configure_view(stroke=None)
