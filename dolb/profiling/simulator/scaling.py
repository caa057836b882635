"""Curves against the number of ranks: sweeps, what each mechanism costs, and a band for what is not known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.stats import qmc

from dolb.profiling.simulator.libraries import Horovod
from dolb.profiling.simulator.network import MICROSECOND, Link
from dolb.profiling.simulator.step import MECHANISMS, SOURCE, Scenario, simulate, without

Knobs = Mapping[str, float]


@dataclass(frozen=True)
class Range:
    """What is known of a number: it lies between two limits, evenly, or evenly on a logarithmic scale."""

    low: float
    high: float
    log: bool = False

    def at(self, share: np.ndarray) -> np.ndarray:
        """Return the values at shares from 0 to 1 of the way."""
        if self.log:
            return self.low * (self.high / self.low) ** share
        return self.low + (self.high - self.low) * share

    def share(self, value: float) -> float:
        """Return how far of the way a value is; the inverse of `at`."""
        if self.log:
            return float(np.log(value / self.low) / np.log(self.high / self.low))
        return (value - self.low) / (self.high - self.low)


# Judged from what such machines usually do, but for the jitter, which published points tell: its middle nine tenths
# hold what each of them asks for alone, and a test holds both lines to them. The knobs are explained in `turn`.
FITTED_JITTER = 0.036  # fitted to all of these points, `calibrate.calibrate_published`
UNKNOWN: dict[str, Range] = {
    "bandwidth": Range(0.4, 0.95),
    "latency": Range(0.5, 4.0, log=True),
    "message_seconds": Range(0.3 * MICROSECOND, 3 * MICROSECOND, log=True),
    "request_seconds": Range(0.1 * MICROSECOND, 1 * MICROSECOND, log=True),
    "jitter": Range(0.015, 0.12, log=True),
}
KNOBS = (*UNKNOWN, "tensor_seconds", "compute")


def turn(scenario: Scenario, knobs: Knobs) -> Scenario:
    """Return the scenario with some of its unknowns set.

    ``bandwidth``: share of the links' peak that is achieved. ``latency``: factor on every latency. ``message_seconds``,
    ``request_seconds``: work of Horovod's coordinator per rank, and per tensor of a rank. ``tensor_seconds``: work of
    the library per gradient. ``jitter``: spread of compute times. ``compute``: factor on the time of compute.
    """
    unknown = set(knobs) - set(KNOBS)
    if unknown:
        raise ValueError(f"knobs {sorted(unknown)} are not known; accepted: {', '.join(KNOBS)}")
    network, policy, tensors = scenario.network, scenario.policy, scenario.tensors
    factor = knobs.get("latency", 1.0)
    intra, inter = (Link(link.latency * factor, link.bandwidth) for link in (network.intra, network.inter))
    network = replace(
        network,
        intra=intra,
        inter=inter,
        launch=network.launch * factor,
        achieved=knobs.get("bandwidth", network.achieved),
    )
    policy = replace(policy, tensor_seconds=knobs.get("tensor_seconds", policy.tensor_seconds))
    if isinstance(policy, Horovod):
        policy = replace(
            policy,
            latency=policy.latency * factor,
            message_seconds=knobs.get("message_seconds", policy.message_seconds),
            request_seconds=knobs.get("request_seconds", policy.request_seconds),
        )
    slower = knobs.get("compute", 1.0)
    tensors = replace(
        tensors,
        forward_seconds=tensors.forward_seconds * slower,
        backward_seconds=tensors.backward_seconds * slower,
        optimizer_seconds=tensors.optimizer_seconds * slower,
    )
    jitter = knobs.get("jitter", scenario.jitter)
    return replace(scenario, tensors=tensors, network=network, policy=policy, jitter=jitter)


def rank_counts(most: int, points: int = 50, step: int = 1) -> list[int]:
    """Return about so many rank counts up to ``most``, even on a logarithmic scale: 1, and whole nodes of ``step``."""
    counts = np.geomspace(1, most, points)
    return sorted({1, *(max(1, round(count / step)) * step for count in counts if count >= step), most})


def sweep(scenarios: Mapping[str, Scenario], ranks: Sequence[int]) -> pd.DataFrame:
    """Return a row per scenario and number of ranks: step_seconds, images_per_second, efficiency and where it went."""
    rows = [
        {"library": library, **vars(simulate(scenario, count)), "source": SOURCE}
        for library, scenario in scenarios.items()
        for count in ranks
    ]
    return pd.DataFrame(rows)


def ablate(scenario: Scenario, ranks: Sequence[int], mechanisms: Sequence[str] = MECHANISMS) -> pd.DataFrame:
    """Switch off one mechanism at a time and return the curves; ``gained`` is the efficiency above that with all on."""
    on = sweep({"none": scenario}, ranks)
    off = [sweep({mechanism: without(scenario, mechanism)}, ranks) for mechanism in mechanisms]
    table = pd.concat([on, *off], ignore_index=True).rename(columns={"library": "switched_off"})
    table.insert(0, "library", scenario.policy.name)
    base = on.set_index("ranks")["efficiency"]
    return table.assign(gained=table["efficiency"] - table["ranks"].map(base))


def bend(scenario: Scenario, drop: float = 0.05, most: int = 32768) -> int | None:
    """Return the fewest ranks, to within a fifth, whose doubling costs more than ``drop`` of efficiency, or None."""
    ranks = 2
    while 2 * ranks <= most:
        if simulate(scenario, ranks).efficiency - simulate(scenario, 2 * ranks).efficiency > drop:
            return ranks
        ranks = max(ranks + 1, round(ranks * 2 ** (1 / 4)))
    return None


def draw(
    scenarios: Mapping[str, Scenario],
    ranks: Sequence[int],
    ranges: Mapping[str, Range] = UNKNOWN,
    draws: int = 64,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the curves of every scenario at quasi-random values of what is unknown, the same for all of them.

    Rows have ``draw``, the knobs, and the columns of `sweep`.
    """
    sampler = qmc.Sobol(len(ranges), rng=np.random.default_rng(seed))
    shares = sampler.random_base2(int(np.ceil(np.log2(draws))))[:draws]
    values = {name: limits.at(shares[:, column]) for column, (name, limits) in enumerate(ranges.items())}
    tables = []
    for index in range(draws):
        knobs = {name: float(column[index]) for name, column in values.items()}
        turned = {library: turn(scenario, knobs) for library, scenario in scenarios.items()}
        tables.append(sweep(turned, ranks).assign(draw=index, **knobs))
    return pd.concat(tables, ignore_index=True)


def band(drawn: pd.DataFrame, mass: float = 0.9) -> pd.DataFrame:
    """Return low, median and high efficiency by library and ranks: the middle ``mass`` of what `draw` returned."""
    tails = [(1 - mass) / 2, 0.5, (1 + mass) / 2]
    table = drawn.groupby(["library", "ranks"], sort=False)["efficiency"].quantile(np.array(tails)).unstack()  # noqa: PD010
    table.columns = pd.Index(["low", "median", "high"])
    return table.reset_index().assign(source=SOURCE)


def bends(drawn: pd.DataFrame, drop: float = 0.05, mass: float = 0.9) -> pd.DataFrame:
    """Return low and high of the fewest ranks whose doubling costs more than ``drop``, by library, over the draws.

    Of every draw it is one of the ranks that were drawn, with the curve straight between them over the logarithm of
    ranks, and infinite where it does not bend.
    """
    found: dict[str, list[float]] = {}
    for (library, _), curve in drawn.groupby(["library", "draw"], sort=False):
        ranks, efficiency = curve["ranks"].to_numpy(float), curve["efficiency"].to_numpy()
        lost = efficiency - np.interp(np.log(2 * ranks), np.log(ranks), efficiency)
        bent = ranks[(lost > drop) & (2 * ranks <= ranks[-1]) & (ranks > 1)]
        found.setdefault(str(library), []).append(float(bent[0]) if len(bent) else np.inf)
    # Values of draws, not between them: some may be infinite.
    tails = {
        library: np.quantile(at, [(1 - mass) / 2, (1 + mass) / 2], method="nearest") for library, at in found.items()
    }
    return pd.DataFrame.from_dict(tails, orient="index", columns=["low", "high"])


def leads(drawn: pd.DataFrame, library: str, over: str, mass: float = 0.9) -> pd.DataFrame:
    """Return, by ranks, low and high of one library's efficiency over another's in the same draw."""
    curves = _curves(drawn, library, over)
    ratio = curves[library] / curves[over]
    tails = ratio.groupby("ranks").quantile(np.array([(1 - mass) / 2, (1 + mass) / 2])).unstack()  # noqa: PD010
    return tails.set_axis(["low", "high"], axis=1)


def wins(drawn: pd.DataFrame, library: str, over: str) -> pd.Series:
    """Return, by ranks, the share of draws in which one library is more efficient than another."""
    curves = _curves(drawn, library, over)
    return curves[library].gt(curves[over]).groupby("ranks").mean()


def _curves(drawn: pd.DataFrame, *libraries: str) -> dict[str, pd.Series]:
    missing = sorted(set(libraries) - set(drawn["library"]))
    if missing:
        raise ValueError(f"libraries {missing} were not drawn; accepted: {', '.join(drawn['library'].unique())}")
    return {str(name): part.set_index(["draw", "ranks"])["efficiency"] for name, part in drawn.groupby("library")}
