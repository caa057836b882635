"""Figures of training on what filters keep: accuracy by set, weight decay, batch size and rate, and gains in pairs.

All have one form: sets side by side at each value of the horizontal axis, dots with 95% intervals, and hollow diamonds
for what the paper reports.
"""

from collections.abc import Iterable, Sequence

import altair as alt
import pandas as pd

from dolb.figures import style
from dolb.figures.style import ACCURACY, COLOURS, Panel, bars, dots, hover, interval, layered, line_at

SETS = ["full", "filtered", "random", "recursive", "grid", "neighbours", "el2n", "forgetting", "confident"]
_COLOURS = [COLOURS[0], COLOURS[4], COLOURS[6], "#6A3D9A", "#999999", COLOURS[2], COLOURS[3], COLOURS[5], COLOURS[1]]
_OWN = ["#8C510A", "#BF812D", "#543005"]  # of a person's own sets


def set_colour(names: Iterable[str], field: str = "set") -> alt.Color:
    """Return the colour of each training set, with a legend to click; a person's own sets come last, in browns."""
    own = sorted(set(names) - set(SETS))
    colours = {name: colour for name, colour in zip(SETS, _COLOURS, strict=True) if name in set(names)}
    colours |= {name: _OWN[k % len(_OWN)] for k, name in enumerate(own)}
    title = "compared with (click)" if field == "other" else "training set (click)"
    return style.coloured(f"{field}:N", list(colours), list(colours.values()), title)


def accuracy_by_set(cells: pd.DataFrame, reported: pd.DataFrame, title: str = "") -> Panel:
    """Draw accuracy by batch size; where ``cells`` has both comparisons, equal epochs or updates are chosen below.

    ``cells`` has equal, set, batch_size, weight_decay, accuracy, low, high, n, updates; ``reported`` set, batch_size,
    accuracy, what.
    """
    return _side_by_side(title, cells, reported, _sizes(cells), ACCURACY, _told(), _either(cells))


def accuracy_by_decay(cells: pd.DataFrame, reported: pd.DataFrame, title: str = "") -> Panel:
    """Draw accuracy by weight decay at a batch size that is chosen below; columns as in `accuracy_by_set`."""
    x = alt.X("weight_decay:O", title="weight decay").axis(labelAngle=0, format="~g")
    sizes = sorted(cells["batch_size"].unique().tolist())
    chosen = style.choice("batch_size", "batch size", sizes, sizes[-1])
    return _side_by_side(title, cells, reported, x, ACCURACY, _told(), [chosen])


def accuracy_by_rate(cells: pd.DataFrame, taken: float, title: str = "") -> Panel:
    """Draw accuracy by learning rate, with a line at the rate that the recipe ``taken`` has.

    ``cells`` has set, lr, batch_size, accuracy, low, high, n, updates.
    """
    x = alt.X("lr:O", title="learning rate").axis(labelAngle=0, format="~g")
    return _side_by_side(title, cells, pd.DataFrame(), x, ACCURACY, _told("lr"), line=line_at(x, taken))


def gains(table: pd.DataFrame, reported: pd.DataFrame, title: str = "") -> Panel:
    """Draw what filtered data gain over other sets by batch size, in points.

    ``table`` has equal, batch_size, other, points, low, high, n; ``reported`` batch_size, other, points, what.
    """
    change = alt.Y("points:Q", title="filtered less the other, points").axis(format="+.1f")
    tooltip = hover("other", "batch_size", points="filtered gains, points:+.2f") + interval("+.2f") + hover("n")
    zero = line_at(change, 0.0)
    return _side_by_side(title, table, reported, _sizes(table), change, tooltip, _either(table), zero)


def crossover(table: pd.DataFrame, title: str = "") -> Panel:
    """Draw what filtered and random data gain over full data by batch size; triangles: an epoch has fewer updates.

    ``table`` has equal, batch_size, one, fewer, points, low, high, n.
    """
    table = table.assign(epoch=table["fewer"].map(lambda count: "fewer" if count > 0 else "as many"))
    change = alt.Y("points:Q", title="less full data, points").axis(format="+.1f")
    choices = _either(table)
    base = alt.Chart(table).encode(_sizes(table), alt.XOffset("one:N", sort=SETS), set_colour(table["one"], "one"))
    for name in (choice.name for choice in choices):
        base = base.transform_filter(f"datum.{name} == {name}")
    kinds = ["as many", "fewer"]
    shape = alt.Shape("epoch:N", title="updates in an epoch", legend=style.above(kinds, "updates in an epoch"))
    shape = shape.scale(domain=kinds, range=["circle", "triangle-down"])
    tooltip = hover("batch_size", one="training set", epoch="updates in an epoch", points="less full data, points:+.2f")
    marks = dots(base, change, shape, size=80, tooltip=tooltip + interval("+.2f") + hover("n"))
    return layered(300, title, line_at(change, 0.0), bars(base), marks, click="one", choices=choices)


def by_share(table: pd.DataFrame, title: str = "") -> Panel:
    """Draw what each way to choose gains by the share that is removed; batch size and comparison are chosen below.

    ``table`` has equal, batch_size, removed, one, other, points, low, high, n.
    """
    change = alt.Y("points:Q", title="less the other set, points").axis(format="+.1f")
    shares = sorted(table["removed"].round(3).unique().tolist())
    x = alt.X("removed:Q", title="removed").scale(type="log", nice=False, padding=14)
    x = x.axis(format="~%", values=shares, grid=False)
    sizes = sorted(table["batch_size"].unique().tolist())
    others, equal = sorted(table["other"].unique()), sorted(table["equal"].unique(), reverse=True)
    choices = [style.choice("batch_size", "batch size", sizes, sizes[-1]), style.choice("other", "less", others)]
    choices.append(style.choice("equal", "equal", equal))  # updates first: epochs of a smaller set have fewer
    base = alt.Chart(table).encode(x, set_colour(table["one"], "one"))
    for name in (choice.name for choice in choices):
        base = base.transform_filter(f"datum.{name} == {name}")
    told = hover("batch_size", one="training set", other="less", removed="removed:.1%", points="points:+.2f")
    marks = dots(base, change, tooltip=told + interval("+.2f") + hover("n"))
    lines = base.mark_line().encode(change)
    return layered(320, title, line_at(change, 0.0), lines, bars(base), marks, click="one", choices=choices)


def _side_by_side(
    title: str,
    table: pd.DataFrame,
    reported: pd.DataFrame,
    x: alt.X,
    y: alt.Y,
    tooltip: list[alt.Tooltip],
    choices: Sequence[alt.Parameter] = (),
    line: alt.Chart | None = None,
) -> Panel:
    """Draw dots with intervals, and diamonds for what is reported; choices name the columns whose rows are shown."""
    field, value, form = ("set", "accuracy", ".1%") if y is ACCURACY else ("other", "points", "+.1f")
    offset = alt.XOffset(f"{field}:N", sort=SETS).scale(paddingOuter=0.3)
    base, theirs = (alt.Chart(rows).encode(x, offset, set_colour(table[field], field)) for rows in (table, reported))
    for name in (choice.name for choice in choices):
        base = base.transform_filter(f"datum.{name} == {name}")
        theirs = theirs.transform_filter(f"!isValid(datum.{name}) || datum.{name} == {name}")
    about = hover(what="reported") + hover(field, "batch_size", **{value: f"reported value:{form}"})
    diamonds = theirs.mark_point(shape="diamond", size=120, strokeWidth=2).encode(y, tooltip=about)
    layers = [bars(base), dots(base, y, tooltip=tooltip), *([diamonds] if len(reported) else [])]
    return layered(300, title, *([line] if line else []), *layers, click=field, choices=choices)


def _either(table: pd.DataFrame) -> list[alt.Parameter]:
    """Return the choice between equal epochs and equal updates, if there are both."""
    options = sorted(set(table["equal"]))
    return [style.choice("equal", "equal", options)] if len(options) > 1 else []


def _sizes(table: pd.DataFrame) -> alt.X:
    angle = -45 if table["batch_size"].nunique() > 4 else 0
    return alt.X("batch_size:O", title="batch size").axis(labelAngle=angle, format=",", labelOverlap=False)


def _told(by: str = "weight_decay") -> list[alt.Tooltip]:
    return hover("set", "batch_size", by, "accuracy") + interval(".2%") + hover("n", "updates")
