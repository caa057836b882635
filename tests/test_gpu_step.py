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


def test_a_program_without_updates_or_with_another_loss_is_refused_and_one_of_other_images_is_not_compared():
    updated, stuck = first_losses(lr=0.1), first_losses(lr=STUCK)
    check(loop=updated, engine=updated, loader=())
    with pytest.raises(RuntimeError, match="loss 2 of 'engine' on the first batch"):
        check(loop=updated, engine=stuck)
    with pytest.raises(RuntimeError, match="loss 1 of 'engine'"):
        check(loop=(2.5, 2.0, 1.5), engine=(2.6, 2.0, 1.5))
    with pytest.raises(RuntimeError, match="loss 3 of 'loop' on the first batch is nan"):
        check(loop=(2.5, 2.0, float("nan")), engine=(2.5, 2.0, 1.5))


@on_gpu
def test_the_programs_agree_on_the_first_losses_and_can_be_timed():
    data, gpu = cpu_step.random_images(512), torch.device("cuda")
    timed, about = gpu_step.training_step(data, "resnet18", 128, gpu, compiled=False, loader=True)
    assert set(timed) == {"plain eager loop", "DataLoader, 8 workers", "dolb, one run", "dolb, 8 runs at once"}
    assert {name: program.ready for name, program in timed.items() if program.ready} == {"DataLoader, 8 workers": 16}
    assert (compared(timed, about, steps.EAGER)["images_per_second"] > 0).all()
    timed, _ = gpu_step.training_step(data, "resnet34", 64, gpu, plain_only=True)
    assert list(timed) == [steps.EAGER]
    timed, about = gpu_step.training_step(data, "resnet34", 64, gpu, engine_only=True)
    many = runs_at_once(RunConfig(arch="resnet34", batch_size=64))
    assert [program.runs for program in timed.values()] == [1, many]
    assert (compared(timed, about, "dolb, one run")["images_per_second"] > 0).all()
    timed, about = gpu_step.by_optimizer(data, "resnet18", 128, gpu)
    assert list(timed) == list(OPTIMIZERS)
    assert (compared(timed, about, "sgd")["ratio"] > 0).all()


@on_gpu
def test_the_compiled_loops_agree_with_the_others_on_the_first_losses_and_can_be_timed():
    data = cpu_step.random_images(256)
    timed, _ = gpu_step.training_step(data, "resnet18", 32, torch.device("cuda"), compiled=True)
    assert set(gpu_step.MODES) < set(timed)
    assert all(program.first_losses for program in timed.values())
    for program in timed.values():
        program.burst(10)  # beyond the images, so that batches come again


def compared(timed, about, base):
    """Time programs for a moment and compare them with one of them."""
    bursts, runs, ready = (
        {name: getattr(one, what) for name, one in timed.items()} for what in ("burst", "runs", "ready")
    )
    return findings.compare(gpu_step.time_bursts(bursts, runs, about, ready=ready, repeats=2, seconds=0.05), base)
