"""The numbers on which figures and verdicts rest are those that were published before, page by page."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from agreement import agrees

from dolb import claims, results
from dolb.findings import (
    batch_size,
    critical_batch,
    data_pipeline,
    ddp_vs_horovod,
    engine,
    filtered,
    landscape,
    large_batch_remedies,
    limits,
    lr_scaling,
    noise,
    own_data,
    recommend,
    step_timeline,
    strong_weak,
    warmup,
)  # fmt: skip
from dolb.findings.runs import final_accuracy, narrow
from dolb.profiling import steps
from dolb.training.config import EVAL_BATCH

BORDER = 6272
of = cache(results.published)


@cache
def judged() -> pd.DataFrame:
    return batch_size.judged_runs(of("batch-size"))


@cache
def small() -> xr.Dataset:
    """By the seeds and weight decays of then."""
    return narrow(of("filtered-small-batch"), seed=[0, 1, 2], weight_decay=[0.005, 0.01, 0.012, 0.0135])


@cache
def large() -> xr.Dataset:
    """By the seeds of then."""
    ds = of("filtered-large-batch")
    return ds.isel(run=np.flatnonzero(ds["seed"] < np.where(ds["batch_size"] < BORDER, 4, 8)))


def by_default(slug: str) -> xr.Dataset:
    return filtered.beside_full(large(), of(slug))


@cache
def by_epoch() -> pd.DataFrame:
    return batch_size.by_epoch(of("batch-size"))


@cache
def fewest() -> pd.DataFrame:
    return critical_batch.fewest(critical_batch.reached(of("batch-size")))


def on_gpu() -> pd.DataFrame:
    ds = narrow(of("benchmarks"), benchmark=steps.ON_GPU)
    return engine.beside_the_engine(engine.with_floors(engine.compare(ds, steps.EAGER), ds), steps.ENGINE)


def on_cpu() -> pd.DataFrame:
    return engine.compare(narrow(of("benchmarks"), benchmark=steps.ON_CPU), steps.STOCK)


def remedies() -> pd.DataFrame:
    runs = large_batch_remedies.runs(of("large-batch-remedies"), of("benchmarks"))
    return large_batch_remedies.cells(runs).drop(columns="remedies")


def own() -> xr.Dataset:
    return narrow(of("own-data"), drawn_examples=1000)


def prices() -> pd.DataFrame:
    ds = of("batch-size")
    speeds = recommend.speeds(of("benchmarks"), str(ds["device"].to_numpy()[0]), steps.ENGINE_ON_SGD)
    found = recommend.priced(batch_size.curve_cells(ds), final_accuracy(ds), speeds, EVAL_BATCH)
    return found[[*batch_size.CELL, "accuracy", "seconds"]]


def lanes() -> pd.DataFrame:
    found = step_timeline.events(of("step-timeline")).groupby(["variant", "source", "rank", "lane"])
    return found.agg(
        events=("name", "size"), start_ms=("start_ms", "min"), end_ms=("end_ms", "max"),
        duration_ms=("duration_ms", "sum"), bytes=("bytes", "sum"),
    ).reset_index()  # fmt: skip


def times() -> pd.DataFrame:
    timed = strong_weak.times(strong_weak.runs(of("strong-weak")), strong_weak.step_times(of("strong-weak-steps")))
    return strong_weak.cells(timed).drop(columns="source")


def effects() -> pd.DataFrame:
    table = claims.table(claims.published_verdicts())
    assert table["n"].dtype == int  # a float would be written so in every row
    return table.loc[table["n"] > 0, ["claim", "effect", "ours", "low", "high", "n", "part", "verdict"]]


CURVE, CELL, SET = list(batch_size.CURVE), list(batch_size.CELL), ["equal", *filtered.CELL]
SPEED, TOGETHER = ["arch", "batch_size", "program"], ["equal", "one", "other"]
# Each kept table, by its name in this folder, with the columns that tell its rows apart.
TABLES: dict[str, tuple[list[str], Callable[[], pd.DataFrame]]] = {
    "verdicts": (["claim", "effect"], effects),
    "batch-size": (CELL, lambda: batch_size.curve_cells(of("batch-size"))),
    "preferred": (CURVE, lambda: batch_size.preferred(judged())),
    "suddenness": (CURVE, lambda: batch_size.falls(judged())),
    "depth": (["lr"], lambda: batch_size.ranges(judged()).mean().rename("spread").rename_axis("lr").reset_index()),
    "progress": ([*CELL, "epoch"], lambda: by_epoch()[by_epoch()["drawn"]]),
    "equal-updates": (CELL, lambda: batch_size.at_equal_updates(by_epoch())),
    "shares": (["change", "share"], lambda: batch_size.share_cells(of("batch-size"))),
    "separated": (["batch_size"], lambda: batch_size.separated(of("batch-size"))),
    "even-batches": (CELL, lambda: batch_size.even_division(of("batch-size"), of("even-batches"))),
    "features": (
        ["key", "split"],
        lambda: noise.parted(of("features"))[["key", "split", "agreement", "network_accuracy"]],
    ),
    "noise": (["key"], lambda: noise.rows(of("noise"))[["key", "removed", "network_accuracy", "map_rate", "share"]]),
    "noise-removed": (
        ["made", "extractor"], lambda: noise.removed(of("noise"), claims.load()["G6"].setting["maps"])
    ),
    "noise-by-eps": (["extractor", "eps"], lambda: noise.by_eps(of("noise"))),
    "noise-by-parameter": (["parameter", "value"], lambda: noise.by_parameter(of("noise"))),
    "noise-by-map": (["test_accuracy", "map"], lambda: noise.by_map(of("noise"))),
    "noise-agreement": (["networks", "overlap"], lambda: noise.agreement(of("noise"))),
    "noise-others": (["filter"], lambda: noise.others(of("noise"))),
    "filtered-small-batch": (SET, lambda: filtered.cells(small())),
    "filtered-large-batch": (SET, lambda: filtered.cells(large())),
    "filtered-small-gains": (["equal", "batch_size", "other"], lambda: filtered.gains(small())),
    "filtered-large-gains": (["equal", "batch_size", "other"], lambda: filtered.gains(large())),
    "filtered-large-together": (["large", *TOGETHER], lambda: filtered.together(large(), BORDER)),
    "default-radius": (SET, lambda: filtered.cells(by_default("default-radius"))),
    "default-radius-together": (TOGETHER, lambda: filtered.together(by_default("default-radius"), BORDER)),
    "default-of-2020-together": (TOGETHER, lambda: filtered.together(by_default("default-of-2020"), BORDER)),
    "crossover": (["equal", "batch_size", "one"], lambda: filtered.crossover(of("crossover"))),
    "per-update": (["equal", "set", "updates"], lambda: filtered.per_update(of("crossover"))),
    "removal-share": (
        ["equal", "batch_size", "removed", "one", "other"],
        lambda: filtered.by_share(of("filtered-large-batch"), of("removal-share")),
    ),
    "tuning": (["batch_size", "lr"], lambda: filtered.tried(of("tuning"))),
    "loss-landscape-ratios": (
        ["reading", "measure", "batch_size", "other"],
        lambda: landscape.ratios(landscape.values(of("loss-landscape"))),
    ),
    "warmup": (warmup.CELL, lambda: warmup.cells(of("warmup"))),
    "rates": (lr_scaling.CELL, lambda: lr_scaling.cells(of("lr-scaling"))),
    "rules": (["arch", "batch_size", "rule"], lambda: lr_scaling.by_rule(of("lr-scaling"))),
    "remedies": (list(large_batch_remedies.CELL), remedies),
    "trade-off": (["arch", "batch_size"], fewest),
    "critical-batch": (["arch"], lambda: critical_batch.critical(fewest())),
    "noise-scales": (["arch", "epoch"], lambda: critical_batch.noise_scales(of("critical-batch"))),
    "ddp-vs-horovod-cells": (
        ["arch", "scaling", "library", "ranks"], lambda: ddp_vs_horovod.cells(of("ddp-vs-horovod"))
    ),
    "ddp-vs-horovod-leads": (["arch", "ranks"], lambda: ddp_vs_horovod.leads(of("ddp-vs-horovod"))),
    "ddp-vs-horovod-tuned": (
        ["source", "library", *ddp_vs_horovod.SETTINGS], lambda: ddp_vs_horovod.tuned(of("ddp-vs-horovod"))
    ),
    "ddp-vs-horovod-links": (
        ["arch", "hosts", "library", "link_mbit"], lambda: ddp_vs_horovod.linked_cells(of("ddp-vs-horovod"))
    ),
    "ddp-vs-horovod-simulated-leads": (
        ["variant", "ranks"], lambda: ddp_vs_horovod.simulated_leads(of("ddp-vs-horovod"))
    ),
    "step-timeline-shares": (["variant", "source", "part"], lambda: step_timeline.shares(of("step-timeline"))),
    "step-timeline-lanes": (["variant", "source", "rank", "lane"], lanes),
    "strong-weak": (strong_weak.CELL, times),
    "limits-free": (["device_kind", "arch", "seed", "images"], lambda: limits.free(of("limits"))),
    "limits-products": (["device_kind", "layer", "batch_size"], lambda: limits.products(of("limits"))),
    "limits-nodes": (["device_kind", "arch", "seed", "batch_size", "gbit"], lambda: limits.stops(of("limits"))),
    "data-pipeline-cells": (
        ["storage", "access", "cache", "loader_workers"], lambda: data_pipeline.cells(of("data-pipeline"))
    ),
    "data-pipeline-ratios": (["images", "access", "cache", "over"], lambda: data_pipeline.ratios(of("data-pipeline"))),
    "benchmarks": (SPEED, on_cpu),
    "benchmarks-gpu": (SPEED, on_gpu),
    "fidelity-differences": (engine.CELL, lambda: engine.differences(engine.accuracies(of("fidelity")))),
    "recommend": (CELL, prices),
    "own-data": (["kind", "removed_share", "method", "measure"], lambda: own_data.cells(own())),
    "own-data-faults": (["method", "fault"], lambda: own_data.by_fault(own())),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_what_it_was(name):
    by, made = TABLES[name]
    agrees(made(), name, list(by))


def test_the_simulators_error_in_the_ratio_of_the_libraries():
    off = ddp_vs_horovod.judged(of("ddp-vs-horovod"))
    both = (off["ddp"] - off["horovod"]).dropna()
    agrees(
        pd.DataFrame({"pairs": [len(both)], "root_mean_square_log": [np.sqrt((both**2).mean())]}),
        "ddp-vs-horovod-model-error",
        ["pairs"],
    )


def test_the_flat_file_is_at_least_as_fast_as_the_best_other_at_random():
    found = data_pipeline.ratios(of("data-pipeline"))
    best = found.query("access == 'random' and over == 'best other' and images == 'ImageNet-sized'")
    assert (best["high"] >= 1).all()


def test_a_folder_of_fifty_thousand_images_is_filtered_within_three_minutes_on_the_gpu():
    whole = narrow(of("benchmarks"), benchmark=steps.FILTERED_FOLDER)
    assert whole["device"].to_numpy().tolist() == ["NVIDIA H200"]
    assert float(whole["step_seconds"].item()) == pytest.approx(73.2, abs=0.1)
    assert float((whole["step_seconds"] * whole["images_per_second"]).item()) == pytest.approx(50_000)
