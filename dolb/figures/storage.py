"""Figures of the data pipeline: images per second by form of storage, and how long a trainer waits."""

from __future__ import annotations

import altair as alt
import pandas as pd

from dolb.figures.style import COLOURS, PERCENT, Panel, interval, picked, titled

# Each form has one colour in every figure.
_FORMS = dict(
    zip(
        ("small files", "flat file (ours)", "LMDB", "HDF5", "WebDataset", "Zarr"),
        (COLOURS[4], COLOURS[0], COLOURS[2], COLOURS[3], COLOURS[5], COLOURS[1]),
        strict=True,
    )
)
_WAYS = ("random, cold", "random, warm", "in order, cold", "in order, warm")


def _form() -> alt.Color:
    shown = alt.Legend(orient="top", direction="horizontal", columns=3)
    return alt.Color("form:N", title="stored as (click)", sort=list(_FORMS), legend=shown).scale(
        domain=list(_FORMS), range=list(_FORMS.values())
    )


def images_per_second(cells: pd.DataFrame, title: str = "") -> Panel:
    """Draw images per second by number of processes, a line per form; order and cache are chosen below.

    ``cells`` has form, access, cache, loader_workers, value, low, high, n.
    """
    drawn = cells.assign(reading=cells["access"].replace("sequential", "in order") + ", " + cells["cache"])
    ways = [way for way in _WAYS if way in set(drawn["reading"])]
    way = alt.param(name="reading", value=ways[0], bind=alt.binding_radio(name="reading ", options=ways))
    form = alt.selection_point(fields=["form"], bind="legend")
    workers = sorted(set(map(int, drawn["loader_workers"])))
    base = alt.Chart(drawn).transform_filter("datum.reading === reading").encode(
        x=alt.X("loader_workers:Q", title="processes that read").scale(type="log", base=2, nice=False, padding=14)
        .axis(values=workers, format="d", grid=False),
        color=_form(), opacity=picked(form),
    )  # fmt: skip
    y = alt.Y("value:Q", title="images per second").scale(type="log").axis(format="~s", gridOpacity=0.5, tickCount=6)
    tooltip = [
        alt.Tooltip("form:N", title="stored as"), alt.Tooltip("reading:N", title="read"),
        alt.Tooltip("loader_workers:Q", title="processes"), alt.Tooltip("value:Q", title="images/s", format=",.0f"),
        *interval(",.0f"), alt.Tooltip("n:Q", title="seeds"),
    ]  # fmt: skip
    return alt.layer(
        base.mark_line(strokeWidth=2).encode(y=y),
        base.mark_rule(strokeWidth=1.5, clip=True).encode(y=alt.Y("low:Q", title="images per second"), y2="high:Q"),
        base.mark_point(filled=True, size=70).encode(y=y, tooltip=tooltip).add_params(form, way),
    ).properties(width="container", height=320, title=titled(title))


def starved(table: pd.DataFrame, title: str = "") -> Panel:
    """Draw the share of its time that a trainer waits, by form, device of the trainer and order of reading.

    ``table`` has device, form, access, value, low, high, n, images_per_second, trainer.
    """
    fed = table["device"] + ", " + table["access"].replace({"sequential": "in order", "random": "at random"})
    names = [f"{device}, {order}" for device in ("GPU", "CPU") for order in ("at random", "in order")]
    names = [name for name in names if name in set(fed)]
    base = alt.Chart(table.assign(fed=fed)).encode(
        y=alt.Y("form:N", title=None, sort=list(_FORMS)).axis(labelLimit=200, grid=True, gridOpacity=0.3),
        yOffset=alt.YOffset("fed:N", sort=names),
        color=alt.Color("fed:N", title="trained on, read (click)", sort=names).scale(
            domain=names, range=COLOURS[: len(names)]
        ).legend(orient="top", direction="horizontal", columns=2),
    )  # fmt: skip
    order = alt.selection_point(fields=["fed"], bind="legend")
    x = alt.X("value:Q", title="share of time that the trainer waits", axis=PERCENT).scale(domainMin=0)
    tooltip = [
        alt.Tooltip("form:N", title="stored as"), alt.Tooltip("fed:N", title="trained on, read"),
        alt.Tooltip("value:Q", title="waits", format=".1%"), *interval(".1%"), alt.Tooltip("n:Q", title="seeds"),
        alt.Tooltip("images_per_second:Q", title="images/s", format=",.0f"),
        alt.Tooltip("trainer:Q", title="images/s while it does not wait", format=",.0f"),
    ]  # fmt: skip
    shown = base.encode(opacity=picked(order))
    return alt.layer(
        shown.mark_rule(strokeWidth=1.5, clip=True).encode(x=alt.X("low:Q"), x2="high:Q"),
        shown.mark_point(filled=True, size=70).encode(x=x, tooltip=tooltip).add_params(order),
    ).properties(width="container", height=alt.Step(16), title=titled(title))
