"""Decisions: what a person kept and dropped on the page of ``dolb view``, as the small JSON file that the page saves.

The page is told what the file has to say of the data (``header``). ``load`` believes a file only if it says just that,
and returns the mask. ``dropped`` lists examples by their place in the training set, ascending.
"""

import codecs
import json
from pathlib import Path
from typing import Any

import numpy as np

import dolb
from dolb.data import ImageData
from dolb.filtering.checks import MaskError, every_class_stays

FORMAT = "dolb-decisions-1"


def header(data: ImageData) -> dict[str, Any]:
    """Return what a file of decisions says of the data and of what wrote it; the page adds the decisions."""
    return {
        "format": FORMAT,
        "data": data.name,
        "data_fingerprint": data.fingerprint,
        "examples": len(data.train_labels),
        "made_by": f"dolb view {dolb.__version__}",
    }


def is_decisions(path: str | Path) -> bool:
    """Return whether a file is JSON rather than a mask in NetCDF, by its first sign.

    White space before that does not count, nor the byte-order mark that some editors write.
    """
    with open(path, "rb") as file:
        return file.read(64).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{")


def data_of(path: str | Path) -> str:
    """Return the name of the data set that a file of decisions is about."""
    return str(_read(path)["data"])


def load(path: str | Path, data: ImageData) -> np.ndarray:
    """Return the mask that a file of decisions says, or raise a ``ValueError`` that names what does not fit."""
    said, n = _read(path), len(data.train_labels)
    if said["data_fingerprint"] != data.fingerprint:
        raise MaskError(
            f"{path} decides about other data: {said['data']} with {said['data_fingerprint']}, not {data.name} "
            f"({data.subset_name}) with {data.fingerprint}"
        )
    if said["examples"] != n:
        raise MaskError(f"{path} is about {said['examples']} examples; accepted: {n}, as {data.name} has")
    dropped = said["dropped"]
    if not isinstance(dropped, list) or any(type(one) is not int for one in dropped):  # True is an int too
        raise MaskError(f"dropped in {path} is not a list of whole numbers")
    if odd := [one for one in dropped if not 0 <= one < n]:
        raise MaskError(f"{path} drops example {odd[0]}; accepted: 0 to {n - 1}")
    keep = np.ones(n, dtype=bool)
    keep[dropped] = False
    every_class_stays(str(path), keep, data)
    return keep


def _read(path: str | Path) -> dict[str, Any]:
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        said = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:  # the latter: brackets in brackets, too deep
        raise MaskError(
            f"{path} is not a file of decisions: {error}; accepted: what the page of dolb view saves"
        ) from None
    form = said.get("format") if isinstance(said, dict) else None
    if form != FORMAT:
        raise MaskError(f"{path} has the format {form!r}; accepted: {FORMAT!r}, which the page of dolb view saves")
    if missing := [name for name in ("data", "data_fingerprint", "examples", "dropped") if name not in said]:
        raise MaskError(f"{path} lacks {', '.join(missing)}; save it again from the page of dolb view")
    if not isinstance(said["data"], str):
        raise MaskError(f"{path} names the data set {said['data']!r}; accepted: text")
    return said
