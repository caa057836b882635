"""Figures of runs on filtered data and of loss landscapes show ours and what was reported, and offer their choices."""

from __future__ import annotations

import pandas as pd
import pytest
import vl_convert
from made_landscapes import made_study

from dolb import figures
from dolb.findings import landscape

CELL = {"low": 0.7, "high": 0.9, "n": 3, "updates": 100}
CELLS = pd.DataFrame(
    [
        {"equal": equal, "set": name, "batch_size": size, "weight_decay": 0.005, "accuracy": 0.8, "lr": 0.1, **CELL}
        for equal in ("epochs", "updates")
        for name in ("full", "filtered")
        for size in (256, 512)
    ]
)
REPORTED = pd.DataFrame(
    [{"set": "filtered", "batch_size": 256, "weight_decay": 0.005, "accuracy": 0.832, "what": "Fig. 6"}]
)
GAIN = {"equal": "epochs", "batch_size": 256, "other": "full", "points": 1.0, "low": -1.0, "high": 3.0, "n": 3}


def svg(chart):
    return vl_convert.vegalite_to_svg(chart.to_dict())


def offered(chart, name):
    return [one["bind"] for one in chart.to_dict()["params"] if one.get("name") == name]


@pytest.mark.parametrize("figure", [figures.accuracy_by_set, figures.accuracy_by_decay])
def test_accuracies_by_set_show_the_reported_ones_and_fill_the_column(figure):
    chart = figure(CELLS, REPORTED, "Demo").to_dict()
    assert any(row.get("what") == "Fig. 6" for rows in chart["datasets"].values() for row in rows)
    assert chart["width"] == "container"
    assert "Demo" in svg(figure(CELLS, REPORTED, "Demo"))


def test_gains_have_a_line_at_zero_and_the_reported_gain():
    table, said = pd.DataFrame([GAIN]), pd.DataFrame([{"batch_size": 256, "other": "full", "points": 0.6, "what": "F"}])
    drawn = svg(figures.gains(table, said))
    assert "reported value: +0.6" in drawn
    assert svg(figures.gains(table[:0], said[:0])).startswith("<svg")


def test_equal_epochs_or_updates_are_chosen_under_the_chart_where_there_are_both():
    (bind,) = offered(figures.accuracy_by_set(CELLS, REPORTED), "equal")
    assert bind["options"] == ["epochs", "updates"]
    assert not offered(figures.accuracy_by_set(CELLS[CELLS["equal"] == "epochs"], REPORTED), "equal")
    (bind,) = offered(figures.accuracy_by_decay(CELLS, REPORTED), "batch_size")
    assert bind["options"] == [256, 512]


def test_close_batch_sizes_have_each_a_label():
    cells = pd.concat([CELLS.assign(batch_size=size) for size in (256, 512, 8192, 10368, 10480)])
    drawn = svg(figures.accuracy_by_set(cells, REPORTED))
    assert all(f">{size}<" in drawn for size in ("8,192", "10,368", "10,480"))


def test_accuracy_by_rate_can_be_drawn():
    assert svg(figures.accuracy_by_rate(CELLS[CELLS["equal"] == "epochs"], 0.1)).startswith("<svg")


def test_a_set_of_ones_own_has_a_colour_and_a_place_in_the_legend():
    own = pd.concat([CELLS, CELLS[CELLS["set"] == "filtered"].assign(set="mine")])
    scale = figures.accuracy_by_set(own, REPORTED).to_dict()["layer"][0]["encoding"]["color"]["scale"]
    assert scale["domain"] == ["full", "filtered", "mine"]
    assert len(set(scale["range"])) == 3


@pytest.fixture(scope="module")
def ds():
    return made_study(lambda name, over: {"full": 1.0, "network": 2.0, "random": 4.0}[name], seeds=2)


def test_ratios_have_a_row_per_measure_and_offer_every_reading(ds):
    chart = figures.curvature_ratios(
        landscape.ratios(landscape.values(ds)), landscape.MEASURES, landscape.READINGS, smallest=1.25
    )
    drawn = svg(chart)
    assert all(f">{words}<" in drawn for words in landscape.MEASURES.values())
    assert ">the claim<" in drawn
    (bind,) = offered(chart, "reading")
    assert (bind["options"], bind["labels"]) == (list(landscape.READINGS), list(landscape.READINGS.values()))


def test_surfaces_have_a_panel_per_set_and_batch_size_one_scale_and_contours(ds):
    surfaces = landscape.surfaces(ds)
    levels = landscape.levels(surfaces, count=3)
    drawn = svg(figures.loss_surfaces(surfaces, landscape.contours(surfaces, levels), landscape.highest(surfaces)))
    assert all(f">{name}<" in drawn for name in ("full", "filtered", "random", "batch 256", "batch 6,272"))
    assert all(f">{level:g}<" in drawn for level in levels)
    assert drawn.count('stroke-width="0.9"') > 100  # pieces of contours
