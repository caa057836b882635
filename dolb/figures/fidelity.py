"""The figure of the fast path against the plain one."""

from __future__ import annotations

import altair as alt
import pandas as pd

from dolb.figures.style import ABOVE, COLOURS, PERCENT, picked


def paths(frame: pd.DataFrame, title: str = "") -> alt.FacetChart:
    """Draw the accuracy of every seed by path, a panel per cell, with the mean as a line.

    ``frame`` has arch, batch_size, lr, seed, path, accuracy.
    """
    cell = "batch " + frame["batch_size"].map("{:,}".format) + ", rate " + frame["lr"].map("{:g}".format)
    names = sorted(set(frame["path"]), reverse=True)
    path = alt.selection_point(fields=["path"], bind="legend")
    base = alt.Chart(frame.assign(cell=cell)).encode(
        y=alt.Y("path:N", title=None, sort=names).axis(None),
        color=alt.Color("path:N", title="path (click)", sort=names, legend=ABOVE).scale(
            domain=names, range=[COLOURS[3], COLOURS[0]]
        ),
        opacity=picked(path),
    )
    points = base.mark_point(size=60).encode(
        x=alt.X("accuracy:Q", title="test accuracy").scale(zero=False).axis(PERCENT),
        tooltip=[
            alt.Tooltip("cell:N", title="cell"),
            alt.Tooltip("path:N", title="path"),
            alt.Tooltip("seed:Q", title="seed"),
            alt.Tooltip("accuracy:Q", title="test accuracy", format=".1%"),
        ],
    )
    means = base.mark_tick(thickness=3, height=26).encode(x="mean(accuracy):Q")
    layers = alt.layer(points.add_params(path), means).properties(width=480, height=80)
    return layers.facet(row=alt.Row("cell:N", title=None)).properties(title=title)
