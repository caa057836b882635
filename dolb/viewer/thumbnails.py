"""Thumbnails: small images side by side on sheets, each tied to its example, in files beside a page."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

MOST_BYTES = 7_500_000  # of all sheets: git keeps those of CIFAR-10
LOSSLESS_BYTES = 1_000_000  # up to this size every pixel is kept
QUALITIES = (80, 60, 45, 30, 25, 20)  # of more: the first that keeps them within the most, or the last
_MOST_PIXELS = 2**28  # of all images together: more are shown smaller
_SIDE = 1600  # pixels along a side of a sheet, unless one image is larger: a browser opens it in a few milliseconds


@dataclass(frozen=True, eq=False)
class Thumbnails:
    """Images of some examples on WebP sheets.

    ``examples`` holds the position of each image's example, in the order of the sheets: ``per_sheet`` to a sheet, row
    by row, ``columns`` to a row, each ``height`` by ``width`` pixels. ``fingerprint`` says which data they are of.
    """

    examples: np.ndarray
    sheets: tuple[bytes, ...]
    height: int
    width: int
    columns: int
    per_sheet: int
    fingerprint: str = ""

    def save(self, path: str | Path) -> Path:
        """Write sheets and what they show to an ``.npz`` file, whole or not at all; equal ones in equal bytes."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays = {
            "examples": self.examples,
            "sheets": np.frombuffer(b"".join(self.sheets), dtype=np.uint8),
            "lengths": np.array([len(sheet) for sheet in self.sheets]),
            "shape": np.array([self.height, self.width, self.columns, self.per_sheet]),
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
        with np.load(path, allow_pickle=False) as file:
            ends = np.cumsum(file["lengths"])
            data = file["sheets"].tobytes()
            sheets = tuple(data[end - length : end] for end, length in zip(ends, file["lengths"], strict=True))
            height, width, columns, per_sheet = map(int, file["shape"])
            return cls(file["examples"], sheets, height, width, columns, per_sheet, str(file["fingerprint"]))

    def placed(self, folder: str | Path, url: str) -> dict[str, Any]:
        """Write the sheets into a folder that a page calls ``url``, and return what the script asks of the images."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        names = [f"images-{number:02}.webp" for number in range(len(self.sheets))]
        for name, sheet in zip(names, self.sheets, strict=True):
            (Path(folder) / name).write_bytes(sheet)
        shape = {"height": self.height, "width": self.width, "columns": self.columns, "perSheet": self.per_sheet}
        all_of_them = np.array_equal(self.examples, np.arange(len(self.examples)))
        return {
            "examples": None if all_of_them else self.examples.tolist(),
            "sheets": [url + name for name in names],
            **shape,
        }


def thumbnails(images: np.ndarray, examples: np.ndarray | None = None, fingerprint: str = "") -> Thumbnails:
    """Put images on sheets: ``images[i]``, uint8 (H, W, C) of one or three channels, is of ``examples[i]``, or i.

    One sheet is in memory at a time. Of very many pixels only every second or third, say, is shown.
    """
    examples = np.arange(len(images)) if examples is None else examples
    every = max(1, math.ceil(math.sqrt(images[..., 0].size / _MOST_PIXELS)))
    images = images[:, ::every, ::every]
    height, width = images.shape[1:3]
    columns, rows = max(1, _SIDE // width), max(1, _SIDE // height)
    per_sheet = columns * rows

    def sheets() -> Iterator[Image.Image]:
        return (_sheet(images[start : start + per_sheet], columns) for start in range(0, len(images), per_sheet))

    area = -(-len(images) // columns) * columns * height * width
    return Thumbnails(examples.astype(np.int32), _webp(sheets, area), height, width, columns, per_sheet, fingerprint)


def _sheet(images: np.ndarray, columns: int) -> Image.Image:
    n, height, width, channels = images.shape
    rows = -(-n // columns)
    tiles = np.zeros((rows * columns, height, width, channels), dtype=np.uint8)
    tiles[:n] = images
    sheet = tiles.reshape(rows, columns, height, width, channels).swapaxes(1, 2)
    sheet = sheet.reshape(rows * height, columns * width, channels)
    return Image.fromarray(sheet[..., 0] if channels == 1 else sheet).convert("RGB")


def _webp(sheets: Callable[[], Iterator[Image.Image]], area: int) -> tuple[bytes, ...]:
    # Photographs hardly shrink without loss: where the pixels alone say that it is hopeless, do not wait for it.
    few = area * 3 < 8 * LOSSLESS_BYTES
    exact: list[tuple[dict[str, Any], float]] = [({"lossless": True}, LOSSLESS_BYTES)] if few else []
    lossy = [({"quality": quality}, MOST_BYTES if quality != QUALITIES[-1] else math.inf) for quality in QUALITIES]
    found: list[bytes] = []
    for options, most in [*exact, *lossy]:
        found.clear()
        for sheet in sheets():
            buffer = io.BytesIO()
            sheet.save(buffer, "WEBP", **options)
            found.append(buffer.getvalue())
            if sum(map(len, found)) > most:
                break
        else:
            break
    return tuple(found)
