"""Small volumes of lung: nodules made by a seeded generator, and patches cut from the scans of LUNA16.

A volume is stored as an image whose channels are its slices: uint8 (N, depth, height, width), of -1000 to 400
Hounsfield units, a cube of `EXTENT_MM`. So what takes images takes volumes. They are not normalised: a network that
makes a volume again is compared with the voxels themselves.
"""

import base64
import csv
import io
from pathlib import Path

import numpy as np

from dolb.images import DataError, ImageData, Splits, fingerprint

NODULES, LUNA16 = "nodules-", "luna16-"  # with the side in voxels
CLASSES = ("no nodule", "nodule")
SIDES = (8, 16, 32, 64)
MADE, MADE_TEST = 888, 111  # as many as LUNA16 has scans, and an eighth of that to test
EXTENT_MM = 64.0
AIR, BONE = -1000.0, 400.0  # the ends of the window, in Hounsfield units
LUNG, TISSUE, GLASS = -850.0, 40.0, -500.0
TEST_SUBSET = "subset9"  # LUNA16 comes in ten


def names() -> tuple[str, ...]:
    """Return the names of the sets of volumes."""
    return tuple(f"{prefix}{side}" for prefix in (NODULES, LUNA16) for side in SIDES)


def load(name: str, data_dir: Path) -> ImageData:
    """Return a set of volumes by name; the scans of LUNA16 are those of ``luna16`` in the folder of data."""
    side = int(name.rpartition("-")[2])
    splits = made(side) if name.startswith(NODULES) else cut(data_dir / "luna16", side)
    whole = fingerprint(splits)
    return ImageData(name, *splits, CLASSES, whole, (0.0,) * side, (1.0,) * side)


# -- made by a generator ----------------------------------------------------------------------------------------------


def made(side: int) -> Splits:
    """Make the volumes of a side, in voxels; two of three hold a nodule.

    Only even draws and arithmetic that is exact to the last bit are used, so that every machine makes the same.
    """
    labels = (np.arange(MADE + MADE_TEST) % 3 > 0).astype(np.int64)
    volumes = np.stack([_made_volume(side, number, bool(label)) for number, label in enumerate(labels)])
    return Splits(volumes[:MADE], labels[:MADE], volumes[MADE:], labels[MADE:])


def _made_volume(side: int, number: int, nodule: bool) -> np.ndarray:
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([16, number])))
    axis = (np.arange(side) + 0.5) * (EXTENT_MM / side) - EXTENT_MM / 2
    soft = EXTENT_MM / side  # an edge is a voxel wide
    volume = LUNG + 120 * (_texture(rng, 4, side) - 0.5) + 60 * (_texture(rng, 8, side) - 0.5)
    wall = _direction(rng)  # the chest wall: a part of space, at times outside
    volume = _fill(volume, _sum(*(axis * one for one in wall)) - (18 + 16 * rng.random()), soft, TISSUE)
    for _ in range(3 + int(6 * rng.random())):  # vessels: thin tubes
        away = [axis - through for through in 28 * (2 * rng.random(3) - 1)]
        ahead = _sum(*(one * way for one, way in zip(away, _direction(rng), strict=True)))
        across = _sum(*(one * one for one in away)) - ahead * ahead
        volume = _fill(volume, 0.8 + 2.2 * rng.random() - np.sqrt(np.maximum(across, 0)), soft, TISSUE)
    if nodule:
        centre, radius, stretch = 12 * (2 * rng.random(3) - 1), 2 + 8 * rng.random() ** 2, 0.8 + 0.4 * rng.random(3)
        away = [(axis - middle) * by for middle, by in zip(centre, stretch, strict=True)]
        ragged = 1 + 0.5 * (_texture(rng, 8, side) - 0.5)
        density = GLASS if rng.random() < 0.25 else TISSUE
        volume = _fill(volume, radius * ragged - np.sqrt(_sum(*(one * one for one in away))), soft, density)
    return _windowed(volume + 40 * (rng.random((side, side, side)) - 0.5))


def _direction(rng: np.random.Generator) -> np.ndarray:
    vector = 2 * rng.random(3) - 1
    return vector / np.sqrt(vector[0] * vector[0] + vector[1] * vector[1] + vector[2] * vector[2])


def _sum(z: np.ndarray, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    return z[:, None, None] + y[None, :, None] + x[None, None, :]


def _fill(volume: np.ndarray, inside: np.ndarray, soft: float, density: float) -> np.ndarray:
    """Raise a volume to a density where ``inside``, in mm, is positive, over a soft edge."""
    share = np.clip(inside / soft + 0.5, 0.0, 1.0)
    return np.maximum(volume, volume + (density - volume) * share)


def _texture(rng: np.random.Generator, points: int, side: int) -> np.ndarray:
    """Draw even numbers on a coarse grid and go linearly between them."""
    field = rng.random((points + 1,) * 3)
    at = np.arange(side) * (points / side)
    low, part = at.astype(int), at - at.astype(int)
    for axis in range(3):
        shape = [1, 1, 1]
        shape[axis] = side
        here, there = np.take(field, low, axis), np.take(field, low + 1, axis)
        field = here + (there - here) * part.reshape(shape)
    return field


def _windowed(hounsfield: np.ndarray) -> np.ndarray:
    scaled = (hounsfield - AIR) * (255 / (BONE - AIR))
    return np.clip(np.floor(scaled + 0.5), 0, 255).astype(np.uint8)


# -- cut from LUNA16 --------------------------------------------------------------------------------------------------


def cut(folder: Path, side: int) -> Splits:
    """Cut a cube from every scan under a folder: around its largest nodule, or from its middle where it has none.

    Scans are ``subset*/UID.mhd`` with their ``.raw``, nodules rows of ``annotations.csv`` (seriesuid, coordX, coordY,
    coordZ, diameter_mm), both as LUNA16 has them. Those of the last of its ten subsets test.
    """
    scans = sorted(folder.glob("subset*/*.mhd"))
    if not scans:
        raise DataError(
            f"{folder} has no subset*/*.mhd; accepted: the scans of LUNA16, from luna16.grand-challenge.org"
        )
    largest = _largest_nodules(folder / "annotations.csv")
    volumes = np.stack([_cube(scan, side, largest.get(scan.stem)) for scan in scans])
    labels = np.array([scan.stem in largest for scan in scans], dtype=np.int64)
    test = np.array([scan.parent.name == TEST_SUBSET for scan in scans])
    if test.all() or not test.any():
        raise DataError(f"{folder} needs scans in {TEST_SUBSET}, which test, and in others, which train")
    return Splits(volumes[~test], labels[~test], volumes[test], labels[test])


def _largest_nodules(path: Path) -> dict[str, np.ndarray]:
    """Return the centre, in mm of the scanner as x, y, z, of the largest nodule of each scan that has one."""
    found: dict[str, tuple[float, np.ndarray]] = {}
    try:
        with path.open(newline="", encoding="utf-8") as handle:
            for row in csv.DictReader(handle):
                size, centre = float(row["diameter_mm"]), np.array([float(row[f"coord{axis}"]) for axis in "XYZ"])
                if size > found.get(row["seriesuid"], (0.0, centre))[0]:
                    found[row["seriesuid"]] = size, centre
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise DataError(
            f"{path} cannot be read ({error!r}); accepted: columns seriesuid, coordX, coordY, coordZ, diameter_mm"
        ) from error
    return {scan: centre for scan, (_, centre) in found.items()}


def _cube(scan: Path, side: int, centre: np.ndarray | None) -> np.ndarray:
    """Cut a cube of `EXTENT_MM` from a scan, each voxel the mean of eight points in it; beyond the scan is air."""
    from scipy.ndimage import map_coordinates  # takes a moment

    voxels, spacing, origin = read_scan(scan)
    sizes = np.array(voxels.shape[::-1])
    middle = origin + spacing * (sizes - 1) / 2 if centre is None else centre
    points = (np.arange(2 * side) + 0.5) * (EXTENT_MM / (2 * side)) - EXTENT_MM / 2
    x, y, z = ((middle[axis] + points - origin[axis]) / spacing[axis] for axis in range(3))
    grid = np.meshgrid(z, y, x, indexing="ij")
    fine = map_coordinates(voxels.astype(np.float32), grid, order=1, mode="constant", cval=AIR)
    return _windowed(fine.reshape(side, 2, side, 2, side, 2).mean(axis=(1, 3, 5)))


def read_scan(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Read a MetaImage header and its raw file: voxels by z, y, x, and spacing and origin in mm by x, y, z."""
    try:
        lines = [line.partition("=") for line in path.read_text(encoding="latin-1").splitlines()]
        header = {name.strip(): value.strip() for name, _, value in lines}
        if header.get("CompressedData", "False") != "False" or header["ElementType"] != "MET_SHORT":
            raise DataError(f"{path} is compressed or of an unknown type; accepted: MET_SHORT, not compressed")
        shape = tuple(int(size) for size in reversed(header["DimSize"].split()))
        spacing, origin = (
            np.array([float(one) for one in header[name].split()]) for name in ("ElementSpacing", "Offset")
        )
        data = np.fromfile(path.parent / header["ElementDataFile"], dtype="<i2")
        if data.size != np.prod(shape) or len(shape) != 3:
            raise DataError(f"{header['ElementDataFile']} has {data.size} voxels, and {path} says {shape}")
    except (OSError, KeyError, ValueError) as error:
        raise DataError(f"{path} cannot be read as a scan: {error!r}") from error
    return data.reshape(shape), spacing, origin


# -- shown ------------------------------------------------------------------------------------------------------------


def picture(volumes: np.ndarray, again: np.ndarray) -> str:
    """Return the middle slices of some volumes, and under each what was made of it, as a PNG in base64; 0 to 1."""
    from PIL import Image

    rows = [np.concatenate(list(part[:, part.shape[1] // 2]), axis=1) for part in (volumes, again)]
    pixels = np.clip(np.nan_to_num(np.concatenate(rows)) * 255 + 0.5, 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode("ascii")
