"""What a step has to do, tensor by tensor: bytes of gradient to reduce, and seconds of compute before each is ready.

Sizes are exact: they are those of the network. Times are measured layer by layer, or are a published throughput shared
out to the layers by their multiplications, which give no time to what memory binds (batch norm, activations): the total
is right, and when each gradient is ready is approximate. Shared out as a measured H200 spends its time, published
efficiencies are met neither better nor worse.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
import torch
import xarray as xr
from torch import nn

from dolb import models, results

LAYER_TIMES = "layer-times"  # the file of published measurements
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

    def __post_init__(self) -> None:
        """Refuse columns that do not fit together."""
        lengths = {len(self.names), len(self.bytes), len(self.forward_seconds), len(self.backward_seconds)}
        if lengths == {0} or len(lengths) > 1:
            raise ValueError(f"columns of tensors have lengths {sorted(lengths)}; one length above 0 is accepted")
        for name in ("bytes", "forward_seconds", "backward_seconds", "optimizer_seconds"):
            column = np.asarray(getattr(self, name))
            if not (np.isfinite(column).all() and (column >= 0).all()):
                raise ValueError(f"{name} has {column.min()} as its least; numbers from 0 are accepted")

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

    def ready_seconds(self, seconds_per_tensor: float = 0.0) -> np.ndarray:
        """Return when each gradient is there, in backward order; ``seconds_per_tensor`` is the library's own work."""
        return self.forward_seconds.sum() + np.cumsum(self.backward_seconds[::-1] + seconds_per_tensor)


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


def layer_times() -> xr.Dataset | None:
    """Return the published measurements, layer by layer, or None where there are none yet."""
    try:
        return results.published(LAYER_TIMES)
    except FileNotFoundError:
        return None


def measured(
    arch: str,
    batch_per_rank: int = 32,
    image_size: int = 224,
    precision: str = "fp32",
    device: str = "H200",
    times: xr.Dataset | None = None,
) -> Tensors:
    """Return a network's tensors as measured on a device, found by a part of its name, in ``times`` or as published."""
    ds = layer_times() if times is None else times
    if ds is None:
        raise FileNotFoundError(
            f"results/{LAYER_TIMES}.nc is not there; `python benchmarks/layer_times.py` measures it"
        )
    asked = {"arch": arch, "batch_size_per_rank": batch_per_rank, "image_size": image_size, "precision": precision}
    found = np.array([device in str(name) for name in ds["device"].to_numpy()])
    for name, value in asked.items():
        found &= ds[name].to_numpy() == value
    if found.sum() != 1:
        rows = zip(*(ds[name].to_numpy().tolist() for name in (*asked, "device")), strict=True)
        there = "; ".join(sorted(", ".join(map(str, row)) for row in rows))
        raise ValueError(f"{found.sum()} measurements of {asked} on {device!r}, one is needed; there are: {there}")
    return from_dataset(one_measurement(ds, int(np.argmax(found))))


def one_measurement(ds: xr.Dataset, number: int) -> xr.Dataset:
    """Return one of several measurements, with its own tensors."""
    one = ds.isel(run=[number], layer=np.flatnonzero(ds["layer_run"].to_numpy() == number))
    return one.assign(layer_run=xr.zeros_like(one["layer_run"]))


def from_dataset(ds: xr.Dataset) -> Tensors:
    """Read the tensors of one measurement: names of the schema on ``layer``, in registration order."""
    wanted = ("tensor", "tensor_bytes", "forward_seconds", "backward_seconds")
    missing = [name for name in wanted if name not in ds or ds[name].dims != ("layer",)]
    if missing:
        raise ValueError(f"{', '.join(missing)} not found on dimension 'layer'; needed: {', '.join(wanted)}")
    if ds.sizes.get("run", 1) != 1:
        raise ValueError(f"there are {ds.sizes['run']} measurements; one is accepted, and `measured` finds one")
    names, sizes, forward, backward = (ds[column].to_numpy() for column in wanted)
    return Tensors(tuple(map(str, names)), sizes, forward, backward)
