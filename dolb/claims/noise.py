"""The verdicts on what Gahlot et al. say of features and noise: G5, G6 and G17."""

from __future__ import annotations

import re
from collections.abc import Mapping

import xarray as xr

from dolb.claims.claim import MARGIN, Claim, Judge, agrees, outcome, so_far
from dolb.findings import noise as study
from dolb.findings import stability
from dolb.findings.stability import counted


def _widths(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    said = {f"resnet{depth}": width for depth, width in claims["G5"].reported["feature_width"].items()}
    rows = study.rows(ds).drop_duplicates("arch")
    pairs = zip(rows["arch"].astype(str), rows["feature_width"].astype(int), strict=True)
    ours = {arch: width for arch, width in pairs if arch in said}
    if not ours:
        return "not yet measured", "", "There is no map by one of the claim's networks."
    told = ", ".join(f"{arch} {width}" for arch, width in sorted(ours.items(), key=lambda item: _depth(item[0])))
    lacking = sorted(set(said) - set(ours), key=_depth)
    reason = "The widths are those of the arrays that the maps were made of." + (
        f" There is no map by {', '.join(lacking)} yet." if lacking else ""
    )
    holds = [ours[arch] == said[arch] for arch in ours]
    text = f"Features by network: {told}.{_so_far(len(holds), len(lacking))}"
    return so_far(outcome(*holds), holds, len(lacking)), text, reason


def _so_far(count: int, lacking: int) -> str:
    return f" So far {count} of {count + lacking} networks are measured." if lacking else ""


def _depth(arch: str) -> int:
    return int(re.sub(r"\D", "", arch) or 0)


def _shares(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    said = claims["G6"].reported["removed_percent"]
    table, changed = study.removed(ds), study.by_parameter(ds)
    table = table[(table["weights"] == "trained") & table["arch"].isin(list(said)) & table["low"].notna()]
    if table.empty:
        return "not yet measured", "", "Masks by two trainings of one of the claim's networks are the least."
    rows = table.sort_values("arch", key=lambda names: names.map(_depth)).to_dict("records")
    holds = [agrees(said[row["arch"]] / 100, row["low"], row["high"], MARGIN * said[row["arch"]] / 100) for row in rows]
    lacking = len(said) - len(rows)
    told = "; ".join(
        f"{row['arch']} {row['removed']:.2%} ({row['low']:.2%} to {row['high']:.2%}, from {row['n']} maps of "
        f"{counted(row['networks'], 'network')}, reported {said[row['arch']]}%)"
        for row in rows
    )
    reason = (
        "The paper has one map by one network. So the interval is a prediction interval, for one map by one more "
        "training of the network by the same recipe, from the variance between networks and that between the maps of "
        "one, both pooled over extractors relative to their shares. "
        f"{study.rests_on(table)} The paper's recipe for the network is another, and that is not in the interval. "
        f"{study.by_recipe_in_words(changed)} A network counts if the reported share lies within it, and is left "
        "open if the interval reaches further than half of that share to either side. The paper leaves the parameters "
        "of both methods at their defaults and names no library for them. Here DBSCAN's radius and number of points "
        "are scikit-learn's defaults, but the map is not by its t-SNE, which at the time of the paper started at "
        "random with a fixed rate: it is by openTSNE, which starts from the first two principal components, is given "
        "the leading components of the features, and has a rate that grows with the number of points. A map of "
        "another scale has another share of noise at the same radius, and the scale of a map follows from the rate "
        f"and the iterations. {study.by_map_in_words(changed)}"
    )
    text = f"Share called noise: {told}.{_so_far(len(rows), lacking)}"
    return so_far(outcome(*holds), holds, lacking), text, reason


def _pretrained(ds: xr.Dataset, claims: Mapping[str, Claim]) -> tuple[str, str, str]:
    pairs = stability.agreement(ds)
    arch = claims["G17"].setting["network"]
    mixed = pairs[(pairs["differs"] == stability.PAIRS[3]) & (pairs["one"].str.startswith(arch))]
    mixed = mixed[mixed["other"].str.startswith(arch)]
    own = pairs[(pairs["differs"] == stability.PAIRS[1]) & (pairs["one"] == arch)]
    if own.empty:
        return "not yet measured", "", f"Masks by two trainings of {arch} are the least."
    if mixed.empty:
        reason = (
            f"There is no mask by {arch} with ImageNet weights. These are not trained here but fetched over a network, "
            "and a machine that cannot reach them makes all other masks and leaves these out."
        )
        return "not testable here", "", reason
    ours = (
        f"What {arch} with ImageNet weights calls noise overlaps with what one trained here does by "
        f"{mixed['overlap'].mean():.2f} ({mixed['overlap'].min():.2f} to {mixed['overlap'].max():.2f} over "
        f"{len(mixed)} pairs); two trained here overlap by {own['overlap'].mean():.2f} ({own['overlap'].min():.2f} to "
        f"{own['overlap'].max():.2f} over {counted(len(own), 'pair')} of maps, of "
        f"{counted(own['networks'].nunique(), 'pair')} of networks), and random sets of these sizes would by "
        f"{mixed['by_chance'].mean():.2f}."
    )
    reason = (
        "To work as well is to find the noise that a trained extractor finds, as often as another one of its kind "
        "does: replicated if the mean overlap lies within the range of those between two trainings or above it, not "
        "replicated if it is no more than twice that of random sets."
    )
    mean = mixed["overlap"].mean()
    if mean >= own["overlap"].min():
        return "replicated", ours, reason
    return ("not replicated" if mean <= 2 * mixed["by_chance"].mean() else "mixed"), ours, reason


JUDGES: dict[str, Judge] = {"G5": _widths, "G6": _shares, "G17": _pretrained}
