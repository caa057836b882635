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


def test_a_host_that_was_slower_on_another_occasion_is_told_and_what_that_does_to_ratios():
    rows = [("resnet152", 128, 60.0, "a"), ("resnet152", 256, 80.0, "b"), ("resnet152", 1024, 60.0, "a")]
    found = benchmarks.host_in_words(timed(*((arch, s, LOOP, ms, of) for arch, s, ms, of in rows)), LOOP)
    assert "took 80.0 ms at batch 256 and, on another occasion, 60.0 ms at batch 1,024." in found
    assert "about 25% lower" in found
    once = benchmarks.host_in_words(timed(*((arch, s, LOOP, ms, "a") for arch, s, ms, _ in rows)), LOOP)
    assert "occasion" not in once


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
