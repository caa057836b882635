"""Runs that do not fit the device together wait for each other, and one that does not fit alone is left to the end.

The runs and their results are real; a CPU has no memory of its own, so what they hold of it is counted here.
"""

import itertools
import weakref

import numpy as np
import pytest
import torch
from agreement import same_bits

from dolb import results
from dolb.training import engine, packing
from dolb.training import sweep as sweeping
from dolb.training.config import RunConfig
from dolb.training.device import DeviceMemoryError, is_out_of_memory

GIB = 2**30
CPU = torch.device("cpu")
MASK = np.arange(1437) < 200  # of the 1437 training digits


def config(**changes) -> RunConfig:
    return RunConfig(**{"epochs": 2, "batch_size": 64, "lr": 0.05, "subset": "first-200"} | changes)


FOUR = [config(seed=seed) for seed in range(4)]


class Memory:
    """A device's memory: every run takes as many bytes as its shape says, for as long as it exists."""

    def __init__(self, size: float):
        self.size, self.runs = size, weakref.WeakSet()
        self.most = 0  # runs at a time
        self.refused = 0

    def in_use(self, device: torch.device) -> tuple[float, float]:
        return sum(run.reserved for run in self.runs), self.size

    def need(self, config: RunConfig) -> float:
        return GIB * config.batch_size / 64


@pytest.fixture
def memory(monkeypatch) -> Memory:
    """Let runs take memory of a device that has 10 GiB of it, a quarter of which may be in use."""
    memory = Memory(10 * GIB)

    class Holding(engine.Run):
        def __init__(self, config, *args):
            super().__init__(config, *args)
            if memory.in_use(CPU)[0] + memory.need(config) > memory.size:
                memory.refused += 1
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate more than there is.")
            self.reserved = memory.need(config)
            memory.runs.add(self)
            memory.most = max(memory.most, len(memory.runs))

    monkeypatch.setattr(engine, "Run", Holding)
    monkeypatch.setattr(engine, "memory_in_use", memory.in_use)
    monkeypatch.setattr(packing, "DEVICE_SHARE", 0.25)
    return memory


def test_runs_that_would_not_fit_wait_and_give_what_they_give_alone(digits, memory, capsys):
    packed = dict(engine.train_many(FOUR, digits, CPU, at_once=4))
    assert (memory.most, memory.refused) == (2, 0)  # planned: none was started in vain
    assert capsys.readouterr().out == (
        "notice: smallnet-4 at batch size 64 needs 1.00 GiB of device memory, and 0.50 GiB of 2.50 GiB allowed are "
        "free; such runs wait until fewer than 2 are in flight\n"
    )
    for run, ds in packed.items():
        assert same_bits(ds, engine.train(run, digits))
    assert list(packed) == FOUR


def test_a_run_that_is_refused_memory_after_all_is_done_in_a_smaller_pack(digits, memory, capsys, monkeypatch):
    """As when another program takes memory in between: the plan sees room for nine, and there is room for two."""
    monkeypatch.setattr(engine, "memory_in_use", lambda device: (0, 10 * GIB))
    memory.size = 2.5 * GIB
    packed = dict(engine.train_many(FOUR, digits, CPU, at_once=4))
    assert memory.most == 2
    assert memory.refused >= 1
    assert capsys.readouterr().out.count("notice: smallnet-4 at batch size 64 needs 1.00 GiB") == 1
    for run, ds in packed.items():
        assert same_bits(ds, engine.train(run, digits))
    assert len(packed) == 4


def test_runs_behind_one_too_large_are_done_and_the_error_at_the_end_names_all_that_were_not(digits, memory, capsys):
    memory.size = 1.5 * GIB
    large = [config(batch_size=128, seed=seed) for seed in (7, 8)]
    runs = engine.train_many([large[0], FOUR[0], large[1], FOUR[1]], digits, CPU, at_once=2)
    ended = dict(itertools.islice(runs, 2))
    assert list(ended) == FOUR[:2]
    with pytest.raises(DeviceMemoryError, match=r"batch size 128 needs 2.* \(.*, seed 7, first-200; .*, seed 8, first"):
        next(runs)
    for run, ds in ended.items():
        assert same_bits(ds, engine.train(run, digits))
    assert "rate 0.05, seed 7, first-200 is set aside" in capsys.readouterr().out


def test_a_stop_gives_back_the_run_that_waits_for_memory(digits, memory):
    heard: list[int] = []
    how = {"watch": lambda run, epoch: heard.append(epoch), "stop": lambda: bool(heard)}
    ended = list(engine.train_many(FOUR, digits, CPU, at_once=4, **how))
    assert sorted(run.seed for run, _ in ended) == [0, 1, 2]  # two in flight, and the third that waited
    assert all(ds is None for _, ds in ended)


def test_what_was_finished_beside_a_run_too_large_stays_in_the_store(tmp_path, memory):
    memory.size = 1.5 * GIB
    options = {"store": tmp_path, "device": "cpu", "subsets": {"first-200": MASK}, "progress": False, "at_once": 1}
    with pytest.raises(DeviceMemoryError, match="batch size 128"):
        sweeping.sweep([config(batch_size=128), config()], **options)
    assert results.RunStore(tmp_path).keys() == [config().key]


@pytest.mark.parametrize(
    ("error", "memory_ran_out"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("FIND was unable to find an engine to execute this computation"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
    ],
)
def test_errors_that_mean_a_lack_of_memory_are_known_also_behind_others(error, memory_ran_out):
    assert is_out_of_memory(error) is memory_ran_out
    broken = RuntimeError("CUDA error: operation failed due to a previous error during capture")
    broken.__context__ = error
    assert is_out_of_memory(broken) is memory_ran_out
