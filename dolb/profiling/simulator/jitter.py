"""What the fitted spread of compute times costs by itself, and what another shape of it would.

The spread is the one knob that published points set, so it takes up every loss of theirs that the model lacks: other
jobs, the input pipeline, congestion. What curves to thousands of GPUs lose is mostly this.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from dolb.profiling.simulator import curves
from dolb.profiling.simulator.scaling import FITTED_JITTER
from dolb.profiling.simulator.step import simulate, slowest_of, without

RANKS = (curves.STUDIED_GPUS, curves.MOST_GPUS)
_STEPS = 4096  # of the sum over quantiles: to six digits


def slowest_of_normal(ranks: int, jitter: float) -> float:
    """Return what `simulate.slowest_of` does, with normal draws of the same standard deviation."""
    # The maximum of n draws lies at the quantile u^(1/n) of one, u uniform: its mean is a mean over u.
    u = (np.arange(_STEPS) + 0.5) / _STEPS
    return 1 + jitter * float(stats.norm.ppf(u ** (1 / ranks)).mean())


def cost(ranks: Sequence[int] = RANKS, jitter: float = FITTED_JITTER) -> pd.DataFrame:
    """Return DDP's efficiency on Summit by GPUs, with the spread and without, and what computing alone would allow.

    ``logistic`` and ``normal`` are the efficiency if communication were free, by the shape that spreads are drawn from.
    """
    scenario = curves.on_summit(curves.POLICIES[0])
    rows = [
        {
            "ranks": count,
            "efficiency": simulate(scenario, count).efficiency,
            "alike": simulate(without(scenario, "jitter"), count).efficiency,
            "logistic": 1 / slowest_of(count, jitter),
            "normal": 1 / slowest_of_normal(count, jitter),
        }
        for count in ranks
    ]
    return pd.DataFrame(rows)


def in_short(jitter: float = FITTED_JITTER) -> str:
    """Say that nearly all that DDP's line loses is the spread: its efficiency with it, and without."""
    table = cost(jitter=jitter)
    costs = " and ".join(
        f"{row.efficiency:.1%} at {row.ranks:,} GPUs ({row.alike:.1%} without)" for row in table.itertuples()
    )
    return (
        "Nearly all that DDP's line loses, and those of Horovod with its cache, is one fitted number: a spread of "
        f"compute times over GPUs with a standard deviation of {jitter:.1%}, as a step waits for the slowest. DDP's "
        f"efficiency is {costs}."
    )


def in_words(points: pd.DataFrame, jitter: float = FITTED_JITTER) -> str:
    """Say what the spread stands for and what shape it has; ``points`` are those it was fitted to."""
    table = cost(jitter=jitter)
    shapes = " and ".join(f"{row.logistic:.1%} ({row.normal:.1%}) at {row.ranks:,}" for row in table.itertuples())
    most = points.sort_values("asked").iloc[-1]
    return (
        "No spread between GPUs was measured. The number stands for every loss of the fitted points that the "
        "model lacks, such as the input pipeline, congestion and other jobs: "
        f"{most['what']}, on {most['ranks']:,} GPUs, asks for {most['asked']:.1%} alone. How it grows with GPUs is the "
        "shape that it is drawn from, which is assumed: logistic, with tails heavier than normal. Were communication "
        f"free, that alone would leave {shapes}; in brackets, with normal draws of the same standard deviation."
    )
