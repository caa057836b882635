"""The programs that are timed side by side on a GPU."""

import pytest
import torch

from benchmarks import cpu_step, gpu_step
from dolb.findings import engine as findings
from dolb.profiling import steps
from dolb.training import engine
from dolb.training.config import OPTIMIZERS, RunConfig
from dolb.training.packing import runs_at_once

STUCK = 1e-12  # a rate at which nothing moves


def on_gpu(test):
    return pytest.mark.gpu(pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")(test))


def first_losses(lr):
    """Losses of the engine's first steps, run on the CPU, where its code is the same."""
    data, device = cpu_step.random_images(16), torch.device("cpu")
    config = RunConfig(arch="smallnet-4", data=data.name, batch_size=16, lr=lr, augment="none", epochs=10)
    run = engine.Run(config, data, *engine.on_device(data, device), device, "eager")
    run._load_draws(0)
    return gpu_step._first_losses(run)


def check(**losses):
    gpu_step._check({name: gpu_step.Program(lambda steps: None, 1, values) for name, values in losses.items()})


def test_the_first_losses_are_of_one_batch_and_follow_from_updates():
    first, second, third = first_losses(lr=0.1)
    assert first > second > third
    assert first_losses(lr=STUCK) == pytest.approx((first,) * 3)


def test_a_program_without_updates_is_refused():
    updated, stuck = first_losses(lr=0.1), first_losses(lr=STUCK)
    check(loop=updated, engine=updated)
    with pytest.raises(RuntimeError, match="loss 2 of 'engine' on the first batch"):
        check(loop=updated, engine=stuck)


def test_a_program_with_another_loss_or_none_that_is_a_number_is_refused_and_one_of_other_images_is_not_compared():
    check(loop=(2.5, 2.0, 1.5), engine=(2.52, 2.05, 1.58), loader=())
    with pytest.raises(RuntimeError, match="loss 1 of 'engine'"):
        check(loop=(2.5, 2.0, 1.5), engine=(2.6, 2.0, 1.5))
    with pytest.raises(RuntimeError, match="loss 3 of 'loop' on the first batch is nan"):
        check(loop=(2.5, 2.0, float("nan")), engine=(2.5, 2.0, 1.5))


@on_gpu
def test_the_programs_agree_on_the_first_losses_and_can_be_timed():
    data = cpu_step.random_images(512)
    timed, about = gpu_step.training_step(data, "resnet18", 128, torch.device("cuda"), compiled=False, loader=True)
    assert set(timed) == {"plain eager loop", "DataLoader, 8 workers", "dolb, one run", "dolb, 8 runs at once"}
    ds = steps.time_bursts(
        {name: program.burst for name, program in timed.items()},
        {name: program.runs for name, program in timed.items()},
        about,
        ready={name: program.ready for name, program in timed.items()},
        repeats=2,
        seconds=0.05,
    )
    assert {name: program.ready for name, program in timed.items() if program.ready} == {"DataLoader, 8 workers": 16}
    cells = findings.compare(ds, steps.EAGER)
    assert (cells["images_per_second"] > 0).all()


@on_gpu
def test_the_compiled_loops_agree_with_the_others_on_the_first_losses_and_can_be_timed():
    data = cpu_step.random_images(256)
    timed, _ = gpu_step.training_step(data, "resnet18", 32, torch.device("cuda"), compiled=True)
    assert set(gpu_step.MODES) < set(timed)
    assert all(program.first_losses for program in timed.values())
    for program in timed.values():
        program.burst(10)  # beyond the images, so that batches come again


@on_gpu
def test_the_plain_loop_can_be_timed_alone():
    data = cpu_step.random_images(512)
    timed, _ = gpu_step.training_step(data, "resnet34", 64, torch.device("cuda"), plain_only=True)
    assert list(timed) == [steps.EAGER]


@on_gpu
def test_the_engine_can_be_timed_alone():
    data = cpu_step.random_images(512)
    timed, about = gpu_step.training_step(data, "resnet34", 64, torch.device("cuda"), engine_only=True)
    many = runs_at_once(RunConfig(arch="resnet34", batch_size=64))
    assert {name: program.runs for name, program in timed.items()} == {
        "dolb, one run": 1,
        f"dolb, {many} runs at once": many,
    }
    bursts = {name: program.burst for name, program in timed.items()}
    ds = steps.time_bursts(bursts, {name: one.runs for name, one in timed.items()}, about, repeats=2, seconds=0.05)
    assert (findings.compare(ds, "dolb, one run")["images_per_second"] > 0).all()


@on_gpu
def test_the_step_can_be_timed_with_each_optimizer_beside_sgd():
    data = cpu_step.random_images(512)
    timed, about = gpu_step.by_optimizer(data, "resnet18", 128, torch.device("cuda"))
    assert list(timed) == list(OPTIMIZERS)
    bursts = {name: program.burst for name, program in timed.items()}
    ds = steps.time_bursts(bursts, dict.fromkeys(timed, 1), about, repeats=2, seconds=0.05)
    assert (findings.compare(ds, "sgd")["ratio"] > 0).all()
