"""Figures of how fast a step is."""

import re

import pandas as pd
import pytest
import vl_convert

from dolb import results
from dolb.figures import engine as figures
from dolb.findings import engine as study
from dolb.profiling import steps


@pytest.fixture(scope="module")
def gpu():
    ds = steps.select(results.published("benchmarks"), steps.ON_GPU)
    cells = study.with_floors(study.compare(ds, steps.EAGER), ds)
    return study.named(study.beside_the_engine(cells, steps.ENGINE))


def svg(chart):
    return vl_convert.vegalite_to_svg({**chart.to_dict(), "width": 500})


def test_bars_have_a_row_each_and_their_ratio(gpu):
    ratios = study.ratios(gpu[gpu["program"].str.startswith(steps.ENGINE)], steps.EAGER)
    picture = svg(figures.ratios(ratios, steps.EAGER))
    assert all(f"{ratio:.1f}×" in picture for ratio in ratios["ratio"])
    rows = pd.Series(re.findall(r'translate\((?:\d|\.)+,((?:\d|\.)+)\)"[^>]*>(?:\d|\.)+×', picture)).astype(float)
    assert rows.sort_values().diff().min() >= 12  # no label over another


def test_speeds_are_drawn_under_their_limits_for_each_network(gpu):
    chart = figures.speeds(gpu)
    assert "at most, by" in svg(chart)
    (network,) = [param for param in chart.to_dict()["params"] if param["name"] == "network"]
    assert network["bind"]["options"] == ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152"]
