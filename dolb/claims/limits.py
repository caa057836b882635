"""The judges of what bounds training on many nodes: K1 to K4.

Every one takes a seed's mean over the devices that were measured, and over the study's two networks or all products.
A seed that lacks a device or a network is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import xarray as xr

from dolb.claims.rule import Claim, Judge
from dolb.findings import limits as study
from dolb.findings.intervals import Estimate, geometric, student

SLUG = "limits"


def _by_seed(values: pd.Series) -> pd.Series:
    """Return the mean over the study's networks and the devices, by seed; of seeds that have them all."""
    own = values.rename("value").reset_index()
    own = own[own["arch"].isin(study.STUDIED)]
    wide = own.pivot_table(index="seed", columns=["arch", "device_kind"], values="value").dropna()
    both = wide.columns.get_level_values("arch").nunique() == len(study.STUDIED)
    return wide.mean(axis=1) if both else pd.Series(dtype=float)


def _further(found: Mapping[str, xr.Dataset], _claim: Claim) -> Sequence[Estimate | None]:
    """K1: nodes up to which twice as many pay, of GoogLeNet over AlexNet, at one batch over the study's links."""
    logs = np.log(study.further(found[SLUG])).rename("value").reset_index()
    wide = logs.pivot_table(index="seed", columns="device_kind", values="value").dropna()
    ratios = np.exp(wide.mean(axis=1))
    return [geometric(ratios) if len(ratios) > 1 else None]


def _lost(found: Mapping[str, xr.Dataset], _claim: Claim) -> Sequence[Estimate | None]:
    """K2: what is lost of the ideal speedup with free communication at eight images a node."""
    losses = _by_seed(study.at_few(found[SLUG]))
    return [student(losses) if len(losses) > 1 else None]


def _skinny(found: Mapping[str, xr.Dataset], _claim: Claim) -> Sequence[Estimate | None]:
    """K3: what a fully connected layer loses of its speed per sample from 256 inputs to one."""
    wide = study.skinny(found[SLUG]).pivot_table(index="seed", columns=["arch", "product"], values="lost")
    losses = wide.dropna(axis=1).mean(axis=1)  # of products that every seed has
    return [student(losses) if len(losses) > 1 else None]


def _bound(found: Mapping[str, xr.Dataset], _claim: Claim) -> Sequence[Estimate | None]:
    """K4: the speedup at an image a node over Amdahl's bound from the layers that do not scale."""
    ratios = np.exp(_by_seed(np.log(study.over_bound(found[SLUG]))))
    return [geometric(ratios) if len(ratios) > 1 else None]


JUDGES: dict[str, Judge] = {"K1": _further, "K2": _lost, "K3": _skinny, "K4": _bound}
