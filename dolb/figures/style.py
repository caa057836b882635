"""What figures share: colours, legends, axes, titles, and the words of a hover."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import Any

import altair as alt

# Okabe and Ito's colours, which people with colour-blindness tell apart, in an order from cold to warm.
COLOURS = ["#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#000000"]
STUDIED = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")  # each has one colour, in every figure
REPORTED = "#6b6b6b"
FADED = 0.12
Panel = alt.LayerChart | alt.FacetChart

ABOVE = alt.Legend(orient="top", direction="horizontal", titleOrient="left", titleLimit=300)
_NUMBERS = re.compile(r"(\d+)")
PERCENT = alt.Axis(format=".0%")


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
    legend = ABOVE if len(names) < 4 else alt.Legend(orient="top", direction="horizontal", columns=3)
    return alt.Color("arch:N", title="network (click)", legend=legend, sort=names).scale(domain=names, range=colours)


def rate_colour(rates: Iterable[float]) -> alt.Color:
    """Return a colour per learning rate, from low to high, with a legend to click."""
    values = sorted(set(rates))
    return alt.Color("lr:O", title="learning rate (click)", legend=ABOVE).scale(
        domain=values, range=COLOURS[: len(values)]
    )


def picked(selection: alt.Parameter) -> Any:
    """Return the opacity of what is selected, and of what is not."""
    return alt.condition(selection, alt.value(1.0), alt.value(FADED))


def titled(title: str) -> alt.Title | str:
    """Return a title that stands a little above its chart."""
    return alt.Title(title, anchor="start", offset=12) if title else ""


def interval(form: str, of: str = "") -> list[alt.Tooltip]:
    """Return what the hover says of an interval, whose ends are the columns ``low`` and ``high`` after ``of``."""
    return [
        alt.Tooltip(f"{of}low:Q", title="interval from", format=form),
        alt.Tooltip(f"{of}high:Q", title="interval to", format=form),
    ]


def accuracy_tooltip(seconds: str | None = None) -> list[alt.Tooltip]:
    """Return what the hover over a cell says; its time, too, if a column has it."""
    time = [alt.Tooltip(f"{seconds}:Q", title="device seconds", format=",.1f")] if seconds else []
    return [
        alt.Tooltip("arch:N", title="network"),
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("lr:Q", title="learning rate"),
        alt.Tooltip("accuracy:Q", title="test accuracy", format=".2%"),
        *interval(".2%"),
        alt.Tooltip("n:Q", title="seeds"),
        alt.Tooltip("updates:Q", title="updates", format=","),
        *time,
        alt.Tooltip("diverged:Q", title="diverged"),
        alt.Tooltip("late_drops:Q", title="collapsed near the end"),
    ]
