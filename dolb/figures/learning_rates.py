"""Figures of learning rates: accuracy by warmup, by epoch and by rate, and what remedies for large batches do."""

from collections.abc import Iterable

import altair as alt
import pandas as pd

from dolb.figures import style
from dolb.figures.style import (
    ACCURACY,
    COLOURS,
    Panel,
    accuracy_tooltip,
    bars,
    coloured,
    dots,
    hover,
    interval,
    layered,
)

_NAMES = {"arch": "network", "lr": "base rate", "batch_size": "batch size"}


def accuracy_by_warmup(cells: pd.DataFrame, reported: pd.DataFrame, title: str = "") -> Panel:
    """Draw accuracy by epochs of warmup, a line per batch size; network and base rate are chosen below.

    ``cells`` has arch, lr, batch_size, warmup_epochs, accuracy, low, high, n, diverged; ``reported`` batch_size and
    warmup_epochs, the best by the document, which stand as diamonds at the top.
    """
    sizes = sorted(set(cells["batch_size"]))
    x = alt.X("warmup_epochs:O", title="epochs of warmup").axis(labelAngle=0, format="~g")
    colour = coloured("batch_size:O", sizes, [COLOURS[0], COLOURS[4], *COLOURS[1:4]], "batch size (click)")
    choices, base = _chosen(cells, "arch", "lr")
    base = base.encode(x, colour, xOffset=alt.XOffset("batch_size:O").scale(paddingOuter=0.8))
    tooltip = accuracy_tooltip() + hover("warmup_epochs")
    best = alt.Chart(reported).mark_point(shape="diamond", size=120, strokeWidth=2)
    about = hover(what="reported", warmup_epochs="best warmup, epochs")
    return layered(
        300,
        title,
        bars(base),
        base.mark_line(strokeWidth=1, strokeDash=[2, 3]).encode(ACCURACY),
        dots(base, ACCURACY, tooltip=tooltip),
        *([best.encode(x, colour, y=alt.value(8), tooltip=about)] if len(reported) else []),
        click="batch_size",
        choices=choices,
    )


def accuracy_by_epoch(curves: pd.DataFrame, title: str = "") -> Panel:
    """Draw mean accuracy over epochs, a line per warmup; what is chosen below is shown, and a wheel or drag zooms.

    ``curves`` has arch, lr, batch_size, warmup_epochs, epoch, test_accuracy.
    """
    choices, base = _chosen(curves, "arch", "lr", "batch_size")
    lines = base.mark_line(strokeWidth=1.8, clip=True).encode(
        x=alt.X("epoch:Q", title="epoch"),
        y=alt.Y("test_accuracy:Q", title="test accuracy", axis=style.PERCENT).scale(zero=False),
        color=_by_length(curves),
        tooltip=hover("warmup_epochs", "epoch", test_accuracy="test accuracy:.1%"),
    )
    return layered(300, title, lines, click="warmup_epochs", choices=[alt.selection_interval(bind="scales"), *choices])


def first_updates(updates: pd.DataFrame, title: str = "") -> Panel:
    """Draw the loss, or the length of the gradient, of a run's first updates: a line per run, a colour per warmup.

    ``updates`` has warmup_epochs, seed, update, loss, gradient_norm, update_rate. Which of the two is chosen below.
    """
    named = {"loss": "training loss", "gradient_norm": "length of the gradient"}
    shown = style.choice("shown", "show", list(named), labels=list(named.values()))
    lines = alt.Chart(updates).transform_fold(list(named), ["what", "value"]).transform_filter("datum.what == shown")
    lines = lines.mark_line(strokeWidth=1.5).encode(
        x=alt.X("update:Q", title="update").scale(domain=[1, int(updates["update"].max())], nice=False),
        y=alt.Y("value:Q", title="training loss, or length of the gradient").scale(type="log").axis(format="~g"),
        color=_by_length(updates),
        detail="seed:N",
        tooltip=hover("warmup_epochs", "seed", "update", value="value:.3g", update_rate="learning rate:.3g"),
    )
    return layered(300, title, lines, click="warmup_epochs", choices=[shown])


def accuracy_by_rate_and_batch(cells: pd.DataFrame, best: pd.DataFrame, first: Iterable[str], title: str = "") -> Panel:
    """Draw a map of accuracy by batch size and peak rate, with the best rate of each batch size and its interval.

    ``cells`` has arch, batch_size, lr, accuracy, low, high, n, diverged; ``best`` arch, batch_size, best, low, high.
    The network is chosen below; the last of ``first`` is shown before anybody does.
    """
    rates = sorted(set(cells["lr"]))
    ratio = (rates[-1] / rates[0]) ** (0.5 / max(1, len(rates) - 1))
    tiles = cells.assign(bottom=cells["lr"] / ratio, top=cells["lr"] * ratio)
    x = alt.X("batch_size:O", title="batch size").axis(labelAngle=0, format=",")
    domain = [rates[0] / ratio, rates[-1] * ratio]
    y = alt.Y("bottom:Q", title="peak learning rate").scale(type="log", domain=domain, nice=False)
    y = y.axis(values=rates, format="~g", grid=False, labelOverlap=False)
    choices, base = _chosen(tiles, "arch", known=first)
    ridge = alt.Chart(best).transform_filter("datum.arch == chosen_arch")
    colour = alt.Color("accuracy:Q", title="test accuracy").scale(scheme="viridis")
    colour = colour.legend(format=".0%", orient="top", direction="horizontal", gradientLength=200)
    tile = base.mark_rect().encode(x=x, y=y, y2="top:Q", color=colour, tooltip=accuracy_tooltip())
    line = ridge.mark_line(color="white", strokeWidth=2, point={"color": "white", "size": 50})
    about = hover(best="best rate:.3f") + interval(".3f")
    intervals = ridge.mark_rule(color="white", strokeWidth=1.5).encode(x=x, y="low:Q", y2="high:Q")
    return layered(340, title, tile, intervals, line.encode(x=x, y="best:Q", tooltip=about), choices=choices)


def accuracy_by_rule(table: pd.DataFrame, title: str = "") -> Panel:
    """Draw by batch size how many points each rule of scaling loses against the best rate; choose the network below.

    ``table`` has arch, batch_size, rule, lr, accuracy, lost.
    """
    choices, base = _chosen(table.dropna(subset="lost"), "arch")
    y = alt.Y("lost:Q", title="points below the best rate")
    drawn = base.mark_line(strokeWidth=2, point={"filled": True, "size": 60}).encode(
        x=alt.X("batch_size:O", title="batch size").axis(labelAngle=0, format=","),
        y=y,
        color=coloured("rule:N", list(table["rule"].unique()), [COLOURS[6], COLOURS[0], COLOURS[4]], "rate grows"),
        tooltip=hover("rule", "batch_size", "lr", "accuracy", lost="points below the best:.2f"),
    )
    return layered(260, title, style.line_at(y, 0.0), drawn, choices=choices)


def gain_by_remedy(cells: pd.DataFrame, title: str = "") -> Panel:
    """Draw what each method gains over the plain recipe, a row per method and a colour per batch size.

    ``cells`` has method, remedies, batch_size, gain, gain_low, gain_high, accuracy, low, high, n, in the order of the
    rows.
    """
    x = alt.X("gain:Q", title="points over the plain recipe").axis(format="+.3~r", tickMinStep=1)
    base, height = _rows_of_methods(cells[cells["method"] != "plain"])
    layers = style.line_at(x, 0.0), bars(base, "x", "gain_"), dots(base, x, tooltip=_told_of_methods())
    return layered(height, title, *layers, click="batch_size")


def time_by_remedy(cells: pd.DataFrame, title: str = "") -> Panel:
    """Draw the device seconds that each method takes to a target, which is chosen below; none where it is not reached.

    ``cells`` has method, remedies, batch_size, accuracy, low, high, n, and for each target target, seconds, updates.
    """
    targets = sorted(cells["target"].unique().tolist())
    labels = [f"{target:.0%}" for target in targets]
    choice = style.choice("chosen_target", "test accuracy", targets, labels=labels)
    x = alt.X("seconds:Q", title="device seconds").scale(type="log", nice=False, padding=10).axis(format="~g")
    base, height = _rows_of_methods(cells.dropna(subset="seconds"))
    tooltip = _told_of_methods() + hover("updates", seconds="device seconds:.2f")
    chosen = base.transform_filter("datum.target == chosen_target")
    return layered(height, title, dots(chosen, x, tooltip=tooltip), click="batch_size", choices=[choice])


def _rows_of_methods(cells: pd.DataFrame) -> tuple[alt.Chart, int]:
    """Return the chart of a row for each method and in it a place for each batch size, and its height."""
    methods, sizes = list(cells["method"].unique()), sorted(set(cells["batch_size"]))
    colours = [COLOURS[0], COLOURS[3], COLOURS[4], *COLOURS[1:3]]
    base = alt.Chart(cells).encode(
        y=alt.Y("method:N", title=None, sort=methods).axis(labelLimit=200, grid=True, tickBand="extent"),
        yOffset=alt.YOffset("batch_size:O").scale(paddingOuter=0.4),
        color=coloured("batch_size:O", sizes, colours, "batch size (click)"),
    )
    return base, max(120, 15 * len(sizes) * len(methods))


def _told_of_methods() -> list[alt.Tooltip]:
    told = hover("method", "remedies", "batch_size", "accuracy", gain="points over plain:+.2f")
    return told + interval("+.2f", "gain_") + hover("n")


def _by_length(table: pd.DataFrame) -> alt.Color:
    """Return a colour for each length of warmup; the first, that of none, has the same in every figure."""
    lengths = sorted(set(table["warmup_epochs"]))
    return coloured("warmup_epochs:O", lengths, [COLOURS[4], *COLOURS[:4], *COLOURS[5:]], "warmup (click)")


def _chosen(table: pd.DataFrame, *fields: str, known: Iterable[str] = ()) -> tuple[list[alt.Parameter], alt.Chart]:
    """Return a choice under the chart for each field, and the chart of the rows of the choice.

    The last value is shown first; of networks the last that is ``known``.
    """
    choices, chart = [], alt.Chart(table)
    for field in fields:
        options = style.by_depth(table[field]) if field == "arch" else sorted(table[field].unique().tolist())
        if not options:  # an empty chart has no choice
            continue
        first = [*options, *style.by_depth(known)][-1]
        choices.append(style.choice(f"chosen_{field}", _NAMES[field], options, first))
        chart = chart.transform_filter(f"datum.{field} == chosen_{field}")
    return choices, chart
