"""Masks on disk, tied to the data they were made for."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from dolb import results
from dolb.data import ImageData, keep_mask
from dolb.filtering import decisions
from dolb.filtering.checks import MaskError, every_class_stays

_SET_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")  # a dash would end the part that figures call the set by


def keep_dataset(
    keep: np.ndarray,
    data: ImageData,
    name: str,
    *,
    coordinates: np.ndarray | None = None,
    noise_until: np.ndarray | None = None,
    about: Mapping[str, Any] | None = None,
) -> xr.Dataset:
    """Return a mask as a Dataset over ``example``, with the data's fingerprint and provenance on one ``run``.

    ``coordinates`` and ``noise_until`` are the map and the radii that it follows from, and ``about`` is what else is
    known, by names of the schema that live on ``run``: arch, seed, seconds, device, ...
    """
    variables: dict[str, Any] = {"keep": ("example", keep_mask(keep, len(data.train_labels)))}
    if coordinates is not None:
        variables |= {"x": ("example", coordinates[:, 0]), "y": ("example", coordinates[:, 1])}
    if noise_until is not None:
        variables["noise_until"] = ("example", noise_until)
    # The label is a coordinate: merged, many masks of one data set have it once.
    coords = {"label": ("example", data.train_labels), **_on_run(data, {"subset": name, **(about or {})})}
    return results.validate(results.describe(xr.Dataset(variables, coords)))


def map_dataset(train: np.ndarray, test: np.ndarray, data: ImageData, about: Mapping[str, Any]) -> xr.Dataset:
    """Return a map of training and test set as a Dataset over ``example``, the training set first.

    ``about`` is as in ``keep_dataset``; ``of_test_set`` says which examples are of the test set.
    """
    labels, both = np.concatenate([data.train_labels, data.test_labels]), np.concatenate([train, test])
    of_test_set = np.arange(len(labels)) >= len(data.train_labels)
    coords = {"label": ("example", labels), "of_test_set": ("example", of_test_set), **_on_run(data, about)}
    variables = {"x": ("example", both[:, 0]), "y": ("example", both[:, 1])}
    return results.validate(results.describe(xr.Dataset(variables, coords)))


def _on_run(data: ImageData, about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data, its fingerprint, provenance and what else is known, as coordinates of one run."""
    known = results.provenance(torch_version=torch.__version__, device="", engine="", data_fingerprint=data.fingerprint)
    known = {key: known[key] for key in known if key not in ("engine", "world_size")}  # no network was trained
    return {key: ("run", np.array([value])) for key, value in ({"data": data.name} | known | dict(about)).items()}


def save_keep(path: str | Path, keep: np.ndarray, data: ImageData, name: str, **more: Any) -> Path:
    """Write a mask, whole or not at all; the arguments are those of ``keep_dataset``."""
    return results.save(keep_dataset(keep, data, name, **more), path)


def load_keep(path: str | Path, data: ImageData) -> np.ndarray:
    """Return the mask in a file, or raise a ``MaskError`` if it was made for other data than these.

    The file is one that ``save_keep`` wrote, or the decisions that the page of ``dolb view`` saved.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no mask {path}; `dolb filter` and `dolb keep` make some")
    if decisions.is_decisions(path):
        return decisions.load(path, data)
    try:
        ds = results.load(path)
    except (OSError, ValueError) as error:
        raise MaskError(f"{path} is no mask ({error}); accepted: a file of `dolb filter` or `dolb keep`") from error
    require_data(ds, data, path)
    return keep_mask(ds["keep"].values, len(data.train_labels))


def require_data(ds: xr.Dataset, data: ImageData, path: str | Path) -> None:
    """Raise a ``MaskError`` unless a Dataset holds masks that were made for these data."""
    if "keep" not in ds or "data_fingerprint" not in ds:
        raise MaskError(
            f"{path} holds no mask with the fingerprint of its data; `dolb filter` and `dolb keep` make some"
        )
    made_for = {str(value) for value in np.atleast_1d(ds["data_fingerprint"].values)}
    if made_for != {data.fingerprint}:
        raise MaskError(
            f"{path} is a mask of other data: {', '.join(sorted(made_for))}, not {data.name} ({data.subset_name}) "
            f"with {data.fingerprint}"
        )


def own_sets(files: Mapping[str, str | Path], data: ImageData) -> dict[str, np.ndarray]:
    """Return a person's own masks by the name that runs call them, as a sweep takes them.

    ``files`` has a file for ``load_keep`` by the name of each set. To it the runs' name adds a digest of the data and
    the mask: a changed mask is another set, whose runs have other keys.
    """
    found = {}
    for name, path in files.items():
        if not _SET_NAME.fullmatch(name):
            raise ValueError(f"the set {name!r} cannot be called so; accepted: a letter, then letters, digits and _")
        keep = load_keep(path, data)
        every_class_stays(str(path), keep, data)
        digest = hashlib.sha256(data.fingerprint.encode() + np.packbits(keep).tobytes()).hexdigest()
        found[f"{name}-{digest[:8]}"] = keep
    return found
