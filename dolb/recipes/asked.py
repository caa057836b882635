"""What may be asked of a recipe besides its scale, by the names of the notebooks' parameters."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any

import numpy as np

from dolb.config import require_known


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What narrows or changes a grid; None is as the recipe has it."""

    part: str = "all"
    archs: Sequence[str] | None = None
    batch_sizes: Sequence[int] | None = None
    lrs: Sequence[float] | None = None
    seeds: Sequence[int] | None = None
    sets: Sequence[str] | None = None
    shares: Sequence[float] | None = None
    weight_decays: Sequence[float] | None = None
    warmups: Sequence[float] | None = None
    methods: Sequence[str] | None = None
    epochs: int | None = None
    data: str | None = None
    ranks: Sequence[int] | None = None
    workers: Sequence[int] | None = None
    nodes: int = 1
    repeats: int | None = None
    steps: int | None = None
    formats: Sequence[str] = ()
    libraries: Sequence[str] = ()
    device: str = "cpu"
    device_kind: str = "cpu"
    kept: tuple[int, int] | None = None  # examples that the masks keep, and of how many
    own: Mapping[str, np.ndarray] | None = None  # a person's masks, by what runs call them
    tried: Mapping[str, float] | None = None  # the accuracy of finished runs, by their keys


def recipe(*names: str, **usual: Any) -> Callable[[Callable[[str, Asked], list[Any]]], Callable[..., list[Any]]]:
    """Say what may be asked of a recipe, some of it with other values than usual where it is not asked."""

    def told(made: Callable[[str, Asked], list[Any]]) -> Callable[..., list[Any]]:
        takes = (*names, *usual)
        if odd := set(takes).difference(one.name for one in fields(Asked)):
            raise TypeError(f"{made.__name__} takes {odd.pop()}, which is no field of Asked")

        @wraps(made)
        def configs(scale: str, **asked: Any) -> list[Any]:
            if unknown := set(asked).difference(takes):
                raise TypeError(f"{made.__name__} takes no {unknown.pop()}")
            return made(scale, Asked(**usual | asked))

        configs.takes = takes  # type: ignore[attr-defined]
        return configs

    return told


def chosen(cells: Mapping[str, Sequence[Any]], part: str) -> list[Any]:
    """Return the cells of a part, or of all, once each."""
    require_known("part", part, ("all", *cells))
    found: list[Any] = []
    for cell in (cell for name, own in cells.items() if part in (name, "all") for cell in own):
        if cell not in found:
            found.append(cell)
    return found
