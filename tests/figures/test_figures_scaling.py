"""Figures of communication draw every row, and nobody can take what is simulated for measured."""

import json

import pandas as pd
import pytest
import vl_convert
from made_scaling import completed, made_linked, made_measurement, made_measurements, small_simulation

from dolb import claims, figures, results
from dolb.findings import ddp_vs_horovod as study
from dolb.findings import links, simulated_lead, step_timeline
from dolb.profiling.simulator import calibrate, curves, fit, linked
from dolb.profiling.traces import timeline


@pytest.fixture(scope="module")
def ds():
    measured = made_measurements(lambda library, ranks, repeat: (90.0 + repeat) * ranks)
    measured.append(made_measurement(300.0, library="horovod", ranks=4, cycle_time_ms=25.0))
    return completed(measured, small_simulation())


@pytest.fixture(scope="module")
def charts(ds):
    fitted = fit.check(ds, count=1).fits[0]
    over_links = results.merge(made_linked(lambda library, hosts, rate, repeat: min(rate, 90.0 + repeat) * hosts))
    over_links = completed([over_links], small_simulation())
    return {
        "measured": figures.measured_scaling(study.cells(ds)),
        "simulated": figures.simulated_scaling(study.curves(ds), simulated_lead.by_ranks(ds), curves.STUDIED_GPUS),
        "ablation": figures.ablation(study.ablation(ds)),
        "tuning": figures.tuning(study.tuned(ds)),
        "links": figures.by_bandwidth(links.cells(over_links), linked.curve(linked.judge(over_links), count=5)),
        "validation": figures.side_by_side(figures.validation(study.labelled(fitted.points), "here")),
        "timeline": figures.step_timeline(step_timeline.events(timeline.simulated_steps())),
    }


NAMES = ["measured", "simulated", "ablation", "tuning", "links", "validation", "timeline"]


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
def test_a_chart_is_drawn(charts, name):
    assert "<path" in vl_convert.vegalite_to_svg(charts[name].to_dict())


def test_links_of_one_rate_are_drawn_without_a_line():
    over_links = completed(made_linked(lambda *at: 90.0, rates=(100.0,)), small_simulation())
    lines, cells = linked.curve(linked.judge(over_links)), links.cells(over_links)
    assert "does not judge" in links.in_words(cells, linked.judge(over_links).points)
    drawn = vl_convert.vegalite_to_svg(figures.by_bandwidth(cells, lines).to_dict())
    assert "<path" in drawn


@pytest.mark.parametrize("name", NAMES)
def test_a_chart_answers_the_mouse(charts, name):
    spec = charts[name].to_dict()
    assert spec["params"]
    assert "tooltip" in json.dumps(spec)


@pytest.mark.parametrize("name", ["simulated", "ablation"])
def test_simulated_lines_are_dashed_and_their_points_hollow(charts, name):
    found = list(marks(charts[name].to_dict()))
    assert all(mark.get("strokeDash") for mark in found if mark["type"] == "line")
    assert not any(mark["filled"] for mark in found if mark["type"] == "point")


def test_measured_lines_are_full(charts):
    found = list(marks(charts["measured"].to_dict()))
    assert not any(mark.get("strokeDash") for mark in found)


def test_the_measured_figure_opens_on_weak_scaling_and_has_a_logarithmic_axis_of_throughput(ds):
    cells = study.cells(ds)
    both = figures.measured_scaling(pd.concat([cells.assign(scaling="strong"), cells])).to_dict()
    (shown,) = [param for param in both["params"] if param["name"] == "shown"]
    assert shown["value"] == "smallnet-8, weak scaling"
    assert shown["bind"]["options"] == ["smallnet-8, weak scaling", "smallnet-8, strong scaling"]
    scales = [layer["encoding"]["y"].get("scale", {}).get("type") for layer in both["hconcat"][0]["layer"]]
    assert "log" in scales


def test_the_lead_by_ranks_is_of_the_lines_within_the_paired_draws(ds):
    lead = simulated_lead.by_ranks(ds).set_index(["variant", "ranks"])
    lines = study.curves(ds).set_index(["variant", "ranks"])["efficiency"]
    one = lead.loc[(study.UNCACHED, 1536)]
    assert one["ratio"] == pytest.approx(lines[study.DDP, 1536] / lines[study.UNCACHED, 1536])
    assert set(lead.index.get_level_values("variant")) == set(figures.scaling.CURVES) - {study.DDP}
    assert f"{study.UNCACHED} {one['ratio']:.3f} ({one['low']:.3f} to" in simulated_lead.in_words(ds, 1536)


def test_over_links_points_are_full_and_measured_and_lines_dashed_and_simulated(charts):
    found = list(marks(charts["links"].to_dict()))
    assert all(mark["filled"] for mark in found if mark["type"] == "point")
    assert all(mark.get("strokeDash") for mark in found if mark["type"] == "line")


@pytest.mark.parametrize("name", ["simulated", "ablation", "links", "timeline"])
def test_what_is_simulated_is_called_so_in_words(charts, name):
    assert "simulated" in vl_convert.vegalite_to_svg(charts[name].to_dict())


def test_simulated_events_are_hollow(charts):
    assert all(mark["fillOpacity"] < 0.5 for mark in marks(charts["timeline"].to_dict()) if mark["type"] == "bar")


def test_published_points_have_labels():
    points = study.labelled(calibrate.published_points(claims.scaling_measurements()))
    assert "ResNet-50 fp32 V100 on 8 GPUs" in set(points["label"])
