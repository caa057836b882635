"""What a step has to do, tensor by tensor: bytes of gradient to reduce, and seconds of compute before each is ready.

Sizes are exact: they are those of the network. Times are measured layer by layer, or are a published throughput shared
out to the layers by their multiplications, which give no time to what memory binds (batch norm, activations): the total
is right, and when each gradient is ready is approximate. Shared out as a measured H200 spends its time, published
efficiencies are met neither better nor worse.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pandas as pd
import torch
import xarray as xr
from torch import nn

from dolb import models

# ResNet-50 in fp32 on one V100, images/s: of PyTorch's DDP benchmark (32 images a batch), and of NVIDIA's
# DeepLearningExamples. Both are in `scaling_measurements` of the claims.
V100_BATCH_32, V100_NVLINK_NODE = 329.0, 367.0
REFERENCE = "resnet50"
# A backward pass does each product twice, for the input's gradient and for the weight's.
FORWARD_SHARE = 1 / 3


@dataclass(frozen=True, eq=False)
class Tensors:
    """Parameter tensors in the order of registration: a gradient becomes ready in the reverse of it.

    ``optimizer_seconds`` is the update of the weights, which waits for the last sum. Where it is 0 the times of the
    passes hold it: on a V100 five passes over the weights of ResNet-50 at 900 GB/s are 0.6% of a step.
    """

    names: tuple[str, ...]
    bytes: np.ndarray
    forward_seconds: np.ndarray
    backward_seconds: np.ndarray
    optimizer_seconds: float = 0.0

    def __len__(self) -> int:
        """Return how many tensors there are."""
        return len(self.names)

    @property
    def compute_seconds(self) -> float:
        """Seconds of a forward and a backward pass on one rank that waits for nobody."""
        return float(self.forward_seconds.sum() + self.backward_seconds.sum())

    @property
    def step_seconds(self) -> float:
        """Seconds of a whole step on such a rank."""
        return self.compute_seconds + self.optimizer_seconds

    def ready_seconds(self) -> np.ndarray:
        """Return when each gradient is there, in backward order."""
        return self.forward_seconds.sum() + np.cumsum(self.backward_seconds[::-1])

    def slower(self, factor: float) -> Tensors:
        """Return the tensors with every time that much longer."""
        times = {name: getattr(self, name) * factor for name in ("forward_seconds", "backward_seconds")}
        return replace(self, **times, optimizer_seconds=self.optimizer_seconds * factor)


@lru_cache(maxsize=32)
def work(arch: str, image_size: int = 224, num_classes: int = 1000, channels: int = 3) -> pd.DataFrame:
    """Return name, bytes and multiplications per image of every parameter tensor of a network, in registration order.

    The work of a module stands at its last tensor, the first that a backward pass meets: none of a module's gradients
    is ready before the module has run.
    """
    with torch.device("meta"):  # shapes alone: nothing is allocated and nothing is multiplied
        network = models.build(arch, num_classes, channels).eval()
        image = torch.empty(1, channels, image_size, image_size)
    macs: dict[str, int] = {}

    def count(name: str, module: nn.Conv2d | nn.Linear, out: torch.Tensor) -> None:
        last = [parameter for parameter, _ in module.named_parameters()][-1]
        macs[f"{name}.{last}"] = out.numel() * module.weight.numel() // module.weight.shape[0]

    for name, module in network.named_modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(lambda module, _, out, name=name: count(name, module, out))
    network(image)
    rows = [(name, weight.numel() * weight.element_size(), macs.get(name, 0)) for name, weight in parameters(network)]
    return pd.DataFrame(rows, columns=["name", "bytes", "macs"])


def parameters(network: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return the tensors of a network whose gradients are reduced, by name, in registration order."""
    return [(name, weight) for name, weight in network.named_parameters() if weight.requires_grad]


def by_multiplications(table: pd.DataFrame, compute_seconds: float) -> Tensors:
    """Give tensors the seconds of a forward and a backward pass by their multiplications, as `work` counts them."""
    share = table["macs"].to_numpy() / table["macs"].sum()
    forward, backward = FORWARD_SHARE * share, (1 - FORWARD_SHARE) * share
    sizes = table["bytes"].to_numpy()
    return Tensors(tuple(table["name"]), sizes, compute_seconds * forward, compute_seconds * backward)


def v100_images_per_second(arch: str, reference: float = V100_BATCH_32) -> float:
    """Scale the published throughput of ResNet-50 at 224 pixels by multiplications per image."""
    return reference * float(work(REFERENCE)["macs"].sum()) / float(work(arch)["macs"].sum())


def v100(arch: str, batch_per_rank: int = 32) -> Tensors:
    """Return a network's tensors with the times of one V100, whose speed is taken not to depend on the batch."""
    return by_multiplications(work(arch), batch_per_rank / v100_images_per_second(arch))


def one_measurement(times: xr.Dataset, number: int) -> xr.Dataset:
    """Return one of several measurements, with its own tensors."""
    one = times.isel(run=[number], layer=np.flatnonzero(times["layer_run"].to_numpy() == number))
    return one.assign(layer_run=xr.zeros_like(one["layer_run"]))


def from_dataset(one: xr.Dataset) -> Tensors:
    """Read the tensors of one measurement."""
    columns = ("tensor", "tensor_bytes", "forward_seconds", "backward_seconds")
    names, sizes, forward, backward = (one[column].to_numpy() for column in columns)
    return Tensors(tuple(map(str, names)), sizes, forward, backward)
