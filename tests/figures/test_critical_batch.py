"""Figures of the critical batch size mark it, draw the reported one, and offer the networks."""

import pandas as pd
import pytest
from drawn import offered, svg

from dolb.figures import critical_batch as figures
from dolb.findings import critical_batch as study

POINTS = pd.DataFrame(
    [
        {"arch": arch, "batch_size": size, "mean_batch": float(size), "lr": 0.1, "n": 2, "fitted": size > 64,
         "updates": 50 * (1 + 800 / size), "examples": 50 * (size + 800)}
        for arch in ("resnet18", "resnet50")
        for size in (64, 128, 256, 512, 1024, 2048)
    ]
)  # fmt: skip


@pytest.mark.parametrize("reported", [900, None])
def test_figures_show_the_critical_batch_and_the_reported_one(reported):
    fits = study.critical(POINTS)
    chart = figures.updates_by_examples(POINTS, study.hyperbolas(fits, POINTS), study.marks(fits, reported))
    assert f"mark: critical batch size; batch size: {fits['value'][0]:.0f}" in svg(chart)
    assert ("mark: as reported; batch size: 900" in svg(chart)) == (reported is not None)
    assert offered(chart, "chosen_arch") == ["resnet18", "resnet50"]
    noise = pd.DataFrame({"arch": ["resnet18"], "epoch": 2, "value": 300.0, "low": 250.0, "high": float("inf"), "n": 1})
    scales = svg(figures.noise_scales(study.compared(fits, noise), reported))
    assert "from: epoch 2" in scales
    assert "network: resnet50; from: trade-off" in scales
    assert ("stroke-dasharray" in scales) == (reported is not None)
