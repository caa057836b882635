"""Figures of maps and noise can be drawn from published results, and show ours beside what was reported."""

import altair as alt
import pytest
import vl_convert

from dolb import data, figures, results
from dolb.findings import noise


def svg(chart: alt.TopLevelMixin) -> str:
    return vl_convert.vegalite_to_svg(chart.to_dict())


@pytest.fixture(scope="module")
def ds():
    return results.published("noise")


def test_the_map_has_a_colour_per_class_and_a_choice_of_networks():
    classes = data.class_names("cifar10")
    chart = figures.maps(noise.points(results.published("features"), classes, most=50), classes)
    assert all(f">{name}<" in svg(chart) for name in classes)
    (choice,) = [one["bind"]["options"] for one in chart.to_dict()["params"] if one["name"] == "network"]
    assert choice == ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152"]


def test_the_reported_share_is_drawn_beside_ours(ds):
    for chart in (
        figures.noise_by_map(noise.by_map(ds), 0.0512),
        figures.noise_by_eps(noise.by_eps(ds), reported=0.0512),
        figures.noise_by_extractor(noise.removed(ds), {"resnet101": 5.12}),
    ):
        assert "reported" in svg(chart)


def test_without_a_reported_share_figures_show_ours_alone(ds):
    for chart in (
        figures.noise_by_map(noise.by_map(ds)),
        figures.noise_by_eps(noise.by_eps(ds)),
        figures.noise_by_extractor(noise.removed(ds)),
        figures.noise_stability(noise.stability(ds)),
    ):
        drawn = svg(chart)
        assert drawn.startswith("<svg")
        assert "reported" not in drawn
