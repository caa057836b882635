"""Sweeps sent to processes of this machine, and what is refused before anything is sent."""

from __future__ import annotations

import pytest
from sweeping import LONG, SHORT, assert_same_bits, dolb, wait_for_end, wait_for_runs, wait_for_training

from dolb import cluster


@pytest.mark.slow
def test_tasks_of_this_machine_make_the_runs_of_a_plain_sweep_and_a_cancelled_one_goes_on(long, tmp_path):
    one = [*LONG, "--seeds", "0"]
    dolb("sweep", *one, "--on", "local", "--store", tmp_path)
    wait_for_training(tmp_path, tasks=1)
    assert "running" in dolb("status", "batch-size", "--store", tmp_path, code=3)
    dolb("cancel", "--store", tmp_path)
    wait_for_end(tmp_path)
    assert list(tmp_path.glob("paused/*.pt"))
    dolb("sweep", *one, "--on", "local", "--store", tmp_path)
    wait_for_runs(tmp_path, 1)
    assert_same_bits(tmp_path, long)
    assert dolb("cancel", "--store", tmp_path).startswith("0 tasks")
    assert "1 runs, 1 in" in dolb("sweep", *one, "--on", "local", "--store", tmp_path)
    assert len(list(tmp_path.glob("jobs/*"))) == 2  # nothing was sent for nothing


@pytest.mark.slow
def test_status_shows_the_end_of_the_log_of_a_task_that_failed(tmp_path):
    dolb("sweep", "batch-size", "--batch-sizes", "5000", "--on", "local", "--parallel", "1", "--store", tmp_path)
    wait_for_end(tmp_path)
    text = dolb("status", "--store", tmp_path, code=1)
    assert "larger than the 1437 training examples" in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("partiton: gpu", "'partiton' is not known (did you mean 'partition'?); accepted: partition, account"),
        ("minutes: 2 hours", "minutes '2 hours' is not understood; accepted: a whole number from 1"),
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
