"""Runs made into a Dataset, joined into one, and taken apart again."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from dolb.results.schema import LATER, SCHEMA, SchemaError, describe


def run_dataset(run: Mapping[str, Any], by_epoch: Mapping[str, np.ndarray]) -> xr.Dataset:
    """Make the Dataset of one training run from its ``run`` values and its per-epoch series."""
    epochs = len(next(iter(by_epoch.values())))
    values = {name: ("run", np.array([value])) for name, value in run.items()}
    coords = {name: value for name, value in values.items() if SCHEMA[name].role == "config" or name == "key"}
    series = {name: (("run", "epoch"), np.asarray(row, dtype="float32")[None]) for name, row in by_epoch.items()}
    measured = {name: value for name, value in values.items() if name not in coords}
    return describe(xr.Dataset({**series, **measured}, {**coords, "epoch": np.arange(1, epochs + 1)}))


def merge(parts: Iterable[xr.Dataset]) -> xr.Dataset:
    """Join runs into one Dataset; of two runs with one key the later wins, and shorter runs are padded with NaN.

    Runs from before a text of their config had its name have it empty, as by its default, or as they were made
    (``schema.LATER``).
    """
    parts = list(parts)
    where: dict[str, tuple[int, int]] = {}  # part and position of each run, in the order in which keys first come
    for number, part in enumerate(parts):
        where |= {str(key): (number, position) for position, key in enumerate(part["key"].to_numpy())}
    if not where:
        raise SchemaError("there is no run to merge")
    chosen = [[position for at, position in where.values() if at == number] for number in range(len(parts))]
    blocks = [
        part if positions == [*range(part.sizes["run"])] else part.isel(run=positions)
        for part, positions in zip(parts, chosen, strict=True)
        if positions
    ]
    blocks = _with_all_names([block.drop_dims("event") if "event" in block.dims else block for block in blocks])
    blocks = [_joined(list(alike)) for _, alike in itertools.groupby(blocks, _form)]
    merged = xr.concat(blocks, "run", join="outer", coords="minimal", compat="equals", data_vars="all")
    came = [(number, position) for number, positions in enumerate(chosen) for position in positions]
    rank = {place: k for k, place in enumerate(came)}
    merged = merged.isel(run=[rank[place] for place in where.values()])
    if any("event" in part.dims for part in parts):
        merged = merged.assign(_joined_events(parts, list(where.values())))
    return describe(merged)


def _form(block: xr.Dataset) -> list[tuple]:
    """Return what blocks have in common whose runs can be put one after the other as they are."""
    form: list[tuple] = []
    for name, one in sorted(block.variables.items()):
        alike = 0 if "run" in one.dims else one.to_numpy().tobytes() if name in block.coords else id(block)
        form.append((name, name in block.coords, one.dims, one.shape[1:], alike))
    return form


def _joined(blocks: list[xr.Dataset]) -> xr.Dataset:
    """Return blocks of one form as one; where they are many, `xr.concat` takes many times as long."""
    if len(blocks) == 1:
        return blocks[0]
    values = {
        name: (one.dims, np.concatenate([block.variables[name].values for block in blocks]))
        if "run" in one.dims
        else one
        for name, one in blocks[0].variables.items()
    }
    return xr.Dataset(values, attrs=blocks[0].attrs).set_coords(list(blocks[0].coords))


def _with_all_names(blocks: list[xr.Dataset]) -> list[xr.Dataset]:
    """Return the runs, each with every text over ``run`` that one of them has, and what came later."""
    told = {name for name, about in SCHEMA.items() if about.dims == ("run",) and about.kind == "text"} | {*LATER}
    known = {name: name in one.coords for one in blocks for name in told & {*map(str, one.variables)}}
    whole = []
    for one in blocks:
        lacks: dict[str, Any] = {name: [LATER.get(name, "")] * one.sizes["run"] for name in known if name not in one}
        if lacks:
            one = one.assign({name: ("run", values) for name, values in lacks.items()})
            one = one.set_coords([name for name in lacks if known[name]])
        whole.append(one)
    return whole


def split(ds: xr.Dataset) -> list[xr.Dataset]:
    """Return every run as a Dataset of its own, with the events that are its own."""
    if "run_number" not in ds:
        return [ds.isel(run=[position]) for position in range(ds.sizes["run"])]
    numbers = ds["run_number"].to_numpy()
    runs = [ds.isel(run=[k], event=np.flatnonzero(numbers == k)) for k in range(ds.sizes["run"])]
    return [one.assign(run_number=one["run_number"] * 0) for one in runs]  # each is the first of its own Dataset


def _joined_events(parts: Sequence[xr.Dataset], places: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Return the events of the runs at these places, a part and a position in it, each with the number of its run."""
    tables = []
    for number, (at, position) in enumerate(places):
        if "event" not in parts[at].dims:
            continue
        events = parts[at].drop_dims(set(parts[at].dims) - {"event"})
        if "run_number" in events:
            events = events.isel(event=np.flatnonzero(events["run_number"].to_numpy() == position))
        tables.append(events.assign(run_number=("event", np.full(events.sizes["event"], number))))
    joined = xr.concat(tables, "event")
    return {str(name): variable for name, variable in joined.data_vars.items()}
