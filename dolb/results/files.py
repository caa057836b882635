"""Results files, written whole or not at all, which show when their bytes are no longer those written.

HDF5 cannot promise the second: it keeps no checksum of text, so a flipped byte there reads as a result, and on some
damaged files it never returns. So the hash of a file stands at its end, where HDF5 does not look, and is compared
before HDF5 opens the file.
"""

import contextlib
import fcntl
import hashlib
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

import h5py
import numpy as np
import xarray as xr

from dolb import __version__
from dolb.results.schema import NUMBERED, SCHEMA, VERSION, SchemaError, describe, dims_of, validate

ENGINE: Any = "h5netcdf"
_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable"  # as NetCDF4 says of one that is only a length
_PACKED = {"compression": 6, "fletcher32": True}
_SMALL = 4096  # bytes, up to which packing takes more than it saves
_MARK = b"\ndolb sha256 "
_LOCK = "lock"
_ABOUT_THE_FILE = ("_NCProperties", "coordinates", "schema_version", "written_by")
_LENGTH = len(_MARK) + hashlib.sha256().digest_size * 2


class StoreError(RuntimeError):
    """A store or a file that cannot be used as asked; the message says why."""


def write_whole(path: Path, fill: Callable[[IO[bytes]], object], *, seal: bool = True) -> None:
    """Have ``fill`` write a temporary file, seal it, and move it to ``path``, which holds all of it or is untouched.

    The file is locked meanwhile: one whose lock is free was left behind by a process that is gone.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked_temporary(path) as handle:
            try:
                fill(handle)
                handle.flush()
                if seal:
                    handle.seek(0)
                    handle.write(_MARK + hashlib.file_digest(cast("io.BytesIO", handle), "sha256").hexdigest().encode())
                    handle.flush()
                os.fsync(handle.fileno())
                os.fchmod(handle.fileno(), 0o644)
                os.replace(handle.name, path)
            except BaseException:
                Path(handle.name).unlink(missing_ok=True)
                raise
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise StoreError(f"{path} cannot be written ({error.strerror or error})") from error


def _locked_temporary(path: Path) -> IO[bytes]:
    while True:
        handle = tempfile.NamedTemporaryFile(  # noqa: SIM115
            prefix=f".{path.name}.", suffix=".tmp", dir=path.parent, delete=False
        )
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle.fileno()).st_nlink:  # else it was taken for one that is left behind, before it was locked
            return handle
        handle.close()


def remove_abandoned(folder: Path) -> None:
    """Remove the temporary files in a folder and below it whose processes are gone."""
    for left in folder.glob("**/.*.tmp"):
        with contextlib.suppress(OSError), open(left, "rb") as handle:  # OSError: held, another's, or gone meanwhile
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()


@contextlib.contextmanager
def scratch(prefix: str, within: Path | None = None) -> Iterator[Path]:
    """Give a temporary folder, removed at the end; those that a killed process has left are removed first.

    A folder's owner holds a lock in it, which the system lets go of when the owner ends, however it ends.
    """
    for left in Path(within or tempfile.gettempdir()).glob(f"{prefix}*/{_LOCK}"):
        with contextlib.suppress(OSError), open(left, "w") as lock:  # OSError: held, another's, or gone meanwhile
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left.parent, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=within))
    try:
        with open(folder / _LOCK, "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_seal(path: Path) -> None:
    """Raise a ``ValueError`` if a sealed file has changed since it was written; one without a seal is let through."""
    content = path.read_bytes()
    body, seal = content[:-_LENGTH], content[-_LENGTH:]
    if seal.startswith(_MARK) and seal[len(_MARK) :] != hashlib.sha256(body).hexdigest().encode():
        raise ValueError(f"the content of {path.name} is not what was written: it does not match the hash at its end")


def save(ds: xr.Dataset, path: str | Path) -> Path:
    """Validate and write a Dataset so that ``path`` holds all of it or is untouched."""
    validate(ds)
    whole = _packed(ds)
    write_whole(Path(path), lambda handle: handle.write(whole))
    return Path(path)


def _packed(ds: xr.Dataset) -> bytes:
    """Return a file's bytes, by h5py as NetCDF4 lays them out: xarray's own way takes six times as long.

    They are made in memory: on a full disk HDF5 does not return an error, it ends the process.
    """
    stored = {str(name): _stored(str(name), variable) for name, variable in ds.variables.items()}
    sizes = {dim: size for dims, values, _ in stored.values() for dim, size in zip(dims, values.shape, strict=True)}
    others = [name for name in stored if name not in ds.sizes]
    with h5py.File("in memory", "w", driver="core", backing_store=False) as file:

        def put(name: str) -> h5py.Dataset:
            _, values, attributes = stored[name]
            kind: Any = {"dtype": h5py.string_dtype()} if values.dtype == object else {}
            item = file.create_dataset(name, data=values, **kind or (_PACKED if values.nbytes > _SMALL else {}))
            item.attrs.update(attributes)
            return item

        for number, (dim, size) in enumerate(sizes.items()):
            own = dim in stored
            scale = put(dim) if own else file.create_dataset(dim, (size,), ">f4")
            scale.make_scale(dim if own else f"{_NO_VARIABLE}.{size:10d}")
            scale.attrs["_Netcdf4Dimid"] = np.int32(number)
        for name in others:
            item = put(name)
            for place, dim in enumerate(stored[name][0]):
                item.dims[place].attach_scale(file[dim])
        about = {"coordinates": " ".join(name for name in others if name in ds.coords)}
        file.attrs.update(ds.attrs | about | {"schema_version": VERSION, "written_by": f"dolb {__version__}"})
        file.flush()
        return file.id.get_file_image()


def _stored(name: str, variable: xr.Variable) -> tuple[tuple[str, ...], np.ndarray, dict[str, Any]]:
    """Return dimensions, values and attributes of a variable in a file.

    Text is stored as characters, with a dimension for its length: HDF5 compresses no other. That of a dimension is not,
    as what names the places along one has no other.
    """
    dims, values, attributes = tuple(map(str, variable.dims)), variable.to_numpy(), dict(variable.attrs)
    if values.dtype == bool:
        return dims, values.astype(np.int8), attributes | {"dtype": "bool"}
    if values.dtype.kind not in "UO":
        return dims, values, attributes
    if not values.size or dims in ((), (name,)):
        return dims, values.astype(object), attributes
    characters = np.char.encode(values.astype(str), "utf-8")[..., np.newaxis].view("S1")
    return (*dims, f"string{characters.shape[-1]}"), characters, attributes | {"_Encoding": "utf-8"}


def load(path: str | Path) -> xr.Dataset:
    """Read a Dataset whole into memory and validate it."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"no results at {path}; make them with `dolb sweep` and `dolb publish`")
    check_seal(Path(path))
    if not h5py.is_hdf5(path):
        raise ValueError(f"{path} is not a file of results; accepted: NetCDF, as `dolb` writes it")
    try:
        return validate(_read(Path(path)))
    except StoreError:
        raise
    except SchemaError as error:
        raise SchemaError(f"{path}: {error}") from error
    except Exception as error:  # of a damaged file without a seal HDF5 raises what it happens to stumble over
        raise ValueError(f"{path} is not a file of results: {error}") from error


def _read(path: Path) -> xr.Dataset:
    """Read a file with h5py: the schema knows the dimensions, and xarray's own way takes four times as long."""
    variables, coordinates = {}, set(NUMBERED)
    with h5py.File(path) as file:
        if (version := file.attrs.get("schema_version", 0)) > VERSION:
            needed = f"{path} needs {file.attrs.get('written_by', 'a later dolb')} or later (schema {version})"
            raise StoreError(f"{needed}; this is dolb {__version__} (schema {VERSION})")
        for name, item in file.items():
            if item.attrs.get("NAME", b"").startswith(_NO_VARIABLE.encode()):
                continue
            if name not in NUMBERED and name not in SCHEMA:
                return xr.load_dataset(path, engine=ENGINE)  # not one of ours; `validate` says why
            values = item[...]
            if "_Encoding" in item.attrs:
                values = np.char.decode(values.view(f"S{values.shape[-1]}")[..., 0], "utf-8")
            elif h5py.check_string_dtype(item.dtype):
                values = np.array(item.asstr()[...], dtype=str)
            values = values.astype(bool) if item.attrs.get("dtype") == "bool" else values
            variables[name] = (dims_of(name, values.ndim) if name in SCHEMA else (name,), values)
            coordinates.update(str(item.attrs.get("coordinates", "")).split())
        coordinates.update(str(file.attrs.get("coordinates", "")).split())
        attributes = {key: value for key, value in file.attrs.items() if key not in _ABOUT_THE_FILE}
    return describe(xr.Dataset(variables, attrs=attributes).set_coords(coordinates & set(variables)))


def published(slug: str) -> xr.Dataset:
    """Load ``results/<slug>.nc`` from where ``published_file`` finds it."""
    return load(published_file(f"{slug}.nc"))


def published_or_none(slug: str) -> xr.Dataset | None:
    """Load ``results/<slug>.nc``, or return None where there is none yet."""
    return published(slug) if published_file(f"{slug}.nc").is_file() else None


def published_file(name: str) -> Path:
    """Return a file of ``results``: of ``DOLB_RESULTS``, here, in the folder above, or in this package's checkout.

    If there is none, it is the path at which it was looked for first.
    """
    return next((folder / name for folder in _folders() if (folder / name).is_file()), _folders()[0] / name)


def published_folder() -> Path:
    """Return the folder of published results: that of ``DOLB_RESULTS``, here, above, or this package's checkout's."""
    return next((folder for folder in _folders() if any(folder.glob("*.nc"))), _folders()[0])


def _folders() -> list[Path]:
    named = [Path(os.environ["DOLB_RESULTS"])] if os.environ.get("DOLB_RESULTS") else []
    return [*named, Path("results"), Path("../results"), Path(__file__).resolve().parents[2] / "results"]
