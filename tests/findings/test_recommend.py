"""Which batch size to take: the price of a run, and which cells are best for their time."""

import pandas as pd
import pytest
from made_runs import made_run

from dolb import results
from dolb.findings import recommend
from dolb.findings.intervals import bootstrapped
from dolb.findings.runs import final_accuracy

SPEEDS = pd.DataFrame({"arch": "resnet18", "batch_size": [64, 256], "images_per_second": [1000.0, 4000.0]})


def priced(*rows, epochs_done=2):
    """Cells of runs of two epochs, 50,000 training and 10,000 test examples: (arch, batch size, seconds)."""
    made = []
    for seed, (arch, size, seconds) in enumerate(rows):
        accuracy = (0.5, 0.5) if epochs_done == 2 else (0.5, float("nan"))
        ds = made_run(accuracy, arch=arch, batch_size=size, seed=seed, diverged=epochs_done < 2)
        ds["seconds"][:], ds["concurrent_runs"][:] = seconds, 1.0
        made.append(ds)
    runs = final_accuracy(results.merge(made))
    cells = bootstrapped(runs, ["arch", "lr", "batch_size"])[0]
    return recommend.priced(cells, runs, SPEEDS, 5000).set_index(["arch", "batch_size"])


@pytest.mark.parametrize(("size", "speed"), [(64, 1000), (128, 2000), (256, 4000)])
def test_a_run_is_priced_by_the_benchmark_between_its_sizes_evaluation_included(size, speed):
    # Half way on both logarithmic scales; evaluated at the speed of 256, which is nearest to 5,000.
    row = priced(("resnet18", size, 40.0)).loc[("resnet18", size)]
    assert row["seconds"] == pytest.approx(2 * (50_000 / speed + 10_000 / 3 / 4000))
    assert row["priced_by"] == "benchmark"


def test_beyond_the_benchmark_a_run_has_the_median_of_the_runs_own_seconds():
    cells = priced(*(("resnet18", 512, seconds) for seconds in (10.0, 12.0, 300.0)), ("resnet50", 64, 50.0))
    assert cells["seconds"].to_dict() == {("resnet18", 512): 12.0, ("resnet50", 64): 50.0}
    assert set(cells["priced_by"]) == {"runs"}


def test_a_run_that_diverged_counts_as_if_it_had_gone_on():
    assert priced(("resnet50", 64, 10.0), epochs_done=1)["seconds"].item() == 20.0


CELLS = pd.DataFrame(
    {
        "arch": ["resnet101", *["resnet18"] * 4],
        "batch_size": [256, 64, 256, 1024, 4096],
        "lr": 0.1,
        "accuracy": [0.60, 0.80, 0.82, 0.75, 0.70],
        "low": 0.5,
        "high": 0.9,
        "seconds": [20.0, 16.0, 8.0, 5.0, 6.0],
    }
)


def test_best_for_its_time_is_what_no_other_of_the_network_beats():
    best = recommend.best_for_their_time(CELLS)
    assert best[["arch", "batch_size"]].to_numpy().tolist() == [
        ["resnet18", 1024], ["resnet18", 256], ["resnet101", 256]
    ]  # fmt: skip


def test_of_two_cells_with_one_price_the_better_is_best():
    assert recommend.best_for_their_time(CELLS.assign(seconds=5.0))["batch_size"].tolist() == [256, 256]
