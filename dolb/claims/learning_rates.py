"""The effects of M1 to M7, batch size, warmup and rate scaling, and of J3, time to accuracy; all are paired by seed."""

from collections.abc import Callable

import pandas as pd

from dolb.claims.rule import Claim, Estimates, Found, Judge
from dolb.findings import large_batch_remedies as remedies
from dolb.findings import warmup as study
from dolb.findings.intervals import Estimate, student
from dolb.findings.runs import final_accuracy


def _falls_with_batch(found: Found, claim: Claim) -> Estimates:
    frame = _at_base_rate(final_accuracy(found[claim.experiment]), claim)
    frame = frame[frame["warmup_epochs"] == claim.setting["warmup_epochs"]]
    return [_paired(frame, "batch_size", claim.setting["mapped"][0], claim.setting["mapped"][-1])]


def _none_is_worst(found: Found, claim: Claim) -> Estimates:
    return [_over_sizes(found, claim, lambda table, _: table[table.drop(columns=0).mean().idxmin()] - table[0])]


def _is_best(found: Found, claim: Claim) -> Estimates:
    length = claim.reported["warmup_epochs"]
    return [
        _over_sizes(found, claim, lambda table, _: table[length] - table[table.drop(columns=length).mean().idxmax()])
    ]


def _falls_again(found: Found, claim: Claim) -> Estimates:
    best = claim.reported["warmup_epochs"]
    return [_over_sizes(found, claim, lambda table, size: table[best[size]] - table[max(table.columns)])]


def _grows_with_batch(found: Found, claim: Claim) -> Estimates:
    grows = study.exponent(_at_base_rate(final_accuracy(found[claim.experiment]), claim))
    if grows is None:
        return [None, None]
    return [grows, Estimate(1 - grows.value, 1 - grows.high, 1 - grows.low, grows.n)]


def _linear_or_none(found: Found, claim: Claim) -> Estimates:
    if "warmup" not in found:
        return [None]
    runs = pd.concat([final_accuracy(found[slug]) for slug in ("warmup", claim.experiment)])
    at = (runs["batch_size"] == claim.setting["mapped"]) & (runs["warmup_epochs"] == claim.setting["warmup_epochs"])
    return [_paired(_at_base_rate(runs[at], claim), "lr_scaling", "linear", "none")]


def _time_to_accuracy(found: Found, claim: Claim) -> Estimates:
    if "benchmarks" not in found:
        return [None]
    runs = remedies.runs(found[claim.experiment], found["benchmarks"])
    runs = runs[runs["arch"] == claim.setting["arch"]]
    return [remedies.time_ratio(runs, claim.setting["target"]) if len(runs) else None]


def _at_base_rate(frame: pd.DataFrame, claim: Claim) -> pd.DataFrame:
    return frame[(frame["arch"] == claim.setting["arch"]) & (frame["lr"] == claim.setting["base_lr"])]


def _paired(frame: pd.DataFrame, field: str, one: object, other: object) -> Estimate | None:
    table = frame.pivot_table(index="seed", columns=field, values="accuracy")
    if not {one, other} <= set(table.columns):
        return None
    return student((table[one] - table[other]).dropna()).points()


def _over_sizes(found: Found, claim: Claim, compare: Callable[[pd.DataFrame, int], pd.Series]) -> Estimate | None:
    """Return a comparison by seed, each by its mean over the claim's batch sizes.

    Where one side is the best or the worst of several, it is so by the mean over all seeds, which leans against the
    claim. (Chosen for each seed by the others, intervals of near ties miss twice as often as they should.)
    """
    frame = _at_base_rate(final_accuracy(found[claim.experiment]), claim)
    lengths = claim.setting["warmup_epochs"]
    tables = {size: study.by_seed(frame[frame["batch_size"] == size], lengths) for size in claim.setting["mapped"]}
    gains = [compare(table, size) for size, table in tables.items() if table is not None]
    if len(gains) < len(tables):
        return None
    return student(pd.concat(gains, axis=1).dropna().mean(axis=1)).points()


JUDGES: dict[str, Judge] = {
    "M1": _falls_with_batch,
    "M2": _none_is_worst,
    "M3": _is_best,
    "M4": _is_best,
    "M5": _falls_again,
    "M6": _grows_with_batch,
    "M7": _linear_or_none,
    "J3": _time_to_accuracy,
}
