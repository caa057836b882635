"""Figure of planted faults: precision and recall of each way to filter."""

import altair as alt
import pandas as pd

from dolb.figures import style
from dolb.figures.style import COLOURS, PERCENT, bars, dots, hover, interval

_MEASURES = {"precision": COLOURS[0], "recall": COLOURS[3]}


def found_faults(cells: pd.DataFrame, usual: float, title: str = "") -> alt.FacetChart:
    """Draw precision and recall of each method, a panel for each kind of fault; the share to remove is chosen below.

    ``cells`` has planted, removed_share, method, rank, measure, value, low, high, n, removed.
    """
    shares = {share: f"{share:.1%}".replace(".0%", "%") for share in sorted(set(cells["removed_share"]))}
    drawn = cells.assign(share=cells["removed_share"].map(shares))
    share = style.choice("share", "remove", list(shares.values()), shares[usual])
    order = list(drawn.sort_values("rank")["method"].unique())
    base = alt.Chart(drawn).transform_filter("datum.share === share").encode(
        y=alt.Y("method:N", title=None, sort=order).axis(labelLimit=120, grid=True, gridOpacity=0.3),
        yOffset=alt.YOffset("measure:N", sort=list(_MEASURES)),
        color=style.coloured("measure:N", list(_MEASURES), list(_MEASURES.values()), "measure (click)"),
    )  # fmt: skip
    x = alt.X("value:Q", title="share of images", axis=PERCENT).scale(domain=[0, 1])
    told = hover("method", "planted", "measure", value="value:.1%") + interval(".1%")
    told += hover("n", removed="removed of all images:.1%")
    layers = style.clickable([bars(base, "x"), dots(base, x, size=70, tooltip=told)], "measure", [share])
    facet = alt.Facet("planted:N", title=None, sort=["flipped labels", "garbage images"]).header(labelFontWeight="bold")
    panels = alt.layer(*layers).properties(width=230, height=alt.Step(14)).facet(facet=facet, columns=2)
    return panels.resolve_axis(x="independent", y="independent").properties(title=style.titled(title))
