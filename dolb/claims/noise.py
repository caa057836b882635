"""The judges of what Gahlot et al. say of features and noise: G5, G6 and G17."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from dolb.claims.rule import Claim, Judge
from dolb.findings import filtered, intervals
from dolb.findings import noise as study
from dolb.findings.intervals import Estimate


def _widths(found: Mapping[str, xr.Dataset], claim: Claim) -> bool | None:
    """Return whether features are as wide as the claim says, by the networks that it names."""
    said = {f"resnet{depth}": width for depth, width in claim.reported["feature_width"].items()}
    ours = study.rows(found["features"]).groupby("arch")["feature_width"].first()
    if not set(said) <= set(ours.index):
        return None
    return all(int(ours[arch]) == width for arch, width in said.items())


def _ratio(found: Mapping[str, xr.Dataset], claim: Claim) -> Sequence[Estimate | None]:
    """Return the largest share of noise of an extractor over the smallest, on maps by the defaults of 2020.

    A training of an extractor is one repetition, by the mean of the logarithms over its maps.
    """
    frame = study.by_defaults(found["noise"], claim.setting["maps"])
    trained = np.log(frame["removed"]).groupby([frame["arch"], frame["seed"]]).mean()
    shares = [group.to_numpy() for arch, group in trained.groupby("arch") if arch in claim.reported["removed_percent"]]
    if len(shares) < len(claim.reported["removed_percent"]) or min(map(len, shares)) < 2:
        return [None]
    return [intervals.widest(shares).map(lambda log: float(np.exp(log)))]


def _pretrained(found: Mapping[str, xr.Dataset], claim: Claim) -> Sequence[Estimate | None]:
    """Return what runs on the mask of a pretrained extractor reach, less those on that of one trained from scratch."""
    if "filtered-large-batch" not in found:
        return [None]
    frame = filtered.runs(found["filtered-large-batch"])
    frame = frame[frame["batch_size"].isin(frame.loc[frame["set"] == "pretrained", "batch_size"])]
    return [filtered.difference(frame, "pretrained", "filtered")]


JUDGES: dict[str, Judge] = {"G5": _widths, "G6": _ratio, "G17": _pretrained}
