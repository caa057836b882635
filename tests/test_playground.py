"""The playground of learning rates: its script computes what the schedule does, and what it writes to copy runs."""

import itertools
import json
import re
import shlex
from functools import partial

import numpy as np
import pytest
from typer.testing import CliRunner

from dolb import cli, recipes, results, viewer
from dolb.training.config import RunConfig
from dolb.training.run import dealt
from dolb.training.schedule import learning_rates

COMMAND = "dolb sweep warmup --scale paper --part warmups"


@pytest.fixture(scope="module")
def in_javascript(in_javascript, repo_root):
    """Apply a JavaScript function of the playground's script to each of what is given."""
    return partial(in_javascript, repo_root / "dolb" / "viewer" / "playground.js")


def page_data(shown):
    return json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', shown.html)[1])


@pytest.fixture(scope="module")
def data():
    runs = recipes.configs("warmup", "paper", part="warmups", batch_sizes=[1200, 300], warmups=[5])
    return page_data(viewer.rate_playground(runs, COMMAND))


def test_the_script_gives_the_rates_that_the_schedule_gives(in_javascript):
    # Warmup: none, half of an epoch with an odd number of updates, some, as long as training. Decay: none, at the very
    # start, within warmup and within an epoch, to the end. One update an epoch, or several.
    names = ("lr_scaling", "warmup_epochs", "decay", "steps_per_epoch")
    decays = [
        "constant",
        "step:0",
        "step:0,2.5",
        "step:1,2,4.01",
        "cosine",
        "polynomial",
        "polynomial:0.5",
        "polynomial:2",
    ]
    grid = itertools.product(["none", "linear", "sqrt"], [0, 0.1, 0.5, 1.5, 2, 6], decays, [1, 3, 5, 42])
    cases = [
        dict(zip(names, one, strict=True)) | {"lr": 0.0125, "batch_size": 1200, "base_batch_size": 32, "epochs": 6}
        for one in grid
    ]
    for case, answer in zip(cases, in_javascript("api.learningRates", cases), strict=True):
        # Two libraries' cosines and powers may differ in their last bit.
        np.testing.assert_allclose(answer, learning_rates(**case), rtol=1e-14, atol=1e-16, err_msg=str(case))


def test_updates_an_epoch_are_those_of_a_run(in_javascript):
    tried = [(50_000, 32), (50_000, 1200), (50_000, 32_768), (50_000, 50_000), (101, 50), (102, 50), (64, 64), (65, 64)]
    expected = [sum(repeats for _, repeats in dealt(*one)) for one in tried]
    assert in_javascript("(one) => api.updatesPerEpoch(...one)", tried) == expected


def written(in_javascript, data, moved):
    """Return what the page writes after each of these moves of its controls."""
    names = ("batch_size", "lr", "lr_scaling", "base_batch_size", "warmup_epochs", "decay", "epochs")
    start = {name: data["start"][name] for name in names} | {"examples": data["examples"]}
    return in_javascript(
        "(one) => api.lines(one.data, one.chosen)", [{"data": data, "chosen": start | m} for m in moved]
    )


def test_the_command_runs_the_one_run_that_is_written_beside_it(in_javascript, data, tmp_path):
    sizes = [{"batch_size": size} for size in data["batch_size"]]
    moved = [
        {}, *sizes, {"lr": 0.0001}, {"lr": 8.0, "warmup_epochs": 0}, {"warmup_epochs": 0.5}, {"warmup_epochs": 90},
        {"epochs": 45, "decay": "step:15,30"}, {"epochs": 70, "decay": "step:23.3333,46.6667", "warmup_epochs": 6.5},
    ]  # fmt: skip
    for move, text in zip(moved, written(in_javascript, data, moved), strict=True):
        assert text["command"].startswith(COMMAND)
        run = eval(text["run"], {"RunConfig": RunConfig})
        assert {name: getattr(run, name) for name in move} == move
        arguments = [*shlex.split(text["command"])[1:], "--store", str(tmp_path), "--dry-run"]
        listed = CliRunner().invoke(cli.app, arguments).output
        assert "1 runs" in listed
        assert run.key in listed


@pytest.mark.parametrize(
    ("moved", "named"),
    [
        ({"lr_scaling": "sqrt"}, "lr_scaling"), ({"base_batch_size": 256}, "base_batch_size"),
        ({"decay": "cosine"}, "decay other than step:30,60"), ({"epochs": 45}, "decay other than step:15,30"),
        ({"examples": 60_000}, "training examples"),
    ],
)  # fmt: skip
def test_what_the_command_has_no_option_for_is_named_and_is_no_run_of_the_experiment(in_javascript, data, moved, named):
    [text] = written(in_javascript, data, [moved])
    assert text["how"] == f"No option of dolb sweep warmup: {named}. In Python:"
    run = eval(text["run"], {"RunConfig": RunConfig})
    assert run.experiment == "adhoc"
    assert run.data == ("imagefolder:PATH" if "examples" in moved else "cifar10")


def test_what_is_written_in_python_trains_the_run(in_javascript, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = recipes.configs("warmup", "demo", part="warmups", epochs=1)
    given = page_data(viewer.rate_playground(runs, "dolb sweep warmup --scale demo --part warmups --epochs 1", 1438))
    [text] = written(in_javascript, given, [{"decay": "cosine", "examples": given["examples"]}])
    exec(text["command"], {})
    assert list(results.RunStore(tmp_path / "store").keys()) == [eval(text["run"], {"RunConfig": RunConfig}).key]
