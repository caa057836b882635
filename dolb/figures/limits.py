"""Figures of what bounds training on many nodes: speedups, layers by local batch, and products under the roof."""

import altair as alt
import pandas as pd

from dolb.figures import style
from dolb.figures.style import COLOURS, DASHED, REPORTED, Panel, bars, coloured, dots, hover, layered, log_axis

KINDS = {"convolutions": COLOURS[0], "fully connected": COLOURS[4], "update": COLOURS[2]}
_NETWORKS = {"alexnet": COLOURS[4], "googlenet": COLOURS[0], "resnet50": COLOURS[2]}
_POWERS = [2**power for power in range(9)]


def speedups(curves: pd.DataFrame, most: dict[str, int], title: str = "") -> Panel:
    """Draw speedup by nodes: with free communication full, as measured; over a link of one's choice dashed, simulated.

    ``curves`` has device_kind, arch, gbit, nodes, speedup, low, high, source; ``most`` the nodes that the study gives
    each network at most, which stand as rules. The grey line is the ideal.
    """
    links = [f"{gbit:g} Gbit/s" for gbit in sorted(set(curves["gbit"]) - {float("inf")})]
    table = curves.assign(link=[f"{gbit:g} Gbit/s".replace("inf Gbit/s", "free") for gbit in curves["gbit"]])
    link = style.choice("link", "simulated link", links, links[-1])
    device = _device("device", curves)
    y = alt.Y("speedup:Q", title="speedup").scale(type="log", nice=False, padding=14).axis(values=_POWERS, format="d")
    names, free_colours = list(curves["arch"].unique()), iter(COLOURS)
    colours = [_NETWORKS.get(name) or next(free_colours) for name in names]
    on_device = alt.Chart(table.drop(columns="gbit")).transform_filter("datum.device_kind === device")
    base = on_device.encode(
        x=log_axis("nodes", "nodes that share the batch", _POWERS),
        color=coloured("arch:N", names, colours, "network (click)"),
        tooltip=hover("arch", "nodes", speedup="speedup:.1f") + hover("source", "link"),
    )
    free = base.transform_filter("datum.source === 'measured'")
    linked = base.transform_filter("datum.link === link")
    ends = pd.DataFrame([{"nodes": n, "words": f"{arch}: {n}"} for arch, n in most.items()], columns=["nodes", "words"])
    most_nodes = curves["nodes"].max()
    ideal = pd.DataFrame({"nodes": [1, most_nodes], "speedup": [1, most_nodes]})
    rules = alt.Chart(ends).encode(x="nodes:Q")
    return layered(
        320,
        title,
        alt.Chart(ideal).mark_line(color=REPORTED, strokeWidth=1).encode(x="nodes:Q", y=y),
        rules.mark_rule(color=REPORTED, strokeDash=[2, 3]),
        rules.mark_text(align="right", dx=-4, color=REPORTED).encode(y=alt.value(4), text="words:N"),
        free.mark_line(strokeWidth=2).encode(y=y),
        bars(free),
        dots(free, y, size=55),
        linked.mark_line(strokeWidth=2, strokeDash=DASHED).encode(y=y),
        linked.mark_point(filled=False, size=35).encode(y=y),
        click="arch",
        choices=[link, device],
    )


def _device(name: str, table: pd.DataFrame) -> alt.Parameter:
    """Return the choice of a device, a GPU before anybody chooses."""
    devices = sorted(set(table["device_kind"]))
    return style.choice(name, "device", devices, devices[-1])


def layer_times(table: pd.DataFrame, title: str = "") -> Panel:
    """Draw milliseconds by local batch, a line for each layer: device_kind, arch, layer, kind, batch_size."""
    network = style.choice("of_network", "network", list(table["arch"].unique())[::-1], table["arch"].iloc[0])
    device = _device("on", table)
    base = alt.Chart(table).transform_filter("datum.arch === of_network && datum.device_kind === on").encode(
        x=log_axis("batch_size", "images on a node", _POWERS),
        y=alt.Y("milliseconds:Q", title="milliseconds of a step").scale(type="log").axis(
            values=[10**power for power in range(-3, 6)], format=",~g"
        ),
        detail="layer:N",
        color=coloured("kind:N", list(KINDS), list(KINDS.values())),
        tooltip=hover("layer", batch_size="images", milliseconds="milliseconds:,.3~r"),
    )  # fmt: skip
    return layered(320, title, base.mark_line(strokeWidth=2), dots(base, size=30), choices=[network, device])


def products(table: pd.DataFrame, title: str = "") -> Panel:
    """Draw the speed of products by inputs, a line for each layer, and dashed the roof over the largest of them."""
    device = _device("of_device", table)
    layers = list(table["layer"].unique())
    largest = table.loc[table["parameters"] == table["parameters"].max()]
    x = log_axis("batch_size", "inputs b of a product b x I by I x O", _POWERS)
    y = alt.Y("gflops:Q", title="GFLOP/s").scale(type="log", nice=False).axis(format="~g")
    every, most = (alt.Chart(rows).transform_filter("datum.device_kind === of_device") for rows in (table, largest))
    base = every.encode(
        x=x,
        y=y,
        color=coloured("layer:N", layers),
        tooltip=hover("layer", batch_size="inputs", gflops="GFLOP/s:,.3~r", of_roof="of the roof:.0%"),
    )
    roof = most.mark_line(color=REPORTED, strokeDash=[2, 3], strokeWidth=2)
    roof = roof.encode(x=x, y="roof:Q")
    return layered(300, title, roof, base.mark_line(strokeWidth=2), dots(base, size=50), choices=[device])
