"""Runs made for tests: Datasets with every name of the schema and accuracies that a test chooses."""

from functools import cache

import numpy as np
import xarray as xr

from dolb import results
from dolb.training.config import RunConfig

BLANKS = {"text": "something", "int": 1, "float": 0.5, "bool": False}


@cache
def _blank(epochs: int) -> xr.Dataset:
    needed = {name: results.SCHEMA[name] for name in results.REQUIRED["epoch"]}
    run = {name: BLANKS[variable.kind] for name, variable in needed.items() if variable.dims == ("run",)}
    run |= RunConfig().as_dict() | {"key": "", "source": "measured", "data_fingerprint": "sha256:made"}
    series = {name: np.zeros(epochs) for name, variable in needed.items() if variable.dims == ("run", "epoch")}
    return results.run_dataset(run | {"training_examples": 50_000}, series)


def made_run(accuracy=(0.5,), test_examples=10_000, diverged=False, **changes) -> xr.Dataset:
    """Make the Dataset of one run whose test accuracy has these values by epoch."""
    config = RunConfig(**{"experiment": "batch-size", "epochs": len(accuracy)} | changes)
    made = _blank(len(accuracy)).copy(deep=True)  # to fill a copy takes a tenth of the time of making a Dataset
    about = config.as_dict() | {"key": config.key, "diverged": diverged, "test_examples": test_examples}
    for name, variable in made.variables.items():
        if name in about:
            variable.values = np.array([about[name]])
        elif variable.dims == ("run", "epoch"):
            variable.values = np.array([accuracy], dtype="float32")
    return made


def made_curve(accuracies: dict[int, float], **changes) -> list[xr.Dataset]:
    """Make one run per batch size, each with that accuracy; batches of 256 and more as eight workers' work."""
    return [
        made_run((value,) * 5, batch_size=size, bn_workers=8 if size >= 256 else 1, **changes)
        for size, value in accuracies.items()
    ]


def made_study(accuracy, configs) -> xr.Dataset:
    """Make the Dataset of these configs, each with the accuracy that a function of the config gives."""
    return results.merge(made_run((accuracy(config),) * config.epochs, **config.as_dict()) for config in configs)
