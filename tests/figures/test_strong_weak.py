"""Figures of strong and weak scaling draw what the tables have."""

import pandas as pd
import pytest
from made_strong_weak import made, made_steps

from dolb.figures import strong_weak as figures
from dolb.findings import strong_weak as study


@pytest.fixture(scope="module")
def timed():
    ds = made(lambda rule, workers: 8)
    return ds, study.times(study.runs(ds), study.step_times(made_steps()))


def test_measured_steps_are_drawn_otherwise_than_simulated_ones(timed):
    spec = figures.time_to_target(study.cells(timed[1])).to_dict()
    shapes = [layer["encoding"]["shape"]["scale"] for layer in spec["layer"] if "shape" in layer["encoding"]]
    assert shapes[0]["domain"] == ["measured steps", "simulated steps", "misses the target"]
    assert len(set(shapes[0]["range"])) == 3


def test_the_loss_is_drawn_along_time_or_updates_as_one_chooses(timed):
    spec = figures.loss_on_the_way(study.curves(*timed)).to_dict()
    (along,) = [param for param in spec["params"] if param["name"] == "along"]
    assert along["bind"]["options"] == ["updates", "seconds"]


def test_a_picture_stands_under_the_name_of_its_run():
    spec = figures.made_volumes(pd.DataFrame({"label": ["one worker"], "loss": [0.01], "picture": ["aGk="]})).to_dict()
    (rows,) = spec["datasets"].values()
    assert rows[0]["url"] == "data:image/png;base64,aGk="
