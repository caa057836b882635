"""What runs took of memory, in words."""

from __future__ import annotations

import numpy as np
import xarray as xr

from dolb import findings as summary
from dolb.findings.batch_size import by_depth
from dolb.findings.coverage import listed

GB = 1e9


def in_words(ds: xr.Dataset) -> str:
    """Say the most that a run took of its device, and of how many runs the host's memory is known, and what that is."""
    frame = summary.final_accuracy(ds)
    host = frame.get("peak_host_memory_bytes", np.nan * frame["peak_memory_bytes"])
    if (host == frame["peak_memory_bytes"]).all():  # a CPU has no memory but the host's
        return f"The process that made these runs took at most {host.max() / GB:.1f} GB of memory."
    most = frame.sort_values("peak_memory_bytes").iloc[-1]
    told = (
        f"A run took at most {most['peak_memory_bytes'] / GB:.1f} GB of its device's memory ({most['arch']} with batch "
        f"{most['batch_size']:,})."
    )
    if most["concurrent_runs"] > 1 or (frame["concurrent_runs"] > 1).any():
        together = (frame["peak_memory_bytes"] * frame["concurrent_runs"]).max()
        told += (
            " What several at once take together was not recorded; it stays below 90% of the device's by the engine's "
            "limit, which a test on the device holds. By a run's own peak, times the runs that had the device with it, "
            f"it is {together / GB:.0f} GB at most."
        )
    if not host.notna().any():
        return f"{told} The host's memory was not recorded."
    told += (
        f" Of the host's memory {host.notna().sum()} of {len(frame)} runs tell the high-water mark of the process that "
        f"made them, other runs of that process included: at most {host.max() / GB:.1f} GB."
    )
    older = by_depth(frame.loc[host.isna(), "arch"])
    return f"{told} For the others, of {listed(older)}, it was not recorded." if older else told
