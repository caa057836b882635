"""Loss landscapes made for tests: runs with every name of the schema, and curvature that a test chooses."""

import numpy as np
import xarray as xr
from made_runs import made_run

from dolb import results
from dolb.training.config import LandscapeConfig, RunConfig
from dolb.training.landscape import blank

OVER = ("full", "network", "random")
SETTINGS = {name: value for name, value in LandscapeConfig().as_dict().items() if name not in RunConfig().as_dict()}


def made_landscape(curvature=lambda over: 1.0, surface=None, points=5, diverged=False, **changes) -> xr.Dataset:
    """Make the Dataset of one network; a function of the set says its curvature, another the loss on its surface."""
    run = made_run((0.8,) * 5, diverged=diverged, **{"experiment": "loss-landscape", **changes})
    run["data_fingerprint"] = ("run", [changes.get("subset", "full")])
    found = blank(OVER, LandscapeConfig(surface_points=points))
    about = SETTINGS | {"landscape_seconds": 1.0}
    found = found.assign({name: ("run", [value]) for name, value in about.items()})
    if diverged:
        return results.validate(results.describe(run.assign(found)))
    for name in found.data_vars:
        if found[name].dims == ("run", "loss_over"):
            # Half of a rise is the gradient's; the rest is curvature.
            part = 0.5 if name.endswith("_slope") else 1.0
            found[name][:] = [[0.01 if name.endswith("_error") else part * curvature(over) for over in OVER]]
    alpha, beta = np.meshgrid(found["alpha"], found["beta"], indexing="ij")
    for place, over in enumerate(OVER):
        bowl = 0.1 + curvature(over) * (alpha**2 + beta**2) / 2
        found["surface_loss"][0, place] = bowl if surface is None else surface(alpha, beta)
        found["surface_accuracy"][0, place] = 0.5
    found["weight_norm"][:] = 2.0
    return results.validate(results.describe(run.assign(found)))


def made_study(curvature, seeds=5, sizes=(256, 6272), noise=0.02) -> xr.Dataset:
    """Make networks of three sets; ``curvature`` is a function of set and over, and seeds differ by a little."""
    rng = np.random.default_rng(0)
    parts = []
    for size in sizes:
        for seed in range(seeds):
            for name, subset in (("full", "full"), ("network", "network-a-1"), ("random", f"random-a-{seed}")):
                factor = float(np.exp(noise * rng.standard_normal()))
                more = {"subset": subset, "batch_size": size, "seed": seed}
                parts.append(made_landscape(lambda over, f=factor, n=name: f * curvature(n, over), **more))
    return results.merge(parts)
