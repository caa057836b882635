"""What runs cost: prices, what is best for its time, and the total beside the total at eager speed."""

import numpy as np
import pandas as pd
import pytest
from made_runs import made_run

from dolb import findings as summary
from dolb import results
from dolb.findings import batch_size as study
from dolb.findings import cost
from dolb.training import gpu_programs, run

CELLS = pd.DataFrame(
    {
        "arch": ["resnet18"] * 4 + ["resnet50"],
        "batch_size": [64, 256, 1024, 4096, 256],
        "lr": 0.1,
        "accuracy": [0.80, 0.82, 0.75, 0.70, 0.60],
        "run_seconds": [16.0, 8.0, 5.0, 6.0, 20.0],
    }
)


def runs(*rows):
    """Runs of (arch, batch size, seconds, runs at once)."""
    made = []
    for seed, (arch, size, seconds, at_once) in enumerate(rows):
        ds = made_run((0.5,) * 2, arch=arch, batch_size=size, seed=seed)
        ds["seconds"][:], ds["concurrent_runs"][:] = seconds, at_once
        made.append(ds)
    return summary.final_accuracy(results.merge(made))


def test_device_seconds_are_by_the_recorded_part_and_else_by_the_number_of_runs():
    made = [made_run(seed=seed).assign(seconds=("run", [40.0]), concurrent_runs=("run", [5.0])) for seed in (1, 2)]
    old, new = made[0], made[1].assign(device_share=("run", [0.5]))
    both = results.merge([old, new])
    assert results.device_seconds(old).item() == 40 / 5
    assert results.device_seconds(both).to_numpy().tolist() == [40 / 5, 40 * 0.5]
    assert summary.final_accuracy(both)["device_seconds"].tolist() == [8.0, 20.0]
    assert results.provenance_of(both)["device time"].startswith("28 s ")


def test_a_price_is_the_median_share_of_the_device():
    frame = runs(("resnet18", 64, 40.0, 4.0), ("resnet18", 64, 24.0, 2.0), ("resnet18", 64, 300.0, 1.0))
    cells = summary.over_seeds(frame, ["arch", "lr", "batch_size"])
    assert cost.priced(cells, frame)["run_seconds"].tolist() == [12.0]


SPEEDS = pd.DataFrame({"arch": "resnet18", "batch_size": [64, 256], "images_per_second": [1000.0, 4000.0]})
# Of a made run: epochs, training examples, and test examples as a third of a training step each, at the speed of 256,
# which comes nearest to the batch of evaluation.
TRAINED, EVALUATED = 2 * 50_000, 2 * 10_000 / 3 / 4000


def test_a_price_is_the_benchmark_s_between_benchmarked_sizes_and_the_runs_own_elsewhere():
    frame = runs(*(("resnet18", size, 40.0, 4.0) for size in (32, 64, 128, 256, 512)), ("resnet50", 64, 50.0, 1.0))
    cells = cost.priced(summary.over_seeds(frame, ["arch", "lr", "batch_size"]), frame, SPEEDS)
    prices = cells.set_index(["arch", "batch_size"])
    for size, speed in ((64, 1000), (128, 2000), (256, 4000)):  # 128 is halfway on both logarithmic scales
        assert prices.loc[("resnet18", size), "run_seconds"] == pytest.approx(TRAINED / speed + EVALUATED)
    by_runs = prices[prices["priced_by"] == "runs"]["run_seconds"].to_dict()
    assert by_runs == {("resnet18", 32): 10.0, ("resnet18", 512): 10.0, ("resnet50", 64): 50.0}
    assert set(cost.priced(cells[["arch", "batch_size"]], frame)["priced_by"]) == {"runs"}


# Two runs of ResNet-34 beside many small ones: charged an eighth of the device, less than ResNet-18 takes (40 s / 4).
CHEAP = (("resnet34", 512, 8.0, 8.0), ("resnet34", 512, 8.0, 8.0))


def test_a_network_is_not_priced_below_one_that_it_contains():
    frame = runs(("resnet18", 512, 40.0, 4.0), *CHEAP, ("resnet50", 512, 8.0, 8.0))
    cells = cost.priced(summary.over_seeds(frame, ["arch", "lr", "batch_size"]), frame).set_index("arch")
    assert cells["run_seconds"].to_dict() == {"resnet18": 10.0, "resnet34": 10.0, "resnet50": 1.0}
    assert cells["priced_by"].to_dict() == {"resnet18": "runs", "resnet34": "bound", "resnet50": "runs"}
    times = cost.device_time(frame[frame["arch"] == "resnet34"], known=frame)
    assert times["run_seconds"].tolist() == [10.0]
    assert times["seconds"].tolist() == [2.0]  # what the runs were charged stays


def test_a_benchmarked_price_gives_way_to_no_bound():
    frame = runs(("resnet18", 512, 40.0, 4.0), *CHEAP)
    speeds = pd.DataFrame({"arch": ["resnet34"], "batch_size": [512], "images_per_second": [1e6]})
    cells = cost.priced(summary.over_seeds(frame, ["arch", "lr", "batch_size"]), frame, speeds).set_index("arch")
    assert cells.loc["resnet34", "priced_by"] == "benchmark"
    assert cells.loc["resnet34", "run_seconds"] < 10


def test_the_page_says_of_a_bound_that_it_is_one():
    frame = runs(("resnet18", 512, 40.0, 4.0), *CHEAP)
    cells = cost.priced(summary.over_seeds(frame, ["arch", "lr", "batch_size"]), frame)
    words = cost.pricing_in_words(cells, frame)
    assert "1 of 2 points have a bound for a price" in words
    assert "as the least that theirs can be: resnet34 at the price of resnet18." in words
    assert "1 of 2 points are priced by the runs themselves" in words


def test_published_prices_never_fall_as_blocks_are_added(repo_root):
    frame = study.curve_runs(results.load(repo_root / "results" / "batch-size.nc"))
    engine = cost.engine_speeds(results.load(repo_root / "results" / "benchmarks.nc"), frame["device"].iloc[0])
    prices = cost.device_time(frame, speeds=engine).set_index(["arch", "batch_size"])["run_seconds"]
    for arch, smaller in cost.WITHIN.items():
        both = prices[arch].to_frame("price").join(prices[smaller].rename("bound"), how="inner")
        assert len(both)
        assert (both["price"] >= both["bound"]).all()


def test_one_benchmarked_size_prices_that_size_alone():
    frame = runs(("resnet18", 64, 40.0, 4.0), ("resnet18", 128, 40.0, 4.0))
    cells = cost.priced(summary.over_seeds(frame, ["arch", "lr", "batch_size"]), frame, SPEEDS[:1])
    assert dict(zip(cells["batch_size"], cells["priced_by"], strict=True)) == {64: "benchmark", 128: "runs"}


def test_the_page_says_which_points_have_which_price():
    shared = (("resnet18", 512, 40.0, 4.0), ("resnet18", 512, 44.0, 4.0))
    frame = runs(("resnet18", 64, 1.0, 1.0), *shared, ("resnet50", 64, 50.0, 1.0))
    cells = cost.priced(summary.over_seeds(frame, ["arch", "lr", "batch_size"]), frame, SPEEDS)
    words = cost.pricing_in_words(cells, frame)
    assert words.startswith("1 of 3 points are priced by the benchmark")
    assert "2 of 3 points are priced by the runs themselves" in words
    assert "For 1 of these points runs shared the device with others; where unlike runs shared it" in words
    assert "differ by up to 10%" in words  # of 10 and 11 seconds, and their median is 10.5


def test_where_every_price_is_the_benchmark_s_no_word_is_said_of_sharing():
    frame = runs(("resnet18", 64, 40.0, 4.0), ("resnet18", 64, 80.0, 4.0))
    cells = summary.over_seeds(frame, ["arch", "lr", "batch_size"])
    words = cost.pricing_in_words(cost.priced(cells, frame, SPEEDS), frame)
    assert "1 of 1 points are priced by the benchmark" in words
    assert "shared" not in words
    assert "differ" not in words


def test_runs_that_had_the_device_alone_are_not_said_to_have_shared_it():
    frame = runs(("resnet34", 64, 50.0, 1.0))
    cells = cost.priced(summary.over_seeds(frame, ["arch", "lr", "batch_size"]), frame, SPEEDS)
    assert cost.pricing_in_words(cells, frame) == (
        "1 of 1 points are priced by the runs themselves, by the median over those of the network and batch size."
    )


def test_evaluation_is_in_the_engine_s_batches():
    assert cost.EVAL_BATCH == run.EVAL_BATCH


def test_the_engine_s_speed_is_that_of_its_fullest_pack(repo_root):
    benchmarks = results.load(repo_root / "results" / "benchmarks.nc")
    table = benchmarks.to_dataframe().query("benchmark == @gpu_programs.BENCHMARK")
    ours = table[table["program"].str.startswith(gpu_programs.ENGINE)]
    device = ours["device"].iloc[0]
    found = cost.engine_speeds(benchmarks, device).set_index(["arch", "batch_size"])["images_per_second"].to_dict()
    cells = dict(list(ours[ours["device"] == device].groupby(["arch", "batch_size"])))
    assert set(found) == set(cells)
    for cell, packs in cells.items():
        fullest = packs[packs["runs_at_once"] == packs["runs_at_once"].max()]
        assert found[cell] == fullest["images_per_second"].median()
    assert cost.engine_speeds(benchmarks, "no such device").empty


def test_unevenness_is_the_widest_range_of_one_batch_size():
    frame = runs(("resnet18", 64, 9.0, 1.0), ("resnet18", 64, 10.0, 1.0), ("resnet18", 64, 12.0, 1.0))
    assert cost.unevenness(frame) == pytest.approx(0.3)


def test_best_for_its_time_are_those_that_no_other_of_the_network_beats():
    best = cost.pareto(CELLS)
    assert list(zip(best["arch"], best["batch_size"], strict=True)) == [
        ("resnet18", 1024), ("resnet18", 256), ("resnet50", 256)
    ]  # fmt: skip


def test_of_two_cells_with_one_price_the_better_stays():
    same = CELLS.assign(run_seconds=5.0)
    assert cost.pareto(same)["batch_size"].tolist() == [256, 256]


def test_the_table_for_readers_has_a_row_per_cell():
    alone = cost.with_alone(CELLS, CELLS, pd.DataFrame())
    table = cost.in_words(cost.pareto(alone, "alone_seconds"))
    assert table.index.tolist() == ["resnet18", "resnet18", "resnet50"]
    assert table.iloc[1].tolist() == ["8.0", "8.0", "256", "0.1", "82.0%"]


def test_time_whose_parts_were_not_recorded_is_divided_by_price():
    # One pack of two unlike runs, each charged half of it; by the benchmark the larger costs three times as much.
    frame = runs(("resnet18", 64, 40.0, 2.0), ("resnet50", 64, 40.0, 2.0))
    speeds = pd.DataFrame({"arch": ["resnet18", "resnet50"], "batch_size": 64, "images_per_second": [300.0, 100.0]})
    times = cost.device_time(frame, speeds=speeds)
    assert times["seconds"].tolist() == pytest.approx([10, 30])


def test_a_run_alone_is_priced_by_the_speed_of_one_and_not_beyond_it():
    frame = runs(("resnet18", 64, 40.0, 2.0), ("resnet18", 256, 40.0, 2.0))
    cells = cost.priced(frame[["arch", "batch_size"]].drop_duplicates(), frame)
    one = pd.DataFrame({"arch": ["resnet18"], "batch_size": [64], "images_per_second": [1000.0]})
    found = cost.with_alone(cells, frame, one).set_index("batch_size")["alone_seconds"]
    row = frame.iloc[0]
    images = row["training_examples"] + row["test_examples"] * cost.FORWARD
    assert found[64] == pytest.approx(row["epochs"] * images / 1000)
    assert np.isnan(found[256])


def test_device_time_is_by_cell_and_in_all():
    times = cost.device_time(
        runs(("resnet18", 64, 40.0, 4.0), ("resnet18", 64, 28.0, 2.0), ("resnet50", 64, 60.0, 1.0))
    )
    assert times["runs"].tolist() == [2, 1]
    assert times["run_seconds"].tolist() == [12.0, 60.0]
    assert times["seconds"].tolist() == [10 + 14, 60]
    total = cost.in_all(times)
    assert total["minutes"] == pytest.approx((10 + 14 + 60) / 60)
    assert total["known_runs"] == 0
    assert "cannot be told yet" in cost.eager_in_words(total)


def test_charged_time_is_said_to_be_an_estimate_where_a_part_of_the_device_was_not_recorded():
    frame = runs(("resnet18", 64, 40.0, 4.0), ("resnet18", 64, 28.0, 2.0), ("resnet50", 64, 60.0, 1.0))
    without = "without setting up (capture and compilation), which is not timed"
    told = f"divided by price among 2 that shared the device with no record of their part, and {without}"
    assert cost.charged_in_words(frame) == told
    assert cost.charged_in_words(frame.assign(device_share=[0.25, np.nan, np.nan])) == told.replace("2", "1")
    assert cost.charged_in_words(frame.assign(device_share=[0.25, 0.5, 1.0])) == without


def test_a_point_has_one_price_by_one_set_of_runs(repo_root):
    known = results.load(repo_root / "results" / "batch-size.nc")
    runs = summary.final_accuracy(known)
    engine = cost.engine_speeds(results.load(repo_root / "results" / "benchmarks.nc"), runs["device"].iloc[0])
    cells = cost.priced(study.curve_cells(known), runs, engine)
    times = cost.device_time(study.curve_runs(known), speeds=engine, known=runs)
    both = cells.merge(times, on=list(cost.SIZE), how="outer", suffixes=("", "_of_all"))
    assert (both["run_seconds"] == both["run_seconds_of_all"]).all()
    assert (both["priced_by"] == both["priced_by_of_all"]).all()


def test_eager_time_is_the_images_over_the_speed_between_benchmarked_sizes():
    frame = runs(("resnet18", 64, 1.0, 1.0), ("resnet18", 128, 1.0, 1.0), ("resnet18", 512, 1.0, 1.0))
    eager = pd.DataFrame({"arch": "resnet18", "batch_size": [64, 256], "images_per_second": [1000.0, 4000.0]})
    times = cost.device_time(frame, eager).set_index("batch_size")
    images = 2 * 50_000  # epochs and training examples of a made run
    assert times.loc[64, "eager_seconds"] == pytest.approx(images / 1000)
    assert times.loc[128, "eager_seconds"] == pytest.approx(images / 2000)  # halfway on both logarithmic scales
    assert np.isnan(times.loc[512, "eager_seconds"])
    words = cost.eager_in_words(cost.in_all(times.reset_index()))
    assert "2 of these runs would take 2.5 minutes" in words  # 100 s + 50 s
    assert "these runs would take" in cost.eager_in_words(cost.in_all(times.loc[[64]].reset_index()))


def test_a_run_that_diverged_counts_with_the_epochs_it_did():
    whole, broken = (0.5,) * 4, (0.5, 0.1, np.nan, np.nan)
    made = [made_run(whole), made_run(broken, seed=1, diverged=True)]
    frame = summary.final_accuracy(results.merge(made)).assign(device_seconds=[8.0, 2.0])
    assert frame["epochs_done"].tolist() == [4, 2]
    eager = pd.DataFrame({"arch": frame["arch"][:1], "batch_size": frame["batch_size"][:1], "images_per_second": 100.0})
    times = cost.device_time(frame, eager).iloc[0]
    assert times["seconds"] == 8 + 2
    assert times["eager_seconds"] == pytest.approx((4 + 2) * 50_000 / 100)
    assert times["eager_run_seconds"] == pytest.approx(4 * 50_000 / 100)
    assert times["run_seconds"] == (8 + 2 * 4 / 2) / 2  # the median of two: one of four epochs, one as if it had them
    assert cost.unevenness(frame) == pytest.approx((8 - 4) / 6)


def test_eager_speeds_are_those_of_one_program_on_one_device(repo_root):
    benchmarks = results.load(repo_root / "results" / "benchmarks.nc")
    timed = benchmarks.to_dataframe().query("program == 'stock torch'")
    device = timed["device"].iloc[0]
    found = cost.eager_speeds(benchmarks, device, "stock torch")
    assert set(found["batch_size"]) == set(timed.query("device == @device")["batch_size"])
    assert (found["images_per_second"] > 0).all()
    assert cost.eager_speeds(benchmarks, "no such device").empty


def test_runs_without_a_price_are_paid_for_all_the_same():
    made = [made_run((0.5,) * 4, batch_size=size) for size in (64, 400)]
    frame = summary.final_accuracy(results.merge(made)).assign(device_seconds=[8.0, 2.0])
    times = cost.device_time(frame, known=frame[frame["batch_size"] == 64])
    assert (times["runs"].sum(), times["seconds"].sum()) == (2, 10)
