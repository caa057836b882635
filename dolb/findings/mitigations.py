"""The numbers of sending less: bytes and time of a step, and accuracy after as many updates."""

import numpy as np
import pandas as pd
import xarray as xr

from dolb.findings.ddp_vs_horovod import rows
from dolb.findings.intervals import Estimate, student, written_rows

PLAIN = "gradients as they are"
HOOKS = {"none": PLAIN, "fp16": "gradients in fp16"}


def _way(hook: str, every: int) -> str:
    if every > 1:
        return f"weights, every {every} updates"
    return HOOKS.get(hook) or f"PowerSGD, rank {hook.rpartition('-')[2]}"


def savings(ds: xr.Dataset) -> pd.DataFrame:
    """Return for each way what a host sends in a step and what a step takes, by link, and the accuracy.

    A row is one number: way, what, link_mbit, value, low, high, n. ``change`` is the accuracy less that of `PLAIN` with
    the same seed, in points. Seconds are a median with its range: now and then a launch is slow as a whole.
    """
    table = rows(ds, "measured")
    ways = [_way(hook, every) for hook, every in zip(table["hook"], table["average_every"], strict=True)]
    table = table.assign(way=ways, seconds=table["batch_size"] / table["images_per_second"])
    table["megabytes"] = table["sent_bytes"] / 1e6
    found = [
        (way, what, rate, estimate(group[what]))
        for (way, rate), group in table[table["evaluated"] == 0].groupby(["way", "link_mbit"], sort=False)
        for what, estimate in (("seconds", _median), ("megabytes", student))
    ]
    if "final_accuracy" in table:
        judged = table[table["evaluated"] > 0]
        wide = judged.pivot_table(index="seed", columns="way", values="final_accuracy", sort=False)
        found += [(way, "accuracy", np.inf, student(wide[way])) for way in wide]
        found += [(way, "change", np.inf, student(100 * (wide[way] - wide[PLAIN]))) for way in wide if way != PLAIN]
    return pd.DataFrame([{"way": way, "what": what, "link_mbit": rate, **vars(one)} for way, what, rate, one in found])


def _median(values: pd.Series) -> Estimate:
    return Estimate(float(values.median()), float(values.min()), float(values.max()), len(values))


def table(ds: xr.Dataset) -> pd.DataFrame:
    """Return for readers a row for each way: megabytes and seconds of a step, and accuracy beside plain training's."""
    found = savings(ds)
    by_what = {what: rows.set_index("way") for what, rows in found.groupby("what")}
    megabytes = by_what["megabytes"]["value"].groupby(level=0).mean().sort_values(ascending=False)
    made = pd.DataFrame({"MB a step": megabytes.map("{:.2g}".format)}).rename_axis("what is sent")
    seconds = found[found["what"] == "seconds"].pivot_table(index="way", columns="link_mbit", values="value")
    for rate in seconds:
        made[f"s a step at {rate:g} Mbit/s"] = seconds[rate].map("{:.2f}".format)
    if "accuracy" in by_what:
        made["accuracy"] = by_what["accuracy"]["value"].map("{:.1%}".format)
        change = by_what["change"]
        gained = pd.Series(written_rows("+.1f", change[["value", "low", "high"]]), change.index)
        made["points gained"] = gained.str.replace("-", "\N{MINUS SIGN}").reindex(made.index).fillna("")
    return made
