"""The numbers of training on what filters keep: accuracies by set, and differences between sets, seed by seed.

Runs on smaller sets make fewer updates in as many epochs. So there are two comparisons: at equal epochs, as the study
has it, and at equal updates, by the runs whose updates come nearest to those on full data.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from dolb import findings as summary

EQUAL = ("epochs", "updates")
CELL = ("set", "batch_size", "weight_decay")
MAIN = ("full", "network", "random")
MANY_MORE = 0.02  # images, at equal updates: a share that is told
NOTHING = "Nothing can be compared yet."
OTHER_WAYS = ("grid", "neighbours", "el2n", "forgetting", "confident")
ORDER = (*MAIN, "recursive", *OTHER_WAYS)


def runs(ds: xr.Dataset, equal: str = "epochs") -> pd.DataFrame:
    """Return a row per run, with its ``set`` and accuracy: those that are compared at equal epochs, or updates.

    A set that was run at equal epochs alone is not among the runs at equal updates, unless its epochs make as many.
    """
    if equal not in EQUAL:
        raise ValueError(f"equal is {equal!r}; accepted: {', '.join(EQUAL)}")
    frame = every_run(ds)
    full = frame[frame["set"] == "full"]
    # Without runs on all data those of the fewest epochs are the study's.
    wanted = frame["batch_size"].map((full if len(full) else frame).groupby("batch_size")[equal].min())
    frame["off"] = (frame[equal] - wanted).abs()
    if equal == "epochs":
        return frame[frame["off"] == 0].reset_index(drop=True)
    nearest = frame.groupby(list(CELL))["off"].transform("min")
    # Epochs are whole, so half of one is as near as updates can always be brought.
    one_epoch = np.ceil(frame["training_examples"] / frame["batch_size"])
    return frame[(frame["off"] == nearest) & (frame["off"] <= one_epoch / 2)].reset_index(drop=True)


def every_run(ds: xr.Dataset) -> pd.DataFrame:
    """Return a row per run, with its ``set`` and accuracy, those of equal epochs and of equal updates alike."""
    frame = summary.final_accuracy(ds)
    several = frame.groupby("subset")["data_fingerprint"].nunique()
    if (several > 1).any():
        odd = ", ".join(several.index[several > 1])
        raise ValueError(f"runs of {odd} were trained on different examples under one name; run the older ones again")
    frame["set"] = frame["subset"].str.split("-").str[0]
    masks = frame.groupby(["set", "seed"])["subset"].unique()
    if len(mixed := masks[masks.str.len() > 1]):
        raise ValueError(f"one set has runs by several masks: {', '.join(mixed.iloc[0])}; keep those of one")
    return frame


def cells(ds: xr.Dataset) -> pd.DataFrame:
    """Return accuracy by set, batch size and weight decay, at equal epochs and updates, with bootstrap intervals."""
    found = [summary.bootstrapped(runs(ds, equal), CELL)[0].assign(equal=equal) for equal in EQUAL]
    return pd.concat(found, ignore_index=True)


def rests_in_words(ds: xr.Dataset) -> str:
    """Say how many images the last batch of an epoch has, by batch size: of the full set, and of the filtered ones."""
    frame = runs(ds)
    frame = frame[frame["set"].isin(("full", "network"))]
    frame = frame.assign(rest=frame["training_examples"] % frame["batch_size"])
    frame["rest"] = frame["rest"].where(frame["rest"] > 1, frame["batch_size"] + frame["rest"])
    by_set = frame.pivot_table(index="batch_size", columns="set", values="rest", aggfunc="first").dropna()
    if by_set.empty or len(by_set.columns) < 2:
        return "not run with both"
    return "; ".join(
        f"batch {row.Index:,}: {row.full:,.0f} and {row.network:,.0f} images" for row in by_set.itertuples()
    )


def predicted(ds: xr.Dataset, of_runs: int) -> pd.DataFrame:
    """Return accuracy by cell at equal epochs, with where the mean of ``of_runs`` other runs of it would lie.

    ``low`` and ``high`` are Student's prediction interval. The variance between seeds is pooled over the cells of a
    batch size, as few seeds of one cell tell little of it. NaN where no cell of the batch size has two.
    """
    frame = runs(ds)
    grouped = frame.groupby(list(CELL))["accuracy"]
    table = grouped.agg(accuracy="mean", variance="var", n="size").reset_index()
    table["squares"] = (table["variance"] * (table["n"] - 1)).fillna(0.0)
    by_size = table.groupby("batch_size")
    freedom = by_size["n"].transform("sum") - by_size["n"].transform("size")
    spread = np.sqrt(by_size["squares"].transform("sum") / freedom.where(freedom > 0))
    half = stats.t.ppf((1 + summary.CONFIDENCE) / 2, freedom) * spread * np.sqrt(1 / table["n"] + 1 / of_runs)
    table = table.assign(low=table["accuracy"] - half, high=table["accuracy"] + half, equal=EQUAL[0])
    return table.drop(columns=["variance", "squares"])


def at_every_decay(table: pd.DataFrame) -> pd.DataFrame:
    """Keep of runs, or of cells, the sets at batch sizes at which every weight decay of any of them was run.

    Over some of them neither the best nor the mean is that of all: accuracy depends on the weight decay far more than
    on the set.
    """
    decays = table.groupby(["set", "batch_size"])["weight_decay"].transform("nunique")
    return table[decays == table["weight_decay"].nunique()]


def sizes(ds: xr.Dataset) -> dict[str, int]:
    """Return how many images each set has, in the order in which figures have the sets."""
    found = runs(ds).groupby("set")["training_examples"].min()
    return {name: int(found[name]) for name in in_order(found.index)}


def narrow(ds: xr.Dataset, sets: Sequence[str] | None = None, **values: Any) -> xr.Dataset:
    """Keep the runs on these sets, and with these values of the config, as ``summary.narrow`` does."""
    ds = summary.narrow(ds, **values)
    if sets is None:
        return ds
    names = sorted({str(name) for name in ds["subset"].to_numpy() if str(name).split("-")[0] in sets})
    if not names:
        raise ValueError(f"no published run has a set of {list(sets)}")
    return summary.narrow(ds, subset=names)


def in_order(names: Iterable[str]) -> list[str]:
    """Return the sets once each, in the order in which figures have them; sets that are not the study's come last."""
    return sorted(set(names), key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))


def within(reported: Sequence[Mapping[str, Any]], table: pd.DataFrame, where: str = "") -> list[dict[str, Any]]:
    """Return those of the reported accuracies whose set and batch size are among the cells, of one figure if named."""
    there = set(zip(table["set"], table["batch_size"], strict=True))
    return [dict(row) for row in reported if (row["set"], row["batch_size"]) in there and where in row["what"]]


def gains_in_words(gains: pd.DataFrame) -> str:
    """Say what network filtered data gain over each set by batch size, with intervals, and what of it is sure."""
    told = []
    for other in in_order(gains["other"]):
        rows = gains[gains["other"] == other]
        listed = "; ".join(f"{_gain(row)} at {row['batch_size']:,}" for row in rows.to_dict("records"))
        told.append(f"over {other} {listed}")
    return f"Points of accuracy gained {'. And '.join(told)}. {sure_in_words(gains)}" if told else NOTHING


def sure_in_words(gains: pd.DataFrame) -> str:
    """Say whether gains are told apart from chance after the correction for the number of tests: those with a star."""
    if gains.empty:
        return NOTHING
    holds = "those with a star are" if _sure(gains["p_holm"]).any() else "none of these is"
    return f"After Holm's correction for all {gains['tests'].iloc[0]} tests with these sets {holds} told from chance."


def _sure(p_holm: Any) -> Any:
    return p_holm < 1 - summary.CONFIDENCE


def _gain(row: Mapping[Hashable, Any]) -> str:
    return f"{100 * row['difference']:+.2f}{'*' if _sure(row['p_holm']) else ''} ({_interval(row)})"


def gains_table(gains: pd.DataFrame) -> pd.DataFrame:
    """Return a table for readers of what network filtered data gain over each set, a row for each batch size."""
    columns = {}
    for equal in EQUAL:
        for other in in_order(gains["other"]):
            rows = gains[(gains["equal"] == equal) & (gains["other"] == other)]
            sizes = [f"{size:,}" for size in rows["batch_size"]]
            told = pd.Series([_gain(row) for row in rows.to_dict("records")], index=sizes, dtype=object)
            columns[f"over {other}, equal {equal}"] = told
    order = [f"{size:,}" for size in sorted(set(gains["batch_size"]))]
    table = pd.DataFrame(columns).reindex(order).dropna(axis="columns", how="all").fillna("")
    return table.rename_axis(index=None, columns="batch size")


def _interval(row: Mapping[Hashable, Any]) -> str:
    return "one seed" if np.isnan(row["low"]) else f"{100 * row['low']:+.2f} to {100 * row['high']:+.2f}"


def best(table: pd.DataFrame) -> pd.DataFrame:
    """Return, of each set at each batch size, the cell of the weight decay with the highest accuracy."""
    top = table.groupby(["equal", "set", "batch_size"])["accuracy"].idxmax()
    return table.loc[top].sort_values(["equal", "batch_size", "accuracy"], ignore_index=True)


def best_baseline(small: xr.Dataset | None, weight_decay: float) -> str | None:
    """Return the other way to choose as many images that did best with small batches, for a comparison with large ones.

    It is the set, apart from the three of the study and the recursive one, which is smaller, with the highest mean
    accuracy at the largest of the small batches and the weight decay of the large ones; None until all were run so.
    """
    if small is None:
        return None
    frame = runs(small)
    frame = frame[(frame["weight_decay"] == weight_decay) & (frame["batch_size"] == frame["batch_size"].max())]
    means = frame[frame["set"].isin(OTHER_WAYS)].groupby("set")["accuracy"].mean()
    return str(means.idxmax()) if len(means) == len(OTHER_WAYS) else None


def baseline_in_words(ds: xr.Dataset, small: xr.Dataset | None) -> str:
    """Say which other way to choose stands beside the study's sets with large batches, and how it was chosen."""
    others = [name for name in in_order(runs(ds)["set"]) if name not in (*MAIN, "recursive") and name in ORDER]
    best = best_baseline(small, float(ds["weight_decay"].min()))
    if best is None or best not in others:
        return "The best of the other ways to choose as many images is not run with large batches yet."
    return (
        f"Of the other ways to choose as many images {best} stands beside them: it has the highest mean accuracy at "
        "the largest batch of the page before and the weight decay of this one. That choice was made by accuracy on "
        "the same test images, which favours it a little."
    )


def differences(frame: pd.DataFrame, one: str, other: str, by: Sequence[str] = ("batch_size",)) -> pd.DataFrame:
    """Return the accuracy on ``one`` set less that on the ``other``, runs of one seed in pairs, for each group.

    Where a group has several cells, weight decays or batch sizes, a seed's difference is the mean over them, the same
    for every seed that counts (`_balanced`); with no ``by`` all are one group. ``low`` and ``high`` are Student's
    interval of the mean over seeds, and ``p`` is of the paired t-test; NaN of one seed.
    """
    cell = ["batch_size", "weight_decay", "seed"]
    wide = frame[frame["set"].isin((one, other))].pivot_table(index=cell, columns="set", values="accuracy")
    columns = [*by, "one", "other", "difference", "low", "high", "p", "n"]
    if not {one, other} <= set(wide.columns):
        return pd.DataFrame(columns=columns)
    pairs = (wide[one] - wide[other]).dropna().rename("difference").reset_index()
    found = []
    for values, group in pairs.groupby(list(by), sort=True) if by else [((), pairs)]:
        by_seed = _balanced(group).mean(axis="columns").to_numpy()
        if not len(by_seed):
            continue
        found.append({**dict(zip(by, values, strict=True)), "one": one, "other": other, **_paired(by_seed)})
    return pd.DataFrame(found, columns=columns)


def _balanced(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return differences with a row per seed and a column per cell, none of them lacking.

    They are of the seeds that have every cell, if there are two of these, and else over the cells that every seed has:
    over other cells each, seeds would differ by these.
    """
    wide = pairs.pivot_table(index="seed", columns=["batch_size", "weight_decay"], values="difference")
    whole = wide.dropna()
    return whole if len(whole) > 1 else wide.dropna(axis="columns")


def _paired(by_seed: np.ndarray) -> dict[str, float]:
    n, mean = len(by_seed), float(by_seed.mean())
    if n < 2:
        return {"difference": mean, "low": np.nan, "high": np.nan, "p": np.nan, "n": n}
    error = float(by_seed.std(ddof=1) / np.sqrt(n))
    half = float(stats.t.ppf((1 + summary.CONFIDENCE) / 2, n - 1)) * error
    p = float(2 * stats.t.sf(abs(mean) / error, n - 1)) if error > 0 else float(mean == 0)
    return {"difference": mean, "low": mean - half, "high": mean + half, "p": p, "n": n}


def against_network(ds: xr.Dataset) -> pd.DataFrame:
    """Return what network filtered data gains over every other set, by batch size, at equal epochs and updates.

    ``p_holm`` is ``p`` after Holm's correction for all of these tests together, and ``tests`` says how many they are.
    Where as many epochs make as many updates, both comparisons are of the same runs, and they count as one test.
    """
    parts = []
    for equal in EQUAL:
        frame = runs(ds, equal)
        for other in in_order(set(frame["set"]) - {"network"}):
            keys = frame[frame["set"].isin(("network", other))].groupby("batch_size")["key"].agg(frozenset)
            found = differences(frame, "network", other)
            parts.append(found.assign(equal=equal, of=found["batch_size"].map(keys)))
    none = differences(runs(ds).iloc[:0], "network", "network").assign(equal="", of=None)
    table = pd.concat([none, *parts], ignore_index=True)
    once = table.drop_duplicates("of")
    corrected = dict(zip(once["of"], summary.holm(once["p"].to_numpy(dtype=float)), strict=True))
    table = table.assign(p_holm=table["of"].map(corrected).astype(float), tests=int(once["p"].notna().sum()))
    return table.drop(columns="of")


def together(ds: xr.Dataset, border: int) -> pd.DataFrame:
    """Return how pairs of sets differ over all batch sizes below ``border``, and over all from there on.

    A set that is neither full, network filtered nor random, such as a baseline's, is compared with all three. Each
    seed's difference is its mean over the sizes, so that one test stands for them all; ``large`` says on which side of
    the border they lie, and ``equal`` whether it is at equal epochs or updates.
    """
    parts = []
    for large in (False, True):
        for equal in EQUAL:
            frame = runs(ds, equal)
            side = frame[(frame["batch_size"] >= border) == large]
            for one, other in _pairs(side["set"]):
                parts.append(differences(side, one, other, ()).assign(equal=equal, large=large))
    return pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)


def _pairs(sets: Iterable[str]) -> list[tuple[str, str]]:
    """Return which sets are compared: the filter with each other one, and these with random and full data."""
    others = in_order(set(sets) - {"network", "random", "full"})
    pairs = [("network", "random"), ("network", "full"), ("random", "full")]
    return [*pairs, *(pair for name in others for pair in (("network", name), (name, "random"), (name, "full")))]


def together_in_words(table: pd.DataFrame) -> str:
    """Say what `together` found, of the sizes on one side of its border."""
    told: dict[str, list[str]] = {}  # which comparison found it: both, where they are of the same runs
    for equal, rows in table[table["n"] > 1].groupby("equal", sort=True):
        listed = "; ".join(
            f"{row['one']} less {row['other']} {100 * row['difference']:+.2f} ({_interval(row)}, p = {row['p']:.2g})"
            for row in rows.to_dict("records")
        )
        told.setdefault(listed, []).append(str(equal))
    sentences = [f"At equal {' and '.join(equal)} {listed}." for listed, equal in told.items()]
    return " ".join(sentences) or "Two seeds on two sets are not there yet."


def together_table(table: pd.DataFrame, border: int) -> pd.DataFrame:
    """Return what `together` found as a table for readers: a row per pair, a column per side and comparison."""
    rows = table[table["n"] > 1]
    sides = {large: f"{'from' if large else 'below'} {border:,}{' on' if large else ''}" for large in (False, True)}
    columns = [f"{sides[large]}, equal {equal}" for large in sides for equal in EQUAL]
    told = rows.assign(
        pair=rows["one"] + " less " + rows["other"],
        where=rows["large"].map(sides) + ", equal " + rows["equal"],
        told=[f"{_difference(row)}, p {_p(row['p'])}" for row in rows.to_dict("records")],
    )
    wide = told.pivot_table(index="pair", columns="where", values="told", aggfunc="first", sort=False)
    wide = wide.reindex(index=list(dict.fromkeys(told["pair"])), columns=[name for name in columns if name in wide])
    return wide.fillna("").rename_axis(index=None, columns="points of accuracy")


def main_in_words(table: pd.DataFrame, border: int, reported: float, at: int) -> str:
    """Say what the filter does on either side of the border at equal epochs, and what the paper reports over full data.

    ``reported`` is that gain, a part of one, and ``at`` its batch size.
    """
    sides = {f"below batch {border:,}": table[~table["large"]], f"from batch {border:,} on": table[table["large"]]}
    told = [f"{where} {words}" for where, rows in sides.items() if (words := compared_in_words(rows, "epochs"))]
    if not told:
        return NOTHING
    return (
        f"At equal epochs, over several batch sizes together, in points of accuracy: {'; '.join(told)}. Over full data "
        f"the paper reports {100 * reported:+.1f} at batch {at:,}."
    )


def compared_in_words(table: pd.DataFrame, equal: str) -> str:
    """Say of `together`, at equal epochs or updates, whether network filtered data beat each other set, if told."""
    rows = table[(table["equal"] == equal) & (table["n"] > 1) & (table["one"] != "random")]
    told: dict[str, list[str]] = {}
    for row in rows.to_dict("records"):
        name = "network filtered" if row["one"] == "network" else row["one"]
        told.setdefault(f"{name} data", []).append(f"{_verb(row)} {row['other']} data, {_difference(row)}")
    return ", while ".join(f"{name} {' and '.join(listed)}" for name, listed in told.items())


def _verb(row: Mapping[Hashable, Any]) -> str:
    return "beat" if row["low"] > 0 else "lose to" if row["high"] < 0 else "are not told from"


def _p(value: float) -> str:
    return f"= {value:.2g}" if value >= 0.001 else "< 0.001"


def _difference(row: Mapping[Hashable, Any]) -> str:
    return f"{100 * row['difference']:+.2f} ({_interval(row)})"


def better_in_words(ds: xr.Dataset | None) -> str:
    """Say what the sets reach, and how they differ, at each of some other rates than the recipe's."""
    if ds is None:
        return "Runs at a better rate are not among these."
    told: list[str] = []
    ahead: list[str] = []
    for rate in np.unique(ds["lr"]):
        at_rate = summary.narrow(ds, lr=[rate])
        frame = runs(at_rate)
        size, means = int(frame["batch_size"].iloc[0]), frame.groupby("set")["accuracy"].mean()
        reached = ", ".join(f"{name} {means[name]:.1%}" for name in in_order(means.index))
        differ = together_in_words(together(at_rate, size))
        told.append(f"At batch {size:,} and a rate of {rate:g}: {reached}. {differ}")
        ahead += [f"{rate:g}"] if _ahead(at_rate, size) else []
    where = f"at a rate of {' and '.join(ahead)}" if ahead else "at none of these rates"
    return f"Network filtered data are told to beat random data, at equal epochs, {where}. {' '.join(told)}"


def _ahead(ds: xr.Dataset, size: int) -> bool:
    rows = together(ds, size).query("one == 'network' and other == 'random' and equal == 'epochs'")
    return bool((rows["low"] > 0).any())


def images_in_words(ds: xr.Dataset) -> str:
    """Say where as many updates as on full data take more, or fewer, images than these."""
    frame = runs(ds, "updates").assign(images=lambda table: table["epochs"] * table["training_examples"])
    full = frame[frame["set"] == "full"].groupby("batch_size")["images"].first()
    other = frame[frame["set"] != "full"].groupby("batch_size")["images"].first()
    share = (other / full - 1).dropna()
    listed = ", ".join(f"{value:+.0%} at {size:,}" for size, value in share.items() if abs(value) >= MANY_MORE)
    return listed or "none"
