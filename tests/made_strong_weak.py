"""Runs of strong and weak scaling made to an answer, and steps of a known length."""

from functools import cache

import numpy as np
import xarray as xr
from made_runs import made_run

from dolb import recipes, results
from dolb.profiling.simulator import shares


def rule_of(config):
    if config.batch_size == config.base_batch_size:
        return "strong"
    return {("none", 0.0): "weak", ("linear", 0.0): "weak-linear"}.get(
        (config.lr_scaling, config.warmup_epochs), "weak-linear-warmup"
    )


def made(epochs_to_target, seeds=(0, 1, 2), part="small-volumes", noise=0.01) -> xr.Dataset:
    """Make the runs of a part: the loss falls to the target within so many epochs of a run's rule and workers."""
    parts = []
    for config in recipes.configs("strong-weak", "paper", part=part, seeds=seeds):
        wanted = epochs_to_target(rule_of(config), config.bn_workers)
        factor = 1 + noise * np.random.default_rng([config.seed, config.bn_workers]).normal()
        loss = config.target_loss * factor * 4 ** (1 - np.arange(1, config.epochs + 1) / wanted)
        done = np.argmax(loss <= config.target_loss) + 1 if (loss <= config.target_loss).any() else config.epochs
        loss[done:] = np.nan
        run = made_run(tuple(np.full(config.epochs, 0.5)), **config.as_dict())
        for name in ("test_loss", "train_loss"):
            run[name] = (("run", "epoch"), loss[None].astype("float32"))
        parts.append(run.assign(training_examples=("run", [888]), picture=("run", ["aGk="])))
    return results.merge(parts)


@cache
def made_steps(
    seconds=lambda share: 0.01 + 0.01 * share, data="nodules-16", arch="volumenet", kind="cpu"
) -> xr.Dataset:
    """Make the steps of one rank by its share, two measured ranks that take as long, and what is simulated of more."""
    few = {"ranks": [2]} if kind == "cpu" else {}
    configs = recipes.configs("strong-weak-steps", "paper", part=kind, repeats=1, **few)
    about = results.provenance(torch_version="0", device="made", engine="eager", data_fingerprint="sha256:made")
    rows = [
        {
            **config.as_dict(), "batch_size": config.batch_size, "key": config.key, "node_names": "",
            "parameters": 1000, "step_seconds": seconds(config.batch_size_per_rank), "images_per_second": 1.0,
            **about, "commit": "made",
        }
        for config in configs
        if (config.data, config.arch) == (data, arch)
    ]  # fmt: skip
    columns = {name: ("run", np.array([row[name] for row in rows])) for name in rows[0]}
    measured = results.describe(
        xr.Dataset(columns).set_coords([*configs[0].as_dict(), "batch_size", "key", "node_names"])
    )
    return results.merge([measured, shares.simulated(measured)])
