"""Figures of communication are drawn, and nobody can take what is simulated for measured."""

import pytest
from made_scaling import completed, made_linked, made_measurement, made_measurements, small_simulation

from dolb import results
from dolb.figures import scaling
from dolb.figures.step_timeline import step_timeline
from dolb.findings import ddp_vs_horovod as study
from dolb.findings import step_timeline as steps
from dolb.profiling.simulator import fit
from dolb.profiling.simulator.network import cluster
from dolb.profiling.simulator.predict import predict


def specs(**charts):
    return {name: chart.to_dict() for name, chart in charts.items()}


def of_libraries(ds):
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
    events, points = steps.events(results.published("step-timeline")), fit.published_points()
    return specs(
        **of_libraries(completed(measured, small_simulation())),
        links=scaling.by_bandwidth(cells, cells[["arch", "hosts", "library", "achieved_mbit", "efficiency"]]),
        timeline=step_timeline(events[events["source"] == "simulated"]),
        published=scaling.published(points.assign(simulated=points["efficiency"], error=0.0)),
        predicted=scaling.predicted(predict("resnet50", 32, cluster(8, 100), [1, 2])),
    )


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


def test_charts_of_ddp_alone_are_made():
    alone = made_measurements(lambda library, ranks, repeat: 90.0 * ranks, repeats=1, libraries=("ddp",))
    assert all(chart["datasets"] for chart in specs(**of_libraries(completed(alone, small_simulation()))).values())


def test_what_is_simulated_is_dashed_or_hollow_and_what_is_measured_full(charts):
    drawn = {
        (name, kind): [mark for mark in marks(chart) if mark["type"] == kind]
        for name, chart in charts.items()
        for kind in ("line", "point", "bar")
    }
    assert all(mark.get("strokeDash") for name in ("leads", "simulated", "links") for mark in drawn[name, "line"])
    assert all(mark["filled"] for name in ("measured", "links") for mark in drawn[name, "point"])
    assert not any(mark.get("strokeDash") for mark in drawn["measured", "line"])
    assert all(mark["fillOpacity"] < 0.5 for mark in drawn["timeline", "bar"])


def test_weak_scaling_is_shown_first(charts):
    (shown,) = [param for param in charts["measured"]["params"] if param["name"] == "shown"]
    assert shown["value"].endswith("weak scaling")
