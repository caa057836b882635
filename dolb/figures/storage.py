"""Figures of the data pipeline: images per second by form of storage, and how long a trainer waits."""

import altair as alt
import pandas as pd

from dolb.figures import style
from dolb.figures.style import COLOURS, PERCENT, Panel, bars, coloured, dots, hover, interval, layered

# Each form has one colour in every figure.
_FORMS = {
    "small files": COLOURS[4],
    "flat file (ours)": COLOURS[0],
    "LMDB": COLOURS[2],
    "HDF5": COLOURS[3],
    "WebDataset": COLOURS[5],
    "Zarr": COLOURS[1],
}
_WAYS = ("random, cold", "random, warm", "in order, cold", "in order, warm")


def images_per_second(cells: pd.DataFrame, title: str = "") -> Panel:
    """Draw images per second by number of processes, a line per form; order and cache are chosen below.

    ``cells`` has form, access, cache, loader_workers, value, low, high, n.
    """
    drawn = cells.assign(reading=cells["access"].replace("sequential", "in order") + ", " + cells["cache"])
    ways = [way for way in _WAYS if way in set(drawn["reading"])]
    way = style.choice("reading", "reading", ways)
    base = alt.Chart(drawn).transform_filter("datum.reading === reading").encode(
        style.log_axis("loader_workers", "processes that read", drawn["loader_workers"]),
        coloured("form:N", list(_FORMS), list(_FORMS.values()), "stored as (click)"),
    )  # fmt: skip
    y = alt.Y("value:Q", title="images per second").scale(type="log").axis(format="~s", gridOpacity=0.5, tickCount=6)
    told = hover(form="stored as", reading="read", loader_workers="processes", value="images/s:,.0f")
    told += interval(",.0f") + hover("n")
    layers = base.mark_line(strokeWidth=2).encode(y), bars(base, clip=True), dots(base, y, size=70, tooltip=told)
    return layered(320, title, *layers, click="form", choices=[way])


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
        color=coloured("fed:N", names, title="trained on, read (click)"),
    )
    x = alt.X("value:Q", title="share of time that the trainer waits", axis=PERCENT).scale(domainMin=0)
    told = hover(form="stored as", fed="trained on, read", value="waits:.1%") + interval(".1%")
    told += hover("n", "images_per_second", trainer="images/s while it does not wait:,.0f")
    layers = bars(base, "x", clip=True), dots(base, x, size=70, tooltip=told)
    return layered(alt.Step(16), title, *layers, click="fed")
