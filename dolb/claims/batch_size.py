"""The effects by which the claims of Gahlot et al. on batch size are judged: G1 to G4."""

from dolb.claims.rule import Claim, Estimates, Found, Judge
from dolb.findings import batch_size as study
from dolb.findings.intervals import Estimate, student, welch


def _optimum(found: Found, claim: Claim) -> Estimates:
    """Return G1: by how much the best of a curve is above its ends.

    A curve counts for an end if it reaches as far as the claim's batch sizes do.
    """
    curves = study.preferred(study.judged_runs(found[claim.experiment]))
    first, last = claim.setting["batch_size"]
    rises = curves.loc[curves["measured_from"] <= first, "rise"]
    falls = curves.loc[curves["measured_to"] >= last, "fall"]
    return [student(rises).points(), student(falls).points()]


def _spread(found: Found, claim: Claim) -> Estimates:
    """Return G2: by how much the networks lie farther apart at the highest rate that all have than at the lowest."""
    growth = study.growth(study.judged_runs(found[claim.experiment]))
    return [growth and growth.points()]


def _suddenness(found: Found, claim: Claim) -> Estimates:
    """Return G3: how much more suddenly the curves of deep networks fall, at the rates that every network has."""
    falls = study.falls(study.judged_runs(found[claim.experiment]))
    falls = falls[falls["arch"].isin([*claim.setting["shallow"], *claim.setting["deep"]])]
    falls = falls[falls.groupby("lr")["arch"].transform("nunique") == falls["arch"].nunique()]
    deep, shallow = (
        falls.loc[falls["arch"].isin(claim.setting[kind]), "suddenness"].to_numpy() for kind in ("deep", "shallow")
    )
    return [welch(deep, shallow) if min(len(deep), len(shallow)) > 1 else None]


def _noisy_statistics(found: Found, claim: Claim) -> Estimates:
    """Return G4: what batch norm over the smallest batch costs, less what a gradient over it costs."""
    parts = study.separated(found[claim.experiment])
    if parts.empty:
        return [None]
    at = parts.iloc[0]
    # The table has changes of accuracy; a cost is a change with the other sign.
    value, low, high = (-float(at[f"difference{end}"]) for end in ("", "_high", "_low"))
    return [Estimate(value, low, high, int(at["n"])).points()]


JUDGES: dict[str, Judge] = {"G1": _optimum, "G2": _spread, "G3": _suddenness, "G4": _noisy_statistics}
