"""Six forms of the same images on a disk, each written and read through its own library.

A container is a folder, written whole or not at all. Beside what its library writes it has the labels, and a list of
its files with their sizes: a file that is missing, truncated or unreadable is named when the container is opened, where
LMDB would crash the process and Zarr would return zeros.
"""

import contextlib
import hashlib
import json
import mmap
import os
import shutil
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dolb.profiling.storage.pictures import Example, decode

SHARD = 512  # images of a WebDataset or Zarr shard: 56 MB of ImageNet's
_PER_FOLDER = 1000  # small files
_PER_TRANSACTION = 1000
_MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
_AHEAD = 32  # images that the flat file is asked for at a time, in order
_ABOUT, _LABELS, _INDEX = "about.json", "labels.npy", "index.npy"
_SUFFIXES = {".jpg", ".jpeg", ".png"}


_forks = 0  # of this process; what was opened before the last is opened again
# Of LMDB, which opens a file once in a process, and not in a child of one that has it open.
_trees: dict[Path, Any] = {}


def _before_fork() -> None:
    global _forks
    _forks += 1
    while _trees:
        _trees.popitem()[1].close()


os.register_at_fork(before=_before_fork)


class StorageError(RuntimeError):
    """A container that cannot be written or read; the message names the file."""


class Dataset(ABC):
    """Packed images by number: an index gives the encoded bytes and the label, as any loader of torch takes them.

    A process opens the container when it first reads, and again after a fork, which libraries do not survive.
    """

    format: ClassVar[str]

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.about = _about(self.folder)
        self.shard: int = self.about["shard"]
        self.labels: list[int] = np.load(self.folder / _LABELS).tolist()
        self._handle: Any = None
        self._opened = -1

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number: int) -> Example:
        """Return an image's encoded bytes and its label."""
        if not -len(self) <= number < len(self):
            raise IndexError(f"{self.folder} has {len(self)} images; there is no number {number}")
        number %= len(self)
        try:
            return self._read(self.handle, number), self.labels[number]
        except Exception as error:
            raise _blame(error, self._file(number), f"image {number} cannot be read") from error

    def __getitems__(self, numbers: list[int]) -> list[Example]:
        """Return a batch; torch's loaders ask for it by this name."""
        return [self[number] for number in numbers]

    def __getstate__(self) -> dict[str, Any]:
        """Leave the handle out: another process opens its own."""
        return {**self.__dict__, "_handle": None, "_opened": -1}

    @property
    def handle(self) -> Any:
        """What this process reads from, opened when it is first asked for."""
        if self._opened != _forks:
            with _blamed(self._file(0), "cannot be opened"):
                self._handle, self._opened = self._open(), _forks
        return self._handle

    def in_order(self, start: int, stop: int) -> Iterator[Example]:
        """Yield neighbours, in the way that is the format's own."""
        for number in range(start, stop):
            yield self[number]

    def pixels(self, data: bytes, size: int = 0) -> np.ndarray:
        """Return the pixels of an image whose bytes were read, as `pictures.decode` does."""
        with _blamed(self.folder, "an image is damaged"):
            return decode(data, size)

    @staticmethod
    @abstractmethod
    def _write(images: Iterable[bytes], folder: Path, shard: int) -> None:
        """Write encoded images into an empty folder."""

    @abstractmethod
    def _open(self) -> Any:
        """Return what is read from."""

    @abstractmethod
    def _read(self, handle: Any, number: int) -> bytes:
        """Return the bytes of an image."""

    def _file(self, number: int) -> Path:
        """Return the file that holds an image, for messages."""
        return self.folder / next(iter(self.about["files"]))


class Files(Dataset):
    """Every image in a file of its own, a thousand in a folder."""

    format = "files"

    @staticmethod
    def _write(images: Iterable[bytes], folder: Path, shard: int) -> None:
        sizes = []
        for number, data in enumerate(images):
            path = folder / _small_file(number)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
            sizes.append(len(data))
        np.save(folder / _INDEX, sizes)

    def _open(self) -> np.ndarray:
        return np.load(self.folder / _INDEX)

    def _read(self, handle: np.ndarray, number: int) -> bytes:
        with open(self._file(number), "rb", buffering=0) as file:
            data = file.read()
        if len(data) != handle[number]:
            raise OSError(f"it has {len(data)} bytes, not {handle[number]}: truncated")
        return data

    def _file(self, number: int) -> Path:
        return self.folder / _small_file(number)


def _small_file(number: int) -> str:
    return f"{number // _PER_FOLDER:04d}/{number:07d}.img"


class Flat(Dataset):
    """All images end to end in one memory-mapped file, and where each begins: ours, and nothing more to it."""

    format = "flat"

    @staticmethod
    def _write(images: Iterable[bytes], folder: Path, shard: int) -> None:
        offsets = [0]
        with open(folder / "images.bin", "wb") as file:
            for data in images:
                file.write(data)
                offsets.append(offsets[-1] + len(data))
        np.save(folder / _INDEX, offsets)

    def _open(self) -> tuple[mmap.mmap, list[int], bytearray]:
        with open(self.folder / "images.bin", "rb") as file:
            memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        memory.madvise(mmap.MADV_RANDOM)  # else the system brings megabytes around every page that it lacks
        return memory, np.load(self.folder / _INDEX).tolist(), bytearray(len(self))

    def _read(self, handle: tuple[mmap.mmap, list[int], bytearray], number: int) -> bytes:
        memory, offsets, asked = handle
        start, stop = offsets[number], offsets[number + 1]
        if not asked[number]:
            self._ask_for(number)
        return memory[start:stop]

    def _ask_for(self, number: int, stop: int | None = None) -> None:
        """Have the disk bring an image, or several in a row, in one go and beside others, not page by page.

        What was read once is left to the system's memory, if the file fits there.
        """
        memory, offsets, asked = self.handle
        stop = number + 1 if stop is None else stop
        start = offsets[number] - offsets[number] % mmap.PAGESIZE
        memory.madvise(mmap.MADV_WILLNEED, start, offsets[stop] - start)
        if len(memory) < _MEMORY:
            asked[number:stop] = b"\1" * (stop - number)

    def __getitems__(self, numbers: list[int]) -> list[Example]:
        """Return a batch, asking the disk for all of it at once."""
        asked = self.handle[2]
        for number in numbers:
            if not asked[number]:
                self._ask_for(number)
        return super().__getitems__(numbers)

    def in_order(self, start: int, stop: int) -> Iterator[Example]:
        """Yield neighbours, asking for those that follow while these are read."""
        self._ask_for(start, min(start + _AHEAD, stop))
        for first in range(start, stop, _AHEAD):
            then = min(first + _AHEAD, stop)
            if then < stop:
                self._ask_for(then, min(then + _AHEAD, stop))
            for number in range(first, then):
                yield self[number]


@contextlib.contextmanager
def _laid_out(images: Iterable[bytes], folder: Path) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Give all bytes end to end, and where each image begins, for formats that must know sizes beforehand."""
    Flat._write(images, folder, SHARD)
    yield np.memmap(folder / "images.bin", mode="r"), np.load(folder / _INDEX)
    for name in ("images.bin", _INDEX):
        (folder / name).unlink()


class LMDB(Dataset):
    """A memory-mapped B+ tree, keyed by number."""

    format = "lmdb"

    @staticmethod
    def _write(images: Iterable[bytes], folder: Path, shard: int) -> None:
        import lmdb

        free = shutil.disk_usage(folder).free
        with lmdb.open(str(folder / "images.lmdb"), subdir=False, map_size=max(free, 1 << 20), lock=False) as tree:
            numbered = enumerate(images)
            while batch := list(islice(numbered, _PER_TRANSACTION)):
                with tree.begin(write=True) as transaction:
                    for number, data in batch:
                        transaction.put(number.to_bytes(8, "big"), data, append=True)

    def _open(self, readahead: bool = False) -> Any:
        import lmdb

        path = self.folder / "images.lmdb"
        if path in _trees and readahead:
            _trees.pop(path).close()
        if path not in _trees:
            # At random, LMDB's authors say, the system's read-ahead is best off: it brings megabytes for every page.
            _trees[path] = lmdb.open(str(path), subdir=False, readonly=True, lock=False, readahead=readahead)
        return _trees[path].begin()

    def in_order(self, start: int, stop: int) -> Iterator[Example]:
        """Yield neighbours, with the system's read-ahead on, which then stays so."""
        with _blamed(self._file(start), "cannot be opened"):
            self._handle, self._opened = self._open(readahead=True), _forks
        yield from super().in_order(start, stop)

    def _read(self, handle: Any, number: int) -> bytes:
        data = handle.get(number.to_bytes(8, "big"))
        if data is None:
            raise OSError("there is no such key")
        return data


class HDF5(Dataset):
    """One long array of bytes in an HDF5 file, contiguous, and where each image begins in it."""

    format = "hdf5"

    @staticmethod
    def _write(images: Iterable[bytes], folder: Path, shard: int) -> None:
        import h5py

        # The length must be known for a contiguous layout.
        with _laid_out(images, folder) as (bytes_, offsets), h5py.File(folder / "images.h5", "w") as file:
            file.create_dataset("offsets", data=offsets)
            array = file.create_dataset("bytes", shape=bytes_.shape, dtype="u1")
            for place in range(0, len(bytes_), 1 << 24):
                array[place : place + (1 << 24)] = bytes_[place : place + (1 << 24)]

    def _open(self) -> tuple[Any, list[int]]:
        import h5py

        file = h5py.File(self.folder / "images.h5", "r")
        return file["bytes"], file["offsets"][:].tolist()

    def _read(self, handle: tuple[Any, list[int]], number: int) -> bytes:
        array, offsets = handle
        return array[offsets[number] : offsets[number + 1]].tobytes()


class WebDataset(Dataset):
    """Tar files of a few hundred images: in order through WebDataset, one by one through an index of the tars."""

    format = "webdataset"

    @staticmethod
    def _write(images: Iterable[bytes], folder: Path, shard: int) -> None:
        import tarfile

        import webdataset

        pattern = str(folder / "%06d.tar")
        with webdataset.ShardWriter(pattern, maxcount=shard, maxsize=1 << 62, verbose=0) as shards:
            for number, data in enumerate(images):
                shards.write({"__key__": f"{number:09d}", "img": data})
        places = []
        for path in sorted(folder.glob("*.tar")):
            with tarfile.open(path) as tar:
                places += [(member.offset_data, member.size) for member in tar]
        np.save(folder / _INDEX, np.array(places, dtype=np.int64))

    def _open(self) -> tuple[dict[int, int], list[list[int]]]:
        return {}, np.load(self.folder / _INDEX).tolist()

    def _read(self, handle: tuple[dict[int, int], list[list[int]]], number: int) -> bytes:
        shards, places = handle
        shard = number // self.shard
        if shard not in shards:
            shards[shard] = os.open(self._file(number), os.O_RDONLY)
        start, size = places[number]
        return os.pread(shards[shard], size, start)

    def _file(self, number: int) -> Path:
        return self.folder / f"{number // self.shard:06d}.tar"

    def in_order(self, start: int, stop: int) -> Iterator[Example]:
        """Yield neighbours as WebDataset streams them, shard by shard."""
        import webdataset

        for first in range(start - start % self.shard, stop, self.shard):
            with _blamed(self._file(first), "cannot be streamed"):
                stream = webdataset.WebDataset([str(self._file(first))], shardshuffle=False, nodesplitter=None,
                                               workersplitter=None, empty_check=False)  # fmt: skip
                for sample in islice(stream, max(start - first, 0), stop - first):
                    yield sample["img"], self.labels[int(sample["__key__"])]


class Zarr(Dataset):
    """A sharded Zarr array with a row for each image, padded with zeros that compression takes out again."""

    format = "zarr"

    @staticmethod
    def _write(images: Iterable[bytes], folder: Path, shard: int) -> None:
        import zarr

        with _laid_out(images, folder) as (bytes_, offsets):
            sizes = np.diff(offsets)
            longest = int(sizes.max())  # which must be known for the shape of rows
            array = zarr.create_array(
                folder / "images.zarr", shape=(len(sizes), longest), chunks=(1, longest), shards=(shard, longest),
                dtype="u1", fill_value=0,
            )  # fmt: skip
            for first in range(0, len(sizes), shard):
                rows = np.zeros((len(sizes[first : first + shard]), longest), dtype=np.uint8)
                for number, row in enumerate(rows, first):
                    row[: sizes[number]] = bytes_[offsets[number] : offsets[number + 1]]
                array[first : first + len(rows)] = rows
        np.save(folder / _INDEX, sizes)

    def _open(self) -> tuple[Any, list[int]]:
        import zarr

        return zarr.open_array(self.folder / "images.zarr", mode="r"), np.load(self.folder / _INDEX).tolist()

    def _read(self, handle: tuple[Any, list[int]], number: int) -> bytes:
        array, sizes = handle
        return np.asarray(array[number, : sizes[number]]).tobytes()

    def _file(self, number: int) -> Path:
        return self.folder / "images.zarr" / "c" / str(number // self.shard) / "0"


FORMATS: dict[str, type[Dataset]] = {one.format: one for one in (Files, Flat, LMDB, HDF5, WebDataset, Zarr)}


def pack(folder: str | Path, format: str, target: str | Path | None = None) -> Path:
    """Write the images below a folder as one container, and return the container's folder.

    Images are files that end in .jpg, .jpeg or .png, in the order of their names; the label of an image is the number
    of the folder that it is in. ``target`` must not exist; by default it is beside the folder, named by the format.
    """
    source = Path(folder)
    files = sorted(path for path in source.rglob("*") if path.suffix.lower() in _SUFFIXES)
    if not files:
        raise StorageError(f"{source} has no image; accepted: a folder with files that end in {sorted(_SUFFIXES)}")
    parents = {parent: label for label, parent in enumerate(sorted({path.parent for path in files}))}
    found = ((path.read_bytes(), parents[path.parent]) for path in files)
    return write(found, format, Path(target or source.with_name(f"{source.name}.{format}")))


def write(examples: Iterable[Example], format: str, target: Path, shard: int = SHARD) -> Path:
    """Write images and labels as one container, whole or not at all, and return its folder."""
    if format not in FORMATS:
        raise ValueError(f"format {format!r} is not known; accepted: {', '.join(FORMATS)}")
    if target.exists():
        raise StorageError(f"{target} is there already; name another target, or remove it")
    labels, sums = list[int](), hashlib.sha256()

    def noted() -> Iterator[bytes]:
        for data, label in examples:
            labels.append(label)
            sums.update(zlib.crc32(data).to_bytes(4, "big"))
            yield data

    part = target.with_name(target.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        with _blamed(part, "cannot be written"):
            part.mkdir(parents=True)
            images = noted()
            first = next(images, None)
            if first is None:
                raise ValueError("there is no image to pack")
            FORMATS[format]._write(chain([first], images), part, shard)
            np.save(part / _LABELS, labels)
            files = sorted(path for path in part.rglob("*") if path.is_file())
            listed = {str(path.relative_to(part)): path.stat().st_size for path in files if path.suffix != ".img"}
            print_of = f"sha256:{sums.hexdigest()}"
            about = {"format": format, "shard": shard, "fingerprint": print_of, "files": listed}
            (part / _ABOUT).write_text(json.dumps(about))
            os.sync()  # what is only in memory could not be dropped from there; file by file it takes minutes
            part.rename(target)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return target


def load(container: str | Path) -> Dataset:
    """Return the dataset of a container, whatever its format."""
    return FORMATS[_about(Path(container))["format"]](container)


def _about(folder: Path) -> dict[str, Any]:
    """Return what a container says of itself, if all its files are there and as long as they were written."""
    with _blamed(folder / _ABOUT, "is not that of a container"):
        about = json.loads((folder / _ABOUT).read_text())
    for name, size in about["files"].items():
        path = folder / name
        with _blamed(path, "cannot be read"), open(path, "rb") as file:
            have = os.fstat(file.fileno()).st_size
        if have != size:
            raise StorageError(f"{path} has {have:,} bytes, not the {size:,} that it was written with: pack it again")
    return about


@contextlib.contextmanager
def _blamed(path: Path, what: str) -> Iterator[None]:
    """Name the file in whatever a library raises within."""
    try:
        yield
    except Exception as error:
        raise _blame(error, path, what) from error


def _blame(error: Exception, path: Path, what: str) -> Exception:
    """Return an error that names the file; every library has errors of its own. What names one already stays."""
    if isinstance(error, StorageError | IndexError | MemoryError):
        return error
    return StorageError(f"{getattr(error, 'filename', None) or path}: {what}: {error or type(error).__name__}")
