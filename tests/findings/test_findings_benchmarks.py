"""What timed steps say in words: where the host sets the pace, what compiling does, and how to time them again."""

import shlex

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from dolb import results
from dolb.findings import benchmarks
from dolb.profiling import steps
from dolb.training import gpu_programs

LOOP = gpu_programs.EAGER
OPTIONS = {"--compiled": gpu_programs.COMPILED, "--loader": gpu_programs.LOADER}


def timed(*rows, repeats=3):
    """Make measurements of rows of network, batch size, program, milliseconds and commit."""
    names = ["arch", "batch_size", "program", "step_seconds", "commit"]
    table = [dict(zip(names, row, strict=True)) | {"repeat": repeat} for row in rows for repeat in range(repeats)]
    columns = {name: ("run", np.array([row[name] for row in table])) for name in table[0]}
    made = xr.Dataset(columns).assign(benchmark=("run", ["made"] * len(table)), device=("run", ["one"] * len(table)))
    return made.assign(step_seconds=made["step_seconds"] / 1e3)


def test_the_step_hardly_grows_up_to_the_size_at_which_it_takes_half_as_much_again():
    sizes = {16: 10.0, 256: 11.0, 1024: 14.0, 4096: 15.0, 16384: 40.0}
    found = benchmarks.host_in_words(timed(*((("resnet18", s, LOOP, ms, "a")) for s, ms in sizes.items())), LOOP)
    assert found.endswith("by less than 50%: resnet18 10.0 ms at batch 16 and 14.0 ms at batch 1,024.")


def test_a_step_that_grows_from_the_smallest_batch_on_is_not_the_hosts():
    found = benchmarks.host_in_words(timed(("resnet18", 16, LOOP, 1.0, "a"), ("resnet18", 64, LOOP, 4.0, "a")), LOOP)
    assert "grows with the batch from the smallest on" in found


def beside(arch, size, ms, commit="b"):
    """A loop that took turns with the engine."""
    return (arch, size, LOOP, ms, commit), (arch, size, "dolb, one run", 1.0, commit)


def test_every_step_beside_the_engine_is_compared_with_the_fastest_that_was_timed_alone():
    alone = [("resnet18", 16, LOOP, 8.0, "a"), ("resnet18", 20480, LOOP, 40.0, "a")]
    ds = timed(*alone, *beside("resnet18", 64, 10.0), *beside("resnet18", 1024, 9.0))
    found = benchmarks.host_in_words(ds, LOOP)
    assert "fastest such step was timed alone in its process, with torch's defaults" in found
    assert (
        "10.0 ms at batch 64 (repetitions from 10.0 to 10.0) with the engine in the process, and 8.0 ms at batch 16 "
        "without, by which ratios" in found
    )
    assert found.endswith("by which ratios are 11% lower. What makes the difference was not measured.")
    # All alone, or the fastest beside the engine: there is nothing to tell.
    once = timed(*alone, ("resnet18", 64, LOOP, 10.0, "b"))
    assert "alone" not in benchmarks.host_in_words(once, LOOP)
    fastest = timed(*alone, *beside("resnet18", 64, 7.0))
    assert "alone" not in benchmarks.host_in_words(fastest, LOOP)


def engine(*rows):
    """Make the engine's rows of network, batch size, runs at once and ratio, as they are compared."""
    table = pd.DataFrame(rows, columns=["arch", "batch_size", "runs_at_once", "ratio"])
    return table.assign(ratio_low=table["ratio"] - 0.5, ratio_high=table["ratio"] + 0.5)


def test_what_ratios_would_be_by_the_fastest_step_is_said():
    ds = timed(("resnet18", 16, LOOP, 8.0, "a"), *beside("resnet18", 64, 10.0))
    found = benchmarks.host_in_words(ds, LOOP, engine(("resnet18", 64, 1, 10.0), ("resnet18", 64, 16, 30.0)))
    assert "20% lower (8.0 instead of 10.0 with one run, 24.0 instead of 30.0 with 16 runs at once)." in found
    assert benchmarks.TARGETS["resnet18", 64] == 20
    assert found.endswith("reach every target that was timed by the lower step too, their intervals aside.")
    less = benchmarks.host_in_words(ds, LOOP, engine(("resnet18", 64, 16, 24.0)))  # 19.2 by the lower step
    assert less.endswith("By the lower step the ratio is below the target with resnet18 at batch 64.")


def test_every_target_stands_beside_what_one_run_and_several_reached():
    rows = [
        ("resnet18", 64, 1, 11.0),
        ("resnet18", 64, 16, 35.0),
        ("resnet18", 1024, 1, 6.0),
        ("resnet152", 256, 4, 7.0),
    ]
    found = benchmarks.against_targets(engine(*rows)).reset_index(names="network").set_index(["network", "batch size"])
    assert len(found) == len(benchmarks.TARGETS)
    assert found.loc[("resnet18", "64")].tolist() == [
        "20x", "11.0x (10.5 to 11.5)", "35.0x (34.5 to 35.5, 16 runs)", "by several together only"
    ]  # fmt: skip
    assert found.loc[("resnet18", "1,024")].tolist() == ["5x", "6.0x (5.5 to 6.5)", "not timed", "by one run"]
    assert found.loc[("resnet152", "256"), "reached"] == "no"


@pytest.mark.parametrize(
    ("alone", "packed", "reached"),
    [
        (9.0, 12.0, "by one run"),
        (8.2, 12.0, "by several together; by one run perhaps"),  # its interval begins at 7.7
        (7.0, 12.0, "by several together only"),
        (7.0, 8.2, "perhaps"),
        (6.0, 7.0, "no"),
    ],
)
def test_a_target_is_reached_by_a_whole_interval(alone, packed, reached):
    rows = ("resnet152", 256, 1, alone), ("resnet152", 256, 8, packed)
    assert benchmarks.TARGETS["resnet152", 256] == 8
    assert benchmarks.against_targets(engine(*rows)).loc["resnet152", "reached"] == reached


def test_the_chart_has_all_of_the_engine_and_of_the_loop_what_took_turns_with_it():
    ds = timed(
        ("resnet18", 16, LOOP, 8.0, "a"), *beside("resnet18", 64, 10.0), ("resnet34", 64, "dolb, one run", 2.0, "c")
    )  # fmt: skip
    cells = steps.compare(ds, LOOP)
    found = benchmarks.shown(cells, gpu_programs.ENGINE)
    assert set(zip(found["arch"], found["batch_size"], found["program"], strict=True)) == {
        ("resnet18", 64, LOOP), ("resnet18", 64, "dolb, one run"), ("resnet34", 64, "dolb, one run")
    }  # fmt: skip
    words = benchmarks.cells_in_words(found.assign(of_limit=0.25), LOOP)
    assert "resnet18, batch 64, dolb, one run: 64,000 images per second, 10.0 times the plain eager loop, 25%" in words
    assert words.endswith("resnet34, batch 64, dolb, one run: 32,000 images per second, 25% of the limit.")


def test_the_published_chart_has_every_cell_of_the_engine(repo_root):
    ds = steps.select(results.load(repo_root / "results" / "benchmarks.nc"), gpu_programs.BENCHMARK)
    found = benchmarks.shown(steps.compare(ds, LOOP), gpu_programs.ENGINE)
    ours = ds.isel(run=[str(name).startswith(gpu_programs.ENGINE) for name in ds["program"].to_numpy()])
    made = set(zip(ours["arch"].to_numpy(), ours["batch_size"].to_numpy(), strict=True))
    assert set(zip(found["arch"], found["batch_size"], strict=True)) == made


def test_the_share_of_the_limit_is_said_over_all_networks():
    rows = engine(("resnet18", 64, 1, 11.4), ("resnet18", 64, 16, 34.9), ("resnet34", 128, 8, np.nan))
    assert benchmarks.limits_in_words(rows.assign(of_limit=[0.1, 0.3, 0.4])) == (
        "Of the lower of the two the engine reaches 30% to 40% with several runs at once and 10% to 10% with one run "
        "alone, over 2 networks with 2 batch sizes in all."
    )


def test_the_range_of_ratios_is_said_with_the_networks_and_batch_sizes_it_covers():
    rows = [
        ("resnet18", 64, 1, 11.4),
        ("resnet18", 64, 16, 34.9),
        ("resnet18", 1024, 1, 1.9),
        ("resnet18", 1024, 2, 2.0),
        ("resnet152", 256, 8, 15.0),
    ]
    words = (
        "Timed in turns with a plain eager loop of PyTorch on one GPU, the engine trains resnet18 at batch 64 and "
        "1,024, and resnet152 at batch 256, 2.0 to 34.9 times as fast with several runs at once and 1.9 to 11.4 times "
        "as fast with one run alone, the more the smaller the batch."
    )
    assert benchmarks.ratios_in_words(engine(*rows), LOOP, "GPU") == words
    more = engine(*rows, ("resnet34", 128, 8, np.nan))
    told = f"{words} With resnet34 the two were not timed in one process."
    assert benchmarks.ratios_in_words(more, LOOP, "GPU") == told


@pytest.mark.parametrize(
    ("milliseconds", "words", "overlap"),
    [(11.0, "was slower than", True), (5.0, "was faster than", False), (30.0, "was slower than", False)],
)
def test_compiling_is_said_to_be_faster_or_not_and_when_its_point_hides_another(milliseconds, words, overlap):
    rows = ("resnet18", 256, LOOP, 10.0, "a"), ("resnet18", 256, "torch.compile", milliseconds, "a")
    cells = steps.compare(timed(*rows), LOOP)
    found = benchmarks.beside_in_words(cells, "torch.compile", LOOP)
    assert words in found
    assert f"resnet18 at batch 256: {10 / milliseconds:.2f} times its speed" in found
    assert ("overlap in the chart" in found) == overlap


def test_a_program_that_was_not_timed_is_said_not_to_be():
    cells = steps.compare(timed(("resnet18", 256, LOOP, 10.0, "a")), LOOP)
    assert benchmarks.beside_in_words(cells, "torch.compile", LOOP) == "torch.compile was not timed."


def test_the_commands_time_everything_that_is_published(repo_root):
    ds = steps.select(results.load(repo_root / "results" / "benchmarks.nc"), gpu_programs.BENCHMARK)
    asked = set()
    for line in benchmarks.commands(ds, LOOP, OPTIONS).splitlines():
        words = shlex.split(line)
        values = {word: _values(words, place) for place, word in enumerate(words) if word.startswith("--")}
        for arch in values["--arch"]:
            for size in values["--batch-sizes"]:
                programs = {LOOP} if "--plain" in values else {"dolb"} if "--engine" in values else {LOOP, "dolb"}
                programs |= set(gpu_programs.MODES) if size in values.get("--compiled", []) else set()
                programs |= {gpu_programs.LOADER} if size in values.get("--loader", []) else set()
                asked |= {(arch, int(size), program) for program in programs}
    names = pd.Series(ds["program"].to_numpy()).str.split(",").str[0]
    assert asked == set(zip(ds["arch"].to_numpy().tolist(), ds["batch_size"].to_numpy().tolist(), names, strict=True))


def _values(words, place):
    following = words[place + 1 :]
    return following[: next((n for n, word in enumerate(following) if word.startswith("--")), len(following))]


def test_networks_for_which_the_same_was_timed_share_a_command():
    rows = [(arch, size, LOOP, 1.0, "a") for arch in ("resnet152", "resnet34") for size in (16, 256)]
    assert benchmarks.commands(timed(*rows), LOOP, OPTIONS) == (
        "python benchmarks/gpu_step.py --arch resnet34 resnet152 --batch-sizes 16 256 --plain --repeats 3 "
        "--output again.nc"
    )
