"""Claims of the five documents, and the verdicts that our results give on them.

``book/claims.yml`` holds the claims. A judge reads one experiment's Dataset and says what we found, with its interval,
and whether that agrees. A claim without a judge, or without results yet, is said to be not yet measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import xarray as xr
import yaml

from dolb import summary

OUTCOMES = ("replicated", "not replicated", "mixed", "not testable here", "not yet measured")
FEWEST_POINTS = 5  # a curve with fewer batch sizes is not judged for its shape

_TOO_FEW = f"No curve has at least {FEWEST_POINTS} batch sizes."


@dataclass(frozen=True)
class Claim:
    """One claim of one document, in our words, with the numbers it reports."""

    id: str
    source: str
    where: str
    kind: str
    experiment: str
    statement: str
    reported: Any = None
    setting: Any = None


@dataclass(frozen=True)
class Verdict:
    """What our runs say of a claim: the outcome, our finding in numbers, and how the outcome follows from it."""

    claim: Claim
    outcome: str
    ours: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        """Refuse an outcome that the book does not explain."""
        if self.outcome not in OUTCOMES:
            raise ValueError(f"outcome {self.outcome!r} is not known; accepted: {', '.join(OUTCOMES)}")


Judge = Callable[[xr.Dataset, Mapping[str, Claim]], tuple[str, str, str]]


def load(path: str | Path | None = None) -> tuple[dict[str, dict[str, Any]], dict[str, Claim]]:
    """Read the documents and their claims, by source and by id; without a path, those of this package's checkout."""
    path = path or Path(__file__).resolve().parents[1] / "book" / "claims.yml"
    content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    claims = [Claim(**{str(name): value for name, value in entry.items()}) for entry in content["claims"]]
    return content["sources"], {claim.id: claim for claim in claims}


def judge(claims: Mapping[str, Claim], results: Mapping[str, xr.Dataset]) -> dict[str, Verdict]:
    """Return a verdict for every claim, from the results of its experiment where they are there."""
    verdicts = {}
    for name, claim in claims.items():
        if name in JUDGES and claim.experiment in results:
            verdicts[name] = Verdict(claim, *JUDGES[name](results[claim.experiment], claims))
        else:
            verdicts[name] = Verdict(claim, "not yet measured")
    return verdicts


def reported_accuracies(claims: Mapping[str, Claim]) -> list[dict[str, Any]]:
    """Return the accuracies that Gahlot et al. report for ResNet-18 on the full data, as points for a figure."""
    small, large = claims["G7"].reported["256"]["full"], claims["G12"]
    return [
        {
            "arch": "resnet18",
            "batch_size": 256,
            "accuracy": small["accuracy"] / 100,
            "what": f"Gahlot et al., Fig. 6, weight decay {small['weight_decay']}",
        },
        {
            "arch": "resnet18",
            "batch_size": 6272,
            "accuracy": large.reported["full"] / 100,
            "what": "Gahlot et al., Fig. 7",
        },
    ]


# -- the batch-size study ----------------------------------------------------------------------------------------------


def curve_cells(ds: xr.Dataset) -> pd.DataFrame:
    """Return the cells of the batch-size curve: eight workers' statistics from the smallest distributed batch on."""
    frame = summary.final_accuracy(ds)
    distributed = frame.loc[frame["bn_workers"] == 8, "batch_size"].min()
    expected = (frame["batch_size"] >= distributed).map({True: 8, False: 1})
    return summary.over_seeds(frame[frame["bn_workers"] == expected], ["arch", "lr", "batch_size"])


def share_cells(ds: xr.Dataset) -> pd.DataFrame:
    """Return accuracy by examples in one batch-norm share, at the one batch size that was run with several shares."""
    frame = summary.final_accuracy(ds)
    variants = frame.groupby(["arch", "lr", "batch_size"])["bn_workers"].transform("nunique")
    frame = frame[variants > 2].assign(share=lambda rows: rows["batch_size"] // rows["bn_workers"])
    if frame.empty:
        return frame.assign(low=[], high=[], n=[], interval=[])
    return summary.over_seeds(frame, ["arch", "lr", "batch_size", "share"])


def judged_curves(ds: xr.Dataset) -> pd.DataFrame:
    """Return the preferred batch size of every curve that has enough points to have a shape."""
    preferred = summary.preferred_batch_size(curve_cells(ds))
    return preferred[preferred["points"] >= FEWEST_POINTS].reset_index(drop=True)


def _optimum(ds: xr.Dataset, _claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    curves = judged_curves(ds)
    if curves.empty:
        return "not yet measured", "", _TOO_FEW
    inside = curves[curves["rises"] & curves["falls"]]
    listed = "; ".join(
        f"{row.arch}, rate {row.lr:g}: {row.batch_size:,}"
        + ("" if row.rises else " (the smallest measured: no rise)")
        + ("" if row.falls else " (the largest measured: no fall)")
        for row in curves.itertuples()
    )
    ours = (
        f"{len(inside)} of {len(curves)} curves rise to an optimum inside the measured range and fall after it, each "
        f"by more than its 95% interval. Preferred batch size: {listed}."
    )
    outcome = "replicated" if len(inside) == len(curves) else "mixed" if len(inside) else "not replicated"
    reason = (
        f"A curve counts if its ends, batch {curves['measured_from'].min():,} and {curves['measured_to'].max():,}, "
        "both lie below its best cell by more than the uncertainty of the difference."
    )
    return outcome, ours, reason


def _noisy_statistics(ds: xr.Dataset, _claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    cells, curves = curve_cells(ds), judged_curves(ds)
    if curves.empty:
        return "not yet measured", "", _TOO_FEW
    cells = cells.merge(curves[["arch", "lr"]], on=["arch", "lr"])
    smallest = int(cells["batch_size"].min())
    ranked = cells.sort_values("accuracy", ascending=False)
    best, small = ranked.iloc[0], ranked[ranked["batch_size"] == smallest].iloc[0]
    lost = float(best["accuracy"] - small["accuracy"])
    unclear = float(((best["high"] - best["low"]) ** 2 + (small["high"] - small["low"]) ** 2) ** 0.5 / 2)
    worse = int((curves["rises"]).sum())
    ours = (
        f"At a fixed rate, batch {smallest} is worse than the optimum for {worse} of {len(curves)} rates. With the "
        f"rate that suits it ({small['lr']:g}) batch {smallest} reaches {small['accuracy']:.1%}, "
        + (
            f"{100 * lost:.1f} ± {100 * unclear:.1f} points under the best cell of all."
            if lost
            else "the best cell of all."
        )
    )
    shares = share_cells(ds)
    penalty = lost > unclear
    if shares.empty:
        reason = (
            "What is seen is judged, its cause not yet: a loss that the right rate mends speaks against noisy "
            "statistics, but the direct test, smaller and smaller shares of one batch, is not published yet."
        )
        return "mixed", ours, reason
    low, high = shares.sort_values("share").iloc[0], shares.sort_values("accuracy").iloc[-1]
    fallen = float(high["accuracy"] - low["accuracy"])
    doubt = float(((high["high"] - high["low"]) ** 2 + (low["high"] - low["low"]) ** 2) ** 0.5 / 2)
    ours += (
        f" With the gradient's batch held at {int(low['batch_size'])}, statistics over {int(low['share'])} examples "
        f"instead of {int(high['share'])} change the accuracy by {-100 * fallen:.1f} ± {100 * doubt:.1f} points."
    )
    noisy = fallen > doubt
    reason = "Replicated needs both: a loss that the right rate does not mend, and a loss from smaller shares alone."
    return ("replicated" if penalty and noisy else "mixed" if penalty or noisy else "not replicated"), ours, reason


JUDGES: dict[str, Judge] = {"G1": _optimum, "G4": _noisy_statistics}
