"""The schema of results: the only names allowed, where they live and what they mean (``schema.yml``); its checks."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import xarray as xr
import yaml


class SchemaError(ValueError):
    """A Dataset that does not follow the schema; the message lists every fault."""


@dataclass(frozen=True)
class Variable:
    """One name of the schema: where it lives, what kind of value it holds, and what it means."""

    dims: tuple[str, ...]
    kind: str  # "text", "int", "float" or "bool"
    meaning: str
    unit: str = ""
    role: str = "measured"  # as "config", "provenance" and those of other kinds of results
    optional: bool = False
    later: float | str | None = None
    by_run: bool = False


_WRITTEN = yaml.load((Path(__file__).parent / "schema.yml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
SCHEMA: dict[str, Variable] = {
    name: Variable(dims=tuple(group["over"]), role=group["role"], **about)
    for group in _WRITTEN["names"]
    for name, about in group["names"].items()
}
VERSION: int = _WRITTEN["version"]
NUMBERED: tuple[str, ...] = tuple(_WRITTEN["numbered"])
LATER = {name: variable.later for name, variable in SCHEMA.items() if variable.later is not None}
_KINDS = {"text": "UOTS", "int": "iu", "float": "f", "bool": "b"}


def _required(names: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    """Return what each kind of Dataset must hold, a role written out as its names that are not optional."""
    roles: dict[str, list[str]] = {"<run>": []}
    for name, variable in ((name, variable) for name, variable in SCHEMA.items() if not variable.optional):
        roles.setdefault(f"<{variable.role}>", []).append(name)
        of_run = variable.dims in (("run",), ("run", "epoch"))
        if of_run and variable.role in ("config", "measured", "provenance"):
            roles["<run>"].append(name)
    return {kind: tuple(one for name in listed for one in roles.get(name, [name])) for kind, listed in names.items()}


REQUIRED = _required(_WRITTEN["required"])


def dims_of(name: str, ndim: int) -> tuple[str, ...]:
    """Return the dimensions of a name of the schema: its own, after ``run`` where it may have that and has one more."""
    own = SCHEMA[name].dims
    return ("run", *own) if SCHEMA[name].by_run and ndim == len(own) + 1 else own


def validate(ds: xr.Dataset) -> xr.Dataset:
    """Return ``ds`` unchanged if it follows the schema, else raise a ``SchemaError`` with every fault."""
    kinds = [kind for kind in REQUIRED if kind in ds.dims or kind in ds]
    faults = [
        f"{name} is missing (a Dataset with {kind!r} needs it)"
        for kind in kinds
        for name in REQUIRED[kind]
        if name not in ds
    ]
    if not kinds:
        faults.append(f"dims {sorted(map(str, ds.dims))} tell no kind of result; expected one of {sorted(REQUIRED)}")
    for name, variable in ds.variables.items():
        if name not in ds.dims:
            faults += _faults_of(str(name), variable)
    if not faults and "epoch" in ds.dims and ((ds["test_accuracy"] < 0) | (ds["test_accuracy"] > 1)).any():
        faults.append("test_accuracy lies outside 0 to 1 (it is a fraction, not a percentage)")
    if faults:
        raise SchemaError("; ".join(faults))
    return ds


def _faults_of(name: str, have: xr.Variable) -> list[str]:
    if name not in SCHEMA:
        return [f"{name} is not a name of the schema"]
    faults, kind = [], SCHEMA[name].kind
    if tuple(have.dims) != dims_of(name, have.ndim):
        faults.append(f"{name} has dims {tuple(have.dims)}, expected {dims_of(name, have.ndim)}")
    if have.dtype.kind not in _KINDS[kind]:
        faults.append(f"{name} has dtype {have.dtype}, expected {kind}")
    return faults


def describe(ds: xr.Dataset) -> xr.Dataset:
    """Write the schema's meaning and unit into the attributes of every variable."""
    for name, variable in ds.variables.items():
        if about := SCHEMA.get(str(name)):
            variable.attrs = {"long_name": about.meaning, "units": about.unit or "1"}
    return ds
