"""Figures draw what they are given: every row, its interval, the reported values, and words on hover."""

import json
from itertools import chain

import vl_convert
from made_runs import made_curve

from dolb import claims, figures, results, summary


def study(*curves, reported=(), title=""):
    ds = results.merge(chain(*curves))
    cells = claims.curve_cells(ds)
    return cells, figures.batch_size_study(cells, summary.preferred_batch_size(cells), reported, title)


PEAK = {16: 0.60, 64: 0.70, 256: 0.80, 1024: 0.75}


def test_the_study_compiles_to_a_picture_and_holds_every_cell():
    cells, chart = study(made_curve(PEAK, lr=0.1), made_curve(PEAK, lr=0.01, arch="smallnet-8"))
    assert vl_convert.vegalite_to_svg(chart.to_dict()).startswith("<svg")
    rows = [row for data in chart.to_dict()["datasets"].values() for row in data if "interval" in row]
    assert len(rows) == len(cells)


def test_a_panel_per_network_and_a_line_per_rate():
    _, chart = study(made_curve(PEAK, lr=0.1), made_curve(PEAK, lr=0.01), made_curve(PEAK, lr=0.1, arch="resnet18"))
    svg = vl_convert.vegalite_to_svg(chart.to_dict())
    assert "resnet18" in svg
    assert "smallnet-4" in svg
    spec = json.dumps(chart.to_dict())
    assert '"domain": [0.01, 0.1]' in spec


def test_reported_values_are_drawn_apart_from_ours():
    point = {"arch": "smallnet-4", "batch_size": 256, "accuracy": 0.75, "what": "Somebody, Fig. 1"}
    _, with_point = study(made_curve(PEAK, lr=0.1), reported=[point])
    _, without = study(made_curve(PEAK, lr=0.1))
    drawn = [vl_convert.vegalite_to_svg(chart.to_dict()).count(figures.REPORTED) for chart in (with_point, without)]
    assert drawn[0] > drawn[1]


def test_a_title_says_when_a_figure_is_a_demo():
    _, chart = study(made_curve(PEAK, lr=0.1), title="Demo: small networks on digits")
    assert "Demo: small networks on digits" in vl_convert.vegalite_to_svg(chart.to_dict())


def test_every_measured_size_has_a_tick_unless_two_are_too_close():
    axis = figures.batch_size_axis([16, 8192, 16384, 20480]).to_dict()["axis"]
    assert axis["values"] == [16, 8192, 20480]
