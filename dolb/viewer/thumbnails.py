"""Thumbnails: many small images in one file, each tied to its example, small enough for a page."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from PIL import Image

LOSSLESS_BYTES = 1_000_000  # a sheet up to this size keeps every pixel
SHEET_BYTES = 10_000_000  # of a sheet: a page holds it as text, a third longer, and is to stay below 20 MB
QUALITIES = (80, 60, 45, 30, 20)  # of a larger one: the first that keeps a sheet within the most, or the last
_WIDEST = 16_383  # pixels along a side of a WebP image


@dataclass(frozen=True, eq=False)
class Thumbnails:
    """Images of some examples, side by side on one WebP sheet.

    ``examples`` holds the position of each image's example in the training set, in the order of the sheet: row by row,
    ``columns`` to a row, each ``height`` by ``width`` pixels. ``fingerprint`` says which data they are of.
    """

    examples: np.ndarray
    sheet: bytes
    height: int
    width: int
    columns: int
    fingerprint: str = ""

    def save(self, path: str | Path) -> Path:
        """Write the sheet and what it shows to an ``.npz`` file, whole or not at all; equal ones in equal bytes."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays = {
            "examples": self.examples,
            "sheet": np.frombuffer(self.sheet, dtype=np.uint8),
            "shape": np.array([self.height, self.width, self.columns]),
            "fingerprint": np.array(self.fingerprint),
        }
        part = path.with_name(f".{path.name}.part")
        # Not np.savez, which notes the time: a file that git keeps should change with what is in it alone.
        with zipfile.ZipFile(part, "w") as file:
            for name, array in arrays.items():
                with file.open(zipfile.ZipInfo(f"{name}.npy"), "w") as entry:
                    np.lib.format.write_array(entry, array, allow_pickle=False)
        part.replace(path)
        return path

    @classmethod
    def load(cls, path: str | Path) -> Thumbnails:
        """Read what ``save`` has written."""
        if not Path(path).is_file():
            raise FileNotFoundError(f"there are no thumbnails {path}; make them with thumbnails and save")
        with np.load(path, allow_pickle=False) as file:
            if missing := {"examples", "sheet", "shape", "fingerprint"} - set(file):
                raise ValueError(f"{path} holds no thumbnails: it lacks {', '.join(sorted(missing))}")
            height, width, columns = map(int, file["shape"])
            return cls(
                file["examples"], file["sheet"].tobytes(), height, width, columns, fingerprint=str(file["fingerprint"])
            )


def thumbnails(images: np.ndarray, examples: np.ndarray, fingerprint: str = "") -> Thumbnails:
    """Put images on a sheet: ``images[i]``, uint8 (H, W, C) of one or three channels, is that of ``examples[i]``."""
    images, examples = np.asarray(images), np.asarray(examples)
    if images.ndim != 4 or images.dtype != np.uint8 or images.shape[3] not in (1, 3):
        raise ValueError(
            f"images have dtype {images.dtype} and shape {images.shape}; accepted: uint8, (n, H, W, 1) or (n, H, W, 3)"
        )
    if examples.shape != (len(images),) or examples.dtype.kind not in "iu":
        raise ValueError(
            f"examples have dtype {examples.dtype} and shape {examples.shape}; accepted: integers, ({len(images)},)"
        )
    if len(np.unique(examples)) != len(examples):
        raise ValueError("examples name one of them twice; accepted: one image for each")
    n, height, width, channels = images.shape
    columns = max(1, int(np.ceil(np.sqrt(n * height / width))))
    rows = max(1, -(-n // columns))
    if max(rows * height, columns * width) > _WIDEST:
        raise ValueError(f"{n} images of {width}x{height} pixels do not fit on one sheet of {_WIDEST} pixels a side")
    tiles = np.zeros((rows * columns, height, width, channels), dtype=np.uint8)
    tiles[:n] = images
    sheet = tiles.reshape(rows, columns, height, width, channels).swapaxes(1, 2)
    sheet = sheet.reshape(rows * height, columns * width, channels)
    return Thumbnails(examples.astype(np.int32), _webp(sheet), height, width, columns, fingerprint)


def _webp(sheet: np.ndarray) -> bytes:
    image = Image.fromarray(sheet[..., 0] if sheet.shape[2] == 1 else sheet).convert("RGB")
    # Photographs hardly shrink without loss: where the pixels alone say that it is hopeless, do not wait for it.
    exact: list[dict[str, Any]] = [{"lossless": True}] if sheet.size < 8 * LOSSLESS_BYTES else []
    for options in [*exact, *({"quality": quality} for quality in QUALITIES)]:
        buffer = io.BytesIO()
        image.save(buffer, "WEBP", **options)
        if buffer.tell() <= (LOSSLESS_BYTES if "lossless" in options else SHEET_BYTES):
            break
    return buffer.getvalue()


def examples_to_show(ds: xr.Dataset, others: int = 5000, random_state: int = 0) -> np.ndarray:
    """Return the examples whose images a page should hold: all removed ones, and ``others`` of those kept.

    Half of the others are those next to be removed at a smaller eps, where the noise radii are known; the rest are
    drawn at random.
    """
    keep = ds["keep"].values
    kept = np.random.default_rng(random_state).permutation(np.flatnonzero(keep))
    if "noise_until" in ds:
        next_ones = kept[np.argsort(-ds["noise_until"].values[kept], kind="stable")][: others // 2]
        kept = np.concatenate([next_ones, kept[~np.isin(kept, next_ones)]])
    return np.sort(np.concatenate([np.flatnonzero(~keep), kept[:others]]))


def thumbnails_of(ds: xr.Dataset, images: np.ndarray, fingerprint: str = "", others: int = 5000) -> Thumbnails:
    """Put on a sheet those of the training images that a page of the map should hold (``examples_to_show``)."""
    if len(images) != ds.sizes["example"]:
        raise ValueError(
            f"there are {len(images)} images, and the map is of other data: {ds.sizes['example']} examples"
        )
    shown = examples_to_show(ds, others)
    return thumbnails(images[shown], shown, fingerprint)
