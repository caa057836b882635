"""Figures of maps and noise can be drawn from published results, and show ours beside what was reported."""

from drawn import offered, svg

from dolb import data, results
from dolb.figures import noise as figures
from dolb.findings import noise


def test_the_map_has_a_colour_per_class_and_a_choice_of_networks():
    classes = data.class_names("cifar10")
    chart = figures.maps(noise.points(results.published("features"), classes, most=50), classes)
    assert all(f">{name}<" in svg(chart) for name in classes)
    assert offered(chart, "network") == ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152"]


def test_the_reported_share_is_drawn_beside_ours_where_there_is_one():
    ds = results.published("noise")
    by_map, by_eps, removed = noise.by_map(ds), noise.by_eps(ds), noise.removed(ds)
    for share, by_network in ((0.0512, {"resnet101": 5.12}), (None, {})):
        for chart in (
            figures.noise_by_map(by_map, share),
            figures.noise_by_eps(by_eps, reported=share),
            figures.noise_by_extractor(removed, by_network),
        ):
            assert ("reported" in svg(chart)) == bool(share)
    assert svg(figures.noise_stability(noise.stability(ds))).startswith("<svg")
