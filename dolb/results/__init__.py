"""Results, and how they are kept: saved whole or not at all, found by key, merged, validated by the schema.

A result is an xarray Dataset over ``run`` (and ``epoch``, ``event``, ``example``): every config field is a coordinate
on ``run``, measurements are variables. One run is one file in a store, named by the run's key; ``results/<slug>.nc``
holds many, merged. ``fill`` has the one loop that makes what a store lacks.
"""

from dolb.results.files import load, published, published_file, published_folder, published_or_none, save
from dolb.results.merging import merge, run_dataset, split
from dolb.results.origins import commit, device_seconds, provenance, provenance_of
from dolb.results.schema import REQUIRED, SCHEMA, SchemaError, describe, validate
from dolb.results.store import RunStore, StoreError

__all__ = [
    "REQUIRED", "SCHEMA", "RunStore", "SchemaError", "StoreError", "commit", "describe", "device_seconds", "load",
    "merge", "provenance", "provenance_of", "published", "published_file", "published_folder",
    "published_or_none", "run_dataset", "save", "split", "validate",
]  # fmt: skip
