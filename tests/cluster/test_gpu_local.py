"""Tasks of this machine on its GPUs: one process to each, or as many as are asked for."""

import pytest
import torch
from sweeping import SHORT, dolb, ended, log
from waiting import wait_until

from dolb import cluster, results

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
ON_GPU = [*SHORT[:-4], "--device", "cuda", "--epochs", "2"]


def test_every_gpu_has_a_process(tmp_path):
    dolb("sweep", *ON_GPU, "--on", "local", "--store", tmp_path)
    wait_until(ended(tmp_path), 200, "the tasks", every=0.5)
    dolb("status", "--store", tmp_path)
    assert len(list(tmp_path.glob("jobs/*/*_submitted.pkl"))) == min(cluster.processes_here(gpus=1), 4)


def test_two_processes_share_a_gpu_and_make_every_run_once(tmp_path):
    dolb("sweep", *ON_GPU, "--on", "local", "--parallel", "2", "--store", tmp_path)
    wait_until(ended(tmp_path), 200, "the tasks", every=0.5)
    dolb("status", "--store", tmp_path)
    assert len(list(tmp_path.glob("jobs/*/*_log.out"))) == 2
    assert "Error" not in log(tmp_path)
    runs = results.RunStore(tmp_path)
    assert len(runs.keys()) == 4
    assert {str(runs.get(key)["device"].item()) for key in runs.keys()} == {torch.cuda.get_device_name()}  # noqa: SIM118
