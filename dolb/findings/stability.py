"""How far the noise of two maps is the same, by what the maps differ in.

Functions take the Dataset of ``results/noise.nc``: one entry of ``run`` is a mask. Maps of one network are alike, so
beside the pairs of masks stands how many networks, or pairs of them, these are from.
"""

from __future__ import annotations

from itertools import combinations

import pandas as pd
import xarray as xr

from dolb.findings import noise
from dolb.findings.overlap import jaccard

PAIRS = ("another map", "another training", "another network", "ImageNet weights")


def agreement(ds: xr.Dataset) -> pd.DataFrame:
    """Return how far two noise sets agree, by what the two maps differ in: Jaccard index, and that of random sets.

    The sets are made as the one in use, so that none is much larger than another.
    ``differs`` is in t-SNE's seed alone, in the seed of training, in the network, or in whether it was trained here;
    ``networks`` names the one or two whose maps the two are.
    """
    frame = noise.in_use(ds)
    overlaps, chance = jaccard(noise.kept(ds)[frame["position"]], ds["label"].to_numpy())
    found = []
    for one, other in combinations(range(len(frame)), 2):
        a, b = frame.iloc[one], frame.iloc[other]
        if a["weights"] != b["weights"]:
            differs = PAIRS[3]
        elif a["arch"] != b["arch"]:
            differs = PAIRS[2]
        else:
            differs = PAIRS[1] if a["seed"] != b["seed"] else PAIRS[0]
        told = {"one": a["extractor"], "other": b["extractor"], "differs": differs}
        networks = " and ".join(sorted({f"{row['extractor']} by seed {row['seed']}" for row in (a, b)}))
        numbers = {"overlap": overlaps[one, other], "by_chance": chance[one, other]}
        found.append({**told, "networks": networks, **numbers})
    return pd.DataFrame(found, columns=["one", "other", "differs", "networks", "overlap", "by_chance"])


def stability(ds: xr.Dataset) -> pd.DataFrame:
    """Return the agreement of noise sets by what the maps differ in: mean, least and most over the ``pairs`` of maps.

    ``networks`` counts those that the maps are by: for another map networks, and else pairs of networks.
    """
    pairs = agreement(ds)
    kinds = pairs.groupby("differs")
    columns = {"overlap": ("overlap", "mean"), "least": ("overlap", "min"), "most": ("overlap", "max")}
    counts = {"pairs": ("overlap", "size"), "networks": ("networks", "nunique")}
    found = kinds.agg(**columns, by_chance=("by_chance", "mean"), **counts)
    return found.reindex([kind for kind in PAIRS if kind in found.index]).reset_index()


def in_words(table: pd.DataFrame) -> str:
    """Say how far noise sets agree, by what their maps differ in, and of how many networks the maps are."""
    told = [
        f"by {row['differs']} {row['overlap']:.2f} ({row['least']:.2f} to {row['most']:.2f} over "
        f"{counted(row['pairs'], 'pair')} of maps, of {_of(row)})"
        for row in table.to_dict("records")
    ]
    return f"Agreement with the noise {'; '.join(told)}." if told else "There is only one mask to look at."


def _of(row: dict) -> str:
    if row["differs"] == PAIRS[0]:
        return counted(row["networks"], "network")
    return f"{counted(row['networks'], 'pair')} of networks"


def counted(number: int, noun: str) -> str:
    """Return a number and what it counts: one network, two of them 2 networks."""
    return f"one {noun}" if number == 1 else f"{number} {noun}s"
