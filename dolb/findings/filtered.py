"""Training on what filters keep: accuracies by set, and differences between sets, runs of one seed in pairs.

Runs on smaller sets make fewer updates in as many epochs. So there are two comparisons: at equal epochs, as the study
has it, and at equal updates, by the runs whose updates come nearest to those on full data. Accuracies are parts of
one, and differences points. The set that runs call ``network`` is ``filtered`` here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from dolb import results
from dolb.findings import runs as found
from dolb.findings.intervals import Estimate, bootstrapped, student, written_rows

EQUAL = ("epochs", "updates")
CELL = ("set", "batch_size", "weight_decay")
MAIN = ("full", "filtered", "random")
OTHER_WAYS = ("grid", "neighbours", "el2n", "forgetting", "confident")
ORDER = (*MAIN, "recursive", *OTHER_WAYS)
NAMED = {"network": "filtered"}


def set_of(subset: str) -> str:
    """Return the set that a subset is of, by the name that readers see."""
    name = subset.split("-")[0]
    return NAMED.get(name, name)


def in_order(names: Iterable[str]) -> list[str]:
    """Return the sets once each, in the order in which figures have them; sets that are not the study's come last."""
    return sorted(set(names), key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))


def narrow(ds: xr.Dataset, sets: Sequence[str] | None = None, **values: Any) -> xr.Dataset:
    """Keep the runs on these sets, by the recipes' names, and with these values of the config."""
    ds = found.narrow(ds, **values)
    if sets is None:
        return ds
    kept = np.isin([str(name).split("-")[0] for name in ds["subset"].to_numpy()], list(sets))
    if not kept.any():
        raise ValueError(f"no published run has a set of {list(sets)}")
    return ds.isel(run=np.flatnonzero(kept))


def runs(ds: xr.Dataset, equal: str = "epochs") -> pd.DataFrame:
    """Return a row per run, with its ``set`` and accuracy: those that are compared at equal epochs, or updates.

    A set that was run at equal epochs alone is not among the runs at equal updates, unless its epochs make as many.
    """
    frame = found.final_accuracy(ds)
    frame["set"] = frame["subset"].map(set_of)
    masks = frame.groupby(["set", "seed"])["subset"].unique()
    if len(mixed := masks[masks.str.len() > 1]):
        raise ValueError(f"one set has runs by several masks: {', '.join(mixed.iloc[0])}; keep those of one")
    full = frame[frame["set"] == "full"]
    # Without runs on all data those of the fewest epochs are the study's.
    wanted = frame["batch_size"].map((full if len(full) else frame).groupby("batch_size")[equal].min())
    off = (frame[equal] - wanted).abs()
    if equal == "epochs":
        return frame[off == 0].reset_index(drop=True)
    nearest = off.groupby([frame[name] for name in CELL]).transform("min")
    # Epochs are whole, so half of one is as near as updates can always be brought.
    one_epoch = np.ceil(frame["training_examples"] / frame["batch_size"])
    return frame[(off == nearest) & (off <= one_epoch / 2)].reset_index(drop=True)


def cells(ds: xr.Dataset) -> pd.DataFrame:
    """Return accuracy by set, batch size and weight decay, at equal epochs and updates, with bootstrap intervals."""
    return pd.concat([bootstrapped(runs(ds, equal), CELL)[0].assign(equal=equal) for equal in EQUAL], ignore_index=True)


def best(table: pd.DataFrame) -> pd.DataFrame:
    """Return, of each set at each batch size, the cell of the weight decay with the highest accuracy."""
    top = table.groupby(["equal", "set", "batch_size"])["accuracy"].idxmax()
    return table.loc[top].sort_values(["equal", "batch_size", "set"], ignore_index=True)


def at_best_decay(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep of runs those at the weight decay at which their set did best at their batch size, as one cell."""
    means = frame.groupby(["set", "batch_size", "weight_decay"])["accuracy"].mean()
    top = pd.DataFrame(means.groupby(["set", "batch_size"]).idxmax().tolist(), columns=list(CELL))
    return frame.merge(top, on=list(CELL)).assign(weight_decay=0.0)


def difference(frame: pd.DataFrame, one: str, other: str) -> Estimate | None:
    """Return the accuracy on one set less that on the other in points, runs of one seed in pairs; None of one seed.

    Each seed counts by its mean over cells (batch sizes and weight decays) that both sets have. The seeds are those
    that have every such cell; if fewer than two have, the cells are those that every seed has.
    """
    wide = frame.pivot_table(index="seed", columns=["set", "batch_size", "weight_decay"], values="accuracy")
    if not {one, other} <= set(wide.columns.get_level_values("set")):
        return None
    pairs = 100 * pd.DataFrame(wide[one] - wide[other]).dropna(axis="columns", how="all").dropna(how="all")
    whole = pairs.dropna()
    balanced = whole if len(whole) > 1 else pairs.dropna(axis="columns")
    return student(balanced.mean(axis="columns")) if balanced.size and len(balanced) > 1 else None


def over_masks(ds: xr.Dataset, others: xr.Dataset, sizes: Iterable[int]) -> Estimate | None:
    """Return what runs on the mean of all masks reach less those on the first mask, in points; a mask is a repetition.

    ``others`` has runs on masks of other trainings of the extractor. Masks are compared at equal epochs, over the batch
    sizes asked for, if they have some of them, and over the seeds that all have there.
    """
    wide = _by_mask(ds, others)
    asked = wide.columns.get_level_values("batch_size").isin(list(sizes))
    means = (wide.loc[:, asked] if asked.any() else wide).mean(axis="columns")
    return student(means - means.iloc[0]) if len(means) > 1 and wide.size else None


def by_mask(ds: xr.Dataset, others: xr.Dataset) -> pd.DataFrame:
    """Return what the masks' sets gain over full data by batch size, as a table for readers."""
    frame = runs(ds)
    full = 100 * frame[frame["set"] == "full"].set_index(["batch_size", "seed"])["accuracy"]
    gains = _by_mask(ds, others).sub(full, axis="columns").dropna(axis="columns", how="all")
    means = gains.T.groupby("batch_size").mean()  # a column per mask
    points = {"mean of all": means.mean(axis=1), "lowest": means.min(axis=1), "highest": means.max(axis=1)}
    return pd.DataFrame(
        {
            "batch size": [f"{size:,}" for size in means.index],
            **{name: [f"{value:+.2f}" for value in values] for name, values in points.items()},
            "masks that gain": [f"{gained} of {means.shape[1]}" for gained in (means > 0).sum(axis=1)],
        }
    )


def _by_mask(ds: xr.Dataset, others: xr.Dataset) -> pd.DataFrame:
    """Return accuracies in percent, a row per mask, the first mask first, a column per batch size and seed of all."""
    first, more = runs(ds), found.final_accuracy(others)
    first = first[first["set"] == "filtered"]
    frame = pd.concat([first, more[more["epochs"] == first["epochs"].min()]])
    wide = 100 * frame.pivot_table(index="subset", columns=["batch_size", "seed"], values="accuracy").dropna(axis=1)
    own = first["subset"].iloc[0]
    return wide.loc[[own, *wide.index.drop(own)]]


def crossover(ds: xr.Dataset) -> pd.DataFrame:
    """Return what filtered and random data gain over full data by batch size, in points, three times.

    ``equal`` says whether epochs are equal, or updates, or epochs that end with their last full batch; and ``fewer`` by
    how many updates an epoch of the smaller set lacks.
    """
    rows = []
    for equal, frame in _thrice(ds).items():
        for size, cell in frame.groupby("batch_size"):
            lacks = _lacks(cell)
            rows += [(equal, size, lacks, *_compared(cell, name, "full")) for name in ("filtered", "random")]
    return _differences(rows, ["equal", "batch_size", "fewer"])


def per_update(ds: xr.Dataset) -> pd.DataFrame:
    """Return what filtered and random data gain over full data where an epoch of theirs has as many updates, and fewer.

    In points, by seed, each by its means over the batch sizes of either kind; and the first less the second.
    """
    rows = []
    for equal, frame in _thrice(ds).items():
        lacks = frame["batch_size"].map({size: _lacks(cell) for size, cell in frame.groupby("batch_size")})
        kinds = frame.assign(kind=np.where(lacks > 0, "fewer", "as many"))
        wide = 100 * kinds.pivot_table(index="seed", columns=["set", "kind"], values="accuracy")
        for name in in_order(set(frame["set"]) - {"full"}):
            gains = wide[name] - wide["full"]
            if len(gains.columns) > 1:
                gains["difference"] = gains["as many"] - gains["fewer"]
            rows += [(equal, name, kind, *astuple(student(gain.dropna()))) for kind, gain in gains.items()]
    return pd.DataFrame(rows, columns=["equal", "set", "updates", "points", "low", "high", "n"])


def _thrice(ds: xr.Dataset) -> dict[str, pd.DataFrame]:
    dropped = ds["drop_last"].to_numpy().astype(bool)
    whole, cut = (ds.isel(run=np.flatnonzero(kind)) for kind in (~dropped, dropped))
    frames = {equal: runs(whole, equal) for equal in EQUAL} if whole.sizes["run"] else {}
    return frames | ({"epochs, last batch dropped": runs(cut)} if cut.sizes["run"] else {})


def _lacks(cell: pd.DataFrame) -> int:
    """Return by how many updates an epoch of the smaller sets lacks, of the runs at one batch size."""
    updates = found.epoch_updates(cell)
    return int(updates[cell["set"] == "full"].max() - updates.min())


def by_share(ds: xr.Dataset, others: xr.Dataset) -> pd.DataFrame:
    """Return what each way to choose gains over full and over random data by the share removed, in points.

    ``ds`` has the study's share and full data, ``others`` the runs by other shares, at some of its batch sizes. Sets of
    one share have one size, by which they are found. A way to choose that has one share alone is left out, and so is a
    pair with fewer than three seeds.
    """
    here = ds["batch_size"].isin(others["batch_size"]).to_numpy()
    here &= np.isin([set_of(str(name)) for name in ds["subset"].to_numpy()], [*MAIN, *OTHER_WAYS])
    every = results.merge([ds.isel(run=np.flatnonzero(here)), others])
    sizes, full = every["training_examples"].to_numpy(), every["subset"].to_numpy() == "full"
    rows = []
    for kept in sorted(set(sizes[~full]), reverse=True):
        part = every.isel(run=np.flatnonzero(full | (sizes == kept)))
        for equal in EQUAL:
            for size, frame in runs(part, equal).groupby("batch_size"):
                at = (equal, size, 1 - kept / sizes[full].max())
                sets = in_order(set(frame["set"]) - {"full"})
                pairs = [(name, over) for over in ("full", "random") for name in sets if name != over]
                rows += [(*at, *_compared(frame, *pair)) for pair in pairs]
    table = _differences(rows, ["equal", "batch_size", "removed"])
    table = table[table["n"] > 2]  # of two seeds an interval is wider than any chart
    return table[table.groupby("one")["removed"].transform("nunique") > 1].reset_index(drop=True)


def gains(ds: xr.Dataset) -> pd.DataFrame:
    """Return what filtered data gain over every other set, in points, by batch size, at equal epochs and updates."""
    rows = []
    for equal in EQUAL:
        for size, frame in runs(ds, equal).groupby("batch_size"):
            others = in_order(set(frame["set"]) - {"filtered"})
            rows += [(equal, size, *_compared(frame, "filtered", other)) for other in others]
    return _differences(rows, ["equal", "batch_size"])


def together(ds: xr.Dataset, border: int) -> pd.DataFrame:
    """Return how pairs of sets differ, in points, over all batch sizes below ``border``, and over all from there on.

    A set that is neither full, filtered nor random, such as a baseline's, is compared with all three. ``large`` says
    on which side of the border the sizes lie, and ``equal`` whether it is at equal epochs or updates.
    """
    rows = []
    for large in (False, True):
        for equal in EQUAL:
            frame = runs(ds, equal)
            side = frame[(frame["batch_size"] >= border) == large]
            rows += [(equal, large, *_compared(side, *pair)) for pair in _pairs(side["set"])]
    return _differences(rows, ["equal", "large"])


def _pairs(sets: Iterable[str]) -> list[tuple[str, str]]:
    """Return which sets are compared: the filter with each other one, and these with random and full data."""
    pairs = [("filtered", "full"), ("filtered", "random"), ("random", "full")]
    for name in in_order(set(sets) - set(MAIN)):
        pairs += [("filtered", name), (name, "random"), (name, "full")]
    return pairs


def _compared(frame: pd.DataFrame, one: str, other: str) -> tuple[Any, ...]:
    found = difference(frame, one, other)
    return (one, other, *astuple(found)) if found else (one, other, np.nan, np.nan, np.nan, 0)


def _differences(rows: list[tuple[Any, ...]], first: list[str]) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=[*first, "one", "other", "points", "low", "high", "n"])
    return table[table["n"] > 1].reset_index(drop=True)


def sides(table: pd.DataFrame, border: int) -> pd.DataFrame:
    """Return what `together` found as a table for readers: a row per pair, a column per side and comparison."""
    if table.empty:
        return pd.DataFrame()
    side = np.where(table["large"], f"batch {border:,} and above", f"below batch {border:,}")
    wide = _told(table, table["one"] + " less " + table["other"], side + ", equal " + table["equal"])
    return wide.rename_axis(columns="points of accuracy")


def sides_by_share(border: int, *parts: xr.Dataset) -> pd.DataFrame:
    """Return what `sides` tells of several experiments, each with runs on full data, by the share that it removes."""
    told = []
    for ds in parts:
        removed = 1 - float(ds["training_examples"].min() / ds["training_examples"].max())
        told.append(sides(together(ds, border), border).add_prefix(f"{removed:.1%} removed: ", axis=0))
    return pd.concat(told).fillna("")


def _told(table: pd.DataFrame, row: pd.Series, column: pd.Series) -> pd.DataFrame:
    """Return points with their intervals, written, by row and column in the order of the table."""
    told = table.assign(row=row, column=column, told=written_rows("+.2f", table[["points", "low", "high"]]))
    wide = told.pivot_table(index="row", columns="column", values="told", aggfunc="first", sort=False).fillna("")
    return wide[list(dict.fromkeys(column))].rename_axis(index=None)


def ways_to_choose(ds: xr.Dataset) -> pd.DataFrame:
    """Return how each set does at the largest batch size, at equal epochs, as a table for readers.

    It has the best accuracy, at which weight decay that is, and what the set gains over random data by the mean over
    the weight decays.
    """
    frame = runs(ds)
    frame = frame[frame["batch_size"] == frame["batch_size"].max()]
    top = best(bootstrapped(frame, CELL)[0].assign(equal="epochs")).set_index("set")
    rows = []
    for name in top.sort_values("accuracy", ascending=False).index:
        gain = difference(frame, name, "random") if name != "random" else None
        rows.append(
            {
                "training set": name,
                "images": f"{int(frame.loc[frame['set'] == name, 'training_examples'].min()):,}",
                "best accuracy": f"{top.loc[name, 'accuracy']:.1%}",
                "at weight decay": f"{top.loc[name, 'weight_decay']:g}",
                "less random, points": gain.written("+.2f") if gain else "",
                "seeds": int(top.loc[name, "n"]),
            }
        )
    return pd.DataFrame(rows)


def reported_cells(reported: Sequence[Mapping[str, Any]], table: pd.DataFrame, where: str = "") -> pd.DataFrame:
    """Return those of the reported accuracies whose set and batch size are among the cells, of one figure if named."""
    rows = [{**row, "set": NAMED.get(row["set"], row["set"])} for row in reported if where in row["what"]]
    there = set(zip(table["set"], table["batch_size"], strict=True))
    columns = ["set", "batch_size", "weight_decay", "accuracy", "what"]
    return pd.DataFrame([row for row in rows if (row["set"], row["batch_size"]) in there], columns=columns)


def reported_gains(cells: pd.DataFrame) -> pd.DataFrame:
    """Return what the reported accuracies say filtered data gain over each other set, in points, by batch size."""
    wide = cells.pivot_table(index=["batch_size", "what"], columns="set", values="accuracy")
    if "filtered" not in wide:
        return pd.DataFrame(columns=["batch_size", "what", "other", "points"])
    less = 100 * wide.drop(columns="filtered").rsub(wide["filtered"], axis="index")
    return less.reset_index().melt(["batch_size", "what"], var_name="other", value_name="points").dropna()


def beside_full(ds: xr.Dataset, others: xr.Dataset) -> xr.Dataset | None:
    """Return the runs of another experiment with those on full data of this one, at the batch sizes of the former."""
    full = ds.isel(run=(ds["subset"] == "full").to_numpy() & ds["batch_size"].isin(others["batch_size"]).to_numpy())
    return results.merge([full, others]) if full.sizes["run"] else None


def tried(ds: xr.Dataset) -> pd.DataFrame:
    """Return accuracy on full data by batch size and rate, with bootstrap intervals."""
    return bootstrapped(found.final_accuracy(ds), ("batch_size", "lr"))[0]


def by_rate(*parts: xr.Dataset) -> pd.DataFrame:
    """Return accuracy on the three sets by rate at the batch size that these experiments share, at equal epochs.

    A run that two of them have, by its set, rate and seed, counts once.
    """
    frames = [runs(ds).query("set in @MAIN") for ds in parts]
    shared = set.intersection(*(set(frame["batch_size"]) for frame in frames))
    frame = pd.concat([frame[frame["batch_size"].isin(shared)] for frame in frames], ignore_index=True)
    frame = frame.drop_duplicates(["set", "batch_size", "lr", "seed"])
    return bootstrapped(frame, ("set", "batch_size", "lr"))[0]
