"""How far DDP leads in simulation, over paired draws of what is not known, and how far off the model is in it.

The model's error is that of DDP's throughput over Horovod's where both were measured and neither was fitted: ranks on
one machine, over Gloo. There is no other place where it could be seen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from dolb.findings.ddp_vs_horovod import DDP, SPEED, at_defaults, curves_at, rows

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
    wide = (logs[JUDGED] - logs[SPEED]).rename("off").reset_index()
    wide = wide.pivot_table(index=["arch", "batch_size", "ranks"], columns="library", values="off")
    wide = wide.reindex(columns=["ddp", "horovod"])
    off = (wide["ddp"] - wide["horovod"]).dropna().to_numpy()
    return ModelError(float(np.sqrt((off**2).mean())) if len(off) else np.nan, len(off))


def lead(ds: xr.Dataset, variant: str, ranks: int) -> Lead:
    """Return DDP's lead over a variant; where no pair was judged, what is widened is not known (NaN)."""
    curve = curves_at(rows(ds, "simulated"), variant).set_index("ranks")
    low, high = (float(curve[name][ranks]) for name in ("ddp_lead_low", "ddp_lead_high"))
    error = model_error(ds)
    reach = float(np.exp(stats.t.ppf(1 - TAIL, error.pairs) * error.log)) if error.pairs else np.nan
    return Lead(low, high, low / reach, high * reach)


def by_ranks(ds: xr.Dataset) -> pd.DataFrame:
    """Return DDP's efficiency over that of each variant of Horovod by number of ranks: of the lines, and paired draws.

    Columns are variant, ranks, ratio, low and high; on one rank there is nothing to compare.
    """
    curves = rows(ds, "simulated")
    curves = curves[curves["ddp_lead_low"].notna() & (curves["ranks"] > 1)]
    ddp = curves_at(rows(ds, "simulated"), DDP).set_index("ranks")["efficiency"]
    table = curves.assign(ratio=curves["ranks"].map(ddp) / curves["efficiency"])
    table = table.rename(columns={"ddp_lead_low": "low", "ddp_lead_high": "high"})
    return table[["variant", "ranks", "ratio", "low", "high"]].reset_index(drop=True)


def in_words(ds: xr.Dataset, ranks: int) -> str:
    """Say how far DDP leads each variant on so many ranks, by the lines, with the middle nine tenths of the draws."""
    at = by_ranks(ds).query("ranks == @ranks")
    return "; ".join(f"{row.variant} {row.ratio:.3f} ({row.low:.3f} to {row.high:.3f})" for row in at.itertuples())
