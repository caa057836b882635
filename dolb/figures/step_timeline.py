"""Figures of one training step: its events on lanes by rank, libraries over one another."""

import warnings

import altair as alt
import pandas as pd

from dolb.figures.style import COLOURS, coloured, hover

LANES = {
    "compute": COLOURS[1],
    "communication": COLOURS[4],
    "negotiation": COLOURS[3],
    "queue": COLOURS[5],
    "copy": COLOURS[2],
}
ROW_HEIGHT = 18


def step_timeline(events: pd.DataFrame, title: str = "") -> alt.VConcatChart:
    """Draw events as bars over time, a panel per library and a row per rank and lane.

    ``events`` has variant, source, of_ranks, arch, rank, lane, name, start_ms, end_ms, duration_ms, bytes.
    Simulated events are drawn hollow. The wheel zooms and dragging moves all panels at once; the legend picks lanes.
    """
    zoom = alt.selection_interval(name="zoom", bind="scales", encodings=["x"])
    lane = alt.selection_point(fields=["lane"], bind="legend")
    lanes = [name for name in LANES if name in set(events["lane"])]
    colours = [LANES[name] for name in lanes]
    x = alt.X("start_ms:Q", title="milliseconds").axis(grid=True, gridOpacity=0.3).scale(nice=False)
    told = hover(variant="library", source="source", row="lane", name="event", start_ms="from, ms:,.3f")
    told += hover(duration_ms="length, ms:,.3f", bytes="bytes:,")
    events = events.assign(row="rank " + events["rank"].astype(str) + ", " + events["lane"])
    panels: list[alt.Chart] = []
    for (variant, source), table in events.groupby(["variant", "source"], sort=False):
        about, hollow = table.iloc[0], source == "simulated"
        rows = (
            table.assign(place=table["lane"].map(lanes.index)).sort_values(["rank", "place"])["row"].unique().tolist()
        )
        heading = f"{variant}, {source}: one step of {about.arch} on {about.of_ranks:,} ranks"
        # A page holds every event, so it gets what is drawn alone, to the microsecond.
        drawn = table.drop(columns=["run_number", "of_ranks", "arch", "rank"], errors="ignore").round(3)
        bars = alt.Chart(drawn).mark_bar(
            fillOpacity=0.15 if hollow else 0.9,
            strokeWidth=1 if hollow else 0.3,
            strokeDash=[3, 2] if hollow else [1, 0],
            height={"band": 0.8},
        )
        chart = bars.encode(
            x=x,
            x2="end_ms:Q",
            y=alt.Y("row:N", title=None, sort=rows).axis(labelLimit=180, grid=True, gridOpacity=0.3),
            color=coloured("lane:N", lanes, colours, "lane (click)"),
            stroke=alt.Stroke("lane:N", legend=None).scale(domain=lanes, range=colours),
            opacity=alt.condition(lane, alt.value(1.0), alt.value(0.08)),
            tooltip=told,
        ).properties(width=475, height=ROW_HEIGHT * len(rows), title=alt.Title(heading, anchor="start", fontSize=13))
        panels.append(chart.add_params(zoom) if panels else chart.add_params(lane, zoom))
    with warnings.catch_warnings():  # altair warns that it takes parameters of one name for one, as is meant here
        warnings.filterwarnings("ignore", message="Automatically deduplicated")
        return alt.vconcat(*panels, spacing=12, title=title).resolve_scale(x="shared", color="shared")
