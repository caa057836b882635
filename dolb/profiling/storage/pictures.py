"""Images to store: JPEGs of ImageNet's sizes made by seed, or a data set's own as PNGs; and their decoding."""

import io
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image

MADE = "imagenet-like"  # any other name is one of `dolb.data`
CLASSES = 10
# Width and height, as most images of ImageNet have them, and how often; 110 KB is their mean there.
_SIZES, _SHARES = ((500, 375), (375, 500), (500, 333), (500, 500)), (0.55, 0.2, 0.15, 0.1)
_PICTURES, _QUALITY = 64, 92
_WAVES = ((2, 70.0), (6, 40.0), (24, 30.0), (100, 22.0), (500, 10.0))  # cells along the width, and how strong

Example = tuple[bytes, int]


def examples(data: str, count: int, data_dir: str | Path | None = None) -> Iterator[Example]:
    """Yield images of a data set, encoded, with their labels: made, or those of a training set as PNGs."""
    if data == MADE:
        yield from made(count)
        return
    from dolb.data import load

    found = load(data, data_dir)
    for pixels, label in islice(zip(found.train_images, found.train_labels, strict=True), count):
        buffer = io.BytesIO()
        Image.fromarray(pixels.squeeze()).save(buffer, "PNG")
        yield buffer.getvalue(), int(label)


def made(count: int) -> Iterator[Example]:
    """Yield JPEGs as large as ImageNet's, each with bytes of its own: some pictures, numbered in a comment.

    To encode each anew would take minutes and change nothing that reading or decoding could notice.
    """
    rng = np.random.default_rng(0)
    pictures = [_picture(rng) for _ in range(min(count, _PICTURES))]
    for number in range(count):
        picture = pictures[int(rng.integers(len(pictures)))]
        comment = b"\xff\xfe\x00\x0a" + number.to_bytes(8, "big")  # after the two bytes that begin a JPEG
        yield picture[:2] + comment + picture[2:], int(rng.integers(CLASSES))


def _picture(rng: np.random.Generator) -> bytes:
    """Return one JPEG: noise at scales from half the image to a pixel, some pictures rougher than others."""
    width, height = _SIZES[int(rng.choice(len(_SIZES), p=_SHARES))]
    rough, total = rng.lognormal(1.3, 0.45), np.full((height, width, 3), 128.0, dtype=np.float32)
    for cells, strength in _WAVES:
        shape = (2 + cells * height // width, 2 + cells, 3)
        noise = Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)).resize(
            (width, height), Image.Resampling.BILINEAR
        )
        scale = strength * (rough if cells > 10 else 1.0) / 128
        total += scale * (np.asarray(noise, dtype=np.float32) - 128)
    buffer = io.BytesIO()
    Image.fromarray(total.clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=_QUALITY)
    return buffer.getvalue()


def decode(data: bytes, size: int = 0) -> np.ndarray:
    """Return the pixels of an encoded image as (height, width, 3), scaled to a square of ``size`` unless that is 0.

    A JPEG is decoded at the half, quarter or eighth that still is at least as large, as loaders do.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image = Image.open(io.BytesIO(data))
        if size:
            image.draft("RGB", (size, size))
            return np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR))
        return np.asarray(image.convert("RGB"))
