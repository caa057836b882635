"""Networks by name, their penultimate layer, and ghost batch norm.

The ResNets are torchvision's with the ImageNet stem, as the studies used them on 32x32 images. Data-parallel training
without synchronized batch norm takes statistics over each worker's share of the global batch; ghost batch norm does the
same on one device, over ``bn_workers`` shares. torchvision is imported where one of its networks is built: it takes two
seconds.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from dolb.names import ARCHITECTURES, WITH_WEIGHTS, names, require

__all__ = [
    "ARCHITECTURES", "WITH_WEIGHTS", "build", "features", "ghost_normalize", "initialize", "loss", "msle", "names",
    "objective", "require",
]  # fmt: skip

Normalizer = Callable[[int], nn.Module]


class SmallBlock(nn.Module):
    """Two convolutions and what they add to, with the names that torchvision's block has."""

    def __init__(self, width: int, norm: Normalizer):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), norm(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), norm(width)
        self.relu, self.downsample = nn.ReLU(inplace=True), None

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return as many channels of the same size."""
        return self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(images))))) + images)


class SmallResNet(nn.Module):
    """A residual network for images of a few pixels: one width, halved once at the start."""

    def __init__(self, blocks: int, width: int, num_classes: int, channels: int, norm: Normalizer):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(channels, width, 3, 2, 1, bias=False), norm(width), nn.ReLU())
        self.blocks = nn.Sequential(*(SmallBlock(width, norm) for _ in range(blocks)))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(width, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return class scores."""
        return self.fc(self.avgpool(self.blocks(self.stem(images))).flatten(1))


def _torchvision(name: str, num_classes: int, channels: int, norm: Normalizer) -> nn.Module:
    from torchvision.models import get_model

    # VGG as for ImageNet: 32x32 images leave one position, which the pooling copies to the 49 that the head has weights
    # for. Without dropout, so that ranks and one process do the same arithmetic.
    how: dict[str, Any] = {"dropout": 0.0} if name == "vgg11" else {"norm_layer": norm}
    network = get_model(name, weights=None, num_classes=num_classes, **how)
    if channels != 3 and name == "vgg11":
        network.features[0] = nn.Conv2d(channels, 64, kernel_size=3, padding=1)
    elif channels != 3:
        network.conv1 = nn.Conv2d(channels, 64, kernel_size=7, stride=2, padding=3, bias=False)
    return network


class VolumeNet(nn.Module):
    """A generator of volumes: a 3-D convolutional encoder to a code of a few numbers, and a decoder back from it.

    Volumes come as images whose channels are their slices. Every stage halves, or doubles, the side, down to four.
    """

    def __init__(self, side: int, norm: Normalizer, width: int = 16, code: int = 64):
        if side < 8 or side & (side - 1):
            raise ValueError(f"volumes of side {side} cannot be made; accepted: powers of two from 8 on")
        super().__init__()
        stages = (side // 4).bit_length() - 1
        widths = [width << stage for stage in range(stages)]
        self.encoder = nn.Sequential()
        for before, after in zip([1, *widths], widths, strict=False):
            self.encoder.extend([nn.Conv3d(before, after, 3, 2, 1, bias=False), _VolumeNorm(norm(after)), nn.ReLU()])
        self.code = nn.Sequential(nn.Flatten(), nn.Linear(widths[-1] * 64, code))
        self.spread = nn.Sequential(nn.Linear(code, widths[-1] * 64), nn.Unflatten(1, (widths[-1], 4, 4, 4)), nn.ReLU())
        self.decoder = nn.Sequential()
        for before, after in zip(widths[:0:-1], widths[-2::-1], strict=True):
            up = nn.Conv3d(before, 8 * after, 1, bias=False)
            self.decoder.extend([up, _Unfold(), _VolumeNorm(norm(after)), nn.ReLU()])
        self.decoder.extend([nn.Conv3d(width, 8, 3, 1, 1), _Unfold(), nn.Sigmoid()])

    def forward(self, volumes: torch.Tensor) -> torch.Tensor:
        """Return the volumes as made from their codes, between 0 and 1."""
        return self.decoder(self.spread(self.code(self.encoder(volumes.unsqueeze(1))))).squeeze(1)


class _Unfold(nn.Module):
    """Twice the side for an eighth of the channels: what `nn.PixelShuffle` does with images."""

    def forward(self, volumes: torch.Tensor) -> torch.Tensor:
        """Deal eight channels to the eight halves of a voxel."""
        parts = volumes.unflatten(1, (-1, 2, 2, 2))  # batch, channel, three halves, depth, height, width
        return parts.permute(0, 1, 5, 2, 6, 3, 7, 4).flatten(6, 7).flatten(4, 5).flatten(2, 3)


class _VolumeNorm(nn.Module):
    """Batch norm over volumes, by that over images: which of its positions lie beside each other is nothing to it."""

    def __init__(self, norm: nn.Module):
        super().__init__()
        self.norm = norm

    def forward(self, volumes: torch.Tensor) -> torch.Tensor:
        """Normalize every channel."""
        return self.norm(volumes.flatten(2, 3)).reshape(volumes.shape)


def build(name: str, num_classes: int, channels: int = 3, bn_workers: int = 1) -> nn.Module:
    """Build a network from scratch; its initial weights come from torch's current random state."""

    def norm(width: int) -> nn.Module:
        return nn.BatchNorm2d(width) if bn_workers == 1 else GhostBatchNorm2d(width, bn_workers)

    require(name)
    if name in WITH_WEIGHTS:
        raise ValueError(f"{', '.join(WITH_WEIGHTS)} come with weights, as extractors; accepted: {', '.join(names())}")
    if name.startswith("smallnet"):
        depth = int(name.removeprefix("smallnet-"))
        return SmallResNet(depth // 2 - 1, require(name).feature_width, num_classes, channels, norm)
    return VolumeNet(channels, norm) if name == "volumenet" else _torchvision(name, num_classes, channels, norm)


def ghost_normalize(
    images: torch.Tensor, shares: int, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Normalize each of ``shares`` equal slices of the batch by its own statistics, in float32.

    Returns the normalized batch in the input's type and memory order, and the mean over shares of the means and of the
    biased variances, which is what the running estimates follow.
    """
    split = images.unflatten(0, (shares, -1)).float()
    var, mean = torch.var_mean(split, dim=(1, 3, 4), correction=0, keepdim=True)
    scale = torch.rsqrt(var + eps) * weight.view(1, 1, -1, 1, 1)
    out = (split - mean) * scale + bias.view(1, 1, -1, 1, 1)
    return out.to(images.dtype).flatten(0, 1), mean.mean(0).flatten(), var.mean(0).flatten()


@lru_cache(maxsize=1)
def _compiled_ghost_normalize() -> Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    # One kernel to reduce and one to normalize instead of eight, each way. Batches stay symbolic, but torch compiles
    # anew for each width of a parameter, and past its limit would leave further widths uncompiled: a run's last bits
    # would depend on the runs before it.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 256)
    return torch.compile(ghost_normalize, dynamic=True)


class GhostBatchNorm2d(nn.BatchNorm2d):
    """Batch norm whose training statistics are taken over each virtual worker's share of the batch."""

    def __init__(self, num_features: int, workers: int):
        super().__init__(num_features)
        self.workers = workers

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalize share by share when training, by the running estimates otherwise."""
        if not self.training:
            return super().forward(input)
        shares = min(self.workers, input.shape[0])
        if input.shape[0] % shares == 0:
            out, mean, var = self._normalize(input, shares)
        else:
            # A last batch that does not divide: the first shares hold one example more, as a sampler would deal them.
            parts = [self._normalize(part, 1) for part in input.tensor_split(shares)]
            out = torch.cat([part[0] for part in parts])
            mean, var = (torch.stack([part[i] for part in parts]).mean(0) for i in (1, 2))
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)  # type: ignore[union-attr,arg-type]
            self.running_var.lerp_(var, self.momentum)  # type: ignore[union-attr,arg-type]
        return out

    def _normalize(self, input: torch.Tensor, shares: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        function = _compiled_ghost_normalize() if input.is_cuda else ghost_normalize
        out, mean, var = function(input, shares, self.weight, self.bias, self.eps)
        count = input.numel() // (input.shape[1] * shares)
        return out, mean.detach(), var.detach() * (count / max(1, count - 1))


def initialize(name: str, num_classes: int, channels: int, bn_workers: int, seed: int) -> nn.Module:
    """Build a network whose initial weights depend on ``seed`` alone, leaving torch's random state as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build(name, num_classes, channels, bn_workers)


def features(network: nn.Module, name: str, images: torch.Tensor) -> torch.Tensor:
    """Return the penultimate features of a batch, ``(batch, feature_width)``."""
    caught: list[torch.Tensor] = []
    hook = network.get_submodule(require(name).penultimate).register_forward_hook(
        lambda _m, _i, out: caught.append(out)
    )
    try:
        network(images)
    finally:
        hook.remove()
    return caught[0].flatten(1)


def loss(scores: torch.Tensor, labels: torch.Tensor, label_smoothing: float = 0.0) -> torch.Tensor:
    """Return the mean cross-entropy, in float32 whatever the scores are."""
    return F.cross_entropy(scores.float(), labels, label_smoothing=label_smoothing)


def msle(made: torch.Tensor, volumes: torch.Tensor) -> torch.Tensor:
    """Return the mean squared logarithmic error, as Keras has it, in float32 whatever was made."""
    return (torch.log1p(made.float()) - torch.log1p(volumes.float())).square().mean()


def objective(
    name: str, made: torch.Tensor, images: torch.Tensor, labels: torch.Tensor, label_smoothing: float = 0.0
) -> torch.Tensor:
    """Return the loss that a network is trained by: of volumes against themselves, of class scores against labels."""
    return msle(made, images) if require(name).of_volumes else loss(made, labels, label_smoothing)
