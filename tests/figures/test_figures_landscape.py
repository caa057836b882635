"""Figures of loss landscapes compile, with every panel, interval, choice and contour."""

from __future__ import annotations

import re

import pytest
import vl_convert
from made_landscapes import made_study

from dolb import figures
from dolb.findings import landscape as study


def svg(chart):
    return vl_convert.vegalite_to_svg(chart.to_dict())


@pytest.fixture(scope="module")
def ds():
    return made_study(lambda name, over: {"full": 1.0, "network": 2.0, "random": 4.0}[name], seeds=2)


@pytest.fixture(scope="module")
def table(ds):
    return study.values(ds)


def offered(chart):
    return [one["bind"] for one in chart.to_dict()["params"] if one.get("name") == "reading"]


def test_curvature_has_a_panel_per_measure_and_a_colour_per_set(table):
    chart = figures.curvature_by_set(study.cells(table), study.MEASURES, study.READINGS, "A title", ["Reported: so."])
    drawn = svg(chart)
    for words in (*study.MEASURES.values(), "A title", "Reported: so."):
        assert f">{words}<" in drawn
    assert all(f">{name}<" in drawn for name in ("full", "network", "random"))


def test_the_examples_that_the_loss_is_over_are_chosen_under_the_chart(table):
    for chart in (
        figures.curvature_by_set(study.cells(table), study.MEASURES, study.READINGS),
        figures.curvature_ratios(study.ratios(table), study.NORMALIZED, study.READINGS),
    ):
        (bind,) = offered(chart)
        assert bind["options"] == list(study.READINGS)
        assert bind["labels"] == list(study.READINGS.values())


def test_ratios_have_a_row_per_measure_and_a_panel_per_batch_size(table):
    drawn = svg(figures.curvature_ratios(study.ratios(table), study.NORMALIZED, study.READINGS))
    assert all(f">{words}<" in drawn for words in study.NORMALIZED.values())
    assert drawn.index(">batch 256<") < drawn.index(">batch 6272<")
    assert f">{study.RAW['top_eigenvalue']}<" not in drawn


def test_surfaces_have_a_panel_per_set_and_batch_size_one_scale_and_contours(ds):
    surfaces = study.surfaces(ds)
    levels = study.levels(surfaces, count=3)
    drawn = svg(figures.loss_surfaces(surfaces, study.contours(surfaces, levels), study.highest(surfaces), "Surfaces"))
    assert all(f">{name}<" in drawn for name in ("full", "network", "random", "batch 256", "batch 6272", "Surfaces"))
    assert all(f">{level:g}<" in drawn for level in levels)
    assert drawn.count('stroke-width="0.9"') > 100  # pieces of contours


def test_surfaces_without_contours_can_be_drawn(ds):
    surfaces = study.surfaces(ds)
    assert svg(figures.loss_surfaces(surfaces, study.contours(surfaces, []), study.highest(surfaces))).startswith(
        "<svg"
    )


def test_a_wall_of_enormous_losses_leaves_the_colours_to_the_basin(ds):
    surfaces = study.surfaces(ds)
    walled = surfaces.assign(loss=surfaces["loss"].where(surfaces["alpha"] < 1, 1e6))
    plain, beside = (
        svg(figures.loss_surfaces(table, study.contours(table, []), study.highest(surfaces)))
        for table in (surfaces, walled)
    )
    fills = [set(re.findall(r'fill="(rgb[^"]+)"', drawn)) for drawn in (plain, beside)]
    assert fills[1] <= fills[0]  # what is not on the wall has the colours that it has without one
    assert len(fills[1]) > 3
