"""How far DDP leads in simulation, over paired draws of what is not known, and how far off the model is in it.

The model's error is that of DDP's throughput over Horovod's where both were measured and neither was fitted: ranks on
one machine, over Gloo. There is no other place where it could be seen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy import stats

from dolb.summary.ddp_vs_horovod import SPEED, at_defaults, curves_at, rows

JUDGED = "judged_images_per_second"
TAIL = 0.05  # outside the middle nine tenths, on either side


class ModelError(NamedTuple):
    """The root of the mean square of the logarithm by which a simulated ratio is off, and of how many pairs."""

    log: float
    pairs: int


class Lead(NamedTuple):
    """DDP's efficiency over another's: the middle nine tenths of paired draws, and these with the model's error."""

    low: float
    high: float
    widened_low: float
    widened_high: float


def model_error(ds: xr.Dataset) -> ModelError:
    """Return how far the simulator is off in DDP's throughput over Horovod's, on points that it was not fitted to."""
    runs = at_defaults(ds).reindex(
        columns=["arch", "scaling", "batch_size", "library", "ranks", "repeat", SPEED, JUDGED]
    )
    runs = runs[(runs["scaling"] == "weak") & (runs["ranks"] > 1) & runs[JUDGED].notna()]
    logs = np.log(runs.groupby(["arch", "batch_size", "ranks", "library"])[[SPEED, JUDGED]].agg(stats.gmean))
    wide = (logs[JUDGED] - logs[SPEED]).unstack("library").reindex(columns=["ddp", "horovod"])
    off = (wide["ddp"] - wide["horovod"]).dropna().to_numpy()
    return ModelError(float(np.sqrt((off**2).mean())) if len(off) else np.nan, len(off))


def lead(ds: xr.Dataset, variant: str, ranks: int) -> Lead:
    """Return DDP's lead over a variant; where no pair was judged, what is widened is not known (NaN)."""
    curve = curves_at(rows(ds, "simulated"), variant).set_index("ranks")
    low, high = (float(curve[name][ranks]) for name in ("ddp_lead_low", "ddp_lead_high"))
    error = model_error(ds)
    reach = float(np.exp(stats.t.ppf(1 - TAIL, error.pairs) * error.log)) if error.pairs else np.nan
    return Lead(low, high, low / reach, high * reach)
