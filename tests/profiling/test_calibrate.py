"""Fitting the simulator: known knobs are found again; each published point is judged by the others."""

import itertools

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import yaml

from dolb.profiling.simulator import calibrate, curves, network, tensors
from dolb.profiling.simulator.libraries import DDP, horovod
from dolb.profiling.simulator.scaling import FITTED_JITTER, UNKNOWN, Range, turn
from dolb.profiling.simulator.step import Scenario, simulate

RESNET18 = tensors.v100("resnet18", batch_per_rank=8)
LIBRARIES = {"DDP": DDP(), "Horovod": horovod("0.28.1", blocking=True)}
MACHINE = network.loopback(latency=20e-6, bandwidth=10e9)


def scenario(row):
    return Scenario(RESNET18, MACHINE, LIBRARIES[row["library"]], batch_per_rank=8)


def measured(knobs):
    """Runs on one machine, as the workers measure them; here the simulator made them, with knobs that are known."""
    rows = [{"library": library, "ranks": ranks} for library in LIBRARIES for ranks in (2, 4, 8, 16)]
    speeds = [simulate(turn(scenario(row), knobs), row["ranks"]).images_per_second for row in rows]
    return pd.DataFrame(rows).assign(images_per_second=speeds)


FREE = {"bandwidth": Range(0.2, 1.0), "jitter": Range(0.0, 0.1)}
KNOWN = {"bandwidth": 0.45, "jitter": 0.03}


def test_known_knobs_are_found_again():
    found = calibrate.calibrate(measured(KNOWN), scenario, FREE)
    assert found.knobs == pytest.approx(KNOWN, rel=0.05)
    assert found.worst("judge") < 0.01


def test_measured_runs_may_come_as_a_dataset():
    table = measured(KNOWN)
    ds = xr.Dataset({name: ("run", table[name].to_numpy()) for name in table})
    assert calibrate.calibrate(ds, scenario, FREE).worst("judge") < 0.01


def test_every_other_point_is_fitted_and_the_rest_judge():
    points = calibrate.calibrate(measured(KNOWN), scenario, FREE).points
    assert points["used"].tolist() == ["fit", "judge"] * 4


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pd.DataFrame({"ranks": [2, 4]}), "needed: ranks and one of efficiency, images_per_second"),
        (pd.DataFrame({"ranks": [1, 4, 8], "efficiency": [1, 1, 1]}), "a point of one rank"),
        (pd.DataFrame({"ranks": [2, 4], "efficiency": [1, 1]}), "2 knobs are free, and 1 points to fit them"),
    ],
)
def test_measurements_that_cannot_be_fitted_are_refused(table, message):
    with pytest.raises(ValueError, match=message):
        calibrate.calibrate(table.assign(library="DDP"), scenario, FREE)


@pytest.fixture(scope="module")
def rows(repo_root):
    return yaml.safe_load((repo_root / "book" / "claims.yml").read_text())["scaling_measurements"]


def test_published_points_are_efficiencies_over_the_one_gpu_row(rows):
    points = calibrate.published_points(rows)
    assert points["ranks"].tolist() == [16, 8, 8, 512]
    assert points["efficiency"].tolist() == pytest.approx([306 / 329, 2855 / (8 * 367), 8322 / (8 * 1200), 0.90])


def test_the_presets_throughputs_are_those_of_the_claims(rows):
    one_gpu = [row.get("images_per_second", row.get("images_per_second_per_gpu")) for row in rows if row["gpus"] == 1]
    assert one_gpu[:2] == [tensors.V100_BATCH_32, tensors.V100_NVLINK_NODE]


@pytest.fixture(scope="module")
def published(rows):
    return calibrate.calibrate_published(rows)


def test_every_published_point_is_judged_by_the_others(published):
    assert published.points["used"].tolist() == ["judge"] * 4
    # One of two nodes alike loses 13%, the other 3%: no spread of compute times explains both. So 11% is what this
    # model is worth on machines it has not seen, and it must not get worse.
    assert calibrate.errors(published.points, "judge").worst < 0.12


def test_the_curves_have_the_jitter_that_published_points_ask_for_together(published):
    assert published.knobs == {"jitter": pytest.approx(FITTED_JITTER)}
    assert {curves.on_summit(policy).jitter for policy in curves.POLICIES} == {FITTED_JITTER}


def test_the_band_covers_the_jitter_that_each_published_point_asks_for_alone(published):
    low, high = (float(UNKNOWN["jitter"].at(np.float64(share))) for share in (0.05, 0.95))  # of the middle nine tenths
    assert low <= published.points["asked"].min() < published.points["asked"].max() <= high


def test_a_point_is_met_with_the_jitter_it_asks_for_alone(rows, published):
    for row in published.points.to_dict("records"):
        step = simulate(turn(calibrate.published_scenario(row), {"jitter": row["asked"]}), row["ranks"])
        assert step.efficiency == pytest.approx(row["efficiency"], abs=0.005)


def test_published_points_do_not_tell_the_bandwidth(rows, published):
    """So it is no knob of that fit: from 55% to 95% of the peak the judged error is the same."""
    judged = calibrate.errors(published.points, "judge").rms
    for bandwidth in (0.55, UNKNOWN["bandwidth"].high):
        other = calibrate.calibrate_published(rows, bandwidth=bandwidth)
        assert calibrate.errors(other.points, "judge").rms == pytest.approx(judged, abs=0.002)


def test_halves_of_the_published_points_judge_each_other_in_every_way(rows, published):
    whole = {row["what"]: row for row in published.points.to_dict("records")}
    worst = dict.fromkeys(whole, 0.0)
    lacking = dict.fromkeys(("efficiency", "images_per_second", "images_per_second_per_gpu"), np.nan)
    for half in itertools.combinations(whole, 2):
        fitted = calibrate.calibrate_published([lacking | row for row in rows if row["what"] in half]).knobs
        for what in set(whole) - set(half):
            setup = turn(calibrate.published_scenario(whole[what]), fitted | {"bandwidth": network.ASSUMED_ACHIEVED})
            error = simulate(setup, whole[what]["ranks"]).efficiency / whole[what]["measured"] - 1
            worst[what] = max(worst[what], error, key=abs)
    assert published.points["halved"].tolist() == pytest.approx(list(worst.values()))
    said = calibrate.published_in_words(published)
    assert f"in all 6 ways, it is off by {max(map(abs, worst.values())):.0%} at most" in said
    assert "They are few, so each is also judged by all others" in said


def test_the_words_tell_points_knobs_and_the_errors_without_a_fit(published):
    said = calibrate.published_in_words(published)
    bare = published.points["uncalibrated"] / published.points["measured"] - 1
    assert "There are 4 points, and one knob is fitted to them" in said
    assert ", ".join(f"{value:+.0%}" for value in bare) in said
    assert f"{FITTED_JITTER:.1%}" in said


def test_errors_are_summed_up_whatever_their_sign():
    points = pd.DataFrame({"used": ["judge"] * 3 + ["fit"], "error": [-0.3, 0.1, 0.0, 9.0]})
    found = calibrate.errors(points, "judge")
    assert found == (3, 0.1, pytest.approx(np.sqrt(0.1 / 3)), 0.3, pytest.approx(2 / 3))


def test_errors_of_points_that_are_not_there_are_refused():
    with pytest.raises(ValueError, match="no point was used to 'judge'; there are: fit"):
        calibrate.errors(pd.DataFrame({"used": ["fit"], "error": [0.0]}), "judge")


def test_a_published_point_that_is_not_known_says_what_there_is():
    with pytest.raises(ValueError, match="'VGG' is not known; accepted: ResNet-50 DDP"):
        calibrate.published_scenario({"what": "VGG"})
