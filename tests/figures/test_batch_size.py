"""Figures of the batch-size study draw what they are given, and the recommendation is computed as it says."""

import re
from itertools import chain

import vl_convert
from drawn import svg
from made_runs import made_curve, made_run

from dolb import results
from dolb.figures import batch_size as figures
from dolb.figures import style
from dolb.findings import batch_size as study

PEAK = {16: 0.60, 64: 0.70, 256: 0.80, 1024: 0.75, 4096: 0.60}
# Every quarter of the slider is a doubling.
SECONDS = {16: 16.0, 64: 8.0, 256: 4.0, 1024: 2.0, 4096: 1.0}
TWO = (made_curve(PEAK, lr=0.1, arch="resnet18"), made_curve(PEAK, lr=0.01, arch="resnet101"))


def merged(*curves):
    return results.merge(chain(*curves))


def cells(*curves):
    return study.curve_cells(merged(*curves))


def priced(*curves):
    table = cells(*curves)
    return table.assign(seconds=table["batch_size"].map(SECONDS), priced_by="runs")


def test_crosses_rings_and_diamonds_are_of_diverged_collapsed_and_reported_cells():
    table = cells(*TWO)
    drawn = [svg(figures.accuracy_by_batch_size(table.assign(diverged=count))) for count in (0, 1)]
    assert [picture.count("rotate(45)") for picture in drawn] == [0, len(table)]
    collapsed = made_run((0.7, 0.7, 0.1, 0.7, 0.7), batch_size=64, lr=0.1, arch="resnet18")
    ringed = figures.accuracy_by_batch_size(cells(*TWO, [collapsed]))
    point = 'aria-roledescription="point"'
    assert svg(ringed).count(point) == drawn[0].count(point) + 1
    layers = ringed.to_dict()["spec"]["layer"]  # a ring lies over its point: it has to answer the pointer too
    assert all("tooltip" in layer["encoding"] for layer in layers if layer["mark"]["type"] == "point")
    said = {"arch": "resnet18", "batch_size": 256, "accuracy": 0.75, "what": "Somebody, Fig. 1"}
    assert svg(figures.accuracy_by_batch_size(table, [said])).count(style.REPORTED) > drawn[0].count(style.REPORTED)


def test_an_optimum_at_the_edge_of_what_was_run_has_a_shape_of_its_own():
    falling = made_curve({size: 0.8 - 0.1 * place for place, size in enumerate(PEAK)}, lr=0.001, arch="resnet18")
    within, edge = (
        svg(figures.preferred_batch_size(study.preferred(study.judged_runs(merged(*curves)))))
        for curves in (TWO, (*TWO, falling))
    )
    assert ">maybe below it<" in edge
    assert ">maybe below it<" not in within


def recommended(chart, **choices):
    """Compile the recommendation with other choices and return the lines above it."""
    spec = chart.to_dict()
    for param in spec["params"]:
        param["value"] = choices.get(param["name"], param.get("value"))
    spec["params"] = [{k: v for k, v in param.items() if v is not None} for param in spec["params"]]
    said = r">((?:Batch|No batch size|resnet\d+ was|Or),? [^<]+)<"
    return re.findall(said, vl_convert.vegalite_to_svg(spec))


def test_the_recommendation_is_the_most_accurate_batch_size_within_the_limit():
    table = priced(
        made_curve(PEAK, lr=0.1, arch="resnet18"), made_curve({64: 0.85, 256: 0.7}, lr=0.01, arch="resnet18")
    )
    chart = figures.recommendation(table)
    assert recommended(chart, limit=100) == ["Batch 64 at rate 0.01: 85.0% in 8.0 s"]
    assert recommended(chart, limit=100, rate=0.1) == ["Batch 256 at rate 0.1: 80.0% in 4.0 s"]
    assert recommended(chart, limit=30) == ["Batch 1,024 at rate 0.1: 75.0% in 2.0 s"]
    assert recommended(chart, limit=0) == ["Batch 4,096 at rate 0.1: 60.0% in 1.0 s"]
    # At this rate the fastest takes 4 seconds.
    assert recommended(chart, limit=30, rate=0.01) == ["No batch size at this rate is that fast"]


def test_the_fastest_batch_size_within_a_point_of_the_recommended_accuracy_is_named():
    table = priced(made_curve(PEAK, lr=0.1, arch="resnet18"), made_curve({1024: 0.795}, lr=0.01, arch="resnet18"))
    chart = figures.recommendation(table, at_chance=0.61)
    assert recommended(chart, limit=100) == [
        "Batch 256 at rate 0.1: 80.0% in 4.0 s",
        "Or, within a point: 1,024 at rate 0.01: 79.5% in 2.0 s",
    ]
    assert recommended(chart, limit=30) == ["Batch 1,024 at rate 0.01: 79.5% in 2.0 s"]
    assert recommended(chart, limit=0) == ["Batch 4,096 at rate 0.1: 60.0% in 1.0 s, near chance"]


def test_a_rate_that_a_network_lacks_is_said_not_to_have_been_run():
    curves = [("resnet18", 0.003), ("resnet18", 0.01), ("resnet34", 0.01), ("resnet34", 0.1)]
    chart = figures.recommendation(priced(*(made_curve(PEAK, lr=lr, arch=arch) for arch, lr in curves)))
    said = ["resnet34 was not run at rate 0.003, only at 0.01, 0.1"]
    assert recommended(chart, network="resnet34", rate=0.003, limit=100) == said
    assert recommended(chart, network="resnet18", rate=0.003, limit=100)[0].startswith("Batch 256 at rate 0.003")
