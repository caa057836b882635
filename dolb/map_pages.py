"""What commands do with a map: a page to look at it and decide, the decisions made a mask, the images for the book."""

from pathlib import Path

import numpy as np
import xarray as xr

from dolb import data as datasets
from dolb import results, viewer
from dolb.filtering import decisions, masks
from dolb.findings import noise


def load_map(file: Path) -> xr.Dataset:
    """Return the map in a file, with its mask; of several masks the one that runs are trained with."""
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    ds = results.load(file)
    if missing := [name for name in ("x", "y", "label", "keep") if name not in ds]:
        raise ValueError(f"{file} holds no map: it lacks {', '.join(missing)}; save the mask with its coordinates")
    return noise.reference(ds) if ds["keep"].ndim > 1 else ds


def write(file: Path, folder: Path, data: str | None = None, data_dir: Path | None = None) -> Path:
    """Write the page of a map with its images, on which points can be marked and the decisions saved; return its path.

    ``data`` names the data set; by default the file does.
    """
    ds = load_map(file)
    images = datasets.load(data or str(ds["data"].to_numpy().reshape(-1)[0]), data_dir)
    if len(images.train_images) != ds.sizes["example"]:
        n = len(images.train_images)
        raise ValueError(f"{file} is a map of other data: {ds.sizes['example']} examples, and {images.name} has {n}")
    sheets = viewer.thumbnails(images.train_images, fingerprint=images.fingerprint)
    title, review = f"Map of {images.name}", decisions.header(images)
    return viewer.write_page(folder, ds, sheets, images.classes, title=title, review=review)


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


def publish_images(slug: str, ds: xr.Dataset, folder: Path, data_dir: Path | None) -> str:
    """Write the images that a page of the book shows on its map, if the data set is on this machine, and say so.

    That of noise shows all of the training set, that of features the images that it draws, of both sets.
    """
    target = folder / f"{slug}-images.npz"
    try:
        data = datasets.load(str(ds["data"].to_numpy().reshape(-1)[0]), data_dir, download=False)
    except datasets.DataError as error:
        return f"{target} is not renewed, as its images are not here: {error}"
    sheets = (
        drawn_images(ds, data) if slug == "features" else viewer.thumbnails(data.train_images, None, data.fingerprint)
    )
    return f"wrote {sheets.save(target)}: {len(sheets.examples):,} images, {target.stat().st_size / 1e6:.1f} MB"


def drawn_images(ds: xr.Dataset, data: datasets.ImageData) -> viewer.Thumbnails:
    """Return the images that the figure of maps draws, by their number among training and test set."""
    drawn = noise.points(ds, data.classes)["example"].to_numpy()
    return viewer.thumbnails(np.concatenate([data.train_images, data.test_images])[drawn], drawn, data.fingerprint)
