"""Curvature of a loss at trained weights: Hessian-vector products, Lanczos, trace, sharpness, and a 2-D loss surface.

Two rules hold everywhere. Batch norm is in evaluation mode, by the running estimates, so that the loss is a plain mean
over examples, and slices of them add up. Arithmetic is that of the weights, float32 for trained networks, on CUDA too.

Lengths of weights say nothing by themselves: a filter before batch norm may be multiplied by any number, its running
estimates with it, and the network computes the same, yet the Hessian shrinks by the square of that number. So
everything is offered twice: in the weights as they are, and in coordinates in which every filter has length one
(``filter_norms``); there such a factor changes nothing. Batch norm's own parameters and biases do not move there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg import eigh_tridiagonal
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

SLICE = 2048  # examples whose graph is in memory at a time
_FIRST_VECTOR, _PROBES, _DIRECTIONS = range(3)  # one seed, and for each use of it a stream that knows nothing of others

Product = Callable[[torch.Tensor], torch.Tensor]


class MeanLoss:
    """The mean cross-entropy of a network over fixed examples, as a function of its parameters in one vector.

    Parameters
    ----------
    network
        Its weights are copied; the module itself is put into evaluation mode.
    images, labels
        The examples, on the network's device and in its arithmetic.
    slice_size
        Examples taken at a time; memory grows with this, and not with the number of examples.
    """

    def __init__(self, network: nn.Module, images: torch.Tensor, labels: torch.Tensor, slice_size: int = SLICE):
        if len(images) != len(labels) or not len(images) or slice_size < 1:
            raise ValueError(
                f"{len(images)} images, {len(labels)} labels and slices of {slice_size}; accepted: equally many, and "
                "at least one"
            )
        self.network, self.images, self.labels, self.slice_size = network.eval(), images, labels, slice_size
        named = {name: value.detach() for name, value in network.named_parameters()}
        self.names, self.shapes = list(named), [value.shape for value in named.values()]
        self.point = torch.cat([value.reshape(-1) for value in named.values()])
        self._slope: tuple[torch.Tensor, torch.Tensor] | None = None

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.labels)

    def by_example(self, at: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss of every example at a point, and whether it is classified correctly."""
        losses, right = [], []
        with torch.no_grad(), full_precision():
            for images, labels in self._slices():
                scores = self._scores(at, images)
                losses.append(F.cross_entropy(scores, labels, reduction="none"))
                right.append(scores.argmax(1) == labels)
        return torch.cat(losses), torch.cat(right)

    def value(self, at: torch.Tensor) -> float:
        """Return the mean loss at a point."""
        found = self.by_example(at)[0].double().mean().item()
        if not np.isfinite(found):
            raise ValueError(f"the loss is {found} over {len(self)} examples; accepted: weights with a finite loss")
        return found

    def gradient(self, at: torch.Tensor) -> torch.Tensor:
        """Return the gradient of the mean loss at a point."""
        total = torch.zeros_like(self.point)
        with full_precision():
            for point, loss in self.parts(at):
                total += torch.autograd.grad(loss, point)[0]
        return _finite("gradient", total)

    def parts(self, at: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield for each slice of the examples a copy of the point, and the slice's share of the mean loss there."""
        for images, labels in self._slices():
            point = at.detach().clone().requires_grad_()
            yield point, F.cross_entropy(self._scores(point, images), labels, reduction="sum") / len(self)

    def slopes(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield for each slice a copy of the trained point, and the gradient there, to be differentiated again.

        A single slice is kept with its graph, so that further products with the Hessian need not come here again.
        """
        if self._slope is not None:
            yield self._slope
            return
        for point, loss in self.parts(self.point):
            slope = point, torch.autograd.grad(loss, point, create_graph=True)[0]
            if self.in_one_slice:
                self._slope = slope
            yield slope

    @property
    def in_one_slice(self) -> bool:
        """Whether all examples are taken at once."""
        return len(self) <= self.slice_size

    def _slices(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return zip(self.images.split(self.slice_size), self.labels.split(self.slice_size), strict=True)

    def _scores(self, at: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        parts = at.split([shape.numel() for shape in self.shapes])
        named = {name: part.view(shape) for name, part, shape in zip(self.names, parts, self.shapes, strict=True)}
        return functional_call(self.network, named, (images,))


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """Keep cuDNN from rounding what it multiplies to 10 bits meanwhile, as it does by default, and deterministic.

    With ResNet-18, weights and images rounded so alone move a product with the Hessian by several percent.
    """
    with torch.backends.cudnn.flags(
        enabled=torch.backends.cudnn.enabled, benchmark=False, deterministic=True, allow_tf32=False
    ):
        yield


def _finite(what: str, values: torch.Tensor) -> torch.Tensor:
    if bad := int((~torch.isfinite(values)).sum()):
        raise ValueError(f"the {what} is not finite in {bad} of {values.numel()} entries; have the weights diverged?")
    return values


def hessian_vector_product(loss: MeanLoss, vector: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
    """Return the Hessian of the mean loss at the trained weights times a vector: the gradient, differentiated along it.

    With ``scale``, such as ``filter_norms``, the Hessian is that in coordinates in which a parameter is so many units
    long.
    """
    if vector.shape != loss.point.shape:
        raise ValueError(f"the vector has shape {tuple(vector.shape)}; accepted: {tuple(loss.point.shape)}")
    along = vector if scale is None else scale * vector
    total = torch.zeros_like(loss.point)
    with full_precision():
        for point, slope in loss.slopes():
            total += torch.autograd.grad(slope, point, grad_outputs=along, retain_graph=loss.in_one_slice)[0]
    return _finite("Hessian-vector product", total if scale is None else scale * total)


class Eigenvalues(NamedTuple):
    """What Lanczos found: the largest eigenvalues, descending, bounds on their errors, and where it looked.

    ``basis`` has orthonormal rows, one for each product that was made; ``trace`` is the part of the trace that lies in
    their space.
    """

    values: np.ndarray
    errors: np.ndarray
    converged: bool
    basis: torch.Tensor
    trace: float


def lanczos(
    product: Product,
    like: torch.Tensor,
    *,
    count: int = 1,
    tolerance: float = 1e-3,
    most: int = 100,
    seed: int = 0,
) -> Eigenvalues:
    """Return the largest eigenvalues of a symmetric matrix that is known by its products with vectors.

    One that is there several times may be found fewer times, as with every method that starts from one vector.

    Parameters
    ----------
    like
        A vector of the right length, type and device.
    tolerance
        An eigenvalue has converged when the bound on its error is less than this part of it.
    most
        Products at most, each of which adds a vector to the basis. All of them are kept, and every new one is made
        orthogonal to all, twice: in float32 they would otherwise find the largest eigenvalue again and again.
    seed
        Of the first vector, drawn on the host: the same on every device.
    """
    size = like.numel()
    if not 1 <= count <= min(most, size):
        raise ValueError(f"count is {count}; accepted: 1 to {min(most, size)}, the most products or the matrix's size")
    rng = np.random.default_rng([seed, _FIRST_VECTOR])
    basis = torch.empty(min(most, size), size, dtype=like.dtype, device=like.device)
    diagonal: list[float] = []
    beside: list[float] = []  # the tridiagonal matrix, beside its diagonal
    vector = _normal(rng, like)
    vector = vector / vector.norm()
    while True:
        step = len(diagonal)
        basis[step] = vector
        image = product(vector)
        diagonal.append(float(vector @ image))
        rest = _outside(image, basis[: step + 1])
        length = float(rest.norm())
        values, vectors = eigh_tridiagonal(np.array(diagonal), np.array(beside))
        values, errors = values[::-1][:count], np.abs(length * vectors[-1, ::-1])[:count]
        close = len(values) == count and bool((errors <= tolerance * np.abs(values)).all())
        if close or len(diagonal) == len(basis):
            whole = len(diagonal) == size
            return Eigenvalues(values, errors, close or whole, basis[: len(diagonal)], float(np.sum(diagonal)))
        # What is left is rounding where the basis spans a space of its own; there another direction goes on.
        alone = length <= torch.finfo(like.dtype).eps * float(np.abs(diagonal).max() + length) * size**0.5
        rest = _outside(_normal(rng, like), basis[: step + 1]) if alone else rest
        vector = rest / rest.norm()
        beside.append(0.0 if alone else length)


def _normal(rng: np.random.Generator, like: torch.Tensor) -> torch.Tensor:
    """Draw a vector on the host, so that it is the same for every device."""
    return torch.from_numpy(rng.standard_normal(like.numel(), dtype=np.float32)).to(like)


def _outside(vector: torch.Tensor, basis: torch.Tensor) -> torch.Tensor:
    """Return what of a vector is orthogonal to the rows of a basis; twice, as once leaves what was rounded."""
    for _ in range(2):
        vector = vector - basis.T @ (basis @ vector)
    return vector


class Trace(NamedTuple):
    """An estimate of a trace and its standard error over the probes."""

    value: float
    error: float


def hutchinson_trace(
    product: Product, like: torch.Tensor, *, probes: int, seed: int = 0, known: Eigenvalues | None = None
) -> Trace:
    """Estimate the trace of a symmetric matrix from its products with random vectors of signs (Hutchinson).

    With ``known``, what Lanczos found of the same matrix, the part of the trace in its basis is taken from there, and
    the probes are left to the rest: the few large eigenvalues, by which probes differ most, are then known exactly.
    """
    if probes < 2:
        raise ValueError(f"probes is {probes}; accepted: 2 or more, so that there is an error")
    rng = np.random.default_rng([seed, _PROBES])
    found = []
    for _ in range(probes):
        signs = torch.from_numpy(2 * rng.integers(0, 2, like.numel(), dtype=np.int8) - 1).to(like)
        if known is not None:
            signs = _outside(signs, known.basis)
        found.append(float((signs * product(signs)).sum(dtype=torch.float64)))
    samples = np.array(found) + (0.0 if known is None else known.trace)
    return Trace(float(samples.mean()), float(samples.std(ddof=1) / np.sqrt(probes)))


class Sharpness(NamedTuple):
    """The largest increase of the loss found within a ball, and the one that the gradient alone would make there.

    What the first has beyond the second is from curvature: half the radius squared times the curvature along the step,
    as long as the radius is small.
    """

    rise: float
    slope: float


def sharpness(loss: MeanLoss, radius: float, *, steps: int = 1, scale: torch.Tensor | None = None) -> Sharpness:
    """Return the largest increase of the loss found within a distance ``radius`` of the trained weights.

    One step goes that far along the gradient, as sharpness-aware minimization does. Further ones go on from there, each
    as long, and are pulled back onto the ball; the largest increase counts. With ``scale`` distances are in
    coordinates in which a parameter is so many units long. Where there is no gradient there is no step: zero.
    """
    if not radius > 0 or steps < 1:
        raise ValueError(f"radius is {radius} and steps is {steps}; accepted: a positive radius, and 1 or more")
    scale = torch.ones_like(loss.point) if scale is None else scale
    here, moved = loss.value(loss.point), torch.zeros_like(loss.point)
    found: list[float] = []
    first = 0.0
    for step in range(steps):
        slope = scale * loss.gradient(loss.point + scale * moved)
        if not (length := float(slope.norm())):
            break
        first = first if step else radius * length
        moved = moved + slope * (radius / length)
        moved = moved * min(1.0, radius / float(moved.norm()))
        found.append(loss.value(loss.point + scale * moved) - here)
    return Sharpness(max(found, default=0.0), first)


def filter_norms(loss: MeanLoss, at: torch.Tensor | None = None) -> torch.Tensor:
    """Return for every parameter the length of the filter it is part of; zero for batch norm and biases.

    A filter is the weights of one output: of a convolution's channel, or of a linear layer's unit.
    """
    parts = (loss.point if at is None else at).split([shape.numel() for shape in loss.shapes])
    norms = []
    for part, shape in zip(parts, loss.shapes, strict=True):
        lengths = part.view(shape).flatten(1).norm(dim=1, keepdim=True) if len(shape) > 1 else part.new_zeros(1, 1)
        norms.append(lengths.expand(len(lengths), part.numel() // len(lengths)).reshape(-1))
    return torch.cat(norms)


def filter_directions(loss: MeanLoss, seed: int = 0, count: int = 2) -> torch.Tensor:
    """Return random directions whose every filter is as long as the trained one; zero for batch norm and biases."""
    norms, rng = filter_norms(loss), np.random.default_rng([seed, _DIRECTIONS])
    drawn = [_normal(rng, loss.point) for _ in range(count)]
    least = torch.finfo(loss.point.dtype).tiny  # where there is no filter there is no length to divide by
    return torch.stack([one * norms / filter_norms(loss, one).clamp_min(least) for one in drawn])


class Surface(NamedTuple):
    """Mean loss and accuracy over a plane of weights, each (set, alpha, beta)."""

    losses: np.ndarray
    accuracies: np.ndarray


def loss_surface(
    loss: MeanLoss,
    directions: torch.Tensor,
    alphas: Sequence[float] | np.ndarray,
    betas: Sequence[float] | np.ndarray,
    members: torch.Tensor | None = None,
) -> Surface:
    """Return loss and accuracy at the trained weights plus alpha times one direction and beta times another.

    ``members`` (set, example) says in which sets each example is; one pass over the examples serves all sets. Without
    it there is one set, of all. A loss may be infinite far from the trained weights, and is then returned as such.
    """
    members = torch.ones(1, len(loss), dtype=torch.bool) if members is None else members
    shares = members.to(loss.point.device, torch.float64)
    shares /= shares.sum(dim=1, keepdim=True)
    found = np.empty((2, len(shares), len(alphas), len(betas)))
    for row, alpha in enumerate(alphas):
        for column, beta in enumerate(betas):
            losses, right = loss.by_example(loss.point + float(alpha) * directions[0] + float(beta) * directions[1])
            found[:, :, row, column] = torch.stack([shares @ losses.double(), shares @ right.double()]).cpu().numpy()
    return Surface(*found)
