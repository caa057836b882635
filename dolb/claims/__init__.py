"""Claims of the documents, and the verdicts that follow from published results by one rule.

``book/claims.yml`` holds the claims; the judges of a subject are a module here, results in, effects out.
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import xarray as xr
import yaml

from dolb import results
from dolb.claims import batch_size, filtered, learning_rates, scaling
from dolb.claims.rule import OUTCOMES, Claim, Effect, Judge, Verdict, verdict

__all__ = [
    "JUDGES", "OUTCOMES", "Claim", "Effect", "Verdict", "judge", "load", "published_verdicts", "reported_accuracies",
    "reported_by_set", "table",
]  # fmt: skip

JUDGES: dict[str, Judge] = batch_size.JUDGES | filtered.JUDGES | learning_rates.JUDGES | scaling.JUDGES


def load(path: str | Path | None = None) -> dict[str, Claim]:
    """Read the claims by id; without a path, those of this package's checkout."""
    path = path or Path(__file__).resolve().parents[2] / "book" / "claims.yml"
    written = yaml.load(Path(path).read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)  # ten times as fast
    return {entry["id"]: Claim(**{**entry, "effects": _effects(entry)}) for entry in written["claims"]}


def _effects(entry: Mapping[str, Any]) -> tuple[Effect, ...]:
    return tuple(
        Effect(each["is"], each["unit"], each["smallest"], each.get("no_difference", False))
        for each in entry.get("effects", ())
    )


def judge(claims: Mapping[str, Claim], found: Mapping[str, xr.Dataset]) -> dict[str, Verdict]:
    """Return a verdict for every claim, from results by slug; what has no judge or no results is not yet measured."""
    return {
        name: verdict(claim, JUDGES[name](found, claim) if name in JUDGES and claim.experiment in found else None)
        for name, claim in claims.items()
    }


def published_verdicts(ids: Iterable[str] | None = None, **live: xr.Dataset | None) -> dict[str, Verdict]:
    """Return the verdicts on these claims, or on all, by the published results.

    ``live`` names results by slug with underscores, which then stand for the published ones and alone decide.
    """
    claims = load()
    chosen = claims if ids is None else {name: claims[name] for name in ids}
    if live:
        found = {name.replace("_", "-"): ds for name, ds in live.items() if ds is not None}
    else:
        found = {path.stem: results.load(path) for path in sorted(results.published_folder().glob("*.nc"))}
    return judge(chosen, found)


def table(verdicts: Mapping[str, Verdict]) -> pd.DataFrame:
    """Return a row for each effect of each claim: what is measured and reported, ours with interval and n, verdict.

    Its ``smallest`` is the smallest effect that still is the claim's.
    """
    rows = []
    for name, one in verdicts.items():
        claim = one.claim
        about = {"claim": name, "statement": claim.statement, "reported": claim.quoted, "repeated": claim.repeated}
        unknown = {"effect": "checked as a fact" if claim.kind == "fact" else "", "unit": "", "part": one.outcome}
        parts: list[dict[str, Any]] = [
            {**_about(effect), "part": outcome, **(vars(estimate) if estimate else {})}
            for effect, estimate, outcome in zip(claim.effects, one.estimates, one.outcomes, strict=bool(one.estimates))
        ]
        none = {"value": math.nan, "low": math.nan, "high": math.nan, "n": 0}
        rows += [{**about, **none, **part, "verdict": one.outcome} for part in parts or [unknown]]
    return pd.DataFrame(rows).rename(columns={"value": "ours"})


def _about(effect: Effect) -> dict[str, Any]:
    about = vars(effect).copy()
    return {"effect": about.pop("measures"), **about}


def reported_accuracies(claims: Mapping[str, Claim]) -> list[dict[str, Any]]:
    """Return the accuracies that Gahlot et al. report for ResNet-18 on the full data, as points for a figure."""
    return [
        {
            "arch": "resnet18",
            "batch_size": row["batch_size"],
            "accuracy": row["accuracy"],
            "what": row["what"] + (f", weight decay {row['weight_decay']}" if "weight_decay" in row else ""),
        }
        for row in reported_by_set(claims)
        if row["set"] == "full"
    ]


def reported_by_set(claims: Mapping[str, Claim]) -> list[dict[str, Any]]:
    """Return the accuracies that Gahlot et al. report by training set and batch size, as points for a figure."""
    small = [
        {"set": name, "batch_size": int(size), **value, "accuracy": value["accuracy"] / 100, "what": "Fig. 6"}
        for size, sets in claims["G7"].reported.items()
        for name, value in sets.items()
    ]
    size, sets = claims["G12"].setting["batch_size"], claims["G12"].reported
    large = [
        {"set": name, "batch_size": size, "accuracy": value / 100, "what": "Fig. 7"} for name, value in sets.items()
    ]
    return [{**row, "what": f"Gahlot et al., {row['what']}"} for row in small + large]
