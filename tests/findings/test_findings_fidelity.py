"""The fast path beside the plain one: what was compared, and what that leaves open."""

import pytest
from made_runs import joined, made_run

from dolb.findings import fidelity


def run(engine, accuracy=0.7, **changes):
    return made_run((accuracy,) * 5, **changes).assign(engine=("run", [engine]))


def differences(fast=0.7, plain=0.7):
    runs = [
        run(engine, value, arch="resnet18", batch_size=2048, lr=0.03, seed=seed, precision=precision)
        for engine, value, precision in (("fused", fast, "bf16"), ("eager", plain, "fp32"))
        for seed in range(2)
    ]
    return fidelity.differences(fidelity.accuracies(joined(runs)))


def test_a_difference_is_of_cells_that_both_paths_ran():
    (found,) = differences(fast=0.72).to_dict("records")
    assert found["difference"] == pytest.approx(0.02, rel=1e-4)
    assert (found["fast_seeds"], found["plain_seeds"], found["within"]) == (2, 2, False)


def test_a_late_drop_is_named_with_its_path_and_what_it_makes_of_the_difference():
    fell = made_run((0.7, 0.7, 0.7, 0.7, 0.3), arch="resnet18", batch_size=2048, lr=0.03, seed=2, precision="bf16")
    runs = [
        run(engine, 0.7, arch="resnet18", batch_size=2048, lr=0.03, seed=seed, precision=precision)
        for engine, precision in (("fused", "bf16"), ("eager", "fp32"))
        for seed in range(2)
    ]
    steady = fidelity.drops_in_words(fidelity.accuracies(joined(runs)))
    assert steady.startswith("No run dropped late.")
    told = fidelity.drops_in_words(fidelity.accuracies(joined([*runs, fell.assign(engine=("run", ["fused"]))])))
    mean = (4 * 0.7 + 0.3) / 5
    assert (
        "1 of 3 runs on the path 'fast: bfloat16, fused' of resnet18 at batch 2,048, rate 0.03 "
        f"(seed 2 at {mean:.1%}), without which the difference is +0.0 points."
    ) in told


def test_what_the_comparison_leaves_open_is_said():
    found = differences()
    study = joined(
        [
            run("fused", arch="resnet18", batch_size=2048, lr=0.03),
            run("fused", arch="resnet152", batch_size=256, lr=0.03),
            run("graph", arch="resnet18", batch_size=64, lr=0.03),
        ]
    )
    told = fidelity.limits_in_words(found, study)
    low, high = (100 * found[end].item() for end in ("low", "high"))
    assert told.startswith(f"A change of {low:+.1f} to {high:+.1f} points at batch 2,048 is not excluded by this.")
    assert "its other networks (resnet152) and its batches below 2,048 were not compared" in told
    assert told.endswith(
        "1 of its 3 runs (resnet18, seed 0) were made with another step, graph, which was not compared either."
    )


def test_nothing_is_left_open_of_a_study_of_the_compared_cells_but_the_interval():
    told = fidelity.limits_in_words(differences(), run("fused", arch="resnet18", batch_size=2048, lr=0.03))
    assert told.endswith("is not excluded by this.")


def test_without_cells_on_both_paths_that_is_said():
    assert fidelity.limits_in_words(differences().iloc[:0], run("fused")) == "No cell was run on both paths yet."
