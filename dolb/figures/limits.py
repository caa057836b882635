"""Figures of what bounds training on many nodes: speedups, layers by local batch, and products under the roof."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from dolb.figures.scaling import DASHED
from dolb.figures.style import COLOURS, REPORTED, Panel, picked, titled

KINDS = {"convolutions": COLOURS[0], "fully connected": COLOURS[4], "update": COLOURS[2]}
_NETWORKS = {"alexnet": COLOURS[4], "googlenet": COLOURS[0], "resnet50": COLOURS[2]}
_NARROW = alt.Legend(orient="top", direction="horizontal", columns=2, titleOrient="top")
_POWERS = [2**power for power in range(9)]


def _chosen(name: str, label: str, options: list) -> alt.Parameter:
    """Return what is chosen under a chart of several options, or the only one there is."""
    bind = alt.binding_radio(name=label, options=options) if len(options) > 1 else alt.Undefined
    return alt.param(name=name, value=options[-1], bind=bind)


def _power_axis(field: str, title: str) -> alt.X:
    return alt.X(field, title=title).scale(type="log", base=2, nice=False, padding=14).axis(
        values=_POWERS, format="d", grid=False, labelOverlap=True
    )  # fmt: skip


def speedups(curves: pd.DataFrame, most: dict[str, int], title: str = "") -> Panel:
    """Draw speedup by nodes: with free communication full, as measured; over a link of one's choice dashed, simulated.

    ``curves`` has device_kind, arch, gbit, nodes, speedup, low, high, source; ``most`` the nodes that the study gives
    each network at most, which stand as rules. The grey line is the ideal.
    """
    links = sorted({f"{gbit:g} Gbit/s" for gbit in curves["gbit"] if gbit < float("inf")}, key=_number)
    table = curves.assign(link=[f"{gbit:g} Gbit/s" if gbit < float("inf") else "free" for gbit in curves["gbit"]])
    link, device = _chosen("link", "simulated link ", links), _chosen("device", "device ", _devices(curves))
    picks = alt.selection_point(fields=["arch"], bind="legend")
    y = (
        alt.Y("speedup:Q", title="speedup")
        .scale(type="log", base=2, nice=False, padding=14)
        .axis(values=_POWERS, format="d")
    )
    base = alt.Chart(table.drop(columns="gbit")).transform_filter("datum.device_kind === device").encode(
        x=_power_axis("nodes:Q", "nodes that share the batch"), color=_network_colour(curves["arch"]),
        opacity=picked(picks), tooltip=_hover("nodes", "speedup", ".1f"),
    )  # fmt: skip
    free = base.transform_filter("datum.source === 'measured'")
    linked = base.transform_filter("datum.link === link")
    ends = pd.DataFrame([{"nodes": n, "words": f"{arch}: {n}"} for arch, n in most.items()], columns=["nodes", "words"])
    most_nodes = curves["nodes"].max()
    ideal = pd.DataFrame({"nodes": [1, most_nodes], "speedup": [1, most_nodes]})
    rules = alt.Chart(ends).encode(x="nodes:Q")
    return alt.layer(
        alt.Chart(ideal).mark_line(color=REPORTED, strokeWidth=1).encode(x="nodes:Q", y=y),
        rules.mark_rule(color=REPORTED, strokeDash=[2, 3]),
        rules.mark_text(align="right", dx=-4, color=REPORTED).encode(y=alt.value(4), text="words:N"),
        free.mark_line(strokeWidth=2).encode(y=y).add_params(picks, link, device),
        free.mark_rule().encode(y=alt.Y("low:Q", title="speedup"), y2="high:Q"),
        free.mark_point(filled=True, size=55).encode(y=y),
        linked.mark_line(strokeWidth=2, strokeDash=DASHED).encode(y=y),
        linked.mark_point(filled=False, size=35).encode(y=y),
    ).properties(width="container", height=320, title=titled(title))  # fmt: skip


def _network_colour(archs: pd.Series) -> alt.Color:
    names = list(dict.fromkeys(archs))
    free = iter(COLOURS)
    colours = [_NETWORKS.get(name) or next(free) for name in names]
    return alt.Color("arch:N", title="network (click)", legend=_NARROW, sort=names).scale(domain=names, range=colours)


def _number(words: str) -> float:
    return float(words.split()[0])


def _devices(table: pd.DataFrame) -> list[str]:
    return sorted(set(table["device_kind"]))  # a GPU last, which is shown first


def _hover(x: str, y: str, form: str) -> list[alt.Tooltip]:
    return [alt.Tooltip("arch:N", title="network"), alt.Tooltip(f"{x}:Q"), alt.Tooltip(f"{y}:Q", format=form),
            alt.Tooltip("source:N"), alt.Tooltip("link:N")]  # fmt: skip


def layer_times(table: pd.DataFrame, title: str = "") -> Panel:
    """Draw milliseconds by local batch, a line for each layer: device_kind, arch, layer, kind, batch_size."""
    cases = list(dict.fromkeys(table["arch"]))[::-1]
    network, device = _chosen("of_network", "network ", cases), _chosen("on", "device ", _devices(table))
    base = alt.Chart(table).transform_filter("datum.arch === of_network && datum.device_kind === on").encode(
        x=_power_axis("batch_size:Q", "images on a node"),
        y=alt.Y("milliseconds:Q", title="milliseconds of a step").scale(type="log").axis(
            values=[10**power for power in range(-3, 6)], format=",~g"
        ),
        detail="layer:N",
        color=alt.Color("kind:N", title=None, legend=_NARROW).scale(domain=list(KINDS), range=list(KINDS.values())),
        tooltip=[alt.Tooltip("layer:N"), alt.Tooltip("batch_size:Q", title="images"),
                 alt.Tooltip("milliseconds:Q", format=",.3~r")],
    )  # fmt: skip
    lines = base.mark_line(strokeWidth=2).add_params(network, device)
    return alt.layer(lines, base.mark_point(filled=True, size=30)).properties(
        width="container", height=320, title=titled(title)
    )


def products(table: pd.DataFrame, title: str = "") -> Panel:
    """Draw the speed of products by inputs, a line for each layer, and dashed the roof over the largest of them."""
    device = _chosen("of_device", "device ", _devices(table))
    layers = list(dict.fromkeys(table["layer"]))
    largest = table.loc[table["parameters"] == table["parameters"].max()]
    x = _power_axis("batch_size:Q", "inputs b of a product b x I by I x O")
    scale: dict[str, Any] = {"type": "log", "nice": False}
    shown = "datum.device_kind === of_device"
    base = alt.Chart(table).transform_filter(shown).encode(
        x=x, y=alt.Y("gflops:Q", title="GFLOP/s").scale(**scale).axis(format="~g"),
        color=alt.Color("layer:N", title=None, sort=layers).legend(orient="top", columns=1, labelLimit=300).scale(
            domain=layers, range=COLOURS[: len(layers)]
        ),
        tooltip=[alt.Tooltip("layer:N"), alt.Tooltip("batch_size:Q", title="inputs"),
                 alt.Tooltip("gflops:Q", title="GFLOP/s", format=",.3~r"),
                 alt.Tooltip("of_roof:Q", title="of the roof", format=".0%")],
    )  # fmt: skip
    roof = alt.Chart(largest).transform_filter(shown).mark_line(color=REPORTED, strokeDash=[2, 3], strokeWidth=2)
    return alt.layer(
        roof.encode(x=x, y=alt.Y("roof:Q", title="GFLOP/s").scale(**scale)),
        base.mark_line(strokeWidth=2).add_params(device),
        base.mark_point(filled=True, size=50),
    ).properties(width="container", height=300, title=titled(title))
