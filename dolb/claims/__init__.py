"""Claims of the five documents, and the verdicts that our results give on them.

``book/claims.yml`` holds the claims. A judge reads one experiment's Dataset and says what we found, with its interval,
and whether that agrees; each experiment's judges are a module here. A claim without a judge, or without results yet,
is said to be not yet measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray as xr
import yaml

from dolb.claims import batch_size, ddp_vs_horovod, filtered, landscape, noise, step_timeline
from dolb.claims.claim import OUTCOMES, Claim, Judge, Verdict

__all__ = [
    "JUDGES", "OUTCOMES", "Claim", "Judge", "Verdict", "judge", "load", "reported_accuracies", "reported_by_set",
    "scaling_measurements", "statements",
]  # fmt: skip

JUDGES: dict[str, Judge] = {
    **batch_size.JUDGES,
    **noise.JUDGES,
    **filtered.JUDGES,
    **landscape.JUDGES,
    **ddp_vs_horovod.JUDGES,
    **step_timeline.JUDGES,
}


def load(path: str | Path | None = None) -> tuple[dict[str, dict[str, Any]], dict[str, Claim]]:
    """Read the documents and their claims, by source and by id; without a path, those of this package's checkout."""
    content = _read(path)
    claims = [Claim(**{str(name): value for name, value in entry.items()}) for entry in content["claims"]]
    return content["sources"], {claim.id: claim for claim in claims}


def scaling_measurements(path: str | Path | None = None) -> list[dict[str, Any]]:
    """Return published measurements of data-parallel scaling, as the list of claims has them."""
    return _read(path)["scaling_measurements"]


def _read(path: str | Path | None) -> dict[str, Any]:
    path = path or Path(__file__).resolve().parents[2] / "book" / "claims.yml"
    return yaml.safe_load(Path(path).read_text(encoding="utf-8"))


def judge(claims: Mapping[str, Claim], results: Mapping[str, xr.Dataset]) -> dict[str, Verdict]:
    """Return a verdict for every claim, from the results of its experiment where they are there."""
    verdicts = {}
    for name, claim in claims.items():
        if name in JUDGES and claim.experiment in results:
            verdicts[name] = Verdict(claim, *JUDGES[name](results[claim.experiment], claims))
        else:
            verdicts[name] = Verdict(claim, "not yet measured")
    return verdicts


def statements(claims: Mapping[str, Claim], *names: str) -> list[str]:
    """Return what these claims say, each as a line that a figure can show beside our runs."""
    return [f"Reported, {claims[name].where}: {claims[name].statement}." for name in names]


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


def reported_by_set(claims: Mapping[str, Claim]) -> list[dict[str, Any]]:
    """Return the accuracies that Gahlot et al. report by training set and batch size, as points for a figure."""
    small = [
        {
            "set": name,
            "batch_size": int(size),
            "accuracy": value["accuracy"] / 100,
            "weight_decay": value["weight_decay"],
        }
        for size, sets in claims["G7"].reported.items()
        for name, value in sets.items()
    ]
    size = claims["G12"].setting["batch_size"]
    large = [
        {"set": name, "batch_size": size, "accuracy": value / 100} for name, value in claims["G12"].reported.items()
    ]
    return [{**row, "what": "Gahlot et al., Fig. 6"} for row in small] + [
        {**row, "what": "Gahlot et al., Fig. 7"} for row in large
    ]
