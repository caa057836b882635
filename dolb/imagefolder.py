"""A folder of images, train/<class>/* and test/<class>/*: which files are its images, and their pixels in one size.

The test set may be called val; where there are classes alone, some images of each are held out as the test set.

Images become RGB with 8 bits a channel. Sixteen bits of gray are scaled, what is transparent lies on white, a
photograph is turned as its EXIF says, and of several frames the first is taken.
"""

import contextlib
import hashlib
import os
import stat
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, ImageOps

from dolb import progress as shown
from dolb.images import DataError, ImageData, Splits, assemble

Classes = dict[str, list[Path]]
HELD_OUT = 5  # of so many images of a class one is held out, where there is no test set
ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # as torchvision has them
LONGEST = 256  # pixels of the longer side, where images have to be brought to one size
_NAMED = 10  # unreadable images at most
IN_MEMORY = 2**30  # bytes of images; more of them lie in a temporary file
_LAYOUT = "train/<class>/* and test/<class>/*, or <class>/* alone"
_SIXTEEN_BITS = ("I;16", "I;16L", "I;16B", "I;16N")
_TURNED = (5, 6, 7, 8)  # orientations by which width and height change places


def find(name: str, data_dir: Path) -> Path:
    """Return the folder that ``imagefolder:`` names: one among the data sets, or a path."""
    given = name.partition(":")[2]
    try:
        candidates = [data_dir / given, Path(given).expanduser().resolve()]
        for folder in candidates:
            if given and folder.is_dir():
                return folder
    except (OSError, RuntimeError, ValueError) as error:  # too long a name, no such user, a zero byte
        raise DataError(f"{name!r} cannot be looked up: {_reason(error)}; accepted: a folder with {_LAYOUT}") from error
    places = " nor ".join(dict.fromkeys(map(str, candidates)))
    raise DataError(f"{name!r} is no folder: there is no {places}; accepted: a folder with {_LAYOUT}")


def splits(folder: Path) -> tuple[Classes, Classes]:
    """Return the images of training and test set by class, in the order of the examples.

    Hidden files, such as macOS's ``._x.png``, are left out. A link to a folder that lies in the split or around it is
    not followed: its images are there in their own right.
    """
    there = [name for name in ("train", "test", "val") if (folder / name).is_dir()]
    if not there:
        return _held_out(folder, _files(folder))
    test = "val" if "val" in there and "test" not in there else "test"
    for name in ("train", test):
        if name not in there:
            raise DataError(f"{folder} has no folder {name}; accepted: {_LAYOUT}")
    train, tested = _files(folder / "train"), _files(folder / test)
    if odd := sorted(train.keys() ^ tested.keys()):
        raise DataError(f"{folder} has classes {odd} in only one of train and {test}; accepted: the same in both")
    return train, tested


def load(name: str, folder: Path, progress: bool) -> ImageData:
    """Return the images of a folder as a data set."""
    train, test = splits(folder)
    parts = [[(path, label) for label, one in enumerate(split.values()) for path in one] for split in (train, test)]
    paths, labels = zip(*parts[0], *parts[1], strict=True)
    n, total = len(parts[0]), len(paths)
    if progress and not (folder / "train").is_dir():
        said = f"{name} has no folder train: {total - n:,} of its {total:,} images, by their names, are the test set"
        print(said, file=sys.stderr)
    try:
        images, told = _pixels(name, paths, progress), np.array(labels, dtype=np.int64)
    except DataError as first:
        raise DataError(_all_faults(name, paths, progress) or str(first)) from first
    arrays = Splits(images[:n], told[:n], images[n:], told[n:])
    return assemble(name, arrays, tuple(train))


# Files


def _files(top: Path) -> Classes:
    """Return the images in the folders of the classes, in the order of the examples."""
    seen: set[Path] = set()
    try:
        classes = [one for one in sorted(_visible(top)) if one.is_dir() and _is_new(one, top, seen)]
        found = {one.name: list(_images(one, seen)) for one in classes}
    except OSError as error:
        raise DataError(f"{error.filename} cannot be listed: {error.strerror}; accepted: {_LAYOUT}") from error
    if odd := [name for name in found if not name.isprintable()]:  # nor can what is not UTF-8 be printed
        raise DataError(f"{top} has a class {odd[0]!r}; accepted: names that can be printed, in UTF-8")
    if empty := [name for name, images in found.items() if not images]:
        raise DataError(f"{top / empty[0]} has no image; accepted: at least one that ends in {', '.join(ENDINGS)}")
    if not found:
        raise DataError(f"{top} has no folder of a class; accepted: {_LAYOUT}")
    return found


def _held_out(folder: Path, found: Classes) -> tuple[Classes, Classes]:
    """Return the images in two parts, the second a fifth of each class: those whose names have the lowest hashes.

    So the parts are the same wherever the folder is, and a new image moves few others.
    """
    train, test = Classes(), Classes()
    for name, images in found.items():
        if len(images) < 2:
            raise DataError(f"{folder / name} has one image, and some are held out to test; accepted: 2 of each class")
        drawn = sorted(images, key=lambda path: hashlib.sha256(os.fsencode(path.relative_to(folder))).digest())
        held = set(drawn[: max(1, len(images) // HELD_OUT)])
        train[name], test[name] = ([one for one in images if (one in held) == wanted] for wanted in (False, True))
    return train, test


def _visible(folder: Path) -> Iterator[Path]:
    """Yield what a folder holds, without hidden files and what macOS adds to archives."""
    return (path for path in folder.iterdir() if not path.name.startswith(".") and path.name != "__MACOSX")


def _images(folder: Path, seen: set[Path]) -> Iterator[Path]:
    """Yield the images in a folder and those in it, sorted as torchvision does: the folder's own first."""
    folders = [folder]
    found = []
    while folders:
        at = folders.pop()
        inside = sorted(_visible(at))
        found.append((at, [path for path in inside if path.suffix.lower() in ENDINGS and not path.is_dir()]))
        folders += [path for path in inside if path.is_dir() and _is_new(path, folder.parent, seen)]
    for _, images in sorted(found, key=lambda one: str(one[0])):
        yield from images


def _is_new(folder: Path, top: Path, seen: set[Path]) -> bool:
    """Note where a folder really is, and return whether its images are to be had nowhere else in the split."""
    real, around = Path(os.path.realpath(folder)), Path(os.path.realpath(top))
    elsewhere = real in seen or around.is_relative_to(real)
    through_a_link = real != around / os.path.relpath(folder, top) and real.is_relative_to(around)
    if elsewhere or through_a_link:
        return False
    seen.add(real)
    return True


# Pixels


def _pixels(name: str, paths: Sequence[Path], progress: bool) -> np.ndarray:
    """Return the images as one array; where their sizes differ or are large, all are brought to one size."""
    first = _read(paths[0]).size
    size = first if max(first) <= LONGEST else None
    if size:
        images = _filled(name, paths, size, progress, fit=False)
        if images is not None:
            return images
    sizes = list[tuple[int, int]]()
    with shown.bar(len(paths), f"sizes of {name}", "image", progress) as bar:
        for path in paths:
            sizes.append(_size(path))
            bar.update()
    middle = np.median(np.array(sizes), axis=0)
    width, height = np.maximum(1, np.rint(middle * min(1, LONGEST / middle.max()))).astype(int).tolist()
    several = len(set(sizes))
    warnings.warn(
        f"{name}: {len(sizes):,} images of {several} size{'s' if several > 1 else ''} are resized and cropped in the "
        f"middle to {width}x{height} pixels",
        UserWarning,
        stacklevel=2,
    )
    images = _filled(name, paths, (width, height), progress, fit=True)
    assert images is not None
    return images


def _all_faults(name: str, paths: Sequence[Path], progress: bool) -> str:
    """Return a line for each of the first images that cannot be read, so that they can be mended together."""
    faults = []
    with shown.bar(len(paths), f"unreadable images of {name}", "image", progress) as bar:
        for path in paths:
            try:
                _read(path)
            except DataError as error:
                faults.append(str(error))
            bar.update()
    more = [f"and {len(faults) - _NAMED:,} more"] if len(faults) > _NAMED else []
    return "\n".join([*faults[:_NAMED], *more])


def _filled(name: str, paths: Sequence[Path], size: tuple[int, int], progress: bool, *, fit: bool) -> np.ndarray | None:
    """Return the images in one size; without ``fit`` None once one has another."""
    images = _room((len(paths), size[1], size[0], 3))
    with shown.bar(len(paths), name, "image", progress) as bar:
        for k, path in enumerate(paths):
            image = _read(path)
            if image.size != size:
                if not fit:
                    return None
                image = ImageOps.fit(image, size, Image.Resampling.BICUBIC)
            images[k] = np.asarray(image)
            bar.update()
    return images


def _room(shape: tuple[int, ...]) -> np.ndarray:
    """Return an array of bytes to fill; a large one is in a file that ends with it, so that memory may be less."""
    if np.prod(shape) <= IN_MEMORY:
        return np.empty(shape, dtype=np.uint8)
    with tempfile.TemporaryFile(prefix="dolb-images-") as file:
        return np.memmap(file, dtype=np.uint8, mode="w+", shape=shape).view(np.ndarray)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """Open an image; whatever is wrong with it is a ``DataError`` that names it."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError("it is no file")  # a pipe, say, which would keep us waiting
        with Image.open(path) as image:
            yield image
    except Exception as error:  # decoders raise what they like
        raise DataError(f"{path} cannot be read as an image: {_reason(error)}") from error


def _size(path: Path) -> tuple[int, int]:
    """Return width and height of an image as it is to be looked at."""
    with _opened(path) as image:
        turned = image.getexif().get(ExifTags.Base.Orientation) in _TURNED
        return (image.height, image.width) if turned else image.size


def _read(path: Path) -> Image.Image:
    """Return an image in RGB, as it is to be looked at."""
    with _opened(path) as opened:
        image = ImageOps.exif_transpose(opened)
        # Pillow has 16 bits of a PGM, and some of a PNG, as whole numbers of 32.
        if image.mode in _SIXTEEN_BITS or (image.mode == "I" and opened.format in ("PNG", "PPM")):
            return Image.fromarray(np.rint(np.asarray(image) / 257).astype(np.uint8)).convert("RGB")
        if image.mode in ("I", "F"):
            raise ValueError(f"its pixels are {image.mode} (32 bits); accepted: 8 or 16 bits a channel")
        if image.has_transparency_data:
            image = image.convert("RGBA")
            return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
        return image.convert("RGB")


def _reason(error: Exception) -> str:
    """Return what an error says on its first line, or what it is."""
    return (str(error).splitlines() or [type(error).__name__])[0]
