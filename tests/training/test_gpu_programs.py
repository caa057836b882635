"""The programs that are timed side by side on a GPU."""

import pytest
import torch

from dolb.profiling import steps
from dolb.training import gpu_programs, programs
from dolb.training.config import RunConfig
from dolb.training.packing import runs_at_once

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def test_the_programs_agree_on_the_first_loss_and_can_be_timed():
    data = programs.random_images(512)
    timed, about = gpu_programs.training_step(data, "resnet18", 128, torch.device("cuda"), compiled=False, loader=True)
    assert set(timed) == {"plain eager loop", "DataLoader, 8 workers", "dolb, one run", "dolb, 8 runs at once"}
    ds = steps.time_bursts(
        {name: program.burst for name, program in timed.items()},
        {name: program.runs for name, program in timed.items()},
        about,
        repeats=2,
        seconds=0.05,
    )
    cells = steps.compare(ds, gpu_programs.EAGER)
    assert (cells["images_per_second"] > 0).all()


def test_the_plain_loop_can_be_timed_alone():
    data = programs.random_images(512)
    timed, _ = gpu_programs.training_step(data, "resnet34", 64, torch.device("cuda"), plain_only=True)
    assert list(timed) == [gpu_programs.EAGER]


def test_the_engine_can_be_timed_alone():
    data = programs.random_images(512)
    timed, about = gpu_programs.training_step(data, "resnet34", 64, torch.device("cuda"), engine_only=True)
    many = runs_at_once(RunConfig(arch="resnet34", batch_size=64))
    assert {name: program.runs for name, program in timed.items()} == {
        "dolb, one run": 1,
        f"dolb, {many} runs at once": many,
    }
    bursts = {name: program.burst for name, program in timed.items()}
    ds = steps.time_bursts(bursts, {name: one.runs for name, one in timed.items()}, about, repeats=2, seconds=0.05)
    assert (steps.compare(ds, "dolb, one run")["images_per_second"] > 0).all()
