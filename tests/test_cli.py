"""The `dolb` command as a user meets it: what it prints, what it writes, and how it fails."""

import subprocess
import sys

import nbformat
import pytest
from made_runs import made_run
from typer.testing import CliRunner

from dolb import results
from dolb.cli import app

TINY = ["--batch-sizes", "256", "--lrs", "0.1", "--archs", "smallnet-4", "--epochs", "1"]


def dolb(*arguments, code=0):
    outcome = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert outcome.exit_code == code, outcome.output
    return " ".join(outcome.output.split())


def test_help_lists_every_command_with_a_sentence():
    text = dolb("--help")
    for command in ("data", "run", "sweep", "publish", "pages", "book"):
        assert command in text
        assert len(dolb(command, "--help")) > 100


def test_data_says_what_is_there():
    text = dolb("data", "digits")
    assert "1,437 training and 360 test images" in text
    assert "sha256:" in text


def test_unknown_data_is_an_error_that_lists_what_there_is():
    text = dolb("data", "cifar100", code=2)
    assert "error:" in text
    assert "cifar10" in text


def test_a_sweep_goes_on_from_its_store(tmp_path):
    first = dolb("sweep", "batch-size", "--store", tmp_path, *TINY)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.nc")}
    assert f"{len(kept)} runs are in" in first
    again = dolb("sweep", "batch-size", "--store", tmp_path, *TINY)
    assert f"{len(kept)} runs, {len(kept)} in" in again
    assert kept == {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.nc")}


def test_a_dry_run_trains_nothing(tmp_path):
    assert "batch 20480" in dolb("sweep", "batch-size", "--scale", "paper", "--dry-run", "--store", tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["batch-sise"], "did you mean 'batch-size'"),
        (["batch-size", "--archs", "resnet19"], "did you mean 'resnet18'"),
        (["batch-size", "--batch-sizes", "many"], "not a list of int"),
        (["batch-size", "--scale", "published"], "accepted: demo, paper"),
        (["batch-size", "--batch-sizes", "5000"], "larger than the 1437 training examples"),
        (["batch-size", "--device", "tpu"], "accepted: auto, cpu, cuda"),
    ],
)
def test_what_cannot_be_swept_is_a_clear_error(tmp_path, arguments, expected):
    text = dolb("sweep", *arguments, "--store", tmp_path, code=2)
    assert expected in text
    assert "Traceback" not in text


def test_an_unknown_notebook_parameter_is_an_error_before_anything_runs(tmp_path):
    text = dolb("run", "batch-size", "-p", "batchsizes=[64]", "--output", tmp_path / "out.ipynb", code=2)
    assert "batch_sizes" in text
    assert not (tmp_path / "out.ipynb").exists()


def test_a_mistyped_notebook_parameter_is_an_error_before_anything_runs(tmp_path):
    text = dolb("run", "batch-size", "-p", "device=3", "--output", tmp_path / "out.ipynb", code=2)
    assert "device" in text
    assert not (tmp_path / "out.ipynb").exists()


def test_publishing_merges_runs_into_the_results_and_refuses_demo_runs(tmp_path, monkeypatch):
    for folder in ("notebooks", "results"):
        (tmp_path / folder).mkdir()
    (tmp_path / "_toc.yml").write_text("format: jb-book\n")
    monkeypatch.chdir(tmp_path)
    store = results.RunStore(tmp_path / "store")
    store.put(made_run((0.5,) * 5, data="cifar10", arch="resnet18", seed=1))
    assert "1 runs, 1 of them new" in dolb("publish", "batch-size", "--store", store.folder)
    store.put(made_run((0.6,) * 5, data="cifar10", arch="resnet18", seed=2))
    assert "2 runs, 1 of them new" in dolb("publish", "batch-size", "--store", store.folder)
    assert results.load(tmp_path / "results" / "batch-size.nc").sizes["run"] == 2
    store.put(made_run((0.6,) * 5, data="digits", seed=3))
    assert "demo runs" in dolb("publish", "batch-size", "--store", store.folder, code=2)


def test_publishing_an_empty_store_says_how_to_fill_it(tmp_path):
    assert "dolb sweep batch-size" in dolb("publish", "batch-size", "--store", tmp_path, code=2)


@pytest.mark.slow
def test_plain_papermill_runs_the_notebook_from_any_folder(repo_root, tmp_path):
    command = [sys.executable, "-m", "papermill", repo_root / "notebooks" / "01-batch-size.ipynb", "out.ipynb"]
    parameters = ["-p", "scale", "demo", "-y", "{archs: [smallnet-4], batch_sizes: [256, 1024], lrs: [0.1], epochs: 1}"]
    subprocess.run([*command, *parameters], cwd=tmp_path, check=True, capture_output=True, timeout=240)
    outputs = [out for cell in nbformat.read(tmp_path / "out.ipynb", 4).cells for out in cell.get("outputs", [])]
    assert any("Demo: small networks on digits" in str(out) for out in outputs)
