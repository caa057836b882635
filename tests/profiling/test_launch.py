"""DDP and Horovod for real on two ranks: the weights of one process, times of every step, no process left behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional
from waiting import wait_until

from dolb import models, recipes
from dolb.profiling.config import ScalingConfig, strong, weak
from dolb.profiling.ranks import cores, launch, rank
from dolb.profiling.ranks.launch import RankError, measure, measure_together
from dolb.profiling.simulator import curves
from dolb.profiling.traces import timeline
from dolb.profiling.traces.read import find, read

SHARED = {"ranks": 2, "arch": "smallnet-4", "batch_size_per_rank": 16}
TRACED = ScalingConfig(**SHARED, warmup_steps=1, steps=4, trace_steps=2)
UPDATES = 7  # of that in all
SHORT = ScalingConfig(**SHARED, steps=2, warmup_steps=0)
ENDLESS = replace(SHORT, steps=10**6)
HOW = {"oversubscribe": True, "timeout": 120}
HARDEST = launch.available_libraries()[-1]  # horovodrun puts its children into sessions of their own


def processes_of(pid):
    """Find the processes of measurements by one process, from their environment, apart from how `launch` does."""
    wanted = f"DOLB_MEASURED_BY={pid}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


# One launch of each library with traced steps


@pytest.fixture(scope="module")
def traced(library, tmp_path_factory):
    """The row and the folder of a measurement."""
    folder = tmp_path_factory.mktemp(library)
    return measure(replace(TRACED, library=library), folder=folder, **HOW), folder


def flat(network):
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()]).double().numpy()


@cache
def weights_of_one_process(dtype, bn_workers):
    """Train in this process with no library: the global batch at once, or its two shares one after the other."""
    torch.set_num_threads(1)
    alone = ScalingConfig(**{**SHARED, "ranks": 1, "batch_size_per_rank": TRACED.batch_size})
    images, num_classes, _ = rank.load_images(alone, torch.device("cpu"))
    network = models.initialize(alone.arch, num_classes, images.channels, bn_workers, alone.seed).to(dtype)
    optimizer = torch.optim.SGD(network.parameters(), lr=alone.lr, momentum=alone.momentum)
    batches = rank.shares(alone, images, 0)
    parts = 1 if bn_workers == 2 else 2
    for _ in range(UPDATES):
        pixels, labels = next(batches)
        optimizer.zero_grad()
        for share, classes in zip(pixels.to(dtype).chunk(parts), labels.chunk(parts), strict=True):
            (functional.cross_entropy(network(share), classes) / parts).backward()
        optimizer.step()
    return flat(network)


def hold_the_weights_of_one_process(folder):
    exact = weights_of_one_process(torch.float64, bn_workers=1)
    at_once = weights_of_one_process(torch.float32, bn_workers=2)  # batch-norm statistics over two shares, as ranks do
    rounding = np.abs(at_once - exact).max()
    assert rounding < 1e-3 * np.abs(flat(models.initialize("smallnet-4", 10, 3, 1, 0)) - exact).max()
    for number in range(2):
        assert np.abs(np.load(folder / f"weights-{number}.npy") - exact).max() < 3 * rounding


def test_two_ranks_hold_the_weights_of_one_process_with_the_global_batch(traced):
    hold_the_weights_of_one_process(traced[1])


def test_a_row_holds_the_seconds_of_every_step_on_every_rank_and_the_throughput_they_make(traced, library):
    row, _ = traced
    seconds = row["rank_step_seconds"].isel(run=0)
    assert dict(seconds.sizes) == {"worker": 2, "step": 4}
    assert (seconds > 0).all()
    assert row["images_per_second"].item() == pytest.approx(4 * 32 / seconds.sum("step").max().item())
    asked = {name: row[name].item() for name in row.coords if row[name].dims == ("run",)}
    assert ScalingConfig.from_dict(asked) == replace(TRACED, library=library)
    assert (row["source"].item(), row["world_size"].item()) == ("measured", 2)


def test_traced_steps_are_read_back_as_events_of_both_ranks(traced, library):
    row, folder = traced
    events = read(find(folder))
    frame = events.to_dataframe()
    steps = frame[frame["lane"] == "step"]
    assert sorted(zip(steps["rank"], steps["name"], strict=True)) == [
        (number, f"step {step}") for number in range(2) for step in range(2)
    ]
    parameters = sum(p.numel() for p in models.build("smallnet-4", 10).parameters())
    reduced = frame[(frame["lane"] == "communication") & (frame["rank"] == 0)]
    assert reduced["bytes"].sum() == 2 * 4 * parameters  # two steps, four bytes to a number
    whole = timeline.with_events(curves.named(row), events)
    assert ("negotiation" in set(whole["lane"].values)) == (library == "horovod")


# One launch that makes several measurements, with one rank alone beside them


def test_pinned_ranks_make_several_measurements_and_one_rank_without_the_library_is_measured_beside(tmp_path):
    if launch.slots() < 2:
        pytest.skip("two cores are needed")
    folder = tmp_path / "files"
    same = {"library": HARDEST, "alone_steps": 3, "pinned": True, "warmup_steps": 0, **SHARED}
    configs = [ScalingConfig(scaling="strong", steps=2, **same), ScalingConfig(steps=UPDATES, **same)]
    rows = list(measure_together(configs, folder=folder, **HOW))
    assert [str(row["key"].item()) for row in rows] == [config.key for config in configs]
    assert [row["rank_step_seconds"].shape for row in rows] == [(1, 2, 2), (1, 2, UPDATES)]
    assert len(list(folder.glob("rank-*.pid"))) == 2
    hold_the_weights_of_one_process(folder)  # after the second, whatever the first has done
    assert rows[0]["threads_per_rank"].item() == 1
    assert rows[0]["device"].item() == cores.machine_name()
    before, after = (json.loads((folder / f"alone-{when}.json").read_text()) for when in ("before", "after"))
    for row, batch in zip(rows, (32, 16), strict=True):  # under strong scaling one rank has the global batch
        (name,) = (name for name in before if name.endswith(f" {batch}"))
        assert row["alone_images_per_second"].item() == pytest.approx(np.sqrt(before[name] * after[name]))


# What goes wrong; that a rank is killed while it trains is in test_links, under both libraries


def test_what_a_rank_raises_is_in_the_message_with_its_exit_code_and_no_other_is_left():
    rows = measure_together([replace(one, library=HARDEST) for one in (SHORT, replace(SHORT, data="digit"))], **HOW)
    assert next(rows)["key"].item() == replace(SHORT, library=HARDEST).key
    assert processes_of(os.getpid())
    with pytest.raises(RankError, match=r"(?s)rank [01] of 2 .*exit code 1;.*unknown data set 'digit'"):
        next(rows)
    assert processes_of(os.getpid()) == []


def test_when_a_rank_is_killed_the_error_names_it(tmp_path):
    rows = measure_together([ENDLESS], folder=tmp_path / "files", **HOW)
    pid = tmp_path / "files" / "rank-1.pid"
    killer = threading.Thread(
        target=lambda: (wait_until(pid.exists, 60, "rank 1"), os.kill(int(pid.read_text()), signal.SIGKILL))
    )
    killer.start()
    with pytest.raises(RankError, match=r"rank 1 of 2 \(ddp\) ended with exit code -9 \(SIGKILL\)"):
        next(rows)
    killer.join()
    assert processes_of(os.getpid()) == []


def test_whoever_stops_to_listen_ends_the_processes():
    rows = measure_together([replace(one, ranks=1) for one in (SHORT, ENDLESS)], **HOW)
    next(rows)
    assert processes_of(os.getpid())
    rows.close()
    assert not processes_of(os.getpid())


def test_time_that_runs_out_names_the_ranks_that_still_ran_and_leaves_no_process():
    with pytest.raises(RankError, match=r"^1 s were not enough; rank 0, 1 still ran"):
        measure(ENDLESS, timeout=1, oversubscribe=True)
    assert processes_of(os.getpid()) == []


def test_when_the_measuring_process_is_killed_its_ranks_go_too(tmp_path):
    code = (
        "import json; from dolb.profiling.config import ScalingConfig;"
        "from dolb.profiling.ranks.launch import measure;"
        f"config = ScalingConfig.from_dict(json.loads({json.dumps(replace(ENDLESS, library=HARDEST).as_dict())!r}));"
        f"measure(config, folder={str(tmp_path / 'files')!r}, oversubscribe=True)"
    )
    package = str(Path(launch.__file__).resolve().parents[3])
    process = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": package})
    try:
        wait_until(lambda: all((tmp_path / "files" / f"rank-{k}.pid").exists() for k in range(2)), 60, "the start")
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not processes_of(process.pid), 60, "the end of the ranks")


# What is refused before anything is started


def test_more_ranks_than_slots_are_refused_with_both_numbers():
    many = launch.slots() + 1
    with pytest.raises(ValueError, match=rf"{many} ranks need as many slots, and there are {many - 1} \(cores"):
        measure(ScalingConfig(ranks=many))
    with pytest.raises(ValueError, match="ask for fewer ranks, or for ranks that are not pinned"):
        measure(ScalingConfig(ranks=many, pinned=True), oversubscribe=True)


def test_ranks_on_gpus_are_refused_where_there_is_none(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match="needs a GPU, and this process sees none"):
        measure(ScalingConfig(device_kind="cuda"), oversubscribe=True)


def test_ranks_beyond_the_gpus_share_these_and_are_to_nccl_on_another_host(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: None)
    found = []
    for local in range(4):
        monkeypatch.setenv("LOCAL_RANK", str(local))
        monkeypatch.delenv("NCCL_HOSTID", raising=False)
        found.append((rank._own_gpu().index, os.environ.get("NCCL_HOSTID")))
    assert [gpu for gpu, _ in found] == [0, 1, 0, 1]
    assert len(set(found)) == 4  # no GPU twice on what NCCL takes for one host


def test_without_horovod_ddp_alone_is_available_and_the_error_says_how_to_build_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "horovod", None)  # as if it were not installed
    assert launch.available_libraries() == ("ddp",)
    for slug in ("ddp-vs-horovod", "step-timeline"):
        runs = recipes.configs(slug, "demo", libraries=launch.available_libraries())
        assert {run.library for run in runs} == {"ddp"}
    with pytest.raises(RankError, match="Horovod is not installed; `make horovod` builds it"):
        measure(ScalingConfig(library="horovod"))


def test_a_horovod_for_another_torch_is_refused(horovod, monkeypatch):
    built = torch.__version__
    monkeypatch.setattr(torch, "__version__", "99.0")
    with pytest.raises(RankError, match=rf"built for torch {built.replace('+', '.')}, this is 99.0; `make horovod`"):
        measure(ScalingConfig(library="horovod"))


def test_gpus_are_refused_to_a_horovod_without_nccl(horovod, monkeypatch):
    import horovod.torch as hvd

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(hvd, "nccl_built", lambda: False)
    with pytest.raises(RankError, match=r"built without NCCL, which device_kind 'cuda' needs; `HOROVOD_GPU_OPER"):
        measure(ScalingConfig(library="horovod", device_kind="cuda"))


@pytest.mark.parametrize("change", [{"ranks": 1}, {"library": "horovod"}, {"trace_steps": 1}, {"pinned": True}])
def test_measurements_that_need_other_processes_are_not_made_together(change):
    with pytest.raises(ValueError, match="cannot be made together"):
        next(measure_together([SHORT, replace(SHORT, **change)]))


# Examples, and what can be asked for


def test_a_batch_larger_than_the_data_is_refused():
    config = ScalingConfig(data="digits", batch_size_per_rank=2000)
    images, _, _ = rank.load_images(config, torch.device("cpu"))
    with pytest.raises(ValueError, match="a global batch of 2000 needs as many images; digits has 1437"):
        next(rank.shares(config, images, 0))


def test_weak_scaling_keeps_the_batch_of_a_rank_and_strong_scaling_the_global_one():
    assert [(c.ranks, c.batch_size_per_rank, c.batch_size) for c in weak([1, 4], 32)] == [(1, 32, 32), (4, 32, 128)]
    assert [(c.ranks, c.batch_size_per_rank, c.batch_size) for c in strong([1, 4], 32)] == [(1, 32, 32), (4, 8, 32)]
    with pytest.raises(ValueError, match="32 cannot be shared equally by 3 ranks"):
        strong([1, 3], 32)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"library": "mpi"}, "accepted: ddp, horovod"),
        ({"ranks": 0}, "at least 1"),
        ({"arch": "vgg12"}, "did you mean 'vgg11'"),
        ({"bucket_mb": 0}, "must be positive"),
        ({"fusion_threshold_mb": -1}, "must not be negative"),
        ({"cycle_time_ms": float("nan")}, "must be a number"),
        ({"steps": 2.5}, "must be int"),
        ({"ranks": 3, "hosts": 2}, "3 ranks cannot be dealt equally to 2 hosts"),
        ({"link_mbit": 100}, "link_mbit 100 needs at least 2 hosts"),
        ({"ranks": 2, "hosts": 2, "device_kind": "cuda"}, "hosts 2 need device_kind 'cpu'"),
        ({"hook": "int8"}, "hook 'int8' is not known; accepted: none, fp16, powersgd-1"),
        ({"hook": "fp16", "library": "horovod"}, "need library 'ddp'"),
        ({"hook": "fp16", "average_every": 5}, "with average_every none are sent"),
        ({"average_every": 4}, "average_every 4 does not divide 25 updates"),
        ({"evaluated": 10}, "needs data with a test set"),
    ],
)
def test_a_config_that_cannot_be_run_is_refused(changes, said):
    with pytest.raises((ValueError, TypeError), match=said):
        ScalingConfig(**changes)
