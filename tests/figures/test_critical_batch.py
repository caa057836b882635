"""Figures of the critical batch size mark it, draw the reported one, and offer the networks."""

from __future__ import annotations

import pandas as pd
import pytest
import vl_convert

from dolb import figures
from dolb.findings import critical_batch as study

POINTS = pd.DataFrame(
    [
        {"arch": arch, "batch_size": size, "mean_batch": float(size), "lr": 0.1, "n": 2, "fitted": size > 64,
         "updates": 50 * (1 + 800 / size), "examples": 50 * (size + 800)}
        for arch in ("resnet18", "resnet50")
        for size in (64, 128, 256, 512, 1024, 2048)
    ]
)  # fmt: skip


def svg(chart):
    return vl_convert.vegalite_to_svg(chart.to_dict())


@pytest.mark.parametrize("reported", [900, None])
def test_the_trade_off_marks_the_critical_batch_and_the_reported_one(reported):
    fits = study.critical(POINTS)
    chart = figures.updates_by_examples(POINTS, study.hyperbolas(fits, POINTS), study.marks(fits, reported))
    drawn = svg(chart)
    assert f"mark: critical batch size; batch size: {fits['value'][0]:.0f}" in drawn
    assert ("mark: as reported; batch size: 900" in drawn) == (reported is not None)
    bound = [one["bind"]["options"] for one in chart.to_dict()["params"] if "bind" in one]
    assert bound == [["resnet18", "resnet50"]]


def test_without_a_fit_the_points_are_drawn_alone():
    few = POINTS[POINTS["batch_size"] < 256]
    fits = study.critical(few)
    drawn = svg(figures.updates_by_examples(few, study.hyperbolas(fits, few), study.marks(fits, 900)))
    assert "batch size: 128" in drawn


@pytest.mark.parametrize("reported", [900, None])
def test_noise_scales_stand_beside_the_trade_off(reported):
    noise = pd.DataFrame({"arch": ["resnet18"], "epoch": 2, "value": 300.0, "low": 250.0, "high": float("inf"), "n": 1})
    drawn = svg(figures.noise_scales(study.compared(study.critical(POINTS), noise), reported))
    assert "from: epoch 2" in drawn
    assert "network: resnet50; from: trade-off" in drawn
    assert ("stroke-dasharray" in drawn) == (reported is not None)
