"""Figures of what bounds training on many nodes are drawn; what is simulated is dashed, what was measured is not."""

from drawn import svg
from made_limits import made_study

from dolb.figures import limits as figures
from dolb.findings import limits as study


def test_speedups_stand_beside_the_reported_limits_and_only_simulated_lines_are_dashed():
    ds = made_study(lambda size: {"conv": 0.01 * size, "update": 0.1}, lambda size: {"conv": 0.01 * size + 0.02})
    speedups = figures.speedups(study.curves(ds), study.BATCHES)
    assert all(words in svg(speedups) for words in ("googlenet: 32", "alexnet: 256"))
    _, *lines = [layer for layer in speedups.to_dict()["layer"] if layer["mark"]["type"] == "line"]  # first the ideal
    dashed = {("datum.link === link" in str(layer)): bool(layer["mark"].get("strokeDash")) for layer in lines}
    assert dashed == {True: True, False: False}
    for chart in (figures.layer_times(study.layer_times(ds)), figures.products(study.products(ds))):
        assert "<path" in svg(chart)
