"""The judges of what many workers, links and storage do: G18 to G21, M8, J1, J2, C1 to C3 and K1 to K5."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from dolb.claims.rule import Claim, Estimates, Found, Judge
from dolb.findings import data_pipeline, limits, strong_weak
from dolb.findings import ddp_vs_horovod as libraries
from dolb.findings.intervals import Estimate, geometric, gmean, student

MANY = 8  # workers, from which on C1 is judged

# Two libraries


def _lead(found: Found, claim: Claim) -> Estimates:
    """G18: DDP's throughput over Horovod's on the most ranks, all networks of a launch being one repetition."""
    every = libraries.leads(found[claim.experiment]).query("arch == @libraries.EVERY").sort_values("ranks")
    return [Estimate(*most) for most in every[["value", "low", "high", "n"]].tail(1).itertuples(index=False)] or [None]


def _tuning(found: Found, claim: Claim) -> Estimates:
    """G21: the gain of Horovod's setting that is best in the other launches, by launch: the best is so by luck too."""
    table = libraries.over_defaults(found[claim.experiment]).rename("ratio").reset_index()
    table = table[(table["library"] == "horovod") & ~libraries.at_defaults(table)]
    wide = table.pivot_table(index="repeat", columns=list(libraries.SETTINGS), values="ratio").dropna(axis="columns")
    if len(wide) < 2:
        return [None]
    return [geometric([wide.loc[one, wide.drop(index=one).agg(gmean).idxmax()] for one in wide.index])]


def _ring(found: Found, claim: Claim) -> bool | None:
    """M8: the steps counted in a ring all-reduce that the simulator carries out part by part."""
    ring = libraries.rows(found[claim.experiment], "simulated").query("variant == @libraries.RING")
    return bool((ring["message_steps"] == 2 * (ring["ranks"] - 1)).all()) if len(ring) else None


def _ideal(found: Found, claim: Claim) -> bool | None:
    """J1: K times one worker is an ideal, so no measured cell has an interval above an efficiency of one."""
    several = libraries.cells(found[claim.experiment]).query("ranks > 1")
    return not (several["low"] > 1).any() if several["low"].notna().any() else None


def _negotiation(found: Found, claim: Claim) -> Estimates:
    """G19: Horovod's negotiation while nothing is reduced, as a share of its all-reduces."""
    steps = libraries.rows(found[claim.experiment], "measured").query("library == 'horovod'")
    return [student((steps["negotiation_between_seconds"] / steps["communication_seconds"]).dropna())]


def _overlap(found: Found, claim: Claim) -> Estimates:
    """G20: the share of DDP's communication that is hidden behind computing."""
    return [student(libraries.rows(found[claim.experiment], "measured").query("library == 'ddp'")["overlap"].dropna())]


# Strong against weak scaling


def _first(found: Found, claim: Claim) -> Estimates:
    """C1: time to the target of each weak rule over that of strong scaling, with many workers, each seed by its mean.

    Where both miss it, neither has such a time, and the two are left out.
    """
    if "strong-weak-steps" not in found:
        return [None, None, None]
    runs = strong_weak.volumes(strong_weak.runs(found[claim.experiment]))
    timed = strong_weak.times(runs, strong_weak.step_times(found["strong-weak-steps"]))
    clock = next((clock for clock in strong_weak.CLOCKS.values() if (timed["clock"] == clock).any()), "")
    many = timed[(timed["clock"] == clock) & (timed["workers"] >= MANY)]
    wide = many.pivot_table(index=["seed", "workers"], columns="rule", values=["seconds", "reached"], aggfunc="mean")
    if not {("seconds", rule) for rule in strong_weak.RULES} <= set(wide):
        return [None, None, None]
    seconds, reached = np.log(wide["seconds"]), wide["reached"] > 0
    strong, *weak = strong_weak.RULES
    ratios = [(seconds[rule] - seconds[strong])[reached[rule] | reached[strong]].dropna() for rule in weak]
    return [student(ratio.groupby("seed").mean()).map(np.exp) for ratio in ratios]


def _follows(found: Found, claim: Claim) -> Estimates:
    """C2: the loss along the updates over that of one worker, and how many more weak runs than strong ones miss."""
    ratios = strong_weak.over_one_worker(found[claim.experiment])
    runs = strong_weak.volumes(strong_weak.runs(found[claim.experiment])).query("workers > 1")
    whole = runs.groupby(["seed", "workers"])["rule"].transform("nunique") == len(strong_weak.RULES)
    missed = runs[whole].assign(missed=~runs["reached"], strong=runs["rule"] == strong_weak.STRONG)
    table = missed.pivot_table(index="seed", columns="strong", values="missed", aggfunc="mean")
    more = (table[False] - table[True]).dropna() if table.shape[1] == 2 else pd.Series(dtype=float)
    return [student(np.log(ratios["ratio"]).groupby(ratios["seed"]).mean()).map(np.exp), student(more)]


def _limit(found: Found, claim: Claim) -> bool | None:
    """C3: batch and rate stay, so an example for each worker is the end."""
    runs = strong_weak.volumes(strong_weak.runs(found[claim.experiment]))
    strong = runs[runs["rule"] == strong_weak.STRONG]
    if strong["workers"].nunique() < 2:
        return None
    kept = len(strong[["batch_size", "lr", "lr_scaling"]].drop_duplicates()) == 1
    return bool(kept and (strong["workers"] <= strong["batch_size"]).all())


# What bounds many nodes: each seed by its mean over the devices, and over the study's networks or all products


def _further(found: Found, claim: Claim) -> Estimates:
    """K1: nodes up to which twice as many pay, of GoogLeNet over AlexNet, at one batch over the study's links."""
    stops = limits.stops(found[claim.experiment])
    stops = stops[(stops["gbit"] == limits.STUDIED_GBIT) & (stops["batch_size"] == limits.SAME_BATCH)]
    logs = stops.assign(nodes=np.log(stops["nodes"])).pivot_table(
        index="seed", columns=["arch", "device_kind"], values="nodes"
    )
    if not set(limits.BATCHES) <= set(stops["arch"]):
        return [None]
    return [student(pd.DataFrame(logs["googlenet"] - logs["alexnet"]).dropna().mean(axis=1)).map(np.exp)]


def _lost(found: Found, claim: Claim) -> Estimates:
    """K2: what is lost of the ideal speedup with free communication at eight images a node."""
    return [_over_networks(found, claim, limits.FEW, lambda nodes: 1 - nodes["efficiency"])]


def _skinny(found: Found, claim: Claim) -> Estimates:
    """K3: what a fully connected layer loses of its speed per sample from 256 inputs to one."""
    table = libraries.rows(found[claim.experiment], "measured").query("product != ''")
    by = ["seed", "device_kind", "arch", "product"]
    wide = table.pivot_table(index=by, columns="batch_size", values="images_per_second").reindex(columns=[1, 256])
    lost = wide.assign(lost=1 - wide[1] / wide[256]).pivot_table(
        index="seed", columns=["arch", "product"], values="lost"
    )
    return [student(lost.dropna(axis=1).mean(axis=1).dropna())]  # of products that every seed has


def _bound(found: Found, claim: Claim) -> Estimates:
    """K4: the speedup at an image a node over Amdahl's bound from the layers that do not scale."""
    ratio = _over_networks(found, claim, 1, lambda nodes: (nodes["speedup"] / nodes["bound"]).map(np.log))
    return [ratio and ratio.map(np.exp)]


def _over_networks(
    found: Found, claim: Claim, images: int, value: Callable[[pd.DataFrame], pd.Series]
) -> Estimate | None:
    """Return a value at so many images a node, where each of the study's networks was measured at its batch."""
    free = limits.free(found[claim.experiment])
    at = free[(free["images"] == images) & (free["batch_size"] == free["arch"].map(limits.BATCHES))]
    if set(at["arch"]) != set(limits.BATCHES):
        return None
    wide = at.assign(value=value(at)).pivot_table(index="seed", columns=["arch", "device_kind"], values="value")
    return student(wide.dropna().mean(axis=1))


# Storage


def _flat(found: Found, claim: Claim) -> Estimates:
    """K5: the flat file over small files, ImageNet-sized images at random from a cold cache, by seed."""
    speeds = data_pipeline.by_seed(found[claim.experiment], "random", "cold").reindex(columns=["flat", "files"])
    return [geometric((speeds["flat"] / speeds["files"]).dropna())]


def _starves(found: Found, claim: Claim) -> Estimates:
    """J2: the share starved on small files at random less that on the best container, on a GPU if one was measured.

    The container, and whether it is read in order, is the best of the other seeds: that of the same is too good.
    """
    kinds = [data_pipeline.rows(found[claim.experiment], "training", kind) for kind in ("cuda", "cpu")]
    frame = next((one for one in kinds if len(one)), kinds[0])
    starved = frame.pivot_table(index="seed", columns=["storage", "access"], values="starved").dropna()  # whole seeds
    if ("files", "random") not in starved or len(starved) < 2:
        return [None]
    others = starved.drop(columns="files", level="storage")
    best = [others.loc[seed, others.drop(index=seed).mean().idxmin()] for seed in starved.index]
    return [student(starved["files", "random"] - best)]


JUDGES: dict[str, Judge] = {
    "G18": _lead, "G21": _tuning, "M8": _ring, "J1": _ideal, "G19": _negotiation, "G20": _overlap,
    "C1": _first, "C2": _follows, "C3": _limit, "K1": _further, "K2": _lost, "K3": _skinny, "K4": _bound,
    "K5": _flat, "J2": _starves,
}  # fmt: skip
