"""What commands do with a map: a page to look at it and decide, the decisions made a mask, the images for the book."""

from __future__ import annotations

import contextlib
import functools
import http.server
import webbrowser
from collections.abc import Callable
from pathlib import Path

import numpy as np
import xarray as xr

from dolb import data as datasets
from dolb import results, viewer
from dolb.filtering import decisions, masks
from dolb.findings import noise


def load_map(file: Path) -> xr.Dataset:
    """Return the map in a file, with its mask; of several masks the one that runs are trained with."""
    try:
        ds = results.load(file)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {file}") from None
    except OSError as error:
        raise ValueError(f"{file} is not a file of results: {error}") from error
    if missing := [name for name in ("x", "y", "label", "keep") if name not in ds]:
        raise ValueError(f"{file} holds no map: it lacks {', '.join(missing)}; save the mask with its coordinates")
    return noise.reference(ds) if ds["keep"].ndim > 1 else ds


def write(file: Path, folder: Path, data: str | None = None, data_dir: Path | None = None, others: int = 5000) -> Path:
    """Write the page of a map with its images, on which points can be marked and the decisions saved; return its path.

    ``data`` names the data set; by default the file does. The page holds the images of all that the mask removes and of
    so many ``others``.
    """
    ds = load_map(file)
    name = data or next(iter(map(str, ds["data"].values.reshape(-1))) if "data" in ds else iter(()), None)
    if name is None:
        raise ValueError(f"{file} does not say what it is of; name the data set with --data")
    images = datasets.load(name, data_dir)
    sheet = viewer.thumbnails_of(ds, images.train_images, images.fingerprint, others)
    title = f"Map of {images.name}"
    shown = viewer.show(ds, sheet, images.classes, title=title, review=decisions.header(images))
    return viewer.write_page(shown, folder, title)


def keep(file: Path, target: Path, name: str, on_map: Path | None = None, data_dir: Path | None = None) -> str:
    """Make the decisions of a page a mask with the map of another file, if one is named, and say what it drops."""
    data = datasets.load(decisions.data_of(file), data_dir)
    mask = decisions.load(file, data)
    more: dict[str, np.ndarray] = {}
    if on_map is not None:
        ds = load_map(on_map)
        masks.require_data(ds, data, on_map)
        more = {"coordinates": np.stack([ds["x"], ds["y"]], axis=1)}
        more |= {"noise_until": ds["noise_until"].to_numpy()} if "noise_until" in ds else {}
    path = masks.save_keep(target, mask, data, name, **more)
    return f"wrote {path}: {int((~mask).sum()):,} of {len(mask):,} examples of {data.name} are dropped"


def publish_images(ds: xr.Dataset, target: Path, data_dir: Path | None) -> str:
    """Write the images that the book shows on the map, if the data set is on this machine, and say so."""
    mask = noise.reference(ds)
    try:
        data = datasets.load(str(mask["data"].item()), data_dir, download=False)
    except datasets.DataError as error:
        return f"{target} is not renewed, as its images are not here: {error}"
    sheet = viewer.thumbnails_of(mask, data.train_images, data.fingerprint)
    return f"wrote {sheet.save(target)}: {len(sheet.examples):,} images, {target.stat().st_size / 1e6:.1f} MB"


def serve(folder: Path, port: int, say: Callable[[str], None], open_page: bool) -> None:
    """Serve a folder to this machine alone, until Ctrl-C."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    try:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError as error:
        raise ValueError(f"port {port} cannot be had: {error.strerror}; accepted: a free one, or 0 for any") from error
    with server:
        address = f"http://127.0.0.1:{server.server_port}/"
        say(f"serving {address} until Ctrl-C")
        if open_page:
            webbrowser.open(address)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
