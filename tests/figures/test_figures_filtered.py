"""Figures of maps, noise and runs on filtered data compile, and show ours and what was reported."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd
import pytest
import vl_convert
from test_summary_noise import made_map, made_mask, without

from dolb import figures, results
from dolb.findings import maps, rounds, stability
from dolb.findings import noise as study

CLASSES = tuple("abcdefghij")


@pytest.fixture(scope="module")
def noise():
    return results.merge(
        [
            made_mask(without(*range(20))),
            made_mask(without(*range(10)), arch="resnet18"),
            made_mask(without(*range(15)), perplexity=50.0),
            made_mask(without(*range(18, 38)), filter="confident"),
        ]
    )


def svg(chart: alt.TopLevelMixin) -> str:
    return vl_convert.vegalite_to_svg(chart.to_dict())


def test_the_maps_have_a_panel_per_extractor_and_a_colour_per_class():
    labels = np.repeat(np.arange(10), 30)
    ds = made_map(labels, np.random.default_rng(0).random((300, 2)))
    drawn = svg(figures.maps(maps.points(ds), CLASSES))
    assert "resnet101" in drawn
    assert all(f">{name}<" in drawn for name in CLASSES)


def test_the_share_of_noise_stands_beside_the_reported_one(noise):
    ours = study.removed(noise)
    assert "diamond" not in str(figures.noise_by_extractor(ours).to_dict())
    chart = figures.noise_by_extractor(ours, {"resnet101": 5.12}).to_dict()
    assert any(row.get("removed") == pytest.approx(0.0512) for rows in chart["datasets"].values() for row in rows)


def test_every_figure_of_noise_can_be_drawn(noise):
    for chart in (
        figures.noise_by_extractor(study.removed(noise), {"resnet101": 5.12}),
        figures.noise_stability(stability.stability(noise)),
        figures.noise_by_eps(study.by_eps(noise), {"default": 0.5})
        & figures.noise_by_parameter(study.by_parameter(noise)),
        figures.noise_shared(study.others(noise)),
        figures.noise_rounds(rounds.rounds(noise)),
    ):
        assert svg(chart).startswith("<svg")


def test_parameters_stand_in_the_order_of_their_numbers(noise):
    table = pd.DataFrame(
        [
            {"parameter": "min_samples", "value": f"{k}", "first": k == 5, "removed": 0.1, "overlap": 1}
            for k in (3, 5, 10)
        ]
    )
    drawn = svg(figures.noise_by_parameter(table))
    assert drawn.index(">3<") < drawn.index(">5<") < drawn.index(">10<")


def test_the_cost_of_a_mask_is_a_bar_of_its_parts():
    parts = [("training", 90.0), ("map", 60.0)]
    table = pd.DataFrame([{"method": "map and noise", "part": p, "seconds": s, "total": 150.0} for p, s in parts])
    drawn = svg(figures.noise_costs(table))
    assert "map and noise" in drawn
    assert drawn.index("part: training; seconds: 90") < drawn.index("part: map; seconds: 60")
    assert svg(figures.noise_costs(table[:0])).startswith("<svg")
