"""Figures of communication are drawn, and nobody can take what is simulated for measured."""

import json

import pytest
import vl_convert
from made_scaling import completed, made_linked, made_measurement, made_measurements, small_simulation

from dolb import results
from dolb.figures import scaling
from dolb.figures.step_timeline import step_timeline
from dolb.findings import ddp_vs_horovod as study
from dolb.findings import step_timeline as steps
from dolb.profiling.simulator import fit
from dolb.profiling.simulator.network import cluster
from dolb.profiling.simulator.predict import predict


def charts_of(ds):
    return {
        "leads": scaling.leads(study.leads(ds), study.simulated_leads(ds), study.EVERY, 1536),
        "measured": scaling.measured_scaling(study.cells(ds)),
        "simulated": scaling.simulated_scaling(study.curves(ds), 1536),
        "tuning": scaling.tuning(study.tuned(ds)),
    }


@pytest.fixture(scope="module")
def charts():
    measured = made_measurements(lambda library, ranks, repeat: (90.0 + repeat) * ranks)
    measured.append(made_measurement(300.0, library="horovod", ranks=4, cycle_time_ms=25.0))
    linked = results.merge(made_linked(lambda library, hosts, rate, repeat: min(rate, 90.0 + repeat) * hosts))
    cells = study.linked_cells(completed([linked], small_simulation()))
    events = steps.events(results.published("step-timeline"))
    return {
        **charts_of(completed(measured, small_simulation())),
        "links": scaling.by_bandwidth(cells, cells[["arch", "hosts", "library", "achieved_mbit", "efficiency"]]),
        "timeline": step_timeline(events[events["source"] == "simulated"]),
        "published": scaling.published(fit.published()),
        "predicted": scaling.predicted(predict("resnet50", 32, cluster(8, 100), [1, 2])),
    }


NAMES = ["leads", "measured", "simulated", "tuning", "links", "timeline", "published", "predicted"]


def drawn(chart):
    return vl_convert.vegalite_to_svg({**chart.to_dict(), **({"width": 500} if not hasattr(chart, "vconcat") else {})})


def marks(spec):
    """Every mark of a chart with the layer it is in."""
    if isinstance(spec, dict):
        if "mark" in spec:
            yield spec["mark"]
        for value in spec.values():
            yield from marks(value)
    elif isinstance(spec, list):
        for value in spec:
            yield from marks(value)


@pytest.mark.parametrize("name", NAMES)
def test_a_chart_is_drawn_and_answers_the_mouse(charts, name):
    assert "<path" in drawn(charts[name])
    spec = charts[name].to_dict()
    assert spec["params"]
    assert "tooltip" in json.dumps(spec)


@pytest.mark.parametrize("name", ["leads", "measured", "simulated", "tuning"])
def test_a_chart_of_ddp_alone_is_drawn(name):
    alone = made_measurements(lambda library, ranks, repeat: 90.0 * ranks, repeats=1, libraries=("ddp",))
    assert "<path" in drawn(charts_of(completed(alone, small_simulation()))[name])


@pytest.mark.parametrize("name", ["leads", "simulated", "links"])
def test_lines_of_simulations_are_dashed(charts, name):
    assert all(mark.get("strokeDash") for mark in marks(charts[name].to_dict()) if mark["type"] == "line")


@pytest.mark.parametrize("name", ["measured", "links"])
def test_measured_points_are_full(charts, name):
    assert all(mark["filled"] for mark in marks(charts[name].to_dict()) if mark["type"] == "point")


def test_measured_lines_are_full(charts):
    assert not any(mark.get("strokeDash") for mark in marks(charts["measured"].to_dict()) if mark["type"] == "line")


def test_simulated_events_are_hollow(charts):
    assert all(mark["fillOpacity"] < 0.5 for mark in marks(charts["timeline"].to_dict()) if mark["type"] == "bar")


def test_weak_scaling_is_shown_first(charts):
    (shown,) = [param for param in charts["measured"].to_dict()["params"] if param["name"] == "shown"]
    assert shown["value"].endswith("weak scaling")
