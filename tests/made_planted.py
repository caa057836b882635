"""Planted faults made for tests: results as `dolb.planted` returns them, with counts of a test."""

import numpy as np
import xarray as xr

from dolb import results
from dolb.filtering.config import PlantedConfig

FAULTS = ["flipped", "noise", "blank", "scrambled"]


def made_planted(found, seed=0, kind="flipped", removed_share=0.05):
    """A result of 1,000 images with 60 faults; ``found`` has removed and found of each method."""
    config = PlantedConfig(
        experiment="own-data", **{f"{kind}_share": 0.06}, removed_share=removed_share, seed=seed, drawn_examples=1000
    )
    planted = [60, 0, 0, 0] if kind == "flipped" else [0, 20, 20, 20]
    hits = [[n, 0, 0, 0] if kind == "flipped" else [0, n, 0, 0] for _, n in found.values()]
    about = {
        **config.as_dict(), "key": config.key, "training_examples": 1000, "network_accuracy": 0.9, "seconds": 1.0,
        **results.provenance(torch_version="2", device="a machine", engine="eager", data_fingerprint="sha256:made"),
    }  # fmt: skip
    values = {name: ("run", np.array([value])) for name, value in about.items()} | {
        "planted_examples": (("run", "fault"), np.array([planted])),
        "removed_examples": (("run", "method"), np.array([[n for n, _ in found.values()]])),
        "method_seconds": (("run", "method"), np.full((1, len(found)), 60.0)),
        "found_examples": (("run", "method", "fault"), np.array([hits])),
    }
    ds = xr.Dataset(values, {"method": list(found), "fault": FAULTS})
    return results.validate(ds.set_coords([*config.as_dict(), "key"]))
