"""The numbers of pages 02 and 03: maps of features, how much on them is noise, what that depends on, and who agrees.

Functions take the Dataset of ``results/features.nc`` or ``results/noise.nc``: one entry of ``run`` is a map or a mask.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import pandas as pd
import xarray as xr
from scipy.spatial import cKDTree

ON_THE_MAP = ("dbscan", "share", "knee", "hdbscan")
DRAWN = 2000  # points drawn of one set: more only hide each other
NEIGHBOURS = 10  # points of the training set that say where on the map a point lies
PARTS = ("network_seconds", "feature_seconds", "map_seconds", "score_seconds", "mask_seconds")  # of a mask's cost
PAIRS = ("another map", "another training", "another network", "ImageNet weights")
_NAMES = (
    "key", "arch", "weights", "seed", "map_seed", "filter", "perplexity", "min_samples", "eps", "iterations",
    "network_accuracy", "feature_width", "seconds", "peak_memory_bytes", "trained_by", "size_of", "within", "map_rate",
    "map_start", "share",
)  # fmt: skip
_PLACED = ["perplexity", "map_rate", "map_start", "iterations"]  # how a map is made of features
_SEEDED = ["arch", "weights", "seed", "map_seed"]


def rows(ds: xr.Dataset) -> pd.DataFrame:
    """Return a row per map or mask, with what it is of; ``removed`` is the share of examples that a mask removes."""
    frame = pd.DataFrame({name: ds[name].to_numpy() for name in _NAMES})
    frame["eps"] = frame["eps"].where(frame["filter"].isin(["dbscan", "share"]))  # others use no radius
    frame["extractor"] = np.where(frame["weights"] == "imagenet", frame["arch"] + ", ImageNet", frame["arch"])
    if "keep" in ds:
        frame["removed"] = 1 - kept(ds).mean(axis=1)
    return frame


def kept(ds: xr.Dataset) -> np.ndarray:
    """Return the masks, (runs, examples)."""
    return ds["keep"].transpose("run", "example").to_numpy().astype(bool)


# Maps of features


def best_maps(ds: xr.Dataset) -> xr.Dataset:
    """Return the maps that are drawn, the shallow first: of two by networks of one seed, that by the better one."""
    frame = rows(ds)
    chosen = frame[better(frame)]
    return ds.isel(run=sorted(chosen.index, key=lambda run: (len(chosen["extractor"][run]), chosen["extractor"][run])))


def points(ds: xr.Dataset, classes: Sequence[str], most: int = DRAWN) -> pd.DataFrame:
    """Return a row per image drawn: ``example``, its number, training set first, ``set``, ``class``, and its places.

    ``EXTRACTOR x`` and ``EXTRACTOR y`` are its place on the map of each extractor. Of training and test set at most
    ``most`` are drawn, evenly spaced.
    """
    ds = best_maps(ds)
    test = ds["of_test_set"].to_numpy()
    drawn = np.concatenate(
        [one[:: max(1, -(-len(one) // most))] for one in (np.flatnonzero(~test), np.flatnonzero(test))]
    )
    frame = pd.DataFrame({"example": drawn, "set": np.where(test[drawn], "test set", "training set")})
    frame["class"] = np.array(classes)[ds["label"].to_numpy()[drawn]]
    for run, extractor in enumerate(rows(ds)["extractor"]):
        for name in ("x", "y"):
            frame[f"{extractor} {name}"] = ds[name].to_numpy()[run, drawn].astype(float)
    return frame


def parted(ds: xr.Dataset) -> pd.DataFrame:
    """Return how well each map parts the classes, of training and of test set.

    ``agreement`` is the mean share, over the points of a set, of the nearest ten other points of the training set that
    have the point's own class.
    """
    ds, found = best_maps(ds), []
    frame, test, labels = rows(ds), ds["of_test_set"].to_numpy(), ds["label"].to_numpy()
    for run in range(ds.sizes["run"]):
        place = np.column_stack([ds[name].to_numpy()[run] for name in ("x", "y")])
        tree = cKDTree(place[~test])
        for split, members in (("training set", ~test), ("test set", test)):
            own = int(split == "training set")  # a point of the tree is its own nearest
            near = tree.query(place[members], k=NEIGHBOURS + own)[1][:, own:]
            same = labels[~test][near] == labels[members][:, None]
            found.append({**frame.iloc[run], "split": split, "agreement": float(same.mean())})
    return pd.DataFrame(found)


def parted_by_extractor(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table of `parted` for a reader: a row per extractor, shares in percent."""
    by = ["extractor", "feature_width"]
    wide = table.pivot_table(index=by, columns="split", values="agreement", sort=False)
    wide["network's test accuracy"] = table.groupby(by)["network_accuracy"].mean()
    shown = wide.map(lambda share: "" if np.isnan(share) else f"{share:.1%}").reset_index()
    return shown.rename(columns={"extractor": "network", "feature_width": "features"}).rename_axis(columns=None)


# Which masks


def grid(ds: xr.Dataset, *, share: float = 0.0) -> pd.DataFrame:
    """Return the masks that differ in extractor and seeds alone, with ``position`` among the runs.

    They are by the parameters that most have; with ``share``, by the radius at which each map has that share of noise.
    Of two networks with one seed it is the one that was trained better.
    """
    frame = rows(ds).assign(position=np.arange(ds.sizes["run"]))
    frame = frame[(frame["within"] == "") & frame["filter"].isin(ON_THE_MAP) & (frame["share"] == share)]
    for name in ("filter", "min_samples", *_PLACED):
        frame = frame[frame[name] == frame[name].mode()[0]] if len(frame) else frame
    if (frame["filter"] == "dbscan").any():  # others find a radius on each map
        frame = frame[frame["eps"] == frame["eps"].mode()[0]]
    return frame[better(frame)].reset_index(drop=True)


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


def reference(ds: xr.Dataset) -> xr.Dataset:
    """Return the mask that runs are trained with, and its map, over ``example`` alone."""
    return ds.isel(run=first(ds))


def has_map(one: xr.Dataset) -> bool:
    """Whether a mask has its map with it: that of each network's first training and first seed of t-SNE has."""
    return "x" in one and bool(np.isfinite(one["x"]).all())


def better(frame: pd.DataFrame) -> pd.Series:
    """Return which rows are by the network that was trained better, where there are several of one seed."""
    accuracy = frame["network_accuracy"].fillna(0.0)
    return accuracy == accuracy.groupby([frame[name] for name in ("arch", "weights", "seed")]).transform("max")


def _like_first(ds: xr.Dataset) -> pd.DataFrame:
    """Return the masks on maps by the extractor and the seeds of the mask in use, however trained and however made."""
    frame = rows(ds)
    used = frame.iloc[first(ds)]
    return frame[(frame[[*_SEEDED, "within"]] == used[[*_SEEDED, "within"]]).all(axis=1)]


# How much is noise


def by_map(ds: xr.Dataset) -> pd.DataFrame:
    """Return the share that is noise at DBSCAN's default radius by how the map is made of the same features.

    Columns: map, extractor, test_accuracy of the network (of one extractor, trained by two recipes), removed.
    """
    same, usual = _like_first(ds), grid(ds).iloc[0]
    for name in ("filter", "min_samples", "perplexity"):
        same = same[same[name] == usual[name]]
    same = same.sort_values(["network_accuracy", "map_rate", "iterations", "map_start"], ascending=False, kind="stable")
    rate = np.where(same["map_rate"] == 0, "rate by size", "rate " + same["map_rate"].map("{:g}".format))
    steps = same["iterations"].map("{:g}".format)
    table = same.assign(map=rate + ", " + same["map_start"] + " start, " + steps + " steps")
    table = table.rename(columns={"network_accuracy": "test_accuracy"}).reset_index(drop=True)
    return table[["map", "extractor", "test_accuracy", "removed"]]


def by_parameter(ds: xr.Dataset) -> pd.DataFrame:
    """Return the share removed as one other parameter changes, on the map of the mask in use.

    ``parameter`` is perplexity, min_samples, or the clustering; the mask by the defaults stands in each of them.
    """
    frame, used, usual = _like_first(ds), rows(ds).iloc[first(ds)], grid(ds).iloc[0]
    frame = frame[(frame["trained_by"] == used["trained_by"]) & frame["filter"].isin(ON_THE_MAP)]
    frame = frame[(frame[_PLACED[1:]] == usual[_PLACED[1:]]).all(axis=1)]
    found = []
    for parameter in ("perplexity", "min_samples", "filter"):
        others = [name for name in ("perplexity", "min_samples", "filter") if name != parameter]
        alike = frame[(frame[others] == usual[others]).all(axis=1)].sort_values(parameter, kind="stable")
        values = alike[parameter].map(str if parameter == "filter" else "{:g}".format)
        default = alike[parameter] == usual[parameter]
        found.append(alike[["removed"]].assign(parameter=parameter, value=values, default=default))
    return pd.concat(found, ignore_index=True)[["parameter", "value", "default", "removed"]]


def by_defaults(ds: xr.Dataset, maps: Mapping[str, Mapping[str, object]]) -> pd.DataFrame:
    """Return the masks by DBSCAN's own radius on maps that were made so, of extractors that were trained.

    ``maps`` are settings of t-SNE by a name, which is in ``made``. Of two recipes for one network it is the better.
    """
    frame = rows(ds)
    frame = frame[(frame["filter"] == "dbscan") & (frame["weights"] == "trained") & (frame["within"] == "")]
    frame = frame[(frame["eps"] == 0.5) & (frame["min_samples"] == 5) & (frame["perplexity"] == 30)]
    frame = frame[better(frame)]
    found = [
        frame[(frame[list(settings)] == list(settings.values())).all(axis=1)].assign(made=name)
        for name, settings in maps.items()
    ]
    return pd.concat([frame.head(0).assign(made=""), *found], ignore_index=True)


def removed(ds: xr.Dataset, maps: Mapping[str, Mapping[str, object]] | None = None) -> pd.DataFrame:
    """Return the share that is noise by extractor: mean, least and most over its maps, of how many trainings.

    ``made`` says how the maps are made: as most are, "today", or as ``maps`` has it.
    """
    masks = pd.concat([by_defaults(ds, maps or {}), grid(ds).assign(made="today")], ignore_index=True)
    found = masks.groupby(["made", "extractor", "arch", "weights"], sort=False).agg(
        removed=("removed", "mean"), least=("removed", "min"), most=("removed", "max"), n=("removed", "size"),
        networks=("seed", "nunique"),
    )  # fmt: skip
    return found.reset_index()


def by_eps(ds: xr.Dataset) -> pd.DataFrame:
    """Return the share that DBSCAN calls noise by eps, for the first map of each extractor."""
    frame, until = grid(ds), ds["noise_until"].transpose("run", "example").to_numpy()
    there = frame[np.isfinite(until[frame["position"]]).any(axis=1)].drop_duplicates("extractor")
    if there.empty:
        return pd.DataFrame(columns=["extractor", "eps", "removed"])
    found = until[there["position"]]
    eps = np.geomspace(np.quantile(found, 0.01), np.quantile(found, 0.999), 60)
    parts = [
        pd.DataFrame({"extractor": extractor, "eps": eps, "removed": (radii[:, None] > eps).mean(axis=0)})
        for extractor, radii in zip(there["extractor"], found, strict=True)
    ]
    return pd.concat(parts, ignore_index=True)


# Who agrees


def jaccard(keep: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, for every two masks of (masks, examples), shared over all removed, and that of random sets so large.

    Random sets have as many of each class: of a class of n, of which one mask removes a and another b, both remove
    ab/n. The second is the ratio of expectations; masks that remove nothing agree.
    """
    gone = (~keep).astype(np.float32)
    both, size = (gone @ gone.T).astype(float), gone.sum(axis=1, dtype=float)
    total = size[:, None] + size[None]
    counts, members = _by_class(~keep, labels)
    expected = counts / members @ counts.T
    with np.errstate(invalid="ignore"):
        return tuple(np.where(total > 0, shared / (total - shared), 1.0) for shared in (both, expected))  # type: ignore[return-value]


def _by_class(gone: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    _, place, members = np.unique(labels, return_inverse=True, return_counts=True)
    return np.stack([np.bincount(place[row], minlength=len(members)) for row in gone]), members


def agreement(ds: xr.Dataset) -> pd.DataFrame:
    """Return how far two noise sets of one size agree, by what their maps differ in: Jaccard index, and that of chance.

    ``networks`` names the one or two whose maps the two are.
    """
    frame = grid(ds, share=float(rows(ds)["share"][first(ds)]))
    overlaps, by_chance = jaccard(kept(ds)[frame["position"]], ds["label"].to_numpy())
    found = []
    for one, other in combinations(range(len(frame)), 2):
        a, b = frame.iloc[one], frame.iloc[other]
        differ = [a[name] != b[name] for name in ("weights", "arch", "seed")]
        differs = PAIRS[3 - differ.index(True)] if any(differ) else PAIRS[0]
        networks = " and ".join(sorted({f"{row['extractor']} by seed {row['seed']}" for row in (a, b)}))
        names = (a["extractor"], b["extractor"], differs, networks)
        found.append((*names, overlaps[one, other], by_chance[one, other]))
    return pd.DataFrame(found, columns=["one", "other", "differs", "networks", "overlap", "by_chance"])


def stability(ds: xr.Dataset) -> pd.DataFrame:
    """Return the agreement of noise sets by what the maps differ in: mean, least and most over ``pairs`` of maps."""
    found = agreement(ds).groupby("differs").agg(
        overlap=("overlap", "mean"), least=("overlap", "min"), most=("overlap", "max"), by_chance=("by_chance", "mean"),
        pairs=("overlap", "size"), networks=("networks", "nunique"),
    )  # fmt: skip
    return found.reindex([kind for kind in PAIRS if kind in found.index]).reset_index()


def others(ds: xr.Dataset) -> pd.DataFrame:
    """Return what other ways to choose have in common with the mask in use, at equal size, and what a mask costs.

    ``shared`` is the share of what the mask in use removes that the other removes too; ``by_chance`` that of a random
    set with as many of each class as the other. ``seconds`` are all that a mask took, ``training`` those of networks.
    """
    frame, keep, labels = rows(ds), kept(ds), ds["label"].to_numpy()
    at = first(ds)
    noise, (classes, members) = ~keep[at], _by_class(~keep, labels)
    sized = (frame["size_of"] == frame["key"][at]) | (frame["size_of"] == "").all()
    chosen = frame[~frame["filter"].isin([*ON_THE_MAP, "flagged", "none"]) & sized].index.insert(0, at)
    costs = np.stack([ds[name].to_numpy() for name in PARTS], axis=1)
    found = [
        {
            "key": frame["key"][one],
            "filter": "map and noise" if one == at else frame["filter"][one],
            "removed": frame["removed"][one],
            "shared": float((~keep[one])[noise].mean()),
            "images": int((~keep[one] & noise).sum()),
            "by_chance": (classes[at] * classes[one] / members).sum() / noise.sum(),
            "seconds": costs[one].sum(),
            "training": costs[one, 0],
        }
        for one in chosen
    ]
    return pd.DataFrame(found).sort_values("shared", ascending=False, kind="stable").reset_index(drop=True)


def others_written(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table of `others` for a reader."""
    return pd.DataFrame(
        {
            "method": table["filter"],
            "of the noise": table["shared"].map("{:.0%}".format),
            "by chance": table["by_chance"].map("{:.0%}".format),
            "seconds for a mask": table["seconds"].map("{:.0f}".format),
            "of them training": table["training"].map("{:.0f}".format),
        }
    )
