"""What each round of the filter removes: filter, train on what is left, filter again.

Functions take the Dataset of ``results/noise.nc``: one entry of ``run`` is a mask.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr

from dolb.findings import noise
from dolb.findings.overlap import jaccard


def rounds(ds: xr.Dataset) -> pd.DataFrame:
    """Return what each round of the filter removes, from the mask in use on: a row per round.

    ``examples`` are those on its map, ``images`` those that it removes, ``eps`` its radius; all else are shares. Of all
    examples: ``removed`` by the round, ``in_all`` by the rounds so far, ``shared`` with the noise on maps by another
    training of the network on all examples, mean over these maps, and ``by_chance``, what a random draw from the
    round's own map, of as many of each class, would share. ``overlap`` is the Jaccard index of what is removed
    so far with what the first round removes.
    """
    frame, keep, masks, labels = noise.rows(ds), noise.kept(ds), noise.in_use(ds), ds["label"].to_numpy()
    positions = [noise.first(ds)]
    while len(after := frame.index[frame["within"] == frame["key"][positions[-1]]]):
        positions.append(int(after[0]))
    used = frame.iloc[positions[0]]
    same = (masks["arch"] == used["arch"]) & (masks["weights"] == used["weights"])
    elsewhere = ~keep[masks["position"][same & (masks["seed"] != used["seed"])]]
    likely = elsewhere.mean(axis=0) if len(elsewhere) else np.full(keep.shape[1], np.nan)
    found = []
    left = np.ones(keep.shape[1], dtype=bool)
    for number, at in enumerate(positions, start=1):
        so_far = ~keep[at]
        gone = left & so_far
        counts = {"round": number, "examples": int(left.sum()), "images": int(gone.sum())}
        shares = {"removed": gone.mean(), "in_all": so_far.mean(), "shared": (likely * gone).mean()}
        drawn = pd.Series(gone[left]).groupby(labels[left]).transform("mean")  # by a draw of as many of each class
        shares |= {
            "by_chance": float((likely[left] * drawn).sum()) / len(left),
            "overlap": jaccard(keep[[positions[0], at]], labels)[0][0, 1],
        }
        found.append({**counts, **shares, **frame.loc[at, ["key", "eps", "network_accuracy"]]})
        left = keep[at]
    return pd.DataFrame(found)


def radius_in_words(table: pd.DataFrame) -> str:
    """Say whether the rounds after the first take its radius or one of their own."""
    first, later = table["eps"].iloc[0], table["eps"].iloc[1:]
    if not len(later):
        return "no further round is among these masks"
    if np.isclose(later, first).all():
        return f"DBSCAN has the radius of the first round, {first:.2f}, though the new map may have another scale"
    return f"DBSCAN has a radius of its own there, {', '.join(f'{radius:.2f}' for radius in later)} after {first:.2f}"


def in_words(table: pd.DataFrame) -> str:
    """Say what each round removes, and how far another training of the network agrees with the last."""
    if len(table) < 2:
        return "A second round is not among these masks."
    told = [
        f"Round {row['round']} removes {row['images']:,} of {row['examples']:,} images, {row['removed']:.2%} of all, "
        f"on the map by a network with a test accuracy of {row['network_accuracy']:.1%}."
        for row in table.to_dict("records")
    ]
    last = table.iloc[-1]
    told.append(f"Together that is {last['in_all']:.2%}, of which the first round has {last['overlap']:.0%}.")
    if last["removed"] > 0 and np.isfinite(last["shared"]):
        share, chance = last["shared"] / last["removed"], last["by_chance"] / last["removed"]
        told.append(
            f"Of what round {last['round']:.0f} removes, {share:.0%} is noise on a map by another training on all "
            f"images; of a random draw from what was left to it, {chance:.0%} would be."
        )
    return " ".join(told)
