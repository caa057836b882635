"""Images packed in every form come back as they were; damage names the file; cold is cold; nothing is left behind."""

import io
import multiprocessing
import os
import pickle
import resource
import shutil
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from dolb.profiling.config import StorageConfig
from dolb.profiling.storage import FORMATS, StorageError, feeding, formats, load, pack, pictures, reading, sweep

IMAGES = 40
EVERY_FORMAT = pytest.mark.parametrize("form", FORMATS)
CONTAINERS = [form for form in FORMATS if form != "files"]


@pytest.fixture(scope="module")
def examples():
    return list(pictures.made(IMAGES))


@pytest.fixture(scope="module")
def packed(examples, tmp_path_factory):
    """The same images in every form, on a disk; tests that damage one copy it first."""
    folder = tmp_path_factory.mktemp("storage")
    return {form: formats.write(iter(examples), form, folder / form, shard=16) for form in FORMATS}  # the last not full


@pytest.fixture
def damaged(packed, tmp_path):
    """Copy a container, and give it with the file of its first images."""

    def copy(form):
        container = tmp_path / form
        shutil.copytree(packed[form], container)
        return container, load(container)._file(0)

    return copy


# --- the images ------------------------------------------------------------------------------------------------------


def test_made_images_are_as_large_as_those_of_imagenet_each_its_own_and_the_same_every_time():
    found = [data for data, _ in pictures.made(300)]
    sizes = {Image.open(io.BytesIO(data)).size for data in found}
    assert 95_000 < np.mean([len(data) for data in found]) < 125_000  # 110 KB on average there
    assert {(500, 375), (375, 500)} <= sizes
    assert len(set(found)) == len(found)
    assert list(pictures.made(3)) == list(pictures.made(3))


def test_an_image_is_decoded_whole_or_to_a_square():
    data, _ = next(pictures.made(1))
    whole = pictures.decode(data)
    assert whole.shape[2] == 3
    assert max(whole.shape) == 500
    small = pictures.decode(data, 64)
    assert small.shape == (64, 64, 3)
    assert abs(small.mean() - whole.mean()) < 3


# --- packed and read -------------------------------------------------------------------------------------------------


@EVERY_FORMAT
def test_images_come_back_as_they_were_by_number_in_batches_and_in_order(form, packed, examples):
    dataset = load(packed[form])
    assert dataset.format == form
    assert len(dataset) == IMAGES
    order = np.random.default_rng(0).permutation(IMAGES).tolist()
    assert [dataset[number] for number in order] == [examples[number] for number in order]
    assert dataset.__getitems__(order) == [examples[number] for number in order]
    assert list(dataset.in_order(3, 37)) == examples[3:37]
    assert dataset[-1] == examples[-1]
    with pytest.raises(IndexError, match=f"has {IMAGES} images; there is no number {IMAGES}"):
        dataset[IMAGES]


@EVERY_FORMAT
def test_a_loader_of_torch_reads_it_in_several_processes_after_this_one_has(form, packed, examples):
    dataset = load(packed[form])
    assert dataset[0] == examples[0]
    loader = DataLoader(dataset, batch_size=8, num_workers=2, collate_fn=list, multiprocessing_context="fork")
    assert [one for batch in loader for one in batch] == examples
    assert pickle.loads(pickle.dumps(dataset))[5] == examples[5]


@EVERY_FORMAT
def test_a_folder_of_images_is_packed_with_the_folders_of_images_as_labels(form, tmp_path, examples):
    for number, (data, _) in enumerate(examples[:6]):
        path = tmp_path / "photos" / ("cats" if number % 2 else "birds") / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    container = pack(tmp_path / "photos", form)
    assert container == tmp_path / f"photos.{form}"
    wanted = [
        (examples[number][0], label) for label, numbers in enumerate(((0, 2, 4), (1, 3, 5))) for number in numbers
    ]
    assert [load(container)[number] for number in range(6)] == wanted


def test_all_forms_hold_the_same_images_by_their_fingerprint(packed):
    assert len({load(container).about["fingerprint"] for container in packed.values()}) == 1


def test_what_cannot_be_packed_is_refused(tmp_path, examples):
    with pytest.raises(StorageError, match="has no image; accepted: a folder with files that end in"):
        pack(tmp_path, "flat")
    with pytest.raises(ValueError, match="'tar' is not known; accepted: files, flat"):
        formats.write(iter(examples), "tar", tmp_path / "one")
    (tmp_path / "there").mkdir()
    with pytest.raises(StorageError, match="there is there already"):
        formats.write(iter(examples), "flat", tmp_path / "there")


# --- damage ----------------------------------------------------------------------------------------------------------


def _write_with_little_room(form, examples, target, answer):
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))  # what the system says is then as of a full disk
    try:
        formats.write(iter(examples), form, target)
    except Exception as error:
        answer.send((type(error).__name__, str(error), sorted(path.name for path in target.parent.iterdir())))


@pytest.mark.parametrize("form", CONTAINERS)
def test_where_there_is_no_room_the_error_names_the_file_and_nothing_is_left(form, examples, tmp_path):
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe()
    writer = context.Process(target=_write_with_little_room, args=(form, examples, tmp_path / form, theirs))
    writer.start()
    theirs.close()
    kind, message, left = mine.recv()
    writer.join()
    assert kind == "StorageError"
    assert str(tmp_path / form) in message
    assert left == []


@pytest.mark.parametrize("form", CONTAINERS)
def test_a_container_whose_file_is_truncated_or_missing_names_it_when_it_is_opened(form, damaged):
    container, file = damaged(form)
    os.truncate(file, file.stat().st_size - 5000)
    with pytest.raises(StorageError, match=f"{file} has .* bytes, not the .* that it was written with"):
        load(container)
    file.unlink()
    with pytest.raises(StorageError, match=f"{file}: cannot be read: .*No such file"):
        load(container)


def test_a_truncated_small_file_is_named_when_it_is_read(damaged):
    container, file = damaged("files")
    os.truncate(file, 100)
    with pytest.raises(StorageError, match=f"{file}: image 0 cannot be read: it has 100 bytes, not "):
        load(container)[0]


@pytest.mark.parametrize("form", ["hdf5", "lmdb", "zarr", "webdataset"])
def test_a_container_of_the_right_length_whose_content_is_gone_is_named(form, damaged):
    container, file = damaged(form)
    file.write_bytes(b"\xff" * file.stat().st_size)
    with pytest.raises(StorageError, match=str(file)):
        list(load(container).in_order(0, 4))


def test_an_image_that_is_none_names_the_container(packed):
    with pytest.raises(StorageError, match=f"{packed['flat']}: an image is damaged"):
        load(packed["flat"]).pixels(b"nothing")


# --- measured --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("access", "shard"), [("random", 512), ("sequential", 512), ("sequential", 4000)])
def test_processes_share_what_is_read(access, shard):
    def mine(worker):
        if access == "random":
            return reading.numbers(5000, 256, worker, 4, seed=1)
        return list(range(*reading.stretch(5000, shard, 256, worker, 4, seed=1)))

    parts = [mine(worker) for worker in range(4)]
    assert len(set().union(*parts)) == sum(map(len, parts)) == 256
    assert all(0 <= number < 5000 for part in parts for number in part)


@EVERY_FORMAT
@pytest.mark.parametrize("access", ["random", "sequential"])
def test_reading_is_timed_over_all_processes(form, access, packed, examples):
    found = reading.speed(packed[form], access=access, cache="warm", workers=2, sample=IMAGES, seed=0)
    assert found["images_per_second"] == pytest.approx(IMAGES / found["seconds"])
    assert found["image_bytes"] == pytest.approx(np.mean([len(data) for data, _ in examples]))
    assert found["cooled_by"] == ""


def test_what_a_reading_process_raises_is_raised_here(damaged):
    container, file = damaged("files")
    file.unlink()
    with pytest.raises(StorageError, match=str(file)):
        reading.speed(container, access="random", cache="cold", workers=2, sample=IMAGES, seed=0)


@EVERY_FORMAT
def test_cold_is_cold_every_byte_comes_from_the_disk(form, packed):
    found = reading.count(packed[form], access="random", sample=IMAGES, seed=0)
    assert found["cooled_by"] == ("drop_caches" if os.access("/proc/sys/vm/drop_caches", os.W_OK) else "posix_fadvise")
    assert found["read_bytes_per_image"] > 0.9 * found["image_bytes"]


def test_system_calls_are_counted_between_the_marks(packed, require_part):
    require_part("strace", shutil.which("strace") is not None, "strace is not installed")
    calls = {form: reading.count(packed[form], access="random", sample=32, seed=0) for form in ("files", "flat")}
    # A file is opened, looked at, read to its end and closed; the mapped file is asked once.
    assert 4 <= calls["files"]["syscalls_per_image"] < 15
    assert 0.9 < calls["flat"]["syscalls_per_image"] < 2


def test_a_folder_in_memory_cannot_be_cold(require_part):
    require_part("tmpfs", Path("/dev/shm").is_dir(), "there is no /dev/shm")
    with pytest.raises(StorageError, match=r"/dev/shm is in memory \(tmpfs\): nothing is cold there"):
        reading.require_disk(Path("/dev/shm"))


def test_a_trainer_starves_for_part_of_its_time_and_longer_where_images_are_slow_to_come(packed, monkeypatch):
    few = {"task": "training", "arch": "smallnet-4", "image_size": 16, "batch_size": 4, "steps": 4, "warmup_steps": 1}
    found = feeding.train(packed["flat"], StorageConfig(**few, access="sequential"))
    assert 0 <= found["starved"] < 1
    assert found["images_per_second"] == pytest.approx(16 / found["seconds"])
    assert found["trainer_images_per_second"] >= found["images_per_second"]
    fast = formats.Flat.pixels
    monkeypatch.setattr(formats.Flat, "pixels", lambda *given: (time.sleep(0.05), fast(*given))[1])
    assert feeding.train(packed["flat"], StorageConfig(**few))["starved"] > max(found["starved"], 0.5)


# --- many of them ----------------------------------------------------------------------------------------------------


def test_measurements_are_made_once_and_leave_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    same = {"data": "digits", "images": 40, "sample": 20, "steps": 2, "warmup_steps": 1, "batch_size": 4}
    tasks = [{"task": task, "arch": "smallnet-4", "image_size": 8} for task in ("reading", "decoding", "training")]
    configs = [StorageConfig(**same, **task, storage=form) for task in tasks for form in ("files", "flat")]
    ds = sweep.measure_all(configs, store=tmp_path / "store", progress=False)
    assert ds["storage"].values.tolist() == ["files", "flat"] * 3
    assert np.isfinite(ds["images_per_second"]).all()
    assert np.isfinite(ds["starved"]).sum() == 2
    assert not list(tmp_path.glob("dolb-storage-*"))
    monkeypatch.setattr(sweep, "measure", None)  # nothing is measured again
    again = sweep.measure_all(configs, store=tmp_path / "store", progress=False)
    assert again["images_per_second"].values.tolist() == ds["images_per_second"].values.tolist()


def test_a_disk_with_too_little_room_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep.shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))
    with pytest.raises(StorageError, match=r"has 1\.0 GB free; the containers need 12\.0"):
        sweep.container(tmp_path, StorageConfig(), [StorageConfig(storage="files")])
    assert not list(tmp_path.iterdir())


def test_a_gpu_that_is_not_there_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(StorageError, match="needs a GPU"):
        sweep.measure_all([StorageConfig(device_kind="cuda")], store=tmp_path)
