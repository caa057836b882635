"""Augmentation: random choices drawn on the host, the same on every machine, applied on the device step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch


def default_augment(name: str) -> tuple[str, int]:
    """Return augmentation and padding that suit a data set: a mirrored digit is none, and volumes stay as they are."""
    if name.startswith(("nodules-", "luna16-")):
        return "none", 0
    return ("crop", 1) if name == "digits" else ("crop-flip", 4)


@dataclass(frozen=True, eq=False)
class EpochDraw:
    """The random choices of one epoch; entry k of each array belongs to the k-th example visited."""

    order: np.ndarray
    dy: np.ndarray
    dx: np.ndarray
    flip: np.ndarray


def draw_epoch(n: int, seed: int, epoch: int, augment: str = "crop-flip", pad: int = 4) -> EpochDraw:
    """Draw the order, crops and flips of an epoch of ``n`` examples on the host, the same on every machine.

    The order is drawn first and the crops next, so runs that differ in ``augment`` alone see one order.
    """
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
    order = rng.permutation(n)
    dy, dx = np.full(n, pad, dtype=np.int64), np.full(n, pad, dtype=np.int64)
    flip = np.zeros(n, dtype=bool)
    if augment != "none":
        dy, dx = rng.integers(0, 2 * pad + 1, size=n), rng.integers(0, 2 * pad + 1, size=n)
    if augment == "crop-flip":
        flip = rng.integers(0, 2, size=n, dtype=bool)
    return EpochDraw(order, dy, dx, flip)


class DeviceImages:
    """Images and labels of one split, resident on a device and made into batches there.

    `batch` and `centre` use only tensors made here and draw nothing, so a CUDA graph can capture them.
    """

    def __init__(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        mean: Sequence[float],
        std: Sequence[float],
        device: torch.device | str,
        pad: int = 4,
    ) -> None:
        """Copy uint8 (N, H, W, C) images, framed by ``pad`` black pixels, and their labels to the device."""
        if images.dtype != np.uint8 or images.ndim != 4:
            raise ValueError(f"images are {images.dtype} with shape {images.shape}; accepted: uint8 (N, H, W, C)")
        _, self.height, self.width, self.channels = images.shape
        if len(mean) != self.channels:
            raise ValueError(
                f"there are {len(mean)} means for images of shape {images.shape}, {self.channels} channels"
            )
        self.pad = pad
        self.images = torch.from_numpy(np.pad(images, ((0, 0), (pad, pad), (pad, pad), (0, 0)))).to(device)
        self.labels = torch.from_numpy(labels.astype(np.int64)).to(device)
        self.device = self.images.device
        self.mean = torch.tensor(mean, dtype=torch.float32, device=device)
        self.std = torch.tensor(std, dtype=torch.float32, device=device)
        every = torch.arange(256, dtype=torch.float32, device=device).div_(255)
        self.table = (every - self.mean[:, None]) / self.std[:, None]  # what each byte becomes, by channel
        # Repeated for a whole row of pixels: arithmetic over an innermost dimension of three is slow on a CPU.
        self._mean, self._std = self.mean.repeat(self.width), self.std.repeat(self.width)
        self._rows = torch.arange(self.height, device=device)
        self._columns = torch.arange(self.width, device=device)
        self._mirrored = torch.arange(self.width - 1, -1, -1, device=device)

    def __len__(self) -> int:
        return len(self.labels)

    def batch(
        self,
        index: torch.Tensor,
        dy: torch.Tensor,
        dx: torch.Tensor,
        flip: torch.Tensor,
        dtype: torch.dtype = torch.float32,
    ) -> torch.Tensor:
        """Return images ``index`` cropped at (dy, dx), mirrored where ``flip``, normalised: (B, C, H, W) channels_last.

        All four are tensors of length B on the device: int64 and, for ``flip``, bool.
        """
        n, padded_height, padded_width, channels = self.images.shape
        rows = (index * padded_height + dy)[:, None] + self._rows
        columns = dx[:, None] + torch.where(flip[:, None], self._mirrored, self._columns)
        pixels = rows[:, :, None] * padded_width + columns[:, None, :]
        taken = self.images.view(n * padded_height * padded_width, channels).index_select(0, pixels.view(-1))
        return self._normalise(taken.view(len(index), self.height, self.width, channels), dtype)

    def centre(self, start: int, stop: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return images start..stop as they are, normalised, for evaluation: (B, C, H, W) channels_last."""
        pad = self.pad
        window = self.images[start:stop, pad : pad + self.height, pad : pad + self.width]
        return self._normalise(window.contiguous(), dtype)

    def _normalise(self, pixels: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        # In float32 whatever the dtype, with torchvision's own operations: on the CPU the same bits as its transforms.
        scaled = pixels.flatten(2).to(torch.float32).div_(255).sub_(self._mean).div_(self._std)
        return scaled.to(dtype).view(pixels.shape).permute(0, 3, 1, 2)


@dataclass(frozen=True, eq=False)
class Place:
    """Where a run is: an epoch's choices, the place in them, the rate of each update, what was summed so far.

    A step reads its batch and rate from these tensors on the device, so that a captured step needs no argument.
    """

    order: torch.Tensor
    dy: torch.Tensor
    dx: torch.Tensor
    flip: torch.Tensor
    cursor: torch.Tensor  # examples of this epoch that are done
    updates: torch.Tensor  # updates done since the start
    rates: torch.Tensor  # the rate of each update
    loss_sum: torch.Tensor  # of this epoch's examples so far

    @classmethod
    def start(cls, examples: int, rates: torch.Tensor) -> Place:
        """Return the place before the first step, without draws yet."""
        device = rates.device
        order, dy, dx = (torch.zeros(examples, dtype=torch.int64, device=device) for _ in range(3))
        flip = torch.zeros(examples, dtype=torch.bool, device=device)
        cursor, updates = (torch.zeros(1, dtype=torch.int64, device=device) for _ in range(2))
        loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        return cls(order, dy, dx, flip, cursor, updates, rates, loss_sum)
