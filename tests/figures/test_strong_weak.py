"""Figures of strong and weak scaling draw what the tables have."""

import pandas as pd
from drawn import offered, rows
from made_strong_weak import made, made_steps

from dolb.figures import strong_weak as figures
from dolb.findings import strong_weak as study


def test_measured_steps_have_a_shape_of_their_own_and_losses_are_along_time_or_updates():
    ds = made(lambda rule, workers: 8)
    times = study.times(study.runs(ds), study.step_times(made_steps()))
    layers = figures.time_to_target(study.cells(times)).to_dict()["layer"]
    (shapes,) = [layer["encoding"]["shape"]["scale"] for layer in layers if "shape" in layer["encoding"]]
    assert shapes["domain"] == ["measured steps", "simulated steps", "misses the target"]
    assert len(set(shapes["range"])) == 3
    assert offered(figures.loss_on_the_way(study.curves(ds, times)), "along") == ["updates", "seconds"]


def test_a_picture_stands_under_the_name_of_its_run():
    (row,) = rows(figures.made_volumes(pd.DataFrame({"label": ["one worker"], "loss": [0.01], "picture": ["aGk="]})))
    assert row["url"] == "data:image/png;base64,aGk="
