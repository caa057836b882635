"""What figures share: an order of networks, a colour for each, and an axis of batch sizes on which none is missing."""

import altair as alt
import pandas as pd
from drawn import svg

from dolb.figures import style


def test_shallow_networks_come_before_deep_ones():
    names = ["resnet101", "resnet18", "smallnet-8", "resnet50", "resnet18"]
    assert style.by_depth(names) == ["resnet18", "resnet50", "resnet101", "smallnet-8"]


def test_every_measured_size_has_a_label_and_those_of_close_sizes_are_pushed_apart():
    sizes = [16, 8192, 16384, 20480]
    table = pd.DataFrame({"batch_size": sizes, "y": 0})
    chart = alt.Chart(table).mark_point().encode(x=style.batch_size_axis(sizes), y="y:Q").properties(width=285)
    picture = svg(chart)
    assert all(f">{size}<" in picture for size in sizes)
    pushed = style.batch_size_axis(sizes).to_dict()["axis"]["labelOffset"]["condition"]
    assert [(each["test"][-5:], each["value"] > 0) for each in pushed] == [("16384", False), ("20480", True)]


def test_a_network_keeps_its_colour_whichever_others_are_drawn():
    def colours(*archs):
        scale = style.network_colour(archs).to_dict()["scale"]
        return dict(zip(scale["domain"], scale["range"], strict=True))

    every = colours("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
    assert len(set(every.values())) == 5
    assert colours("resnet152", "resnet50") == {name: every[name] for name in ("resnet50", "resnet152")}
    mixed = colours("smallnet-4", "resnet18", "smallnet-8")
    assert mixed["resnet18"] == every["resnet18"]
    assert len(set(mixed.values())) == 3


def test_the_first_layer_of_the_colour_has_the_legend_to_click():
    base = alt.Chart(pd.DataFrame({"x": [1], "kind": ["a"]})).encode(x="x:Q")
    coloured = base.mark_point().encode(style.coloured("kind:N", ["a"]))
    spec = style.layered(100, "", base.mark_rule(), coloured, coloured, click="kind").to_dict()
    (param,) = spec["params"]
    assert (param["bind"], param["views"]) == ("legend", [spec["layer"][1]["name"]])
    assert ["opacity" in layer["encoding"] for layer in spec["layer"]] == [False, True, True]
