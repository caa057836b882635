"""Figures of how fast a step is."""

import re

import pandas as pd
from drawn import offered, svg

from dolb import results
from dolb.figures import engine as figures
from dolb.findings import engine as study
from dolb.findings.runs import narrow
from dolb.profiling import steps


def test_bars_have_a_row_each_and_speeds_their_limits():
    ds = narrow(results.published("benchmarks"), benchmark=steps.ON_GPU)
    cells = study.with_floors(study.compare(ds, steps.EAGER), ds)
    gpu = study.named(study.beside_the_engine(cells, steps.ENGINE))
    ratios = study.ratios(gpu[gpu["program"].str.startswith(steps.ENGINE)], steps.EAGER)
    picture = svg(figures.ratios(ratios, steps.EAGER))
    assert all(f"{ratio:.1f}×" in picture for ratio in ratios["ratio"])
    rows = pd.Series(re.findall(r'translate\((?:\d|\.)+,((?:\d|\.)+)\)"[^>]*>(?:\d|\.)+×', picture)).astype(float)
    assert rows.sort_values().diff().min() >= 12  # no label over another
    speeds = figures.speeds(gpu)
    assert "at most, by" in svg(speeds)
    assert offered(speeds, "network") == ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152"]
