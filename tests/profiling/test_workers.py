"""DDP and Horovod for real on two ranks: the weights of one process, times of every step, no process left behind."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from torch.nn import functional
from waiting import wait_until

from dolb import models, results
from dolb.profiling.config import ScalingConfig, strong, weak
from dolb.profiling.ranks import cores, launch, rank
from dolb.profiling.ranks.launch import Place, RankError, measure
from dolb.profiling.traces import read

SHARED = {"ranks": 2, "arch": "smallnet-4", "batch_size_per_rank": 16}
# Ten updates in all.
CONFIG = ScalingConfig(**SHARED, warmup_steps=1, steps=7, trace_steps=2)
ENDLESS = ScalingConfig(**SHARED, steps=10**6)
LIBRARIES = pytest.mark.parametrize("library", ["ddp", "horovod"])
GREET = ("sh", "-c", 'echo "within reach"; exec "$@"', "sh")


def configured(config, library):
    return ScalingConfig.from_dict({**config.as_dict(), "library": library})


@pytest.fixture(scope="module")
def measured(request, tmp_path_factory):
    """Return the row and the folder of a measurement under a library, made once."""
    made = {}

    def get(library):
        if library == "horovod":
            request.getfixturevalue("horovod")
        if library not in made:
            folder = tmp_path_factory.mktemp(library)
            place = Place(within=[GREET, GREET])
            row = measure(configured(CONFIG, library), folder=folder, oversubscribe=True, place=place, timeout=120)
            made[library] = row, folder
        return made[library]

    return get


def processes_of(pid):
    """Find the processes of measurements by one process, from their environment, apart from how `workers` does."""
    wanted = f"DOLB_MEASURED_BY={pid}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


# What is trained


def flat(network):
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()]).double().numpy()


def weights_of_one_process(dtype, bn_workers):
    """Train in this process with no library: the global batch at once, or its two shares one after the other."""
    torch.set_num_threads(1)
    alone = ScalingConfig(**{**SHARED, "ranks": 1, "batch_size_per_rank": CONFIG.batch_size})
    images, num_classes, _ = rank.load_images(alone, torch.device("cpu"))
    network = models.initialize(alone.arch, num_classes, images.channels, bn_workers, alone.seed).to(dtype)
    optimizer = torch.optim.SGD(network.parameters(), lr=alone.lr, momentum=alone.momentum)
    batches = rank.shares(alone, images, 0)
    parts = 1 if bn_workers == 2 else 2
    for _ in range(10):
        pixels, labels = next(batches)
        optimizer.zero_grad()
        for share, classes in zip(pixels.to(dtype).chunk(parts), labels.chunk(parts), strict=True):
            (functional.cross_entropy(network(share), classes) / parts).backward()
        optimizer.step()
    return flat(network)


@LIBRARIES
def test_after_ten_steps_two_ranks_hold_the_weights_of_one_process_with_the_global_batch(measured, library):
    _, folder = measured(library)
    exact = weights_of_one_process(torch.float64, bn_workers=1)
    at_once = weights_of_one_process(torch.float32, bn_workers=2)  # batch-norm statistics over two shares, as ranks do
    rounding = np.abs(at_once - exact).max()
    assert rounding < 1e-3 * np.abs(flat(models.initialize("smallnet-4", 10, 3, 1, 0)) - exact).max()
    for rank in range(2):
        assert np.abs(np.load(folder / f"weights-{rank}.npy") - exact).max() < 3 * rounding


def test_ddp_and_horovod_give_the_same_weights(measured):
    one, other = (np.load(measured(library)[1] / "weights-0.npy") for library in ("ddp", "horovod"))
    # Of two ranks, either library adds the same two numbers and halves.
    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8)


def test_ranks_share_a_global_batch_without_overlap_and_one_rank_sees_all_of_it():
    def examples(ranks, share, rank):
        config = ScalingConfig(data="digits", ranks=ranks, batch_size_per_rank=share)
        images, _, _ = rank.load_images(config, torch.device("cpu"))
        batches = rank.shares(config, images, rank)
        return [next(batches)[0] for _ in range(60)]  # more than an epoch of 1437 / 32

    for whole, first, second in zip(examples(1, 32, 0), examples(2, 16, 0), examples(2, 16, 1), strict=True):
        assert torch.equal(whole, torch.cat([first, second]))


# What is returned


@LIBRARIES
def test_a_row_holds_the_seconds_of_every_step_on_every_rank_and_the_throughput_they_make(measured, library):
    row, _ = measured(library)
    seconds = row["rank_step_seconds"].isel(run=0)
    assert dict(seconds.sizes) == {"worker": 2, "step": 7}
    assert (seconds > 0).all()
    assert row["images_per_second"].item() == pytest.approx(7 * 32 / seconds.sum("step").max().item())
    asked = {name: row[name].item() for name in row.coords if row[name].dims == ("run",)}
    assert ScalingConfig.from_dict(asked) == configured(CONFIG, library)
    assert row["source"].item() == "measured"
    assert row["world_size"].item() == 2


def test_rows_of_different_numbers_of_ranks_are_merged_saved_and_read_back(measured, tmp_path):
    two, _ = measured("ddp")
    one = two.isel(worker=[0], step=slice(3)).assign_coords(key=("run", ["another"]), ranks=("run", [1]))
    both = results.merge([two, one])
    back = results.load(results.save(both, tmp_path / "scaling.nc"))
    xr.testing.assert_equal(back, both)
    assert back["rank_step_seconds"].sel(worker=1).isel(run=1).isnull().all()


@LIBRARIES
def test_each_rank_is_started_by_the_command_it_is_to_run_within(measured, library):
    _, folder = measured(library)
    for rank in range(2):
        assert "within reach" in (folder / f"rank-{rank}.log").read_text()


@LIBRARIES
def test_traced_steps_are_read_back_as_events_of_both_ranks(measured, library):
    _, folder = measured(library)
    events = read.read(read.find(folder)).to_dataframe()
    steps = events[events["lane"] == "step"]
    assert sorted(zip(steps["rank"], steps["name"], strict=True)) == [
        (rank, f"step {number}") for rank in range(2) for number in range(2)
    ]
    parameters = sum(p.numel() for p in models.build("smallnet-4", 10).parameters())
    reduced = events[(events["lane"] == "communication") & (events["rank"] == 0)]
    assert reduced["bytes"].sum() == 2 * 4 * parameters  # two steps, four bytes to a number


# What goes wrong


@LIBRARIES
def test_when_a_rank_is_killed_the_error_names_it_and_no_other_is_left(request, library, tmp_path):
    if library == "horovod":
        request.getfixturevalue("horovod")
    folder = tmp_path / "files"

    def kill():
        pid_file = folder / "rank-1.pid"
        wait_until(pid_file.exists, 60, "the start")
        pid = int(pid_file.read_text())
        # Let it train: by then torch is loaded and both ranks have met.
        wait_until(lambda: b"torch" in Path(f"/proc/{pid}/maps").read_bytes(), 60, "loading torch")
        time.sleep(2)
        os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(RankError, match=rf"rank 1 of 2 \({library}\) ended with exit code -9 \(SIGKILL\)"):
        measure(configured(ENDLESS, library), folder=folder, oversubscribe=True, timeout=120)
    thread.join()
    assert processes_of(os.getpid()) == []


def test_a_rank_that_ends_by_itself_is_named_with_its_exit_code():
    place = Place(within=[(), ("sh", "-c", "echo out of luck; exit 7")])
    with pytest.raises(RankError, match=r"(?s)rank 1 of 2 \(ddp\) ended with exit code 7;.*out of luck"):
        measure(ENDLESS, oversubscribe=True, place=place, timeout=60)
    assert processes_of(os.getpid()) == []


def test_what_a_rank_raises_is_in_the_message():
    with pytest.raises(
        RankError, match=r"(?s)rank 0 of 1 .*exit code 1;.*unknown data set 'digit'.*did you mean 'digits'"
    ):
        measure(ScalingConfig(data="digit"), timeout=60)


def test_a_batch_larger_than_the_data_is_refused():
    config = ScalingConfig(data="digits", batch_size_per_rank=2000)
    images, _, _ = rank.load_images(config, torch.device("cpu"))
    with pytest.raises(ValueError, match="a global batch of 2000 needs as many images; digits has 1437"):
        next(rank.shares(config, images, 0))


@LIBRARIES
def test_when_the_measuring_process_is_killed_its_ranks_go_too(request, library, tmp_path):
    if library == "horovod":
        request.getfixturevalue("horovod")
    code = (
        "import json; from dolb.profiling.config import ScalingConfig;"
        "from dolb.profiling.ranks.launch import measure;"
        f"config = ScalingConfig.from_dict(json.loads({json.dumps(configured(ENDLESS, library).as_dict())!r}));"
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


def test_time_that_runs_out_names_the_ranks_that_still_ran_and_leaves_no_process():
    place = Place(within=[("sh", "-c", "sleep 600")])
    with pytest.raises(RankError, match=r"^4 s were not enough; rank 0 still ran"):
        measure(ScalingConfig(), timeout=4, place=place)
    assert processes_of(os.getpid()) == []


def test_a_port_in_use_is_refused_before_anything_is_started():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=rf"port {port} of 127.0.0.1 cannot be used \(.*in use\); give another"):
            measure(ScalingConfig(), port=port)


def test_more_ranks_than_slots_are_refused_with_both_numbers():
    available = launch.slots()
    with pytest.raises(
        ValueError, match=rf"{available + 1} ranks need as many slots, and there are {available} \(cores"
    ):
        measure(ScalingConfig(ranks=available + 1))


@pytest.mark.parametrize("sharing", [False, True])
def test_ranks_on_gpus_are_refused_where_there_is_none(monkeypatch, sharing):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match="needs a GPU, and this process sees none"):
        measure(ScalingConfig(device_kind="cuda"), oversubscribe=sharing)


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


def test_without_horovod_the_error_says_how_to_build_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "horovod", None)  # as if it were not installed
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

    if hvd.nccl_built():
        launch.require_horovod("cuda")
        return
    launch.require_horovod("cpu")
    with pytest.raises(RankError, match=r"built without NCCL, which device_kind 'cuda' needs; `HOROVOD_GPU_OPER"):
        measure(ScalingConfig(library="horovod", device_kind="cuda"))


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "precious").touch()
    with pytest.raises(ValueError, match="is not empty"):
        measure(ScalingConfig(), folder=tmp_path)


# What can be asked for


def test_weak_scaling_keeps_the_batch_of_a_rank_and_strong_scaling_the_global_one():
    assert [(c.ranks, c.batch_size_per_rank, c.batch_size) for c in weak([1, 2, 4], 32)] == [
        (1, 32, 32), (2, 32, 64), (4, 32, 128)
    ]  # fmt: skip
    assert [(c.ranks, c.batch_size_per_rank, c.batch_size) for c in strong([1, 2, 4], 32)] == [
        (1, 32, 32), (2, 16, 32), (4, 8, 32)
    ]  # fmt: skip
    with pytest.raises(ValueError, match="32 cannot be shared equally by 3 ranks"):
        strong([1, 3], 32)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("library", "mpi", "accepted: ddp, horovod"),
        ("ranks", 0, "at least 1"),
        ("arch", "vgg12", "did you mean 'vgg11'"),
        ("bucket_mb", 0, "must be positive"),
        ("fusion_threshold_mb", -1, "must not be negative"),
        ("cycle_time_ms", float("nan"), "must be a number"),
        ("steps", 2.5, "must be int"),
    ],
)
def test_a_config_that_cannot_be_run_is_refused(name, value, said):
    with pytest.raises((ValueError, TypeError), match=said):
        ScalingConfig(**{name: value})


def test_the_key_is_of_the_fields_that_differ_from_their_defaults():
    assert ScalingConfig().key == ScalingConfig(ranks=1, bucket_mb=25).key
    assert ScalingConfig(bucket_mb=10).key != ScalingConfig().key


# Several by the same processes


@LIBRARIES
def test_measurements_made_together_are_those_made_alone(measured, library, tmp_path):
    _, alone = measured(library)
    other = ScalingConfig(**SHARED | {"arch": "smallnet-8"}, library=library, steps=3, warmup_steps=0)
    last = ScalingConfig(**SHARED, library=library, steps=9, warmup_steps=1)  # the ten updates of the one made alone
    together = tmp_path / "together"
    rows = list(launch.measure_together([other, last], folder=together, oversubscribe=True, timeout=120))
    assert [str(row["key"].item()) for row in rows] == [other.key, last.key]
    assert [row["rank_step_seconds"].shape for row in rows] == [(1, 2, 3), (1, 2, 9)]
    assert rows[0]["parameters"].item() > rows[1]["parameters"].item()
    assert len(list(together.glob("rank-*.pid"))) == 2
    for rank in range(2):
        assert np.array_equal(*(np.load(at / f"weights-{rank}.npy") for at in (together, alone)))


def test_whoever_stops_to_listen_ends_the_processes(tmp_path):
    short = ScalingConfig(**SHARED, steps=2, warmup_steps=0)
    rows = launch.measure_together([short, ENDLESS], oversubscribe=True, timeout=120)
    assert next(rows)["key"].item() == short.key
    assert processes_of(os.getpid())
    rows.close()
    assert not processes_of(os.getpid())


@LIBRARIES
def test_one_rank_without_the_library_is_measured_beside_and_changes_no_weight(library, tmp_path, measured):
    _, plain = measured(library)
    made = configured(CONFIG, library).as_dict() | {"trace_steps": 0, "steps": 9, "alone_steps": 6}
    strong_run = ScalingConfig.from_dict(made | {"scaling": "strong", "steps": 2})
    weak_run = ScalingConfig.from_dict(made)
    folder = tmp_path / "files"
    strong_row, weak_row = launch.measure_together([strong_run, weak_run], folder=folder, oversubscribe=True)
    before, after = (json.loads((folder / f"alone-{when}.json").read_text()) for when in ("before", "after"))
    for row, batch in ((weak_row, 16), (strong_row, 32)):
        (name,) = (name for name in before if name.endswith(f" {batch}"))
        assert row["alone_images_per_second"].item() == pytest.approx(np.sqrt(before[name] * after[name]))
        assert row["alone_drift"].item() == pytest.approx(after[name] / before[name])
    # The weights that are kept are of the second one: the ten updates of the measurement without it.
    for rank in range(2):
        assert np.array_equal(*(np.load(at / f"weights-{rank}.npy") for at in (plain, folder)))


@LIBRARIES
def test_a_pinned_rank_with_all_of_its_threads_has_one_core(request, library):
    if library == "horovod":
        request.getfixturevalue("horovod")
    if launch.slots() < 2:
        pytest.skip("two cores are needed")
    config = ScalingConfig(**SHARED, library=library, steps=2, warmup_steps=0, pinned=True)
    row = measure(config, timeout=120)
    assert row["threads_per_rank"].item() == 1
    assert row["pinned"].item()
    assert row["device"].item() == cores.in_words()
    assert row["busy_threads"].item() >= 0 or np.isnan(row["busy_threads"].item())


def test_a_rank_that_is_not_pinned_may_run_anywhere(measured):
    row, _ = measured("ddp")
    assert row["threads_per_rank"].item() == len(os.sched_getaffinity(0))


def test_ranks_that_must_share_a_core_cannot_be_pinned():
    many = ScalingConfig(ranks=launch.slots() + 1, pinned=True)
    with pytest.raises(ValueError, match="ask for fewer ranks, or for ranks that are not pinned"):
        measure(many, oversubscribe=True)


@pytest.mark.parametrize("change", [{"ranks": 1}, {"library": "horovod"}, {"trace_steps": 1}, {"pinned": True}])
def test_measurements_that_need_other_processes_are_refused(change):
    one = ScalingConfig(**SHARED)
    with pytest.raises(ValueError, match="cannot be made together"):
        next(launch.measure_together([one, ScalingConfig.from_dict(one.as_dict() | change)]))
