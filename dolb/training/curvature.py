"""Curvature of a loss at trained weights: Hessian-vector products, Lanczos, trace, sharpness, and a 2-D loss surface.

Two rules hold everywhere. Batch norm is in evaluation mode, by the running estimates, so that the loss is a plain mean
over examples. Arithmetic is that of the weights, float32 for trained networks, on CUDA too.

Lengths of weights say nothing by themselves: a filter before batch norm may be multiplied by any number, its running
estimates with it, and the network computes the same, yet the Hessian shrinks by the square of that number. So
everything is offered twice: in the weights as they are, and in coordinates in which every filter has length one
(``filter_norms``); there such a factor changes nothing. Batch norm's own parameters and biases do not move there.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg import eigh_tridiagonal
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

SLICE = 4096  # examples that are evaluated at a time
_FIRST_VECTOR, _PROBES, _DIRECTIONS = range(3)  # one seed, and for each use of it a stream that knows nothing of others

Product = Callable[[torch.Tensor], torch.Tensor]
Scale = torch.Tensor | float


class MeanLoss:
    """The mean cross-entropy of a network over fixed examples, as a function of its parameters in one vector.

    The network is put into evaluation mode, and ``point`` is a copy of its trained weights. Images and labels are on
    its device and in its arithmetic.
    """

    def __init__(self, network: nn.Module, images: torch.Tensor, labels: torch.Tensor):
        self.network, self.images, self.labels = network.eval(), images, labels
        named = {name: value.detach() for name, value in network.named_parameters()}
        self.names, self.shapes = list(named), [value.shape for value in named.values()]
        self.point = torch.cat([value.reshape(-1) for value in named.values()])

    def by_example(self, at: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss of every example at a point, and whether it is classified correctly."""
        losses, right = [], []
        with torch.no_grad(), full_precision():
            for images, labels in zip(self.images.split(SLICE), self.labels.split(SLICE), strict=True):
                scores = self._scores(at, images)
                losses.append(F.cross_entropy(scores, labels, reduction="none"))
                right.append(scores.argmax(1) == labels)
        return torch.cat(losses), torch.cat(right)

    def value(self, at: torch.Tensor) -> float:
        """Return the mean loss at a point."""
        return self.by_example(at)[0].double().mean().item()

    def gradient(self, at: torch.Tensor) -> torch.Tensor:
        """Return the gradient of the mean loss at a point."""
        return self._differentiated(at)[1]

    @cached_property
    def slope(self) -> tuple[torch.Tensor, torch.Tensor]:
        """A copy of the trained point, and the gradient there, to be differentiated again."""
        return self._differentiated(self.point, create_graph=True)

    def _differentiated(self, at: torch.Tensor, create_graph: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        point = at.detach().clone().requires_grad_()
        with full_precision():
            loss = F.cross_entropy(self._scores(point, self.images), self.labels, reduction="sum") / len(self.labels)
            return point, torch.autograd.grad(loss, point, create_graph=create_graph)[0]

    def _scores(self, at: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        parts = at.split([shape.numel() for shape in self.shapes])
        named = {name: part.view(shape) for name, part, shape in zip(self.names, parts, self.shapes, strict=True)}
        return functional_call(self.network, named, (images,))


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """Keep a GPU from rounding what it multiplies to 10 bits meanwhile, and cuDNN deterministic.

    With ResNet-18, weights and images rounded so alone move a product with the Hessian by several percent.
    """
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, False
    try:
        with cudnn.flags(enabled=cudnn.enabled, benchmark=False, deterministic=True, allow_tf32=False):
            yield
    finally:
        matmul.allow_tf32 = before


def hessian_vector_product(loss: MeanLoss, vector: torch.Tensor, scale: Scale = 1.0) -> torch.Tensor:
    """Return the Hessian of the mean loss at the trained weights times a vector: the gradient, differentiated along it.

    The Hessian is that in coordinates in which a parameter is ``scale`` long, such as ``filter_norms``.
    """
    point, slope = loss.slope
    with full_precision():
        return scale * torch.autograd.grad(slope, point, grad_outputs=scale * vector, retain_graph=True)[0]


class TopEigenvalue(NamedTuple):
    """What Lanczos found: the largest eigenvalue, a bound on its error, and where it looked."""

    value: float
    error: float
    basis: torch.Tensor  # orthonormal rows, one for each product that was made
    trace: float  # the part of it that lies in their space


def lanczos(
    product: Product, like: torch.Tensor, *, tolerance: float = 1e-3, most: int = 100, seed: int = 0
) -> TopEigenvalue:
    """Return the largest eigenvalue of a symmetric matrix that is known by its products with vectors like ``like``.

    It has converged when the bound on its error is less than ``tolerance`` of it, or after the ``most`` products. Each
    adds a vector to the basis, which is made orthogonal to all others, twice: in float32 they would otherwise find the
    largest eigenvalue again and again.
    """
    basis = torch.empty(min(most, like.numel()), like.numel(), dtype=like.dtype, device=like.device)
    diagonal: list[float] = []
    beside: list[float] = []  # the tridiagonal matrix, beside its diagonal
    rest = _first_vector(seed, like.numel()).to(like)
    while True:
        step = len(diagonal)
        vector = basis[step] = rest / rest.norm()
        image = product(vector)
        diagonal.append(float(vector @ image))
        rest = _outside(image, basis[: step + 1])
        length = float(rest.norm())
        values, vectors = eigh_tridiagonal(np.array(diagonal), np.array(beside))
        top, error = float(values[-1]), abs(length * float(vectors[-1, -1]))
        if error <= tolerance * abs(top) or len(diagonal) == len(basis):
            return TopEigenvalue(top, error, basis[: len(diagonal)], float(np.sum(diagonal)))
        beside.append(length)


# Vectors are drawn on the host, so that they are the same for every device. For a network's next set they are the same.


@lru_cache(maxsize=1)
def _first_vector(seed: int, count: int) -> torch.Tensor:
    return _normal(np.random.default_rng([seed, _FIRST_VECTOR]), count)


@lru_cache(maxsize=1)
def _signs(seed: int, count: int, probes: int) -> list[torch.Tensor]:
    rng = np.random.default_rng([seed, _PROBES])
    return [torch.from_numpy(2 * rng.integers(0, 2, count, dtype=np.int8) - 1) for _ in range(probes)]


def _normal(rng: np.random.Generator, count: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(count, dtype=np.float32))


def _outside(vector: torch.Tensor, basis: torch.Tensor) -> torch.Tensor:
    """Return what of a vector is orthogonal to the rows of a basis; twice, as once leaves what was rounded."""
    for _ in range(2):
        vector = vector - basis.T @ (basis @ vector)
    return vector


def hutchinson_trace(
    product: Product, like: torch.Tensor, known: TopEigenvalue, *, probes: int, seed: int = 0
) -> tuple[float, float]:
    """Estimate the trace of a symmetric matrix from its products with random vectors of signs, with standard error.

    The part of the trace in the basis of ``known``, what Lanczos found of the same matrix, is taken from there, and
    the probes are left to the rest: the few large eigenvalues, by which probes differ most, are then known exactly.
    """
    found = []
    for drawn in _signs(seed, like.numel(), probes):
        signs = _outside(drawn.to(like), known.basis)
        found.append(float((signs * product(signs)).sum(dtype=torch.float64)))
    samples = np.array(found) + known.trace
    return float(samples.mean()), float(samples.std(ddof=1) / np.sqrt(probes))


def sharpness(loss: MeanLoss, radius: float, *, steps: int = 1, scale: Scale = 1.0) -> tuple[float, float]:
    """Return the largest increase of the loss found within a ball, and the one that the gradient alone would make.

    One step goes ``radius`` along the gradient, as sharpness-aware minimization does. Further ones go on from there,
    each as long, and are pulled back onto the ball; the largest increase counts. Distances are in coordinates in which
    a parameter is ``scale`` long. Where there is no gradient there is no step: zero.
    """
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
    return max(found, default=0.0), first


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


def filter_directions(loss: MeanLoss, seed: int = 0) -> torch.Tensor:
    """Return two random directions whose every filter is as long as the trained one; zero for batch norm and biases."""
    norms, rng = filter_norms(loss), np.random.default_rng([seed, _DIRECTIONS])
    drawn = [_normal(rng, loss.point.numel()).to(loss.point) for _ in range(2)]
    least = torch.finfo(loss.point.dtype).tiny  # where there is no filter there is no length to divide by
    return torch.stack([one * norms / filter_norms(loss, one).clamp_min(least) for one in drawn])


def loss_surface(
    loss: MeanLoss, directions: torch.Tensor, grid: Sequence[float] | np.ndarray, members: torch.Tensor
) -> np.ndarray:
    """Return loss and accuracy at the trained weights plus multiples of two directions, (2, set, alpha, beta).

    ``members`` (set, example) says in which sets each example is; one pass over the examples serves all sets. A loss
    may be infinite far from the trained weights, and is then returned as such.
    """
    shares = members.to(loss.point.device, torch.float64)
    shares /= shares.sum(dim=1, keepdim=True)
    found = np.empty((2, len(shares), len(grid), len(grid)))
    for row, alpha in enumerate(grid):
        for column, beta in enumerate(grid):
            losses, right = loss.by_example(loss.point + float(alpha) * directions[0] + float(beta) * directions[1])
            found[:, :, row, column] = torch.stack([shares @ losses.double(), shares @ right.double()]).cpu().numpy()
    return found
