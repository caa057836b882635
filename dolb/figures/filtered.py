"""Figures of training on what filters keep: accuracy by set, weight decay and batch size, and differences in pairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from dolb.figures.style import ABOVE, COLOURS, PERCENT, REPORTED, Panel, batch_size_axis, picked, titled

SETS = ["full", "network", "random", "recursive", "grid", "neighbours", "el2n", "forgetting", "confident"]
_COLOUR = dict(
    zip(
        SETS,
        [*COLOURS[:1], COLOURS[4], COLOURS[6], "#6A3D9A", COLOURS[1], COLOURS[2], COLOURS[3], COLOURS[5], "#999999"],
        strict=True,
    )
)

IN_A_LINE = 5  # names of sets in a legend
_OWN = ["#8C510A", "#BF812D", "#543005"]


def set_colour(names: Iterable[str], field: str = "set", title: str = "training set (click)") -> alt.Color:
    """Return the colour of each training set, with a legend to click; a person's own sets come last, in browns."""
    own = sorted(set(names) - set(SETS))
    colours = {name: _COLOUR[name] for name in SETS if name in set(names)}
    colours |= {name: _OWN[k % len(_OWN)] for k, name in enumerate(own)}
    legend = ABOVE.copy(deep=True)
    if len(colours) > IN_A_LINE:  # a page is no wider
        legend.columns = IN_A_LINE
    return alt.Color(f"{field}:N", title=title, legend=legend, sort=list(colours)).scale(
        domain=list(colours), range=list(colours.values())
    )


def _equal() -> alt.Parameter:
    """Return the choice between the two comparisons, for under a chart whose rows have ``equal``."""
    options = ["epochs", "updates"]
    return alt.param(name="equal", value=options[0], bind=alt.binding_radio(options=options, name="equal "))


def _tooltip() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("set:N", title="training set"),
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("weight_decay:Q", title="weight decay"),
        alt.Tooltip("accuracy:Q", title="test accuracy", format=".2%"),
        alt.Tooltip("low:Q", title="interval from", format=".2%"),
        alt.Tooltip("high:Q", title="interval to", format=".2%"),
        alt.Tooltip("n:Q", title="seeds"),
        alt.Tooltip("updates:Q", format=","),
    ]


_THEIRS = [
    alt.Tooltip("what:N", title="reported"),
    alt.Tooltip("set:N", title="training set"),
    alt.Tooltip("batch_size:Q", title="batch size", format=","),
    alt.Tooltip("accuracy:Q", title="test accuracy", format=".1%"),
]


def accuracy_by_decay(
    cells: pd.DataFrame, reported: Sequence[Mapping[str, Any]] = (), title: str = "", said: Sequence[str] = ()
) -> alt.FacetChart:
    """Draw accuracy against weight decay, a panel per batch size and a line per training set, with intervals.

    ``cells`` has set, batch_size, weight_decay, accuracy, low, high, n, updates; ``reported`` the same of the paper
    with ``what``, drawn as diamonds in the colour of the set.
    """
    chosen = alt.selection_point(fields=["set"], bind="legend")
    table = pd.concat([cells.assign(what=""), pd.DataFrame(list(reported))], ignore_index=True)
    table["panel"] = "batch " + table["batch_size"].astype(int).astype(str)
    order = [f"batch {size}" for size in sorted(set(cells["batch_size"]))]
    x = alt.X("weight_decay:O", title="weight decay").axis(labelAngle=0, format="~g")
    y = alt.Y("accuracy:Q", title="test accuracy", axis=PERCENT).scale(zero=False)
    beside = alt.XOffset("set:N", sort=SETS).scale(paddingOuter=0.3)
    base = alt.Chart(table).encode(
        x=x, xOffset=beside, color=set_colour(cells["set"]), opacity=picked(chosen)
    )  # fmt: skip
    ours, theirs = (base.transform_filter(f"datum.what {sign} ''") for sign in ("===", "!=="))
    layers = [
        # A legend answers clicks for a choice that the first layer with its colour has, and for no other.
        ours.mark_rule(strokeWidth=1.5, clip=True)
        .encode(y=alt.Y("low:Q", title="test accuracy"), y2="high:Q")
        .add_params(chosen),
        ours.mark_point(filled=True, size=50).encode(y=y, tooltip=_tooltip()),
    ]
    if reported:
        layers.append(theirs.mark_point(shape="diamond", size=110, strokeWidth=2).encode(y=y, tooltip=_THEIRS))
    width = 30 + 60 * cells["weight_decay"].nunique()
    drawn = alt.layer(*layers).properties(width=width, height=240)
    facet = alt.Facet("panel:N", title=None, sort=order).header(labelFontSize=12, labelFontWeight="bold")
    return drawn.facet(facet=facet, columns=2).resolve_axis(x="independent").properties(title=titled(title, said))


def accuracy_by_set(
    cells: pd.DataFrame, reported: Sequence[Mapping[str, Any]] = (), title: str = "", said: Sequence[str] = ()
) -> Panel:
    """Draw accuracy against batch size, a line per training set with intervals; at equal epochs or equal updates.

    ``cells`` has equal, set, batch_size, weight_decay, accuracy, low, high, n, updates; ``reported`` set, batch_size,
    accuracy, what.
    """
    chosen, equal = alt.selection_point(fields=["set"], bind="legend"), _equal()
    x = batch_size_axis(cells["batch_size"], apart=1.2)
    y = alt.Y("accuracy:Q", title="test accuracy", axis=PERCENT).scale(zero=False)
    colour = set_colour(cells["set"])
    base = alt.Chart(cells).transform_filter("datum.equal === equal").encode(x=x, color=colour, opacity=picked(chosen))
    layers = [
        base.mark_line(strokeWidth=2).encode(y=y).add_params(chosen, equal),
        base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q", title="test accuracy"), y2="high:Q"),
        base.mark_point(filled=True, size=50).encode(y=y, tooltip=_tooltip()),
    ]
    if reported:
        diamonds = alt.Chart(pd.DataFrame(list(reported))).mark_point(shape="diamond", size=120, strokeWidth=2)
        layers.append(diamonds.encode(x=x, y=y, color=colour, tooltip=_THEIRS))
    return alt.layer(*layers).properties(width=560, height=320, title=titled(title, said))


def gains(table: pd.DataFrame, title: str = "", said: Sequence[str] = ()) -> Panel:
    """Draw what network filtered data gain over other sets by batch size, runs of one seed in pairs, with intervals.

    ``table`` has equal, batch_size, other, difference, low, high, p, p_holm, n.
    """
    chosen, equal = alt.selection_point(fields=["other"], bind="legend"), _equal()
    sizes = sorted(set(table["batch_size"]))
    points = table.assign(**{name: 100 * table[name] for name in ("difference", "low", "high")})
    base = alt.Chart(points).transform_filter("datum.equal === equal").encode(
        x=alt.X("batch_size:O", title="global batch size", sort=sizes).axis(labelAngle=-45 if len(sizes) > 4 else 0),
        xOffset=alt.XOffset("other:N", sort=SETS).scale(paddingOuter=0.3),
        color=set_colour(table["other"], "other", "compared with (click)"),
        opacity=picked(chosen),
    )  # fmt: skip
    tooltip = [
        alt.Tooltip("other:N", title="compared with"),
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("difference:Q", title="network filtered gains, points", format="+.2f"),
        alt.Tooltip("low:Q", title="interval from", format="+.2f"),
        alt.Tooltip("high:Q", title="interval to", format="+.2f"),
        alt.Tooltip("p:Q", title="p, paired t-test", format=".2g"),
        alt.Tooltip("p_holm:Q", title="p, corrected for all tests (Holm)", format=".2g"),
        alt.Tooltip("n:Q", title="seeds"),
    ]
    change = alt.Y("difference:Q", title="network filtered less the other, points").axis(format="+.1f")
    return alt.layer(
        alt.Chart(pd.DataFrame({"difference": [0.0]})).mark_rule(color=REPORTED, strokeDash=[4, 3]).encode(y=change),
        base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q"), y2="high:Q").add_params(chosen, equal),
        base.mark_point(filled=True, size=60).encode(y=change, tooltip=tooltip),
    ).properties(width=min(560, max(260, 68 * len(sizes))), height=280, title=titled(title, said))


def best_by_set(best: pd.DataFrame, title: str = "") -> Panel:
    """Draw the best accuracy of each way to choose the training set at one batch size, with intervals.

    ``best`` has set, weight_decay, accuracy, low, high, n, updates.
    """
    order = list(best.sort_values("accuracy", ascending=False)["set"])
    base = alt.Chart(best).encode(y=alt.Y("set:N", title=None, sort=order))
    x = alt.X("accuracy:Q", title="test accuracy at the best weight decay").axis(format=".1%").scale(zero=False)
    return alt.layer(
        base.mark_rule(strokeWidth=1.5, color=COLOURS[0]).encode(x=alt.X("low:Q", title=""), x2="high:Q"),
        base.mark_point(filled=True, size=80, color=COLOURS[0]).encode(x=x, tooltip=_tooltip()),
    ).properties(width=480, height=30 * len(order) + 20, title=titled(title))
