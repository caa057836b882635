"""What timed steps say in words: where the host sets the pace, what compiling does, and how to time them again."""

import shlex

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from dolb import results
from dolb.profiling import steps
from dolb.summary import benchmarks
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
    assert found.endswith("hardly grows with the batch: resnet18 10.0 ms at batch 16 and 14.0 ms at batch 1,024.")


def test_a_step_that_grows_from_the_smallest_batch_on_is_not_the_hosts():
    found = benchmarks.host_in_words(timed(("resnet18", 16, LOOP, 1.0, "a"), ("resnet18", 64, LOOP, 4.0, "a")), LOOP)
    assert "grows with the batch from the smallest on" in found


def test_every_step_at_the_hosts_pace_is_compared_with_the_fastest_of_another_occasion():
    sizes = [(16, 8.0, "a"), (64, 10.0, "b"), (1024, 9.0, "b"), (20480, 40.0, "a")]
    found = benchmarks.host_in_words(timed(*(("resnet18", s, LOOP, ms, of) for s, ms, of in sizes)), LOOP)
    assert "resnet18 took 10.0 ms at batch 64, against 8.0 ms at batch 16, by which ratios are 20% lower;" in found
    assert found.endswith(
        "resnet18 took 9.0 ms at batch 1,024, against 8.0 ms at batch 16, by which ratios are 11% lower."
    )
    once = benchmarks.host_in_words(timed(*(("resnet18", s, LOOP, ms, "a") for s, ms, _ in sizes)), LOOP)
    assert "occasion" not in once


def engine(*rows):
    """Make the engine's rows of network, batch size, runs at once and ratio, as they are compared."""
    table = pd.DataFrame(rows, columns=["arch", "batch_size", "runs_at_once", "ratio"])
    return table.assign(ratio_low=table["ratio"] - 0.5, ratio_high=table["ratio"] + 0.5)


def test_what_ratios_would_be_by_the_fastest_step_is_said():
    ds = timed(("resnet18", 16, LOOP, 8.0, "a"), ("resnet18", 64, LOOP, 10.0, "b"))
    found = benchmarks.host_in_words(ds, LOOP, engine(("resnet18", 64, 1, 10.0), ("resnet18", 64, 16, 30.0)))
    assert found.endswith("20% lower (8.0 instead of 10.0 with one run, 24.0 instead of 30.0 with 16 runs at once).")


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


def test_the_range_of_ratios_is_said_for_packs_and_for_one_run():
    rows = [
        ("resnet18", 64, 1, 11.4),
        ("resnet18", 64, 16, 34.9),
        ("resnet18", 1024, 1, 1.9),
        ("resnet18", 1024, 2, 2.0),
    ]
    assert benchmarks.ratios_in_words(engine(*rows)) == (
        "2.0 to 34.9 times as fast with several runs at once and 1.9 to 11.4 times as fast with one run alone"
    )


@pytest.mark.parametrize(
    ("milliseconds", "words", "overlap"),
    [(11.0, "was no faster than", True), (5.0, "was faster than", False), (30.0, "was no faster than", False)],
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
                programs = {LOOP} if "--plain" in values else {LOOP, "dolb"}
                programs |= {name for option, name in OPTIONS.items() if size in values.get(option, [])}
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
