"""Figures of learning rates: accuracy by warmup, by epoch and by rate, and what remedies for large batches do."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from dolb.figures.style import (
    ABOVE,
    COLOURS,
    PERCENT,
    REPORTED,
    Panel,
    accuracy_tooltip,
    by_depth,
    interval,
    picked,
    titled,
)


def accuracy_by_warmup(cells: pd.DataFrame, reported: pd.DataFrame, title: str = "") -> Panel:
    """Draw accuracy by epochs of warmup, a line per batch size; network and base rate are chosen below.

    ``cells`` has arch, lr, batch_size, warmup_epochs, accuracy, low, high, n, diverged; ``reported`` batch_size and
    warmup_epochs, the best by the document, which stand as diamonds at the top.
    """
    sizes = sorted(set(cells["batch_size"]))
    picks = alt.selection_point(fields=["batch_size"], bind="legend")
    same = {
        "x": alt.X("warmup_epochs:O", title="epochs of warmup").axis(labelAngle=0, format="~g"),
        "color": alt.Color("batch_size:O", title="batch size (click)", legend=ABOVE).scale(
            domain=sizes, range=[COLOURS[0], COLOURS[4], *COLOURS[1:4]][: len(sizes)]
        ),
        "opacity": picked(picks),
    }
    choices, base = _chosen(alt.Chart(cells), cells, ("arch", "lr"))
    base = base.encode(**same, xOffset=alt.XOffset("batch_size:O").scale(paddingOuter=0.8))
    y = alt.Y("accuracy:Q", title="test accuracy", axis=PERCENT).scale(zero=False)
    tooltip = [*accuracy_tooltip(), alt.Tooltip("warmup_epochs:Q", title="epochs of warmup")]
    layers = [
        base.mark_rule(strokeWidth=1.5)
        .encode(y=alt.Y("low:Q", title="test accuracy"), y2="high:Q")
        .add_params(picks, *choices),
        base.mark_line(strokeWidth=1, strokeDash=[2, 3]).encode(y=y),
        base.mark_point(filled=True, size=60, opacity=1).encode(y=y, tooltip=tooltip),
    ]
    if len(reported):
        best = alt.Chart(reported).mark_point(shape="diamond", size=120, strokeWidth=2)
        about = [alt.Tooltip("what:N", title="reported"), alt.Tooltip("warmup_epochs:Q", title="best warmup, epochs")]
        layers.append(best.encode(**same, y=alt.value(8), tooltip=about))
    return alt.layer(*layers).properties(width="container", height=300, title=titled(title))


def accuracy_by_epoch(curves: pd.DataFrame, title: str = "") -> Panel:
    """Draw mean accuracy over epochs, a line per warmup; what is chosen below is shown, and a wheel or drag zooms.

    ``curves`` has arch, lr, batch_size, warmup_epochs, epoch, test_accuracy.
    """
    lengths = sorted(set(curves["warmup_epochs"]))
    picks = alt.selection_point(fields=["warmup_epochs"], bind="legend")
    choices, base = _chosen(alt.Chart(curves), curves, ("arch", "lr", "batch_size"))
    lines = base.mark_line(strokeWidth=1.8, clip=True).encode(
        x=alt.X("epoch:Q", title="epoch"),
        y=alt.Y("test_accuracy:Q", title="test accuracy", axis=PERCENT).scale(zero=False),
        color=alt.Color("warmup_epochs:O", title="warmup (click)", legend=ABOVE).scale(
            domain=lengths, range=_by_length(lengths)
        ),
        opacity=picked(picks),
        tooltip=[
            alt.Tooltip("warmup_epochs:Q", title="epochs of warmup"),
            alt.Tooltip("epoch:Q"),
            alt.Tooltip("test_accuracy:Q", title="test accuracy", format=".1%"),
        ],
    )
    zoom = alt.selection_interval(bind="scales")
    return alt.layer(lines.add_params(picks, zoom, *choices)).properties(
        width="container", height=300, title=titled(title)
    )


def first_updates(updates: pd.DataFrame, title: str = "") -> Panel:
    """Draw the loss, or the length of the gradient, of a run's first updates: a line per run, a colour per warmup.

    ``updates`` has warmup_epochs, seed, update, loss, gradient_norm, update_rate. Which of the two is chosen below.
    """
    named = {"loss": "training loss", "gradient_norm": "length of the gradient"}
    lengths = sorted(set(updates["warmup_epochs"]))
    picks = alt.selection_point(fields=["warmup_epochs"], bind="legend")
    bind = alt.binding_radio(options=list(named), labels=list(named.values()), name="show ")
    shown = alt.param(name="shown", value="loss", bind=bind)
    lines = alt.Chart(updates).transform_fold(list(named), ["what", "value"]).transform_filter("datum.what == shown")
    lines = lines.mark_line(strokeWidth=1.5).encode(
        x=alt.X("update:Q", title="update").scale(domain=[1, int(updates["update"].max())], nice=False),
        y=alt.Y("value:Q", title="training loss, or length of the gradient").scale(type="log").axis(format="~g"),
        color=alt.Color("warmup_epochs:O", title="warmup (click)", legend=ABOVE).scale(
            domain=lengths, range=_by_length(lengths)
        ),
        detail="seed:N",
        opacity=picked(picks),
        tooltip=[
            alt.Tooltip("warmup_epochs:Q", title="epochs of warmup"),
            alt.Tooltip("seed:Q"),
            alt.Tooltip("update:Q"),
            alt.Tooltip("value:Q", format=".3g"),
            alt.Tooltip("update_rate:Q", title="learning rate", format=".3g"),
        ],
    )
    return alt.layer(lines.add_params(picks, shown)).properties(width="container", height=300, title=titled(title))


def accuracy_by_rate_and_batch(cells: pd.DataFrame, best: pd.DataFrame, title: str = "") -> Panel:
    """Draw a map of accuracy by batch size and peak rate, with the best rate of each batch size and its interval.

    ``cells`` has arch, batch_size, lr, accuracy, low, high, n, diverged; ``best`` arch, batch_size, best, low, high.
    The network is chosen below.
    """
    rates = sorted(set(cells["lr"]))
    ratio = (rates[-1] / rates[0]) ** (0.5 / max(1, len(rates) - 1))
    tiles = cells.assign(bottom=cells["lr"] / ratio, top=cells["lr"] * ratio)
    x = alt.X("batch_size:O", title="batch size").axis(labelAngle=0, format=",")
    domain = [rates[0] / ratio, rates[-1] * ratio]
    y = alt.Y("bottom:Q", title="peak learning rate").scale(type="log", domain=domain, nice=False)
    y = y.axis(values=rates, format="~g", grid=False, labelOverlap=False)
    (choice,), base = _chosen(alt.Chart(tiles), tiles, ("arch",))
    _, ridge = _chosen(alt.Chart(best), best, ("arch",))
    if len(best):
        choice.param.value = by_depth(best["arch"])[-1]  # type: ignore[union-attr]  # one whose best rates are known
    colour = alt.Color("accuracy:Q", title="test accuracy").scale(scheme="viridis").legend(format=".0%", orient="right")
    tile = base.mark_rect().encode(x=x, y=y, y2="top:Q", color=colour, tooltip=accuracy_tooltip()).add_params(choice)
    line = ridge.mark_line(color="white", strokeWidth=2, point={"color": "white", "size": 50})
    about = [
        alt.Tooltip("best:Q", title="best rate", format=".3f"),
        *interval(".3f"),
    ]
    bars = ridge.mark_rule(color="white", strokeWidth=1.5).encode(x=x, y=alt.Y("low:Q"), y2="high:Q")
    return alt.layer(tile, bars, line.encode(x=x, y=alt.Y("best:Q"), tooltip=about)).properties(
        width="container", height=340, title=titled(title)
    )


def accuracy_by_rule(table: pd.DataFrame, title: str = "") -> Panel:
    """Draw by batch size how many points each rule of scaling loses against the best rate; choose the network below.

    ``table`` has arch, batch_size, rule, lr, accuracy, lost.
    """
    (choice,), base = _chosen(alt.Chart(table.dropna(subset="lost")), table, ("arch",))
    rules = list(dict.fromkeys(table["rule"]))
    drawn = base.mark_line(strokeWidth=2, point={"filled": True, "size": 60}).encode(
        x=alt.X("batch_size:O", title="batch size").axis(labelAngle=0, format=","),
        y=alt.Y("lost:Q", title="points below the best rate"),
        color=alt.Color("rule:N", title="rate grows", sort=rules, legend=ABOVE).scale(
            domain=rules, range=[COLOURS[6], COLOURS[0], COLOURS[4]][: len(rules)]
        ),
        tooltip=[
            alt.Tooltip("rule:N"),
            alt.Tooltip("batch_size:Q", title="batch size", format=","),
            alt.Tooltip("lr:Q", title="learning rate", format=".3f"),
            alt.Tooltip("accuracy:Q", title="test accuracy", format=".1%"),
            alt.Tooltip("lost:Q", title="points below the best", format=".2f"),
        ],
    )
    zero = alt.Chart(pd.DataFrame({"lost": [0.0]})).mark_rule(color=REPORTED, strokeDash=[4, 3]).encode(y="lost:Q")
    return alt.layer(zero, drawn.add_params(choice)).properties(width="container", height=260, title=titled(title))


def gain_by_remedy(cells: pd.DataFrame, title: str = "") -> Panel:
    """Draw what each method gains over the plain recipe, a row per method and a colour per batch size.

    ``cells`` has method, remedies, batch_size, gain, gain_low, gain_high, accuracy, low, high, n, in the order of the
    rows.
    """
    shown = cells[cells["method"] != "plain"]
    x = alt.X("gain:Q", title="points over the plain recipe").axis(format="+~g")
    zero = alt.Chart(pd.DataFrame({"gain": [0.0]})).mark_rule(color=REPORTED, strokeDash=[4, 3]).encode(x=x)
    bounds = alt.X("gain_low:Q", title="points over the plain recipe"), "gain_high:Q"
    return _rows_of_methods(shown, x, bounds, [zero], title)


def time_by_remedy(cells: pd.DataFrame, title: str = "") -> Panel:
    """Draw the device seconds that each method takes to a target, which is chosen below; none where it is not reached.

    ``cells`` has method, remedies, batch_size, accuracy, low, high, n, and for each target target, seconds, updates.
    """
    targets = sorted({value.item() for value in cells["target"].unique()})
    bind = alt.binding_radio(name="test accuracy ", options=targets, labels=[f"{value:.0%}" for value in targets])
    choice = alt.param(name="chosen_target", value=targets[0], bind=bind if len(targets) > 1 else alt.Undefined)
    x = alt.X("seconds:Q", title="device seconds").scale(type="log", nice=False, padding=10).axis(format="~g")
    return _rows_of_methods(cells.dropna(subset="seconds"), x, None, [], title, choice)


def _rows_of_methods(
    cells: pd.DataFrame,
    x: alt.X,
    bounds: tuple[alt.X, str] | None,
    under: list[alt.Chart],
    title: str,
    choice: alt.Parameter | None = None,
) -> Panel:
    """Draw a dot for each method and batch size, those of a method in one row; ``choice`` is of the column target."""
    methods, sizes = list(dict.fromkeys(cells["method"])), sorted(set(cells["batch_size"]))
    picks = alt.selection_point(fields=["batch_size"], bind="legend")
    base = alt.Chart(cells)
    if choice is not None:
        base = base.transform_filter("datum.target == chosen_target")
    base = base.encode(
        y=alt.Y("method:N", title=None, sort=methods).axis(labelLimit=200, grid=True, tickBand="extent"),
        yOffset=alt.YOffset("batch_size:O").scale(paddingOuter=0.4),
        color=alt.Color("batch_size:O", title="batch size (click)")
        .legend(orient="top", direction="horizontal", titleOrient="top", format=",")
        .scale(domain=sizes, range=[COLOURS[0], COLOURS[3], COLOURS[4], *COLOURS[1:3]][: len(sizes)]),
        opacity=picked(picks),
    )
    tooltip = [
        alt.Tooltip("method:N"),
        alt.Tooltip("remedies:N"),
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("accuracy:Q", title="test accuracy", format=".2%"),
        alt.Tooltip("gain:Q", title="points over plain", format="+.2f"),
        *interval("+.2f", "gain_"),
        alt.Tooltip("n:Q", title="seeds"),
    ]
    if choice is not None:
        tooltip += [
            alt.Tooltip("seconds:Q", title="device seconds", format=".2f"),
            alt.Tooltip("updates:Q", title="updates", format=",.0f"),
        ]
    dots = base.mark_point(filled=True, size=60, opacity=1).encode(x=x, tooltip=tooltip)
    bars = [base.mark_rule(strokeWidth=1.5).encode(x=bounds[0], x2=bounds[1])] if bounds else []
    # A legend answers clicks for a choice that the first layer with its colour has.
    first, *others = [*bars, dots]
    params = [picks, *([choice] if choice is not None else [])]
    return alt.layer(*under, first.add_params(*params), *others).properties(
        width="container", height=max(120, 15 * len(sizes) * len(methods)), title=titled(title)
    )


def _by_length(lengths: Sequence[float]) -> list[str]:
    """Return a colour for each length of warmup; the first, that of none, has the same in every figure."""
    return [COLOURS[4], *COLOURS[:4], *COLOURS[5:]][: len(lengths)]


_NAMES = {"arch": "network ", "lr": "base rate ", "batch_size": "batch size "}


def _chosen(chart: alt.Chart, table: pd.DataFrame, fields: Sequence[str]) -> tuple[list[alt.Parameter], alt.Chart]:
    """Return a choice under the chart for each field, its last value first, and the chart of the rows of the choice."""
    choices = []
    for field in fields:
        options = (
            by_depth(table[field]) if field == "arch" else sorted({value.item() for value in table[field].unique()})
        )
        bind = alt.binding_radio(name=_NAMES[field], options=options) if len(options) > 1 else alt.Undefined
        choices.append(alt.param(name=f"chosen_{field}", value=options[-1], bind=bind))
        chart = chart.transform_filter(f"datum.{field} == chosen_{field}")
    return choices, chart
