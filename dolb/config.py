"""Records whose key names their result: what a run, a measurement and a mask have in common."""

import difflib
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

SCALES = ("published", "demo", "paper")  # of a notebook and its experiment: read results, a small run, the study's own
_MOST = 2**63 - 1  # a whole number that results can hold


def require_known(what: str, value: str, accepted: Collection[str]) -> None:
    """Raise a ``ValueError`` that lists what is accepted, and the nearest of it, for a value that is not."""
    if value not in accepted:
        close = difflib.get_close_matches(value, accepted, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"{what} {value!r} is not known{hint}; accepted: {', '.join(accepted)}")


@dataclass(frozen=True, kw_only=True)
class Keyed:
    """A frozen record of fields with defaults."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int) and abs(value) > _MOST:
                raise ValueError(f"{field.name} {value} is too large; accepted: whole numbers up to {_MOST}")

    @property
    def key(self) -> str:
        """Hash of the fields that differ from their defaults, so that a new defaulted field moves no key."""
        changed = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        return hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()[:16]

    def as_dict(self) -> dict[str, Any]:
        """Return every field with its value, in order."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Rebuild a record from a mapping that may hold more names than it has."""
        return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})

    def coerce(self) -> None:
        """Take whole numbers for floats where a float is meant, and raise a ``TypeError`` for any other type."""
        for field in fields(self):
            value, wanted = getattr(self, field.name), type(field.default)
            value = value.item() if hasattr(value, "item") else value
            value = float(value) if wanted is float and type(value) is int else value
            if type(value) is not wanted:
                raise TypeError(f"{field.name} must be {wanted.__name__}, got {value!r} ({type(value).__name__})")
            object.__setattr__(self, field.name, value)

    def refuse_unknown(self, **accepted: Sequence[str]) -> None:
        """Raise a ``ValueError`` for the first of these fields whose value is not accepted."""
        for name, values in accepted.items():
            require_known(name, getattr(self, name), values)

    def refuse_below(self, least: float, *names: str) -> None:
        """Raise a ``ValueError`` for the first of these fields that is less than ``least``."""
        for name in names:
            if getattr(self, name) < least:
                allowed = "must not be negative" if least == 0 else f"must be at least {least:g}"
                raise ValueError(f"{name} {allowed}, got {getattr(self, name)}")

    def refuse_not_positive(self, *names: str) -> None:
        """Raise a ``ValueError`` for the first of these fields that is not above zero."""
        for name in names:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
