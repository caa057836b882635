"""Figures of runs on filtered data and of loss landscapes show ours and what was reported, and offer their choices."""

import pandas as pd
import pytest
from drawn import offered, svg
from made_landscapes import made_study

from dolb.figures import filtered as figures
from dolb.figures import landscape as surfaces
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


@pytest.mark.parametrize("figure", [figures.accuracy_by_set, figures.accuracy_by_decay])
def test_accuracies_by_set_show_the_reported_ones_and_fill_the_column(figure):
    chart = figure(CELLS, REPORTED, "Demo").to_dict()
    assert any(row.get("what") == "Fig. 6" for rows in chart["datasets"].values() for row in rows)
    assert chart["width"] == "container"
    assert "Demo" in svg(figure(CELLS, REPORTED, "Demo"))


def test_gains_show_the_reported_gain_and_rates_are_drawn():
    table, said = pd.DataFrame([GAIN]), pd.DataFrame([{"batch_size": 256, "other": "full", "points": 0.6, "what": "F"}])
    assert "reported value: +0.6" in svg(figures.gains(table, said))
    for chart in (figures.gains(table[:0], said[:0]), figures.accuracy_by_rate(CELLS[CELLS["equal"] == "epochs"], 0.1)):
        assert svg(chart).startswith("<svg")


def test_equal_epochs_or_updates_are_chosen_under_the_chart_where_there_are_both():
    assert offered(figures.accuracy_by_set(CELLS, REPORTED), "equal") == ["epochs", "updates"]
    assert not offered(figures.accuracy_by_set(CELLS[CELLS["equal"] == "epochs"], REPORTED), "equal")
    assert offered(figures.accuracy_by_decay(CELLS, REPORTED), "batch_size") == [256, 512]


def test_close_batch_sizes_have_each_a_label_and_a_set_of_ones_own_a_colour():
    cells = pd.concat([CELLS.assign(batch_size=size) for size in (256, 512, 8192, 10368, 10480)])
    chart = figures.accuracy_by_set(pd.concat([cells, cells[cells["set"] == "filtered"].assign(set="mine")]), REPORTED)
    assert all(f">{size}<" in svg(chart) for size in ("8,192", "10,368", "10,480"))
    scale = chart.to_dict()["layer"][0]["encoding"]["color"]["scale"]
    assert scale["domain"] == ["full", "filtered", "mine"]
    assert len(set(scale["range"])) == 3


def test_triangles_have_fewer_updates_and_what_is_compared_is_chosen_under_the_chart():
    rows = [
        GAIN | {"equal": equal, "one": one, "fewer": fewer, "removed": 0.1 + fewer / 10, "batch_size": 5000 + fewer}
        for equal in ("epochs", "updates")
        for one in ("filtered", "random")
        for fewer in (0, 1)
    ]
    table = pd.DataFrame(rows)
    assert offered(figures.crossover(table), "equal") == ["epochs", "updates"]
    drawn = svg(figures.crossover(table))
    assert ">as many<" in drawn
    assert ">fewer<" in drawn
    other = pd.concat([table, table.assign(other="random")])
    assert offered(figures.by_share(other), "other") == ["full", "random"]
    assert ">10%<" in svg(figures.by_share(other))


@pytest.fixture(scope="module")
def ds():
    return made_study(lambda name, over: {"full": 1.0, "network": 2.0, "random": 4.0}[name], seeds=2)


def test_ratios_have_a_row_per_measure_and_offer_every_reading(ds):
    chart = surfaces.curvature_ratios(
        landscape.ratios(landscape.values(ds)), landscape.MEASURES, landscape.READINGS, smallest=1.25
    )
    assert all(f">{words}<" in svg(chart) for words in (*landscape.MEASURES.values(), "the claim"))
    assert offered(chart, "reading") == list(landscape.READINGS)


def test_surfaces_have_a_panel_per_set_and_batch_size_one_scale_and_contours(ds):
    planes = landscape.surfaces(ds)
    levels = landscape.levels(planes, count=3)
    drawn = svg(surfaces.loss_surfaces(planes, landscape.contours(planes, levels), landscape.highest(planes)))
    assert all(f">{name}<" in drawn for name in ("full", "filtered", "random", "batch 256", "batch 6,272"))
    assert all(f">{level:g}<" in drawn for level in levels)
    assert drawn.count('stroke-width="0.9"') > 100  # pieces of contours
