"""Penultimate features of a network for every image of a split, and where the network comes from."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlparse

import numpy as np
import torch
import torchvision
from torch import nn
from tqdm.auto import tqdm

from dolb import models
from dolb.augment import DeviceImages

# What torchvision's pretrained networks expect in place of a data set's own mean and deviation.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
PRETRAINED_WEIGHTS = "IMAGENET1K_V1"  # the one set that torchvision has for all five ResNets
_NOT_FETCHED: dict[Path, str] = {}  # why, by the file that this process tried to fetch


class CheckpointError(RuntimeError):
    """Weights that cannot be had or do not fit, for a reason that the user can act on."""


def extract(
    network: nn.Module,
    arch: str,
    images: np.ndarray,
    mean: Sequence[float],
    std: Sequence[float],
    *,
    device: torch.device | str = "cpu",
    batch_size: int = 500,
    progress: bool = True,
) -> np.ndarray:
    """Return the penultimate features of uint8 (N, H, W, C) images, float32 ``(N, feature_width)``.

    Images go through the network batch by batch as in evaluation, so that beyond the features themselves memory is that
    of one batch. The network is moved to ``device``; every part of it is left in the mode it was in.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; accepted: 1 or more")
    features = np.empty((len(images), models.require(arch).feature_width), dtype=np.float32)
    network.to(device)
    modes = {module: module.training for module in network.modules()}
    network.eval()
    bar = tqdm(total=len(images), desc=f"features by {arch}", unit="image", disable=not progress)
    try:
        with torch.inference_mode(), bar:
            for start in range(0, len(images), batch_size):
                part = images[start : start + batch_size]
                batch = DeviceImages(part, np.zeros(len(part), dtype=np.int64), mean, std, device, pad=0)
                got = models.features(network, arch, batch.centre(0, len(part)))
                features[start : start + len(part)] = got.float().cpu().numpy()
                bar.update(len(part))
    finally:
        for module, training in modes.items():
            module.training = training
    return features


def save_network(network: nn.Module, path: str | Path) -> Path:
    """Write a network's weights for ``load_network``, so that ``path`` holds all of them or is untouched."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as handle:
            torch.save({name: value.detach().cpu() for name, value in network.state_dict().items()}, handle)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def load_network(arch: str, num_classes: int, checkpoint: str | Path, channels: int = 3) -> nn.Module:
    """Return the network with the weights of a state dict; nothing but tensors is read from the file."""
    network = models.build(arch, num_classes, channels)
    path = Path(checkpoint)
    if not path.is_file():
        raise CheckpointError(f"there is no checkpoint {path}")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise CheckpointError(f"{path} cannot be read as weights ({reason}); accepted: a saved state dict") from error
    _fill(network, state, f"{path} does not fit {arch} with {num_classes} classes and {channels} channels")
    return network


def pretrained(arch: str) -> nn.Module:
    """Return a ResNet with torchvision's ImageNet weights; use it with ``IMAGENET_MEAN`` and ``IMAGENET_STD``.

    The weights are fetched once, into torch's cache folder (``TORCH_HOME``). Where that fails, it is not tried again by
    this process, which may need them for many maps: the same error is raised at once, until the file is there.
    """
    models.require(arch)
    if arch not in torchvision.models.list_models():
        offered = ", ".join(name for name in models.names() if name in torchvision.models.list_models())
        raise ValueError(f"torchvision has no pretrained weights for {arch!r}; accepted: {offered}")
    weights = torchvision.models.get_model_weights(arch)[PRETRAINED_WEIGHTS]
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    file = folder / Path(urlparse(weights.url).path).name
    if not file.is_file() and file in _NOT_FETCHED:
        raise CheckpointError(_NOT_FETCHED[file])
    network = models.build(arch, len(weights.meta["categories"]))
    try:
        state = weights.get_state_dict(progress=True, check_hash=True, map_location="cpu", weights_only=True)
    except (URLError, OSError, RuntimeError, pickle.UnpicklingError, EOFError) as error:
        _NOT_FETCHED[file] = (
            f"the ImageNet weights of {arch} could not be had from {weights.url} ({error}); fetch that file where "
            f"there is a network and put it into {folder}, or set TORCH_HOME to a folder that has it"
        )
        raise CheckpointError(_NOT_FETCHED[file]) from error
    _fill(network, state, f"the file for {arch} in {folder} does not fit it")
    return network


def _fill(network: nn.Module, state: object, complaint: str) -> None:
    """Load a state dict, or raise a ``CheckpointError`` that says in one line what differs."""
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise CheckpointError(f"{complaint}: it holds {_kind(state)}; accepted: a state dict, names with tensors")
    wanted = network.state_dict()
    faults = {
        "lacks": sorted(wanted.keys() - state.keys()),
        "has too much": sorted(state.keys() - wanted.keys()),
        "has in another shape": [
            f"{name} {tuple(state[name].shape)}, not {tuple(value.shape)},"
            for name, value in wanted.items()
            if name in state and state[name].shape != value.shape
        ],
    }
    said = [
        f"it {what} {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}"
        for what, names in faults.items()
        if names
    ]
    if said:
        raise CheckpointError(f"{complaint}: {'; '.join(said)}")
    network.load_state_dict(state)


def _kind(state: object) -> str:
    if isinstance(state, dict):
        odd = next(name for name, value in state.items() if not isinstance(value, torch.Tensor))
        return f"a dict whose {odd!r} is no tensor"
    return f"a {type(state).__name__}"
