"""Figure of planted faults: precision and recall of each way to filter."""

from __future__ import annotations

import altair as alt
import pandas as pd

from dolb.figures.style import ABOVE, COLOURS, PERCENT, Panel, interval, picked, titled

_MEASURES = {"precision": COLOURS[0], "recall": COLOURS[3]}


def found_faults(cells: pd.DataFrame, usual: float, title: str = "") -> Panel:
    """Draw precision and recall of each method, a panel for each kind of fault; the share to remove is chosen below.

    ``cells`` has planted, removed_share, method, rank, measure, value, low, high, n, removed.
    """
    shares = {share: f"{share:.1%}".replace(".0%", "%") for share in sorted(set(cells["removed_share"]))}
    drawn = cells.assign(share=cells["removed_share"].map(shares))
    share = alt.param(
        name="share", value=shares[usual], bind=alt.binding_radio(name="remove ", options=list(shares.values()))
    )
    order = list(drawn.sort_values("rank")["method"].unique())
    measure = alt.selection_point(fields=["measure"], bind="legend")
    base = alt.Chart(drawn).transform_filter("datum.share === share").encode(
        y=alt.Y("method:N", title=None, sort=order).axis(labelLimit=120, grid=True, gridOpacity=0.3),
        yOffset=alt.YOffset("measure:N", sort=list(_MEASURES)),
        color=alt.Color("measure:N", title="(click)", sort=list(_MEASURES), legend=ABOVE).scale(
            domain=list(_MEASURES), range=list(_MEASURES.values())
        ),
        opacity=picked(measure),
    )  # fmt: skip
    x = alt.X("value:Q", title="share of images", axis=PERCENT).scale(domain=[0, 1])
    tooltip = [
        alt.Tooltip("method:N"), alt.Tooltip("planted:N"), alt.Tooltip("measure:N"),
        alt.Tooltip("value:Q", format=".1%"), *interval(".1%"), alt.Tooltip("n:Q", title="seeds"),
        alt.Tooltip("removed:Q", title="removed of all images", format=".1%"),
    ]  # fmt: skip
    panels = alt.layer(
        base.mark_rule(strokeWidth=1.5).encode(x=alt.X("low:Q"), x2="high:Q"),
        base.mark_point(filled=True, size=70).encode(x=x, tooltip=tooltip),
    ).properties(width=300, height=alt.Step(14))
    facet = alt.Column("planted:N", title=None, sort=["flipped labels", "garbage images"]).header(
        labelFontWeight="bold"
    )
    return panels.facet(column=facet).add_params(share, measure).properties(title=titled(title))
