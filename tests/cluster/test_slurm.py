"""Sweeps on a real Slurm: whatever happens to jobs and nodes, every run is made once, with a plain sweep's bits."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import torch
from nbformat.v4 import new_code_cell, new_notebook
from sweeping import (
    LONG,
    SHORT,
    assert_same_bits,
    dolb,
    files,
    plain_sweep,
    wait_for_end,
    wait_for_runs,
    wait_for_training,
)
from waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("slurm")]


def test_two_arrays_one_sent_by_a_process_that_is_killed_make_every_run_once(slurm, tmp_path):
    program = [sys.executable, "-u", "-m", "dolb.cli", "sweep", *SHORT, "--on", "slurm", "--parallel", "2"]
    with subprocess.Popen([*program, "--store", tmp_path], stdout=subprocess.PIPE, text=True) as first:
        dolb("sweep", *SHORT, "--on", "slurm", "--parallel", "2", "--store", tmp_path)
        next(line for line in first.stdout if "tasks are sent" in line)
        first.kill()
    seen = set()
    wait_until(lambda: seen.update(files(tmp_path)) or not slurm.queue(), 200, "the arrays", every=0.1)
    seen.update(files(tmp_path))
    assert len(seen) == len({name for name, *_ in seen})  # a run that is made again is another file
    assert "0 failed" in dolb("status", "--store", tmp_path)
    assert_same_bits(tmp_path, plain_sweep(SHORT, tmp_path / "plain"))


def test_the_runs_of_a_killed_task_are_made_by_the_others(slurm, long, tmp_path):
    dolb("sweep", *LONG, "--on", "slurm", "--parallel", "2", "--store", tmp_path)
    wait_for_training(tmp_path, tasks=2)
    for process in slurm.processes(0):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    wait_until(lambda: len(slurm.queue()) == 1, what="the end of one task", every=0.3)
    text = dolb("status", "--store", tmp_path, code=3)
    assert "1 running, 1 failed" in text
    wait_for_runs(tmp_path, 2)
    assert_same_bits(tmp_path, long)


def test_a_cancelled_array_goes_on_in_mid_run(long, tmp_path):
    dolb("sweep", *LONG, "--on", "slurm", "--parallel", "2", "--store", tmp_path)
    wait_for_training(tmp_path, tasks=2)
    assert "2 tasks are told" in dolb("cancel", "--store", tmp_path)
    wait_for_end(tmp_path)
    dolb("status", "--store", tmp_path, code=1)
    paused = [torch.load(path, weights_only=True) for path in tmp_path.glob("paused/*.pt")]
    assert len(paused) == 2
    assert all(run["epoch"] + run["launched"] > 0 for run in paused)
    text = dolb("sweep", *LONG, "--store", tmp_path)
    assert "begins anew" not in text
    assert_same_bits(tmp_path, long)


def test_a_job_before_its_time_limit_is_queued_again_and_goes_on_on_another_node(slurm, long, tmp_path):
    dolb("sweep", *LONG, "--seeds", "0", "--on", "slurm", "--store", tmp_path)
    wait_for_training(tmp_path, tasks=1)
    ((job, _, node),) = slurm.queue()
    slurm.ask("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    slurm.ask("scancel", "--signal=USR2", job)  # as Slurm does before the limit
    wait_until(lambda: slurm.queue()[0][1] == "PENDING", what="the job in the queue again", every=0.3)
    assert len(list(tmp_path.glob("paused/*.pt"))) == 1
    assert "1 waiting, 0 running" in dolb("status", "--store", tmp_path, code=3)
    wait_until(lambda: slurm.queue()[0][1] == "RUNNING", 100, "the job's second start", every=0.3)
    assert slurm.queue()[0][2] not in ("", node)
    wait_for_runs(tmp_path, 1)
    (log,) = tmp_path.glob("jobs/*/*_log.out")
    assert "begins anew" not in log.read_text()
    assert_same_bits(tmp_path, long)


def test_what_slurm_refuses_is_one_line_and_leaves_nothing_behind(tmp_path):
    text = dolb("sweep", *SHORT, "--on", "slurm", "--partition", "night", "--store", tmp_path, code=2)
    assert "invalid partition" in text
    assert not list(tmp_path.glob("jobs/*"))


def test_papermill_is_a_job_by_the_template(slurm, repo_root, tmp_path):
    template = (repo_root / "deploy" / "slurm" / "papermill.sbatch").read_text().replace("#SBATCH --gres=gpu:1\n", "")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "activate").write_text(f'PATH="{Path(sys.executable).parent}:$PATH"\n')
    script = tmp_path / "papermill.sbatch"
    script.write_text(template.replace("--cpus-per-task=8", "--cpus-per-task=1").replace("04:00:00", "10"))
    cells = [new_code_cell("scale = ''", metadata={"tags": ["parameters"]}), new_code_cell("scale")]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(notebook, tmp_path / "in.ipynb")
    command = ["sbatch", script, "in.ipynb", "out.ipynb", "-p", "scale", "paper"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    wait_until(lambda: not slurm.queue(), 100, "the job", every=0.3)
    assert "'paper'" in nbformat.read(tmp_path / "out.ipynb", as_version=4).cells[-1].outputs[0].data["text/plain"]
