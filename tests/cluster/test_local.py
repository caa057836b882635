"""Sweeps sent to processes of this machine, and what is refused before anything is sent."""

import os
from pathlib import Path

from sweeping import LONG, SHORT, assert_same_bits, dolb, ended, in_mid_run, let_go, made, scenario, sweeps

from dolb import cluster


@scenario
def test_tasks_of_this_machine_make_the_runs_of_a_plain_sweep_and_a_cancelled_one_goes_on(long, store):
    dolb("sweep", *LONG, "--on", "local", "--store", store)
    yield in_mid_run(store)
    for number in (1, 2):  # else who reads what the command says waits for its tasks
        assert {Path(f"/proc/self/fd/{number}").readlink()}.isdisjoint(outputs(store, number))
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


def outputs(store, number):
    """Return where the processes that fill a store, and those that started them, write to."""
    tasks = sweeps(store)
    parents = [int(Path(f"/proc/{task}/stat").read_text().rpartition(")")[2].split()[1]) for task in tasks]
    return {Path(f"/proc/{process}/fd/{number}").readlink() for process in {*tasks, *parents} - {os.getpid()}}


@scenario
def test_status_shows_the_end_of_the_log_of_a_task_that_failed(store):
    dolb("sweep", "batch-size", "--batch-sizes", "5000", "--on", "local", "--parallel", "1", "--store", store)
    yield ended(store)
    text = dolb("status", "--store", store, code=1)
    assert "larger than the 1437 training examples" in text
    assert "Traceback" not in text


def test_the_environment_names_a_site_file_and_the_example_is_one(tmp_path, monkeypatch, repo_root):
    site = cluster.read_site(repo_root / "deploy" / "slurm" / "site.yml")
    assert (site.gpus, site.partition) == (1, None)
    monkeypatch.setenv("DOLB_SITE", str(tmp_path / "site.yml"))
    (tmp_path / "site.yml").write_text("partiton: gpu\n")
    text = dolb("sweep", *SHORT, "--on", "slurm", "--store", tmp_path, code=2)
    assert "'partiton' is not known (did you mean 'partition'?); accepted: partition, account" in text


def test_nodes_without_a_job_that_has_them_are_a_clear_error(tmp_path):
    few = ["ddp-vs-horovod", "--part", "weak", "--nodes", "2"]
    assert "2 nodes need a Slurm job" in dolb("sweep", *few, "--store", tmp_path, code=2)
    assert "no number of ranks can be dealt equally" in dolb("sweep", *few, "--ranks", "3", code=2)


def test_a_parameter_that_no_notebook_has_is_an_error_before_anything_is_sent(tmp_path):
    asked = ["-p", "epoch=2", "--on", "local", "--store", tmp_path]
    assert "no notebook has a parameter 'epoch'" in dolb("run", "--all", *asked, code=2)
    assert "did you mean 'epochs'?" in dolb("run", "batch-size", *asked, code=2)
    assert not (tmp_path / "jobs").exists()
