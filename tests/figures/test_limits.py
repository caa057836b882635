"""Figures of what bounds training on many nodes are drawn; what is simulated is dashed, what was measured is not."""

import pytest
import vl_convert
from made_limits import made_study

from dolb.figures import limits as figures
from dolb.findings import limits as study


@pytest.fixture(scope="module")
def ds():
    return made_study(lambda size: {"conv": 0.01 * size, "update": 0.1}, lambda size: {"conv": 0.01 * size + 0.02})


def drawn(chart):
    return vl_convert.vegalite_to_svg({**chart.to_dict(), "width": 500})


def test_every_figure_is_drawn(ds):
    for chart in (
        figures.speedups(study.curves(ds), study.BATCHES),
        figures.layer_times(study.layer_times(ds)),
        figures.products(study.products(ds)),
    ):
        assert "<path" in drawn(chart)


def test_the_reported_limits_stand_beside_the_speedups(ds):
    svg = drawn(figures.speedups(study.curves(ds), study.BATCHES))
    assert "googlenet: 32" in svg
    assert "alexnet: 256" in svg


def test_lines_over_links_are_dashed_and_measured_ones_are_not(ds):
    lines = [
        layer for layer in figures.speedups(study.curves(ds), {}).to_dict()["layer"] if layer["mark"]["type"] == "line"
    ]
    by_filter = {("datum.link === link" in str(layer)): bool(layer["mark"].get("strokeDash")) for layer in lines[1:]}
    assert by_filter == {True: True, False: False}
