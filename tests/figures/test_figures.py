"""Figures draw what they are given: every row, its interval, the reported values, and words on hover."""

import json
import re
from itertools import chain

import pandas as pd
import pytest
import vl_convert
from made_runs import joined, made_curve, made_run

from dolb import figures, results
from dolb import findings as summary
from dolb.figures import style
from dolb.findings import batch_size as study
from dolb.findings import benchmarks, cost, progress
from dolb.profiling import steps
from dolb.training import gpu_programs

PEAK = {16: 0.60, 64: 0.70, 256: 0.80, 1024: 0.75, 4096: 0.60}
# Every quarter of the slider is a doubling.
SECONDS = {16: 16.0, 64: 8.0, 256: 4.0, 1024: 2.0, 4096: 1.0}
TWO = (made_curve(PEAK, lr=0.1, arch="resnet18"), made_curve(PEAK, lr=0.01, arch="resnet101"))


def merged(*curves):
    return joined(chain(*curves))


def cells(*curves):
    return study.curve_cells(merged(*curves))


def svg(chart):
    return vl_convert.vegalite_to_svg(chart.to_dict())


def rows(chart, having):
    return [row for data in chart.to_dict()["datasets"].values() for row in data if having in row]


def priced(*curves):
    ds = merged(*curves)
    runs = study.curve_runs(ds)
    return cost.with_alone(cost.priced(study.curve_cells(ds), runs), runs, pd.DataFrame())


def worker_runs():
    return [
        made_run((0.7 + 0.01 * workers,) * 5, batch_size=size, bn_workers=workers)
        for size in (256, 512)
        for workers in (1, 8, 16)
    ]


CHARTS = {
    "a panel per network": lambda: figures.accuracy_by_batch_size(cells(*TWO)),
    "a panel per rate": lambda: figures.accuracy_by_batch_size(cells(*TWO), panel="lr"),
    "suddenness": lambda: figures.suddenness_by_rate(study.falls(study.judged_runs(merged(*TWO)))),
    "preferred": lambda: figures.preferred_batch_size(study.judged_curves(merged(*TWO))),
    "progress": lambda: figures.accuracy_by_progress(progress.by_epoch(merged(*TWO), priced(*TWO))),
    "shares": lambda: figures.accuracy_by_share(study.share_cells(joined(worker_runs()))),
    "workers": lambda: figures.accuracy_by_workers(study.worker_cells(joined(worker_runs()))),
    "recommendation": lambda: figures.recommendation(priced(*TWO)),
    "device time": lambda: figures.seconds_by_batch_size(cost.device_time(summary.final_accuracy(merged(*TWO)))),
}


def test_a_cell_that_diverged_is_a_cross():
    table = cells(*TWO)
    crosses = [
        svg(figures.accuracy_by_batch_size(table.assign(diverged=count))).count("rotate(45)") for count in (0, 1)
    ]
    assert crosses == [0, len(table)]


@pytest.mark.parametrize("name", CHARTS)
def test_a_figure_compiles_answers_the_pointer_and_has_one_legend_to_click(name):
    chart = CHARTS[name]()
    assert svg(chart).startswith("<svg")
    spec = json.dumps(chart.to_dict())
    assert '"tooltip"' in spec
    assert spec.count('"bind": "legend"') == 1


def test_the_study_compiles_to_a_picture_and_holds_every_cell():
    found = cells(*TWO)
    chart = figures.batch_size_study(found, study.judged_curves(merged(*TWO)))
    assert svg(chart).startswith("<svg")
    assert len(rows(chart, "interval")) == len(found)


def test_an_optimum_at_the_edge_of_what_was_run_has_a_shape_of_its_own():
    falling = {size: 0.8 - 0.1 * place for place, size in enumerate(PEAK)}
    inside = figures.preferred_batch_size(study.judged_curves(merged(*TWO)))
    chart = figures.preferred_batch_size(
        study.judged_curves(merged(*TWO, made_curve(falling, lr=0.001, arch="resnet18")))
    )
    assert [row["optimum"] for row in rows(chart, "optimum")] == ["maybe below it", *["inside what was run"] * 2]
    assert ">maybe below it<" in svg(chart)
    assert ">maybe below it<" not in svg(inside)


def test_what_eight_workers_change_is_drawn_in_points_of_accuracy():
    drawn = svg(CHARTS["workers"]())
    assert "change with eight workers, points of accuracy" in drawn
    assert ">+7.0<" in drawn  # seven workers more, a point each


@pytest.mark.parametrize(("panel", "headers"), [("arch", ["resnet18", "resnet101"]), ("lr", ["rate 0.01", "rate 0.1"])])
def test_panels_are_networks_or_rates(panel, headers):
    drawn = svg(figures.accuracy_by_batch_size(cells(*TWO), panel=panel))
    assert all(f">{header}<" in drawn for header in headers)


def test_a_cell_of_which_a_run_dropped_late_has_a_ring():
    dropped = made_run((0.7, 0.7, 0.1, 0.7, 0.7), batch_size=64, lr=0.1, arch="resnet18")
    drawn = [svg(figures.accuracy_by_batch_size(cells(*TWO, more))) for more in ([], [dropped])]
    before, after = (picture.count('aria-roledescription="point"') for picture in drawn)
    assert after == before + 1
    # What lies on top answers the pointer: every layer of points has a hover.
    layers = figures.accuracy_by_batch_size(cells(*TWO, [dropped])).to_dict()["spec"]["layer"]
    assert all("tooltip" in layer["encoding"] for layer in layers if layer["mark"]["type"] == "point")


def test_another_kind_of_panel_is_refused():
    with pytest.raises(ValueError, match="'seed' is not known; accepted: arch, lr"):
        figures.accuracy_by_batch_size(cells(*TWO), panel="seed")


def test_shallow_networks_come_before_deep_ones():
    names = ["resnet101", "resnet18", "smallnet-8", "resnet50", "resnet18"]
    assert style.by_depth(names) == ["resnet18", "resnet50", "resnet101", "smallnet-8"]
    assert '"domain": ["resnet18", "resnet101"]' in json.dumps(CHARTS["preferred"]().to_dict())


def test_reported_values_are_drawn_apart_from_ours():
    point = {"arch": "resnet18", "batch_size": 256, "accuracy": 0.75, "what": "Somebody, Fig. 1"}
    with_point = figures.accuracy_by_batch_size(cells(*TWO), [point])
    without = figures.accuracy_by_batch_size(cells(*TWO))
    drawn = [svg(chart).count(figures.REPORTED) for chart in (with_point, without)]
    assert drawn[0] > drawn[1]


@pytest.mark.parametrize("title", ["", "Demo: small networks on digits"])
def test_what_a_document_says_stands_in_the_figure_with_a_title_and_without(title):
    said = ["Reported: " + "accuracy rises and then falls, " * 8]
    drawn = svg(figures.accuracy_by_batch_size(cells(*TWO), title=title, said=said))
    assert "Reported: accuracy rises and then falls" in drawn
    assert title in drawn


def test_every_measured_size_has_a_tick_unless_two_are_too_close():
    axis = figures.batch_size_axis([16, 8192, 16384, 20480]).to_dict()["axis"]
    assert axis["values"] == [16, 8192, 20480]


def recommended(chart, **choices):
    """Compile the recommendation with other choices and return the sentence it shows."""
    spec = chart.to_dict()
    for param in spec["params"]:
        if param["name"] in choices:
            param["value"] = choices[param["name"]]
    found = re.findall(
        r">((?:Batch|No batch size|resnet\d+ was|Not told apart),? [^<]+)<", vl_convert.vegalite_to_svg(spec)
    )
    return "\n".join(found)


def test_the_recommendation_is_the_most_accurate_batch_size_within_the_limit():
    table = priced(
        made_curve(PEAK, lr=0.1, arch="resnet18"), made_curve({64: 0.85, 256: 0.7}, lr=0.01, arch="resnet18")
    )
    table = table.assign(alone_seconds=table["batch_size"].map(SECONDS), high=table["accuracy"] + 0.01)
    chart = figures.recommendation(table)
    assert recommended(chart, limit=100) == "Batch 64 at rate 0.01: 85.0% in 8.0 s alone"
    assert recommended(chart, limit=100, rate=0.1) == "Batch 256 at rate 0.1: 80.0% in 4.0 s alone"
    assert recommended(chart, limit=30) == "Batch 1,024 at rate 0.1: 75.0% in 2.0 s alone"
    assert recommended(chart, limit=0) == "Batch 4,096 at rate 0.1: 60.0% in 1.0 s alone"
    # At this rate the fastest takes 4 seconds.
    assert recommended(chart, limit=30, rate=0.01) == "No batch size at this rate is that fast"


def test_the_recommendation_is_by_the_time_of_a_run_alone_or_by_its_part_of_the_device():
    table = priced(made_curve(PEAK, lr=0.1, arch="resnet18"))
    alone = table["batch_size"].map(SECONDS)
    chart = figures.recommendation(table.assign(alone_seconds=alone, run_seconds=alone / 4))
    assert recommended(chart, limit=100) == "Batch 256 at rate 0.1: 80.0% in 4.0 s alone"
    among_many = {"mode": figures.MANY_RUNS, "limit": 100}
    assert recommended(chart, **among_many) == "Batch 256 at rate 0.1: 80.0% in 1.0 s of the device"


def test_the_fastest_point_whose_interval_reaches_the_recommended_accuracy_is_said():
    table = priced(made_curve(PEAK, lr=0.1, arch="resnet18"), made_curve({1024: 0.76}, lr=0.01, arch="resnet18"))
    accuracy = table["accuracy"]
    table = table.assign(alone_seconds=table["batch_size"].map(SECONDS), low=accuracy - 0.055, high=accuracy + 0.055)
    chart = figures.recommendation(table, at_chance=0.61)
    first, second = recommended(chart, limit=100).splitlines()
    assert first == "Batch 256 at rate 0.1: 80.0% in 4.0 s alone"
    assert second == "Not told apart, and faster: batch 1,024 at rate 0.01: 76.0% (70.5% to 81.5%) in 2.0 s alone"
    # At this limit the faster one is the best itself, and at the lowest nothing is faster.
    assert recommended(chart, limit=30) == "Batch 1,024 at rate 0.01: 76.0% in 2.0 s alone"
    assert recommended(chart, limit=0) == "Batch 4,096 at rate 0.1: 60.0% in 1.0 s alone, near chance"


def test_a_rate_that_a_network_lacks_is_said_not_to_have_been_run():
    curves = [("resnet18", 0.003), ("resnet18", 0.01), ("resnet34", 0.01), ("resnet34", 0.1)]
    chart = figures.recommendation(priced(*(made_curve(PEAK, lr=lr, arch=arch) for arch, lr in curves)))
    said = "resnet34 was not run at rate 0.003, only at 0.01, 0.1"
    assert recommended(chart, network="resnet34", rate=0.003, limit=100) == said
    assert recommended(chart, network="resnet34", rate=0.003, limit=0) == said
    assert recommended(chart, network="resnet18", rate=0.003, limit=100).startswith("Batch 256 at rate 0.003")


def test_the_engine_has_a_panel_per_network_on_the_width_of_a_page_and_no_ratio_where_none_was_measured(repo_root):
    ds = steps.select(results.load(repo_root / "results" / "benchmarks.nc"), gpu_programs.BENCHMARK)
    cells = steps.with_floors(steps.compare(ds, gpu_programs.EAGER), ds)
    found = benchmarks.shown(cells, gpu_programs.ENGINE)
    picture = svg(figures.engine_speed(found))
    assert int(re.search(r'width="(\d+)"', picture)[1]) <= 620
    assert all(f">{arch}<" in picture for arch in found["arch"])
    said = re.findall(r"program: ([^;]+); [^\"]*times the eager loop: ([^;\"]+)", picture)
    assert len(said) == len(found)
    assert sum(times == "not timed in the same process" for _, times in said) == found["ratio"].isna().sum()


def test_a_network_keeps_its_colour_whichever_others_are_drawn():
    def colours(*archs):
        scale = style.network_colour(archs).to_dict()["scale"]
        return dict(zip(scale["domain"], scale["range"], strict=True))

    every = colours("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
    assert len(set(every.values())) == 5
    assert colours("resnet152", "resnet50") == {name: every[name] for name in ("resnet50", "resnet152")}
    mixed = colours("smallnet-4", "resnet18", "smallnet-8")
    assert mixed["resnet18"] == every["resnet18"]
    assert len(set(mixed.values())) == 3
