"""How fast a step is, and the fast path beside the plain one."""

import numpy as np
import pandas as pd
import pytest
from made_runs import made_run

from dolb import results
from dolb.findings import engine as study


def timed(*rows):
    """Make rows of timed steps: network, batch size, program, ratio."""
    names = ["arch", "batch_size", "program", "ratio"]
    return pd.DataFrame([dict(zip(names, row, strict=True)) for row in rows]).assign(device="one")


def test_a_loop_that_was_timed_alone_is_left_out_and_the_engine_is_not():
    cells = timed(
        ("resnet18", 64, "loop", 1.0), ("resnet18", 64, "dolb, one run", 9.0),
        ("resnet18", 16, "loop", 1.0), ("resnet34", 16, "dolb, one run", float("nan")),
    )  # fmt: skip
    kept = study.beside_the_engine(cells, "dolb")
    assert list(zip(kept["batch_size"], kept["program"], strict=True)) == [
        (64, "loop"), (64, "dolb, one run"), (16, "dolb, one run")
    ]  # fmt: skip


def test_programs_that_differ_by_how_many_runs_share_the_device_are_of_one_kind():
    cells = timed(
        ("resnet18", 64, "dolb, 16 runs at once", 30.0), ("resnet18", 256, "dolb, 8 runs at once", 15.0),
        ("resnet18", 64, "loop", 1.0), ("resnet18", 64, "dolb, one run", float("nan")),  # which have no bar
    )  # fmt: skip
    assert set(study.ratios(cells, "loop")["kind"]) == {"dolb, several runs at once"}
    assert study.ratios(cells, "loop")["cell"].tolist() == ["resnet18, batch 64", "resnet18, batch 256"]


def test_a_difference_is_seed_by_seed_where_both_paths_ran():
    runs = [
        made_run((value + lead,) * 5, arch="resnet18", batch_size=size, lr=0.03, seed=seed, precision=precision).assign(
            engine=("run", [engine])
        )
        for engine, lead, precision, seeds in (("fused", 0.02, "bf16", (0, 1, 2)), ("eager", 0.0, "fp32", (0, 1)))
        for seed, value in zip(seeds, (0.5, 0.7, 0.9), strict=False)
        for size in (64, 128) if engine == "fused" or size == 64 or seed == 0  # one pair at 128
    ]  # fmt: skip
    (found,) = study.differences(study.accuracies(results.merge(runs))).to_dict("records")
    assert (found["batch_size"], found["seeds"], found["collapsed"]) == (64, 2, 0)
    bounds = found["low"], found["difference"], found["high"]  # that seeds differ by far more does not widen it
    assert bounds == pytest.approx([0.02] * 3, rel=1e-4)


def test_the_fast_path_has_the_bits_of_the_experiments_on_filtering():
    def curves(slug):
        ds = results.published(slug)
        ds = ds.isel(run=(ds["subset"] == "full") & (ds["precision"] == "bf16") & (ds["decay"] == "step:30,45"))
        named = zip(*(ds[name].to_numpy() for name in ("arch", "batch_size", "lr", "seed")), strict=True)
        return dict(zip(named, ds["test_accuracy"].to_numpy()[:, :50], strict=True))

    fast, filtering = curves("fidelity"), curves("filtered-large-batch")
    both = fast.keys() & filtering.keys()
    assert len(both) >= 18
    assert all(np.array_equal(fast[run], filtering[run]) for run in both)
