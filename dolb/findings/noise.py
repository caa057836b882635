"""The numbers of noise: how much there is, what that depends on, and what else finds it.

Functions take the Dataset of ``results/features.nc`` or ``results/noise.nc``: one entry of ``run`` is a map or a mask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from dolb import findings as summary
from dolb import results
from dolb.findings.batch_size import by_depth
from dolb.findings.coverage import listed
from dolb.findings.overlap import by_chance, jaccard

_NAMES = [
    "key",
    "arch",
    "weights",
    "seed",
    "map_seed",
    "filter",
    "perplexity",
    "min_samples",
    "eps",
    "iterations",
    "network_accuracy",
]
# What older files lack, and what they are of.
LATER: dict[str, Any] = {"trained_by": "", "size_of": "", "within": "", **results.LATER}
MORE = ["feature_width", "seconds", "peak_memory_bytes"]
ON_THE_MAP = ("dbscan", "share", "knee", "hdbscan")
_MAP = ["perplexity", "map_rate", "map_start", "iterations"]  # how a map is made of features
_DEFAULT_EPS = 0.5  # of DBSCAN
IMAGENET = " with ImageNet weights"
FLAGGED = "flagged"  # the mask without all that confident learning flags: of no other's size


def rows(ds: xr.Dataset) -> pd.DataFrame:
    """Return a row per map or mask, with what it is of; ``removed`` is the share of examples that a mask removes."""
    frame = pd.DataFrame({name: ds[name].to_numpy() for name in [*_NAMES, *MORE]})
    frame = frame.assign(**{name: ds[name].to_numpy() if name in ds else value for name, value in LATER.items()})
    frame["eps"] = frame["eps"].where(_has_radius(frame))
    frame["extractor"] = np.where(frame["weights"] == "imagenet", frame["arch"] + ", ImageNet", frame["arch"])
    if "keep" in ds:
        frame["removed"] = 1 - kept(ds).mean(axis=1)
    return frame


def _has_radius(frame: pd.DataFrame) -> pd.Series:
    """Return which masks have a radius of their own: files of before have the default where none was used or known."""
    found = (frame["filter"] == "knee") & (frame["eps"] != _DEFAULT_EPS)
    return frame["filter"].isin(["dbscan", "share"]) | found


def lacking(ds: xr.Dataset, configs: Sequence[Any]) -> str:
    """Say which of the maps or masks that an experiment has are not among these yet, by extractor and training."""
    known, left = set(map(str, ds["key"].to_numpy())), 0
    planned: dict[str, dict[int, list[bool]]] = {}
    for one in configs:
        extractor = f"{one.arch}{IMAGENET}" if one.weights == "imagenet" else str(one.arch)
        planned.setdefault(extractor, {}).setdefault(one.seed, []).append(one.key in known)
    absent, part = [], []
    for extractor, seeds in planned.items():
        begun = [found for found in seeds.values() if any(found)]
        left += sum(not there for found in begun for there in found)
        if not begun:
            absent.append(extractor)
        elif len(begun) < len(seeds):
            part.append(f"{extractor} ({len(begun)} of {len(seeds)})")
    unheld = [name for name in absent if name.endswith(IMAGENET)]
    absent = [name for name in absent if name not in unheld]
    told = [f"There is no map yet by {listed(by_depth(absent))}."] if absent else []
    told += [f"There is no map by {listed(by_depth(unheld))}, which have to be fetched."] if unheld else []
    told += [f"Not all trainings are here yet of {listed(by_depth(part))}."] if part else []
    told += [f"Of the others {left} {'is' if left == 1 else 'are'} not here yet."] if left else []
    return " ".join(told)


def kept(ds: xr.Dataset) -> np.ndarray:
    """Return the masks, (runs, examples)."""
    return ds["keep"].transpose("run", "example").to_numpy().astype(bool)


def grid(ds: xr.Dataset, *, share: float = 0.0) -> pd.DataFrame:
    """Return the masks that differ in extractor and seeds alone, with ``position`` among the runs.

    They are by the parameters that most have; with ``share``, by the radius at which each map has that share of noise.
    Of two networks with one seed it is the one that was trained better.
    """
    frame = rows(ds).assign(position=np.arange(ds.sizes["run"]))
    frame = frame[(frame["within"] == "") & frame["filter"].isin(ON_THE_MAP) & (frame["share"] == share)]
    for name in ("filter", "min_samples", *_MAP):
        frame = frame[frame[name] == frame[name].mode()[0]] if len(frame) else frame
    if (frame["filter"] == "dbscan").any():  # others find a radius on each map
        frame = frame[frame["eps"] == frame["eps"].mode()[0]]
    return frame[better(frame)].reset_index(drop=True)


def better(frame: pd.DataFrame) -> pd.Series:
    """Return which rows are by the network that was trained better, where there are several of one seed."""
    accuracy = frame["network_accuracy"].fillna(0.0)
    return accuracy == accuracy.groupby([frame[name] for name in ("arch", "weights", "seed")]).transform("max")


def in_use(ds: xr.Dataset) -> pd.DataFrame:
    """Return the masks that are made as the one that runs are trained with, by all extractors and seeds."""
    return grid(ds, share=float(rows(ds)["share"][first(ds)]))


def first(ds: xr.Dataset) -> int:
    """Return the position of the mask in use: the one whose size others have, else the first of its share, or of all.

    Of several by networks that were trained better or worse it is that by the best.
    """
    frame = rows(ds)
    asked = frame[frame["key"].isin(set(frame["size_of"]) - {""})]
    if len(asked):
        return int(asked.index[int(asked["network_accuracy"].fillna(0.0).argmax())])
    shares = frame.loc[(frame["share"] > 0) & (frame["within"] == ""), "share"]
    return int(grid(ds, share=float(shares.iloc[0]) if len(shares) else 0.0)["position"].iloc[0])


def of_size(frame: pd.DataFrame, at: int) -> pd.Series:
    """Return which masks were given the size of the one at a position; where none says whose it has, all."""
    return (frame["size_of"] == frame["key"][at]) | (frame["size_of"] == "").all()


def reference(ds: xr.Dataset) -> xr.Dataset:
    """Return the mask that runs are trained with, and its map, over ``example`` alone."""
    return ds.isel(run=first(ds))


def has_map(one: xr.Dataset) -> bool:
    """Whether a mask has its map with it: that of each network's first training and first seed of t-SNE has."""
    return "x" in one and bool(np.isfinite(one["x"]).all())


def points_of(one: xr.Dataset, classes: Sequence[str]) -> pd.DataFrame:
    """Return a row for each example of one mask: its class, place on the map, and whether and until when it is kept."""
    names = np.array(classes)[one["label"].to_numpy()]
    return pd.DataFrame({"class": names} | {name: one[name].to_numpy() for name in ("x", "y", "keep", "noise_until")})


def removed(ds: xr.Dataset) -> pd.DataFrame:
    """Return the share that is noise by extractor: mean over seeds of training and of t-SNE, and where another may lie.

    ``low`` and ``high`` are a prediction interval: for one map by one more training of the network by the same recipe.
    Maps of one network are alike, so there are two variances, between networks (of the means of their maps) and
    between the maps of one network. Few networks tell little of the first; both are pooled over all extractors,
    relative to the share of each, and the interval is Student's with the degrees of freedom of Satterthwaite. NaN where
    no extractor was trained twice; ``freedom`` is that of the variance between networks.
    """
    masks = grid(ds)
    by = ["extractor", "arch", "weights"]
    relative = masks["removed"] / masks.groupby(by)["removed"].transform("mean").replace(0, 1)
    networks = masks.assign(relative=relative).groupby([*by, "seed"])["relative"].agg(["mean", "var", "size"])
    within = _pooled(networks["var"], networks["size"] - 1)
    means = networks.groupby(by)["mean"].agg(["var", "size"])
    between = _pooled(means["var"], means["size"] - 1)
    found = []
    for names, group in masks.groupby(by, sort=False):
        share = group["removed"].to_numpy()
        seeds = {"networks": group["seed"].nunique(), "map_seeds": group["map_seed"].nunique()}
        maps = float(stats.hmean(group.groupby("seed").size()))
        half = share.mean() * _prediction(between, within, seeds["networks"], maps)
        ends = {"low": float(np.maximum(0.0, share.mean() - half)), "high": share.mean() + half}
        numbers = {"removed": share.mean(), **ends, "least": share.min(), "most": share.max(), "n": len(share)}
        found.append({**dict(zip(by, names, strict=True)), **numbers, **seeds, "freedom": between[1]})
    columns = [*by, "removed", "low", "high", "least", "most", "n", "networks", "map_seeds", "freedom"]
    return pd.DataFrame(found, columns=columns)


def rests_on(table: pd.DataFrame) -> str:
    """Say of how many trainings the table of `removed` knows how far two of one network differ."""
    several = table[table["networks"] > 1]
    if several.empty:
        return "No network here was trained twice, so there is no interval."
    trainings = several.set_index("extractor")["networks"]
    told = listed(f"{trainings[name]} trainings of {name}" for name in by_depth(trainings.index))
    freedom = int(several["freedom"].iloc[0])
    return (
        f"How far trainings differ is known from {told} alone, {freedom} degree{'s' if freedom > 1 else ''} of "
        "freedom, and taken to be no less than what the maps of each network make of it by themselves."
    )


def _pooled(variances: pd.Series, freedom: pd.Series) -> tuple[float, int]:
    """Return the mean of variances by their degrees of freedom, and the sum of these; NaN where there are none."""
    known = freedom > 0
    total = int(freedom[known].sum())
    return (float((variances[known] * freedom[known]).sum() / total) if total else float("nan")), total


def _prediction(between: tuple[float, int], within: tuple[float, int], networks: int, maps: float) -> float:
    """Return half the width of a prediction interval for one map of one more network.

    ``between`` is the variance of the means of ``maps`` maps, of which there are ``networks``, and ``within`` that of
    the maps of a network, each with its degrees of freedom. A single map varies by the first, less its part that is
    from the maps, and by the second. Means of maps vary at least as their maps make them: a smaller ``between`` is
    luck, as two networks may well have, and raised to that.
    """
    least = within[0] / maps if within[1] else 0.0
    parts = [(np.maximum(between[0], least) * (1 + 1 / networks), between[1])]
    if maps > 1:
        parts.append((within[0] * (1 - 1 / maps), within[1]))
    total = sum(variance for variance, _ in parts)
    if not total > 0:
        return total  # zero, or NaN where one of the two is not known
    freedom = total**2 / sum(variance**2 / count for variance, count in parts if count)
    return float(stats.t.ppf((1 + summary.CONFIDENCE) / 2, freedom) * np.sqrt(total))


def flagged(ds: xr.Dataset) -> dict[str, float]:
    """Return how many images confident learning flags, how many are noise, and how many both; nothing without flags.

    ``by_chance`` is how many of the noise it would flag if it drew as many of each class at random.
    """
    frame, keep = rows(ds), ~kept(ds)
    found = frame.index[frame["filter"] == FLAGGED]
    if not len(found):
        return {}
    noise, flags = keep[first(ds)], keep[found[0]]
    chance = by_chance(noise, flags, ds["label"].to_numpy())
    counts = {"flagged": int(flags.sum()), "noise": int(noise.sum()), "both": int((flags & noise).sum())}
    return {"images": len(flags), **counts, "by_chance": chance}


def flagged_in_words(counts: Mapping[str, float]) -> str:
    """Say how many labels confident learning flags as wrong, and how many of those are noise too."""
    if not counts:
        return "What confident learning flags is not among these masks."
    told = f"Confident learning flags {counts['flagged']:,} of {counts['images']:,} labels as wrong."
    if not counts["noise"] or not counts["flagged"]:
        return told
    return (
        f"{told} Of the {counts['noise']:,} images that are noise it flags {counts['both']:,}, "
        f"{counts['both'] / counts['noise']:.1%}; of as many drawn at random from the same classes it would flag "
        f"{counts['by_chance']:,.0f}, {counts['by_chance'] / counts['noise']:.1%}. And of what it flags "
        f"{counts['both'] / counts['flagged']:.1%} is noise."
    )


def by_eps(ds: xr.Dataset, steps: int = 60) -> pd.DataFrame:
    """Return the share that DBSCAN calls noise by eps, for the first map of each extractor."""
    frame = grid(ds)
    if "noise_until" not in ds:
        return pd.DataFrame(columns=["extractor", "eps", "removed"])
    until = ds["noise_until"].transpose("run", "example").to_numpy()
    there = frame[np.isfinite(until[frame["position"]]).any(axis=1)].drop_duplicates("extractor")
    found = until[there["position"]]
    if not len(found):
        return pd.DataFrame(columns=["extractor", "eps", "removed"])
    eps = np.geomspace(np.quantile(found, 0.01), np.quantile(found, 0.999), steps)
    parts = [
        pd.DataFrame({"extractor": extractor, "eps": eps, "removed": (radii[:, None] > eps).mean(axis=0)})
        for extractor, radii in zip(there["extractor"], found, strict=True)
    ]
    return pd.concat(parts, ignore_index=True)


def radii(ds: xr.Dataset) -> dict[str, float]:
    """Return the radii that are worth a mark beside the share by eps: the library's, and that of the mask in use."""
    used, usual = rows(ds).iloc[first(ds)], grid(ds)
    marks = {"default": usual.iloc[0]} if len(usual) and usual["filter"].iloc[0] == "dbscan" else {}
    marks |= {"in use": used} if used["filter"] in ("dbscan", "share") else {}
    return {name: float(row["eps"]) for name, row in marks.items()}


_SEEDED = ["arch", "weights", "seed", "map_seed"]


def by_parameter(ds: xr.Dataset) -> pd.DataFrame:
    """Return the share removed as one parameter changes, of the map of the mask in use, and the overlap with the usual.

    ``parameter`` is perplexity, min_samples, filter, how the map is made, or how well the network was trained; the mask
    by the library's own parameters, ``first``, stands in each of them.
    """
    frame, counted = rows(ds), grid(ds)
    if counted.empty:
        return pd.DataFrame(columns=["parameter", "value", "first", "removed", "overlap"])
    used = frame.iloc[first(ds)]  # whatever the order in which masks were published
    usual = counted.iloc[int((counted[_SEEDED] == used[_SEEDED]).all(axis=1).to_numpy().argmax())]
    at = int(usual["position"])
    overlaps = jaccard(kept(ds), ds["label"].to_numpy())[0][at]
    same = frame[frame["filter"].isin(ON_THE_MAP)]
    for name in (*_SEEDED, "within"):
        same = same[same[name] == usual[name]]
    kinds = {name: [name] for name in ("perplexity", "min_samples", "filter")}
    kinds |= {"map": _MAP[1:], "test accuracy": ["trained_by"]}
    found = []
    for parameter, names in kinds.items():
        rest = [name for others in kinds.values() for name in others if name not in names]
        order = names if parameter != "test accuracy" else ["network_accuracy"]
        for position, row in same[(same[rest] == usual[rest]).all(axis=1)].sort_values(order).iterrows():
            told = {"parameter": parameter, "value": _value(row, parameter), "first": position == at}
            found.append({**told, "removed": row["removed"], "overlap": overlaps[position]})
    return pd.DataFrame(found)


def by_map_in_words(table: pd.DataFrame) -> str:
    """Say how much is noise at the usual radius if the map is made otherwise of the same features."""
    others = table[(table["parameter"] == "map") & ~table["first"]]
    if others.empty:
        return "No map was made otherwise of the same features."
    usual = table.loc[table["first"], "removed"].iloc[0]
    told = "; ".join(f"{row['removed']:.1%} with {row['value']}" for row in others.to_dict("records"))
    return f"Of the usual map {usual:.1%} is noise at this radius; of other maps of the same features {told}."


def by_recipe_in_words(table: pd.DataFrame) -> str:
    """Say how much is noise on maps by the same network, trained by another recipe to another accuracy."""
    shares = table[table["parameter"] == "test accuracy"]
    if len(shares) < 2:
        return "No network here was trained by two recipes."
    told = "; ".join(f"{row['removed']:.1%} where it is {row['value']}" for row in shares.to_dict("records"))
    return f"Another recipe, by which the network has another test accuracy, has another share of noise: {told}."


def _value(row: pd.Series, parameter: str) -> str:
    if parameter == "filter":
        return f"share {row['share']:.2%}" if row["share"] else str(row["filter"])
    if parameter == "test accuracy":
        return f"{row['network_accuracy']:.1%}"
    if parameter != "map":
        return f"{row[parameter]:g}"
    rate = f"rate {row['map_rate']:g}" if row["map_rate"] else "rate by size"
    return f"{rate}, {row['map_start']} start, {row['iterations']:g} iterations"


def others(ds: xr.Dataset) -> pd.DataFrame:
    """Return what other ways to choose have in common with the first mask, at equal size.

    ``shared`` is the share of what the first removes that the other removes too; ``by_chance`` that of a random set
    with as many of each class as the other.
    """
    frame, keep, labels = rows(ds), kept(ds), ds["label"].to_numpy()
    noise = ~keep[first(ds)]
    baselines = frame[~frame["filter"].isin([*ON_THE_MAP, FLAGGED]) & of_size(frame, first(ds))]
    found = [
        {
            "key": row["key"],
            "filter": row["filter"],
            "removed": row["removed"],
            "shared": float((~keep[at])[noise].mean()),
            "images": int((~keep[at] & noise).sum()),
            "by_chance": by_chance(noise, ~keep[at], labels) / noise.sum(),
        }
        for at, row in zip(baselines.index.to_list(), baselines.to_dict("records"), strict=True)
    ]
    return pd.DataFrame(found, columns=["key", "filter", "removed", "shared", "images", "by_chance"])
