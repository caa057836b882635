"""What a step has to do, tensor by tensor: bytes of gradient to reduce, and seconds of compute before each is ready.

Sizes are exact: they are those of the network. A step takes as long as the throughput of one GPU says, which is
measured or published for this network, as no network's speed follows from another's: by their multiplications VGG-11
would train 406 images a second where it trains 1,148. That time is shared out to the layers as a measured H200 spends
it, else by multiplications within the network, which give no time to what memory binds (batch norm, activations).
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from torch import nn

from dolb import models, results

# Scaling efficiencies that others published, each with the throughput of one GPU, what ran where, and where it is read.
PUBLISHED = Path(__file__).with_name("published.csv")
IMAGE_SIZE, NUM_CLASSES = 224, 1000
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

    def of_bits(self, bits: int) -> Tensors:
        """Return the tensors with gradients of so many bits instead of 32."""
        return replace(self, bytes=self.bytes * bits // 32)

    def slower(self, factor: float) -> Tensors:
        """Return the tensors with every time that much longer."""
        times = ("forward_seconds", "backward_seconds", "optimizer_seconds")
        return replace(self, **{name: getattr(self, name) * factor for name in times})


@lru_cache(maxsize=32)
def work(arch: str, image_size: int = IMAGE_SIZE, num_classes: int = NUM_CLASSES, channels: int = 3) -> pd.DataFrame:
    """Return what `count` counts of a network by name, one of `models` or of torchvision."""
    with torch.device("meta"):  # shapes alone: nothing is allocated
        return count(build(arch, num_classes, channels), (channels, image_size, image_size))


def build(arch: str, num_classes: int, channels: int) -> nn.Module:
    """Build a network by name, one of `models` or of torchvision, without heads that only help to train it."""
    if arch in models.names():
        return models.build(arch, num_classes, channels)
    import torchvision  # takes two seconds

    if arch == "resnext101_32x4d":  # NVIDIA's, which torchvision does not have
        resnet = torchvision.models.resnet
        return resnet.ResNet(resnet.Bottleneck, [3, 4, 23, 3], num_classes, groups=32, width_per_group=4)
    if arch not in torchvision.models.list_models(torchvision.models):
        models.require(arch)  # which says what there is
    more = {"aux_logits": False, "init_weights": False} if arch in ("googlenet", "inception_v3") else {}
    return torchvision.models.get_model(arch, weights=None, num_classes=num_classes, **more)


def count(network: nn.Module, image: tuple[int, ...] | torch.Tensor) -> pd.DataFrame:
    """Return name, bytes and multiplications per image of every parameter tensor of a network, in registration order.

    ``image`` is the shape of one, or a batch of examples as the network takes them. The work of a module stands at its
    last tensor, the first that a backward pass meets: none of a module's gradients is ready before the module has run.
    What convolutions, linear layers, recurrent ones and attention multiply is counted.
    """
    macs: dict[str, int] = {}

    def add(name: str, module: nn.Module, given: tuple, out: Any) -> None:
        last = [parameter for parameter, _ in module.named_parameters()][-1]
        place = f"{name}.{last}" if name else last
        macs[place] = macs.get(place, 0) + _multiplications(module, given, out)

    training = {module: module.training for module in network.modules()}
    device = next(network.parameters()).device
    given = image.to(device) if isinstance(image, torch.Tensor) else torch.zeros(1, *image, device=device)
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # on which layers of a transformer are not called
    hooks = [
        module.register_forward_hook(
            lambda module, given, named, out, name=name: add(name, module, (*given, *named.values()), out),
            with_kwargs=True,
        )
        for name, module in network.named_modules()
        if isinstance(module, _MULTIPLYING)
    ]
    try:
        with torch.no_grad():
            network.eval()(given)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for module, mode in training.items():
            module.training = mode
        for hook in hooks:
            hook.remove()
    rows = [
        (name, weight.numel() * weight.element_size(), macs.get(name, 0) // len(given))
        for name, weight in parameters(network)
    ]
    table = pd.DataFrame(rows, columns=["name", "bytes", "macs"])
    if not table["macs"].sum():
        raise ValueError(
            "no layer that is trained has work that is counted; accepted: convolution, linear, recurrent, attention"
        )
    return table


_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_MULTIPLYING = (
    nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear, nn.RNN, nn.GRU, nn.LSTM, nn.MultiheadAttention, *_TRANSPOSED,
)  # fmt: skip


def _multiplications(module: nn.Module, given: tuple, out: Any) -> int:
    """Return the multiplications of one call of a layer."""
    if isinstance(module, nn.RNNBase):
        matrices = sum(one.numel() for name, one in module.named_parameters() if name.startswith("weight"))
        return given[0].data.numel() // module.input_size * matrices  # of a packed sequence too
    if isinstance(module, nn.MultiheadAttention):
        query, key = given[0], given[1]
        batched = module.batch_first and key.dim() == 3
        places, others = query.numel() // query.shape[-1], key.shape[1 if batched else 0]
        matrices = sum(one.numel() for one in module.parameters() if one.dim() == 2)
        return places * (matrices + 2 * others * module.embed_dim)  # scores, and their sums of values
    weight: torch.Tensor = module.weight  # type: ignore[assignment]
    each = given[0] if isinstance(module, _TRANSPOSED) else out
    return each.numel() * weight.numel() // weight.shape[0]


def parameters(network: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return the tensors of a network whose gradients are reduced, by name, in registration order."""
    return [(name, weight) for name, weight in network.named_parameters() if weight.requires_grad]


def by_multiplications(table: pd.DataFrame, compute_seconds: float) -> Tensors:
    """Give tensors the seconds of a forward and a backward pass by their multiplications, as `work` counts them."""
    share = table["macs"].to_numpy() / table["macs"].sum()
    forward, backward = FORWARD_SHARE * share, (1 - FORWARD_SHARE) * share
    sizes = table["bytes"].to_numpy()
    return Tensors(tuple(table["name"]), sizes, compute_seconds * forward, compute_seconds * backward)


@lru_cache(maxsize=1)
def throughputs() -> pd.DataFrame:
    """Return what one GPU trains on images of 224 pixels: measured by us, or published, with where from.

    Columns are gpu, precision, arch, batch, images_per_second, source.
    """
    published = pd.read_csv(PUBLISHED).query("alone_from == 'same table'")
    names = {"batch_per_gpu": "batch", "images_per_second_alone": "images_per_second", "paper": "source"}
    columns = ["gpu", "precision", "arch", "batch", "images_per_second", "source"]
    published = published.rename(columns=names)[columns].drop_duplicates(columns[:4])
    times = _layer_times()
    named = {"gpu": "device", "batch": "batch_size_per_rank"}
    measured = pd.DataFrame({name: times[named.get(name, name)].to_numpy() for name in columns[:5]})
    measured = measured[times["image_size"].to_numpy() == IMAGE_SIZE].assign(source="measured here")
    measured["gpu"] = measured["gpu"].str.removeprefix("NVIDIA ")
    return pd.concat([measured, published], ignore_index=True)


def images_per_second(arch: str, gpu: str, batch: int, precision: str = "fp32") -> float:
    """Return the throughput of one GPU at the batch nearest to this one, or raise a ``ValueError`` if none is known."""
    table = throughputs()
    known = table[(table["arch"] == arch) & (table["gpu"] == gpu) & (table["precision"] == precision)]
    if known.empty:
        mine = table[table["arch"] == arch]
        there = ", ".join(dict.fromkeys(f"{row.gpu} in {row.precision}" for row in mine.itertuples())) or "none"
        close = difflib.get_close_matches(arch, table["arch"].unique(), n=1) if mine.empty else []
        raise ValueError(
            f"how fast {arch or repr(arch)} trains on {gpu!r} in {precision} is not known; known for it: {there}"
            f"{f' (did you mean {close[0]!r}?)' if close else ''}; "
            "give the images per second of one GPU yourself (--images-per-second)"
        )
    return float(known["images_per_second"].iloc[int(np.argmin(np.abs(np.log(known["batch"] / batch))))])


def at_speed(arch: str, batch: int, images_per_second: float) -> Tensors:
    """Return a network's tensors on a GPU that trains so many images a second, layer by layer as a measured one."""
    shape = measured_shape(arch)
    if shape is None:
        return by_multiplications(work(arch), batch / images_per_second)
    return shape.slower(batch / images_per_second / shape.compute_seconds)


def on_gpu(arch: str, batch: int, gpu: str, precision: str = "fp32") -> Tensors:
    """Return a network's tensors with the times of a GPU whose throughput is known."""
    return at_speed(arch, batch, images_per_second(arch, gpu, batch, precision))


@lru_cache(maxsize=32)
def measured_shape(arch: str) -> Tensors | None:
    """Return the tensors of a network as they were measured on images of 224 pixels, None where they were not."""
    times = _layer_times()
    found = np.flatnonzero((times["arch"].to_numpy() == arch) & (times["image_size"].to_numpy() == IMAGE_SIZE))
    return from_dataset(one_measurement(times, int(found[0]))) if len(found) else None


@lru_cache(maxsize=1)
def _layer_times() -> xr.Dataset:
    return results.published("layer-times")


def one_measurement(times: xr.Dataset, number: int) -> xr.Dataset:
    """Return one of several measurements, with its own tensors."""
    one = times.isel(run=[number], layer=np.flatnonzero(times["layer_run"].to_numpy() == number))
    return one.assign(layer_run=xr.zeros_like(one["layer_run"]))


def from_dataset(one: xr.Dataset) -> Tensors:
    """Read the tensors of one measurement."""
    columns = ("tensor", "tensor_bytes", "forward_seconds", "backward_seconds")
    names, sizes, forward, backward = (one[column].to_numpy() for column in columns)
    return Tensors(tuple(map(str, names)), sizes, forward, backward)
