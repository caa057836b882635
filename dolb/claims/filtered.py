"""The effects of G5 to G17: features and noise, what training on filtered data gains, and its loss landscape.

Gains are at equal epochs, as the paper has it, and paired by seed, each seed by its mean over the claim's cells.
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from dolb.claims.rule import Claim, Estimates, Found, Judge
from dolb.findings import filtered as study
from dolb.findings import landscape, noise
from dolb.findings.intervals import Estimate, added, deviation_ratio, geometric, gmean, widest

# Features and noise


def _widths(found: Found, claim: Claim) -> bool | None:
    """Return whether features are as wide as the claim says, by the networks that it names."""
    said = pd.Series({f"resnet{depth}": width for depth, width in claim.reported["feature_width"].items()})
    ours = noise.rows(found[claim.experiment]).groupby("arch")["feature_width"].first().reindex(said.index)
    return None if ours.isna().any() else bool((ours == said).all())


def _ratio(found: Found, claim: Claim) -> Estimates:
    """Return the largest share of noise of an extractor over the smallest, on maps by the defaults of older libraries.

    A training of an extractor is one repetition, by the mean of the logarithms over its maps.
    """
    frame = noise.by_defaults(found[claim.experiment], claim.setting["maps"])
    trained = np.log(frame["removed"]).groupby([frame["arch"], frame["seed"]]).mean()
    shares = [group.to_numpy() for arch, group in trained.groupby("arch") if arch in claim.reported["removed_percent"]]
    if len(shares) < len(claim.reported["removed_percent"]) or min(map(len, shares)) < 2:
        return [None]
    return [widest(shares).map(np.exp)]


def _pretrained(found: Found, claim: Claim) -> Estimates:
    """Return what runs on the mask of a pretrained extractor reach, less those on that of one trained from scratch."""
    if "filtered-large-batch" not in found:
        return [None]
    frame = study.runs(found["filtered-large-batch"])
    frame = frame[frame["batch_size"].isin(frame.loc[frame["set"] == "pretrained", "batch_size"])]
    gain = _gain(found, frame, "pretrained")
    return [gain and Estimate(-gain.value, -gain.high, -gain.low, gain.n)]


# Training


def _best_accuracies(found: Found, claim: Claim) -> Estimates:
    """Each set at the weight decay at which it does best at a batch size, as the paper compares them."""
    best = study.at_best_decay(_at_decays(found, claim))
    sizes = sorted(map(int, claim.reported))
    return [_gain(found, _at(best, sizes[-1:]), "full"), _gain(found, _at(best, sizes), "random")]


def _gains(*others: str) -> Judge:
    """Return the judge of what filtered data gain over each of other sets, in the claim's cells."""

    def judge(found: Found, claim: Claim) -> Estimates:
        frame, asked = study.runs(found[claim.experiment]), claim.setting or {}
        if "weight_decay" in asked:
            frame = frame[frame["weight_decay"].isin(asked["weight_decay"])]
        if "batch_size" in asked:  # one or more, or the ends of a range
            ends = np.atleast_1d(asked["batch_size"])
            lacks = not set(ends) <= set(frame["batch_size"])
            frame = frame[:0] if lacks else frame[frame["batch_size"].between(ends.min(), ends.max())]
        frame = frame[frame["batch_size"] < asked.get("below", np.inf)]
        return [_gain(found, frame, other) for other in others]

    return judge


def _falls_with_batch(found: Found, claim: Claim) -> Estimates:
    small, large = claim.setting["batch_size"]
    frame = _at_decays(found, claim)
    frame = frame[(frame["set"] == "filtered") & frame["batch_size"].isin((small, large))]
    # The two batch sizes in the place of two sets: the same pairs by seed.
    ends = frame.assign(set=frame["batch_size"].map({small: "small", large: "large"}), batch_size=0)
    return [study.difference(ends, "large", "small")]


def _varies_more(found: Found, claim: Claim) -> Estimates:
    """The deviation between seeds of one set and batch size, pooled over sets and over sizes on a side."""
    frame = study.runs(found[claim.experiment]).set_index(list(study.CELL))[["accuracy"]]
    repeated = frame[frame.groupby(frame.index).transform("size") > 1]["accuracy"]
    large = repeated.index.get_level_values("batch_size") >= claim.setting["from"]
    if large.all() or not large.any():
        return [None]
    return [deviation_ratio(repeated[large], repeated[~large], study.CELL)]


def _at_decays(found: Found, claim: Claim) -> pd.DataFrame:
    frame = study.runs(found[claim.experiment])
    return frame[frame["weight_decay"].isin(claim.setting["weight_decay"])]


def _at(frame: pd.DataFrame, sizes: Iterable[int]) -> pd.DataFrame:
    """Return the runs at these batch sizes, or none if one of the sizes lacks."""
    lacks = set(sizes) - set(frame["batch_size"])
    return frame[:0] if lacks else frame[frame["batch_size"].isin(list(sizes))]


def _gain(found: Found, frame: pd.DataFrame, over: str) -> Estimate | None:
    """Return what filtered data gain, over seeds, and over masks where runs were made on several."""
    gain = study.difference(frame, "filtered", over)
    if gain is None or not {"filtered-large-batch", "other-masks"} <= set(found):
        return gain
    shift = study.over_masks(found["filtered-large-batch"], found["other-masks"], set(frame["batch_size"]))
    return added(gain, shift) if shift else gain


# The loss landscape


def _smoother(found: Found, claim: Claim) -> Estimates:
    """Return the top eigenvalue of the Hessian where every filter has length one, of others over filtered data.

    The paper measures nothing here, so what smooth means is ours: over the loss that training saw and over full data,
    against full and against random data, with a small and a large batch. A seed is its mean over these eight ratios.
    """
    table = landscape.values(found[claim.experiment])
    decides = table[(table["measure"] == "normalized_eigenvalue") & table["reading"].isin(("own", "full"))]
    pairs = landscape.in_pairs(decides).dropna(how="all", axis="columns").dropna()
    if pairs.empty or decides["set"].nunique() < 3 or decides["batch_size"].nunique() < 2:
        return [None]
    return [geometric(gmean(pairs, axis=1))]


JUDGES: dict[str, Judge] = {
    "G5": _widths,
    "G6": _ratio,
    "G17": _pretrained,
    "G16": _smoother,
    "G7": _best_accuracies,
    "G8": _gains("random"),
    "G9": _gains("full", "random"),
    "G10": _falls_with_batch,
    "G11": _gains("full"),
    "G12": _gains("full"),
    "G13": _gains("full"),
    "G14": _gains("random"),
    "G15": _varies_more,
}
