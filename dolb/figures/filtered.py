"""Figures of training on what filters keep: accuracy by set, weight decay, batch size and rate, and gains in pairs.

All have one form: sets side by side at each value of the horizontal axis, dots with 95% intervals, and hollow diamonds
for what the paper reports.
"""

from __future__ import annotations

from collections.abc import Iterable

import altair as alt
import pandas as pd

from dolb.figures.style import ABOVE, COLOURS, REPORTED, Panel, interval, picked, titled

SETS = ["full", "filtered", "random", "recursive", "grid", "neighbours", "el2n", "forgetting", "confident"]
_COLOUR = dict(
    zip(
        SETS,
        [COLOURS[0], COLOURS[4], COLOURS[6], "#6A3D9A", COLOURS[1], COLOURS[2], COLOURS[3], COLOURS[5], "#999999"],
        strict=True,
    )
)
_OWN = ["#8C510A", "#BF812D", "#543005"]  # of a person's own sets


def set_colour(names: Iterable[str], field: str = "set", title: str = "training set (click)") -> alt.Color:
    """Return the colour of each training set, with a legend to click; a person's own sets come last, in browns."""
    own = sorted(set(names) - set(SETS))
    colours = {name: _COLOUR[name] for name in SETS if name in set(names)}
    colours |= {name: _OWN[k % len(_OWN)] for k, name in enumerate(own)}
    return alt.Color(f"{field}:N", title=title, legend=ABOVE, sort=list(colours)).scale(
        domain=list(colours), range=list(colours.values())
    )


def accuracy_by_set(cells: pd.DataFrame, reported: pd.DataFrame, title: str = "") -> Panel:
    """Draw accuracy by batch size; where ``cells`` has both comparisons, equal epochs or updates are chosen below.

    ``cells`` has equal, set, batch_size, weight_decay, accuracy, low, high, n, updates; ``reported`` set, batch_size,
    accuracy, what.
    """
    return _sized(_side_by_side(cells, reported, _sizes(cells), "set", _accuracy(), _tooltip(), _either(cells)), title)


def accuracy_by_decay(cells: pd.DataFrame, reported: pd.DataFrame, title: str = "") -> Panel:
    """Draw accuracy by weight decay at a batch size that is chosen below; columns as in `accuracy_by_set`."""
    x = alt.X("weight_decay:O", title="weight decay").axis(labelAngle=0, format="~g")
    sizes = [int(size) for size in sorted(set(cells["batch_size"]))]
    bind = alt.binding_radio(options=sizes, name="batch size ")
    chosen = alt.param(name="batch_size", value=sizes[-1], bind=bind)
    return _sized(_side_by_side(cells, reported, x, "set", _accuracy(), _tooltip(), chosen), title)


def accuracy_by_rate(cells: pd.DataFrame, taken: float, title: str = "") -> Panel:
    """Draw accuracy by learning rate, with a line at the rate that the recipe ``taken`` has.

    ``cells`` has set, lr, batch_size, accuracy, low, high, n, updates.
    """
    x = alt.X("lr:O", title="learning rate").axis(labelAngle=0, format="~g")
    tooltip = [alt.Tooltip("lr:Q", title="learning rate"), *_tooltip(decay=False)]
    drawn = _side_by_side(cells, pd.DataFrame(), x, "set", _accuracy(), tooltip)
    mark = alt.Chart(pd.DataFrame({"lr": [taken]})).mark_rule(color=REPORTED, strokeDash=[4, 3])
    return _sized(alt.layer(mark.encode(x=x), drawn), title)


def gains(table: pd.DataFrame, reported: pd.DataFrame, title: str = "") -> Panel:
    """Draw what filtered data gain over other sets by batch size, in points.

    ``table`` has equal, batch_size, other, points, low, high, n; ``reported`` batch_size, other, points, what.
    """
    change = alt.Y("points:Q", title="filtered less the other, points").axis(format="+.1f")
    tooltip = [
        alt.Tooltip("other:N", title="compared with"),
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("points:Q", title="filtered gains, points", format="+.2f"),
        *interval("+.2f"),
        alt.Tooltip("n:Q", title="seeds"),
    ]
    zero = alt.Chart(pd.DataFrame({"points": [0.0]})).mark_rule(color=REPORTED, strokeDash=[4, 3]).encode(y=change)
    drawn = _side_by_side(table, reported, _sizes(table), "other", change, tooltip, _either(table))
    return _sized(alt.layer(zero, drawn), title)


def _side_by_side(
    table: pd.DataFrame,
    reported: pd.DataFrame,
    x: alt.X,
    field: str,
    y: alt.Y,
    tooltip: list[alt.Tooltip],
    choice: alt.Parameter | None = None,
) -> Panel:
    """Draw dots with intervals, and diamonds for what is reported; ``choice`` names the column whose rows are shown."""
    picks = alt.selection_point(fields=[field], bind="legend")
    title = "training set (click)" if field == "set" else "compared with (click)"
    same = {
        "x": x,
        "xOffset": alt.XOffset(f"{field}:N", sort=SETS).scale(paddingOuter=0.3),
        "color": set_colour(table[field], field, title),
        "opacity": picked(picks),
    }
    base, theirs = (alt.Chart(rows).encode(**same) for rows in (table, reported))
    params = [picks]
    if choice is not None:
        base = base.transform_filter(f"datum.{choice.name} == {choice.name}")
        theirs = theirs.transform_filter(f"!isValid(datum.{choice.name}) || datum.{choice.name} == {choice.name}")
        params.append(choice)
    value = y["shorthand"].split(":")[0]
    layers = [
        # A legend answers clicks for a choice that the first layer with its colour has, and for no other.
        base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q", title=y["title"]), y2="high:Q").add_params(*params),
        base.mark_point(filled=True, size=60, opacity=1).encode(y=y, tooltip=tooltip),
    ]
    if len(reported):
        about = [
            alt.Tooltip("what:N", title="reported"),
            alt.Tooltip(f"{field}:N", title="training set" if field == "set" else "compared with"),
            alt.Tooltip("batch_size:Q", title="batch size", format=","),
            alt.Tooltip(f"{value}:Q", title="reported value", format=".1%" if field == "set" else "+.1f"),
        ]
        diamonds = theirs.mark_point(shape="diamond", size=120, strokeWidth=2)
        layers.append(diamonds.encode(y=y, tooltip=about))
    return alt.layer(*layers)


def _sized(chart: Panel, title: str) -> Panel:
    return chart.properties(width="container", height=300, title=titled(title))


def _either(table: pd.DataFrame) -> alt.Parameter | None:
    """Return the choice between equal epochs and equal updates, if there are both."""
    options = [name for name in ("epochs", "updates") if name in set(table["equal"])]
    if len(options) < 2:
        return None
    return alt.param(name="equal", value=options[0], bind=alt.binding_radio(options=options, name="equal "))


def _sizes(table: pd.DataFrame) -> alt.X:
    angle = -45 if table["batch_size"].nunique() > 4 else 0
    return alt.X("batch_size:O", title="batch size").axis(labelAngle=angle, format=",", labelOverlap=False)


def _accuracy() -> alt.Y:
    return alt.Y("accuracy:Q", title="test accuracy").axis(format="~%").scale(zero=False)


def _tooltip(decay: bool = True) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("set:N", title="training set"),
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        *([alt.Tooltip("weight_decay:Q", title="weight decay")] if decay else []),
        alt.Tooltip("accuracy:Q", title="test accuracy", format=".2%"),
        *interval(".2%"),
        alt.Tooltip("n:Q", title="seeds"),
        alt.Tooltip("updates:Q", format=","),
    ]
