"""The engine's step on a CPU is faster than stock torch's and does the same arithmetic; anyone can measure it."""

import contextlib
import io
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

from benchmarks import cpu_step, gpu_step
from dolb import results
from dolb.findings import engine as findings
from dolb.findings.runs import narrow
from dolb.profiling import steps

PROGRAMS = ["stock torch", "stock torch, channels_last", "dolb"]
DIGITS = (8, 8, 1)
ABOUT = {"benchmark": "toy", "arch": "none", "batch_size": 10, "device": "this"}
CELL = ("benchmark", "device", "arch", "batch_size")
MADE = {
    "benchmark": "made", "arch": "resnet18", "batch_size": 100, "data": "random", "optimizer": "sgd",
    "precision": "bf16", "step_flops": 2e6, "peak_flops": 1e12, "step_bytes": 1e6, "peak_bandwidth": 1e12,
    **results.provenance(torch_version="2", device="a device", engine="fused", data_fingerprint="sha256:made"),
}  # fmt: skip


@pytest.fixture
def work(monkeypatch):
    """A program that takes a millisecond a step, by a clock that it moves itself: no core is too busy for that."""
    now = [0.0]
    monkeypatch.setattr(gpu_step, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def work(count):
        now[0] += 0.001 * count

    return work


def run_benchmark(output, *arguments):
    """Run the program here, and return what it printed."""
    given = ["--output", output, "--arch", "smallnet-4", "--image-shape", *DIGITS, "--repeats", 2, "--steps", 2]
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said):
        patch.setattr(sys, "argv", ["cpu_step.py", *map(str, [*given, *arguments])])
        cpu_step.main()
    return said.getvalue()


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Where two batch sizes were measured, and what the program said."""
    path = tmp_path_factory.mktemp("benchmark") / "b.nc"
    return path, run_benchmark(path, "--batch-sizes", 4, 8)


def test_the_program_prints_ratios_and_saves_a_valid_file(measured):
    path, said = measured
    assert all(name in said for name in (*PROGRAMS, "ratio_low"))
    ds = results.load(path)  # validates
    assert ds.sizes["run"] == len(PROGRAMS) * 2 * 2  # sizes and repeats
    assert set(ds["program"].values) == set(PROGRAMS)
    np.testing.assert_allclose(ds["images_per_second"], ds["batch_size"] / ds["step_seconds"])


def test_a_later_run_replaces_its_own_rows_and_keeps_the_others(measured, tmp_path):
    path = shutil.copy(measured[0], tmp_path)
    run_benchmark(path, "--batch-sizes", 8)
    before, after = results.load(measured[0]), results.load(path)
    kept, renewed = ([narrow(ds, benchmark=steps.ON_CPU, batch_size=size) for ds in (before, after)] for size in (4, 8))
    assert kept[0].equals(kept[1])
    assert renewed[0].sizes == renewed[1].sizes
    assert not renewed[0]["step_seconds"].equals(renewed[1]["step_seconds"])


def test_programs_that_are_compared_have_the_same_losses():
    timed, _ = cpu_step.training_step("smallnet-4", 16, DIGITS)
    losses = {
        name: [step() for _ in range(cpu_step.BATCHES + 2)] for name, step in timed.items()
    }  # into a second epoch
    assert list(losses) == PROGRAMS
    for name in PROGRAMS[1:]:
        np.testing.assert_allclose(losses[name], losses["stock torch"], rtol=steps.TOLERANCE, err_msg=name)


@pytest.mark.parametrize("wrong", [1.01, float("nan")])
def test_programs_with_other_losses_are_not_compared(wrong):
    with pytest.raises(steps.Disagreement, match=r"loss of 'other' .* and that of 'one' is 1"):
        steps.time_programs({"one": lambda: 1.0, "other": lambda: wrong}, ABOUT, repeats=1, steps=1)


def test_ratios_are_of_medians_and_their_interval_lies_within_the_repeats():
    slow, fast = [4.0, 5.0, 9.0, 4.0, 6.0], [1.0, 1.0, 2.0, 1.0, 1.0]
    ds = results.validate(benchmark_of({"slow": slow, "fast": fast}))
    cells = findings.compare(ds, "slow").set_index("program")
    assert cells.loc["fast", "ratio"] == 5.0 / 1.0
    assert cells.loc["fast", "images_per_second"] == ABOUT["batch_size"] / 1.0
    assert 4.0 <= cells.loc["fast", "ratio_low"] <= 5.0 <= cells.loc["fast", "ratio_high"] <= 6.0
    assert list(cells.loc["slow", ["ratio", "ratio_low", "ratio_high"]]) == [1.0, 1.0, 1.0]


def test_a_program_timed_later_is_added_to_its_cell_and_gets_no_ratio(work):
    """The eager loop and the engine may be timed at different times; what one process timed in turns is compared."""
    eager = gpu_step.time_bursts({"eager": work}, {"eager": 1}, MADE, repeats=3, seconds=0.01)
    ours = {"dolb, one run": 1, "dolb, 4 runs at once": 4}
    later = gpu_step.time_bursts(dict.fromkeys(ours, work), ours, MADE, repeats=2, seconds=0.01)
    for first, second in ((eager, later), (later, eager)):
        both = results.validate(steps.replace(first, [second], by_program=True))
        assert both.sizes["run"] == 3 + 2 * 2
        assert gpu_step.programs_of(both, *(MADE[name] for name in CELL)) == {"eager", *ours}
        cells = findings.compare(both, "eager").set_index("program")
        assert cells["repeats"].to_dict() == {"eager": 3} | dict.fromkeys(ours, 2)
        assert cells.loc["eager", "ratio"] == 1
        assert cells.loc[list(ours), ["ratio", "ratio_low", "ratio_high"]].isna().all(axis=None)
        assert (cells["images_per_second"] > 0).all()
    # What is timed again makes room for itself alone, and a whole measurement for all of its cell.
    again = gpu_step.time_bursts({"eager": work}, {"eager": 1}, MADE, repeats=4, seconds=0.01)
    assert steps.replace(both, [again], by_program=True).sizes["run"] == 4 + 2 * 2
    assert steps.replace(both, [again]).sizes["run"] == 4


def benchmark_of(seconds):
    about = ABOUT | {
        "precision": "fp32",
        "torch_version": "0",
        "dolb_version": "0",
        "commit": "0",
        "source": "measured",
        "measured_at": "",
    }
    rows = [
        {"program": name, "repeat": repeat, "step_seconds": value, "images_per_second": about["batch_size"] / value}
        for name, values in seconds.items()
        for repeat, value in enumerate(values)
    ]
    columns = {name: ("run", np.array([{**about, **row}[name] for row in rows])) for name in {**about, **rows[0]}}
    return xr.Dataset(columns)


def test_bursts_of_several_runs_count_every_run_and_stand_under_their_limits(work):
    """Two programs that take 1 ms a step; one does four runs in that time, so its step takes a quarter."""
    ds = gpu_step.time_bursts({"one": work, "four": work}, {"one": 1, "four": 4}, MADE, repeats=3, seconds=0.02)
    cells = findings.with_floors(findings.compare(ds, "one"), ds).set_index("program")
    assert cells.loc["four", "ratio"] == pytest.approx(4)
    # Arithmetic takes 2 us a step and memory 1 us: 100 images in the longer of the two.
    assert cells.loc["one", "limit"] == pytest.approx(100 / 2e-6)
    assert cells.loc["one", "of_limit"] == pytest.approx(cells.loc["one", "images_per_second"] / 5e7)


def test_batches_that_were_ready_before_a_turn_do_not_flatter_a_program(work):
    """A program whose queue fills up to 16 batches in others' turns: these take no time, and each further one 1 ms."""
    queue, timed = [16], []

    def other(count):
        queue[0] = 16
        work(count)

    def queued(count):
        timed.append(count)
        work(max(count - queue[0], 0))
        queue[0] = max(queue[0] - count, 0)

    bursts = {"other": other, "queued": queued}
    ds = gpu_step.time_bursts(bursts, dict.fromkeys(bursts, 1), MADE, ready={"queued": 16}, repeats=3, seconds=0.02)
    cells = findings.compare(ds, "other").set_index("program")
    assert cells.loc["queued", "ratio"] == pytest.approx(1)
    assert timed[-2] == 16
    assert timed[-1] >= gpu_step.TIMES_READY * 16
