"""What figures share: colours, legends, axes, choices, layers, and the words of a hover."""

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt
import pandas as pd

# Okabe and Ito's colours, which people with colour-blindness tell apart, in an order from cold to warm.
COLOURS = ["#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#000000"]
STUDIED = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")  # each has one colour, in every figure
REPORTED = "#6b6b6b"
FADED = 0.12
DASHED = [6, 4]  # what is simulated
Panel = alt.LayerChart | alt.FacetChart

_ACROSS = 40  # characters of a legend that fit the narrowest page
_NUMBERS = re.compile(r"(\d+)")
PERCENT = alt.Axis(format="~%")
ACCURACY = alt.Y("accuracy:Q", title="test accuracy", axis=PERCENT).scale(zero=False)
# What the hover calls a column; after the colon is the format of its numbers.
_WORDS = {
    "accuracy": "test accuracy:.2%",
    "arch": "network",
    "batch_size": "batch size:,",
    "efficiency": "efficiency:.1%",
    "images_per_second": "images per second:,.0f",
    "late_drops": "collapsed near the end",
    "lr": "learning rate:.4~g",
    "n": "seeds",
    "other": "compared with",
    "repeats": "launches",
    "set": "training set",
    "updates": "updates:,.0f",
    "warmup_epochs": "epochs of warmup",
    "weight_decay": "weight decay:.4~g",
}


def batch_size_axis(sizes: Iterable[int], field: str = "batch_size") -> alt.X:
    """Return a logarithmic batch-size axis with a tick at every measured size.

    Where the next size is less than 1.5 times as large, both labels are pushed away from each other.
    """
    ticks = sorted({int(size) for size in sizes})
    push = dict.fromkeys(ticks, 0)
    for one, other in itertools.pairwise(ticks):
        if other < 1.5 * one:
            push[one], push[other] = push[one] - 7, push[other] + 7
    pushed = [{"test": f"datum.value === {size}", "value": by} for size, by in push.items() if by]
    return alt.X(f"{field}:Q", title="global batch size").scale(type="log", base=2, nice=False, padding=12).axis(
        values=ticks, format="d", labelAngle=-45, labelOverlap=False, grid=False,
        labelOffset={"condition": pushed, "value": 0} if pushed else 0,
    )  # fmt: skip


def log_axis(field: str, title: str, ticks: Iterable[int]) -> alt.X:
    """Return a logarithmic axis of counts with these ticks."""
    return alt.X(f"{field}:Q", title=title).scale(type="log", nice=False, padding=14).axis(
        values=sorted({int(tick) for tick in ticks}), format=",d", grid=False, labelOverlap=True
    )  # fmt: skip


def by_depth(archs: Iterable[str]) -> list[str]:
    """Return the networks once each, the shallow before the deep: by name, and by number where names have one."""
    return sorted(set(archs), key=lambda arch: [int(part) if part.isdigit() else part for part in _NUMBERS.split(arch)])


def network_colour(archs: Iterable[str]) -> alt.Color:
    """Return a colour per network, from the shallowest to the deepest, with a legend to click.

    The studied networks keep theirs whichever of them are drawn; others take the first that are free.
    """
    names = by_depth(archs)
    own = dict(zip(STUDIED, COLOURS, strict=False))
    free = (colour for colour in COLOURS if colour not in [own.get(name) for name in names])
    colours = [own[name] if name in own else next(free) for name in names]
    return coloured("arch:N", names, colours, "network (click)")


def coloured(
    field: str,
    names: Sequence[Any],
    colours: Sequence[str] = COLOURS,
    title: str | None = None,
) -> alt.Color:
    """Return a colour for each name, in the order of the names, with a legend above the chart."""
    scale = alt.Scale(domain=list(names), range=list(colours)[: len(names)])
    return alt.Color(
        field,
        title=title,
        sort=list(names),
        legend=above(names, title, "," if field == "batch_size:O" else ""),
        scale=scale,
    )


def above(names: Sequence[Any], title: str | None, form: str = "") -> alt.Legend:
    """Return a legend of these names above a chart, in as many columns as fit the narrowest page."""
    width = 4 + max((len(str(name)) for name in names), default=0)  # a symbol takes about four characters
    beside = width * len(names) + len(title or "") <= _ACROSS
    return alt.Legend(
        orient="top", direction="horizontal", columns=max(1, min(len(names), _ACROSS // width)), symbolLimit=0,
        titleOrient="left" if beside else "top", titleLimit=300, labelLimit=300,
        format=form or alt.Undefined,
    )  # fmt: skip


def choice(name: str, label: str, options: Sequence[Any], value: Any = None, menu: bool = False, **more: Any) -> Any:
    """Return what is chosen under a chart, the first of the options before anybody does; of one there is no choice."""
    binding = alt.binding_select if menu else alt.binding_radio
    bind = binding(name=f"{label} ", options=list(options), **more) if len(options) > 1 else alt.Undefined
    return alt.param(name=name, value=options[0] if value is None else value, bind=bind)


def layered(
    height: int | alt.Step, title: str, *layers: alt.Chart, click: str = "", choices: Sequence[alt.Parameter] = ()
) -> Panel:
    """Return layers as one chart, as wide as its page, which answers clicks and choices as `clickable` says."""
    drawn = alt.layer(*clickable(layers, click, choices))
    return drawn.properties(width="container", height=height, title=titled(title))


def clickable(layers: Sequence[alt.Chart], click: str, choices: Sequence[alt.Parameter] = ()) -> list[alt.Chart]:
    """Return layers whose legend of colours by the field ``click`` picks what is not faded, and that follow choices.

    A legend answers clicks for a selection that the first layer with its colour has, and for no other.
    """
    first, faded = 0, list(layers)
    if click:
        picks = alt.selection_point(fields=[click], bind="legend")
        of_colour = [at for at, layer in enumerate(layers) if _field(layer.encoding.color) == click]
        for at in of_colour:
            faded[at] = faded[at].encode(opacity=alt.condition(picks, alt.value(1.0), alt.value(FADED)))
        first, choices = of_colour[0], [picks, *choices]
    faded[first] = faded[first].add_params(*choices)
    return faded


def _field(channel: Any) -> str:
    return "" if channel is alt.Undefined else channel["shorthand"].split(":")[0]


def titled(title: str) -> alt.Title | str:
    """Return a title that stands a little above its chart."""
    return alt.Title(title, anchor="start", offset=12) if title else ""


def bars(base: alt.Chart, axis: str = "y", of: str = "", clip: bool = False) -> alt.Chart:
    """Return intervals along an axis; their ends are the columns ``low`` and ``high`` after ``of``."""
    rules = base.mark_rule(strokeWidth=1.5, clip=clip)
    return rules.encode(**{axis: f"{of}low:Q", f"{axis}2": f"{of}high:Q"})


def dots(base: alt.Chart, *encoded: Any, size: int = 60, **more: Any) -> alt.Chart:
    """Return a full point for each row."""
    return base.mark_point(filled=True, size=size).encode(*encoded, **more)


def line_at(axis: alt.X | alt.Y, value: float, dash: Sequence[int] = (4, 3)) -> alt.Chart:
    """Return a grey line across the chart at a value of an axis."""
    return (
        alt.Chart(pd.DataFrame({_field(axis): [value]})).mark_rule(color=REPORTED, strokeDash=list(dash)).encode(axis)
    )


def hover(*columns: str, **words: str) -> list[alt.Tooltip]:
    """Return what the pointer is told of a mark: columns in the words of all figures, then others in their own.

    Words end in the format of a number, if there is one, as in ``hover("arch", seconds="seconds of a step:.3g")``.
    """
    said = {column: _WORDS.get(column, column) for column in columns} | words
    parted = [(column, *text.partition(":")[::2]) for column, text in said.items()]
    return [
        alt.Tooltip(f"{column}:Q", title=title, format=form) if form else alt.Tooltip(f"{column}:N", title=title)
        for column, title, form in parted
    ]


def interval(form: str, of: str = "", what: str = "interval") -> list[alt.Tooltip]:
    """Return what the pointer is told of an interval, whose ends are the columns ``low`` and ``high`` after ``of``."""
    return hover(**{f"{of}low": f"{what} from:{form}", f"{of}high": f"{what} to:{form}"})


def accuracy_tooltip() -> list[alt.Tooltip]:
    """Return what the pointer is told of a cell."""
    of_cell = hover("arch", "batch_size", "lr", "accuracy")
    return of_cell + interval(".2%") + hover("n", "updates", "diverged", "late_drops")
