"""Sweeps sent to processes of this machine, and what is refused before anything is sent."""

from __future__ import annotations

import pytest
from sweeping import LONG, SHORT, assert_same_bits, dolb, ended, in_mid_run, let_go, made, scenario

from dolb import cluster


@scenario
def test_tasks_of_this_machine_make_the_runs_of_a_plain_sweep_and_a_cancelled_one_goes_on(long, store):
    dolb("sweep", *LONG, "--on", "local", "--store", store)
    yield in_mid_run(store)
    assert "running" in dolb("status", "batch-size", "--store", store, code=3)
    dolb("cancel", "--store", store)
    let_go(store)
    yield ended(store)
    assert list(store.glob("paused/*.pt"))
    dolb("sweep", *LONG, "--on", "local", "--store", store)
    yield made(store, 1)
    assert_same_bits(store, long)
    assert dolb("cancel", "--store", store).startswith("0 tasks")
    assert "1 runs, 1 in" in dolb("sweep", *LONG, "--on", "local", "--store", store)
    assert len(list(store.glob("jobs/*"))) == 2  # nothing was sent for nothing


@scenario
def test_status_shows_the_end_of_the_log_of_a_task_that_failed(store):
    dolb("sweep", "batch-size", "--batch-sizes", "5000", "--on", "local", "--parallel", "1", "--store", store)
    yield ended(store)
    text = dolb("status", "--store", store, code=1)
    assert "larger than the 1437 training examples" in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("partiton: gpu", "'partiton' is not known (did you mean 'partition'?); accepted: partition, account"),
        ("minutes: 2 hours", "minutes '2 hours' is not understood; accepted: a whole number from 5"),
        ("minutes: 2h: 3", "cannot be read"),
        ("gpus: -1", "gpus -1 is not understood; accepted: a whole number from 0"),
        ("setup: module load cuda", "accepted: a list of lines"),
        ("- gpu", "has no names with values; accepted: partition"),
    ],
)
def test_a_mistake_in_a_site_file_is_one_line_that_names_it(tmp_path, monkeypatch, line, says):
    site = tmp_path / "site.yml"
    site.write_text(f"{line}\n")
    monkeypatch.setenv("DOLB_SITE", str(site))
    text = dolb("sweep", *SHORT, "--on", "slurm", "--store", tmp_path, code=2)
    assert str(site) in text
    assert says in text
    assert not (tmp_path / "jobs").exists()


def test_the_example_of_a_site_file_is_one(repo_root):
    site = cluster.read_site(repo_root / "deploy" / "slurm" / "site.yml")
    assert (site.gpus, site.partition) == (1, None)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--on", "moon"], "accepted: slurm, local"),
        (["--on", "local", "--parallel", "0"], "a whole number from 1"),
        (["--parallel", "2"], "say --on slurm or --on local"),
    ],
)
def test_what_cannot_be_sent_is_a_clear_error(tmp_path, arguments, says):
    assert says in dolb("sweep", *SHORT, *arguments, "--store", tmp_path, code=2)
    assert not (tmp_path / "jobs").exists()


def test_the_status_of_a_store_from_which_nothing_was_sent_is_an_error(tmp_path):
    assert "nothing was sent" in dolb("status", "--store", tmp_path, code=2)


def test_nodes_without_a_job_that_has_them_are_a_clear_error(tmp_path):
    few = ["ddp-vs-horovod", "--part", "weak", "--nodes", "2"]
    assert "2 nodes need a Slurm job" in dolb("sweep", *few, "--store", tmp_path, code=2)
    assert "no number of ranks can be dealt equally" in dolb("sweep", *few, "--ranks", "3", code=2)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "accepted: an experiment, or --all"),
        (["--all", "-p", "epoch=2"], "no notebook has a parameter 'epoch'"),
        (["batch-size", "-p", "epoch=2"], "did you mean 'epochs'?"),
    ],
)
def test_a_notebook_that_cannot_be_run_is_a_clear_error(tmp_path, arguments, says):
    assert says in dolb("run", *arguments, "--on", "local", "--store", tmp_path, code=2)
    assert not (tmp_path / "jobs").exists()
