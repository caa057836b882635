"""Ranks on a GPU: traced by its kernels, and two that share one reduce over NCCL, under DDP and Horovod alike."""

import importlib

import numpy as np
import pytest
import torch

from dolb import models
from dolb.profiling.config import ScalingConfig
from dolb.profiling.ranks.launch import measure
from dolb.profiling.traces import read

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def events_of(folder):
    return read.read(read.find(folder)).to_dataframe()


@pytest.fixture(scope="module")
def over_nccl(request, tmp_path_factory):
    """Return the row and folder of two ranks that share a GPU, made once for a library."""
    made = {}

    def get(library):
        if library == "horovod":
            request.getfixturevalue("horovod")
            if not importlib.import_module("horovod.torch").nccl_built():
                pytest.skip("this Horovod was built without NCCL")
        if library not in made:
            folder = tmp_path_factory.mktemp(library)
            config = ScalingConfig(
                library=library, device_kind="cuda", ranks=2, arch="smallnet-4", batch_size_per_rank=16,
                warmup_steps=1, steps=7, trace_steps=2,
            )  # fmt: skip
            made[library] = measure(config, folder=folder, oversubscribe=True, timeout=180), folder
        return made[library]

    return get


def test_a_rank_is_traced_by_its_kernels(tmp_path):
    config = ScalingConfig(device_kind="cuda", arch="resnet18", steps=3, trace_steps=2)
    row = measure(config, folder=tmp_path / "files", timeout=180)
    assert row["device"].item() == torch.cuda.get_device_name()
    assert {"step", "compute", "host"} <= set(events_of(tmp_path / "files")["lane"])


@pytest.mark.parametrize("library", ["ddp", "horovod"])
def test_ranks_reduce_over_nccl(over_nccl, library):
    row, folder = over_nccl(library)
    shared = "" if torch.cuda.device_count() > 1 else ", up to 2 ranks on one"
    assert row["device"].item() == torch.cuda.get_device_name() + shared
    events = events_of(folder)
    reduced = events[events["lane"] == "communication"]
    assert set(reduced["rank"]) == {0, 1}
    assert reduced["name"].str.contains("nccl", case=False).all(), sorted(set(reduced["name"]))


def test_ddp_and_horovod_give_the_same_weights_over_nccl(over_nccl):
    one, other = (np.load(over_nccl(library)[1] / "weights-0.npy") for library in ("ddp", "horovod"))
    initial = models.initialize("smallnet-4", 10, 3, 1, 0)
    before = torch.cat([parameter.detach().flatten() for parameter in initial.parameters()]).numpy()
    # A GPU adds up in no fixed order.
    assert np.abs(one - other).max() < 1e-3 * np.abs(one - before).max()
