"""How fast processes read images from a container, from a cold or a warm cache, and what the system does meanwhile."""

import contextlib
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any

import numpy as np

from dolb.profiling.storage.formats import Dataset, StorageError, load
from dolb.profiling.storage.pictures import Example

BATCH = 32
DECODED_SIZE = 224  # pixels, of which a JPEG of ImageNet's size is decoded whole
_DROP = Path("/proc/sys/vm/drop_caches")
_MARK = "/dolb-mark"  # a path that is looked for before and after the images, so that a trace shows where they are
_PATIENCE = 300.0  # seconds


def cool(container: Path) -> str:
    """Empty the system's cache of a container's files, and return how: ``drop_caches`` needs root and takes all.

    Without it ``posix_fadvise`` takes the contents of the files; where they lie on the disk then stays known.
    """
    try:
        _DROP.write_text("3")
        return "drop_caches"
    except OSError:
        for path in container.rglob("*"):
            if path.is_file():
                with open(path, "rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return "posix_fadvise"


def require_disk(folder: Path) -> str:
    """Return the file system that a folder is on, or raise if that is in memory, where nothing is ever cold."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    above = {str(path) for path in [folder.resolve(), *folder.resolve().parents]}
    found = max(((len(place), kind) for place, kind in mounts if place in above), default=(0, "unknown"))[1]
    if found in ("tmpfs", "ramfs"):
        raise StorageError(f"{folder} is in memory ({found}): nothing is cold there; name a folder on a disk by TMPDIR")
    return found


def numbers(count: int, sample: int, worker: int, workers: int, seed: int) -> list[int]:
    """Return which images one of several processes reads at random: batches of a drawn order, dealt in turn."""
    order = np.random.default_rng(seed).permutation(count)[:sample]
    batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
    return [int(number) for batch in batches[worker::workers] for number in batch]


def stretch(count: int, shard: int, sample: int, worker: int, workers: int, seed: int) -> tuple[int, int]:
    """Return the images that one of several processes reads in order: its share, from the start of a shard of its own.

    Where there are too few shards for that, the processes share the first images.
    """
    share = sample // workers
    apart = -(-share // shard)  # shards
    spare = count // shard - apart * workers
    if spare < 0:
        return worker * share, (worker + 1) * share
    first = int(np.random.default_rng(seed).integers(spare + 1)) + worker * apart
    return first * shard, first * shard + share


def read(dataset: Dataset, access: str, sample: int, worker: int, workers: int, seed: int) -> Iterator[list[Example]]:
    """Yield what one of several processes reads, in batches."""
    if access == "random":
        mine = numbers(len(dataset), sample, worker, workers, seed)
        for start in range(0, len(mine), BATCH):
            yield dataset.__getitems__(mine[start : start + BATCH])
    else:
        for example in dataset.in_order(*stretch(len(dataset), dataset.shard, sample, worker, workers, seed)):
            yield [example]


def speed(
    container: Path, *, access: str, cache: str, workers: int, sample: int, seed: int, decoded: bool = False
) -> dict[str, Any]:
    """Return images and megabytes a second that so many processes read together, each on its own part.

    All open the container first; what they then read is dropped from memory, or for a warm cache read once before.
    """
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(workers + 1)
    about = (container, access, cache, sample, workers, seed, decoded)
    ends, readers = [], []
    for worker in range(workers):
        mine, theirs = context.Pipe(duplex=False)
        readers.append(context.Process(target=_reader, args=(worker, theirs, barrier, *about), daemon=True))
        readers[-1].start()
        theirs.close()  # so that the end of a reader that was killed is seen here
        ends.append(mine)
    how = ""
    with contextlib.suppress(BrokenBarrierError):  # then one of them has sent why
        barrier.wait(_PATIENCE)
        how = cool(container) if cache == "cold" else ""
        barrier.wait(_PATIENCE)
    found = [_answer(end, container) for end in ends]
    for reader in readers:
        reader.join()
    if failed := [one for one in found if isinstance(one, Exception)]:
        raise next((one for one in failed if isinstance(one, StorageError)), failed[0])
    seconds = max(one["end"] for one in found) - min(one["begin"] for one in found)
    images, size = (sum(one[name] for one in found) for name in ("images", "bytes"))
    return {
        "images_per_second": images / seconds, "seconds": seconds, "image_bytes": size / images, "cooled_by": how,
    }  # fmt: skip


def _reader(
    worker: int, answer: Connection, barrier: Any,
    container: Path, access: str, cache: str, sample: int, workers: int, seed: int, decoded: bool,
) -> None:  # fmt: skip
    """Read this process's share between two waits for the others, and send when, how much, or what was raised."""
    try:
        dataset = load(container)
        if cache == "warm":
            deque(read(dataset, access, sample, worker, workers, seed), maxlen=0)
        else:
            dataset[0]
        barrier.wait(_PATIENCE)
        barrier.wait(_PATIENCE)
        images = size = 0
        begin = time.perf_counter()
        for batch in read(dataset, access, sample, worker, workers, seed):
            for data, _ in batch:
                size += len(data)
                images += 1
                if decoded:
                    dataset.pixels(data, DECODED_SIZE)
        answer.send({"begin": begin, "end": time.perf_counter(), "images": images, "bytes": size})
    except Exception as error:
        barrier.abort()
        answer.send(error)


def _answer(end: Connection, container: Path) -> Any:
    try:
        return end.recv()
    except EOFError:
        return StorageError(f"{container}: a process that read it was killed")


def count(container: Path, *, access: str, sample: int, seed: int) -> dict[str, float]:
    """Return system calls, by strace, and bytes that the disk was asked for, per image that one process reads cold.

    Without strace the system calls are NaN.
    """
    with tempfile.TemporaryDirectory(prefix="dolb-trace-") as folder:
        trace = Path(folder) / "trace"
        strace = ["strace", "-f", "-qq", "-o", str(trace)] if shutil.which("strace") else []
        asked = [str(container), access, str(sample), str(seed)]
        program = [*strace, sys.executable, "-m", __name__, *asked]
        done = subprocess.run(program, capture_output=True, text=True)
        if done.returncode:
            raise StorageError(f"{container}: reading it ended with: {done.stderr.strip().splitlines()[-1:]}")
        found = json.loads(done.stdout)
        calls = _calls_between_marks(trace.read_text(errors="replace")) if strace else float("nan")
    return {
        "syscalls_per_image": calls / found["images"], "read_bytes_per_image": found["read"] / found["images"],
        "image_bytes": found["bytes"] / found["images"], "cooled_by": found["cooled_by"], "seconds": found["seconds"],
    }  # fmt: skip


def _calls_between_marks(trace: str) -> float:
    lines = [line for line in trace.splitlines() if " resumed>" not in line and "---" not in line]
    first, last = (place for place, line in enumerate(lines) if _MARK in line)
    return float(last - first - 1)


def _read_traced(container: str, access: str, sample: str, seed: str) -> None:
    """Read images between two marks in the trace of this process, and print what it did."""
    dataset = load(container)
    deque(read(dataset, access, 1, 0, 1, int(seed)), maxlen=0)  # what is imported late is imported now
    how = cool(dataset.folder)
    before, begin = _from_disk(), time.perf_counter()
    Path(_MARK).exists()
    sizes = [len(data) for batch in read(dataset, access, int(sample), 0, 1, int(seed)) for data, _ in batch]
    Path(_MARK).exists()
    found = {"images": len(sizes), "bytes": sum(sizes), "read": _from_disk() - before, "cooled_by": how}
    print(json.dumps({**found, "seconds": time.perf_counter() - begin}))


def _from_disk() -> int:
    """Return the bytes that this process has had brought from a disk so far."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["read_bytes"])


if __name__ == "__main__":
    _read_traced(*sys.argv[1:])
