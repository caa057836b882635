"""What remedies do for large batches: accuracy over that of the plain recipe, and device time to a target accuracy.

A search with one seed chose the setting of every method. All that is said of a method is of that setting with other
seeds, paired with the plain recipe's, so that choosing flatters nobody. Until any winner was run again, what is said is
of the search's best, one run each and without intervals.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import xarray as xr

from dolb.findings.intervals import Estimate, geometric, student, written_rows
from dolb.findings.recommend import speed_at, speeds
from dolb.findings.runs import final_accuracy

SEARCH_SEED = 0
TARGETS = (0.80, 0.85)
ENGINE = "dolb, one run"  # the benchmark of SGD; other optimizers' are named by them
_WAY = [f"{what}_to_{target:.0%}" for target in TARGETS for what in ("updates", "seconds")]
CELL = ["batch_size", "method"]
SETTING = [*CELL, "lr", "weight_decay"]  # by which a trial is known among those of its method
PLAIN, TOGETHER, LONGER = "plain", "best together", "four times the epochs"
ADAPTED = ("lars", "lamb")  # which leave norms and biases alone as their papers do
METHODS = {  # what readers call each, by the name that the recipe has
    "plain": PLAIN, "nesterov": "Nesterov", "lars": "LARS", "lamb": "LAMB", "legw": "LEGW",
    "label-smoothing": "label smoothing", "no-decay-on-norms": "no decay on norms",
    "ghost-batch-norm": "ghost batch norm", "polynomial": "polynomial decay", "cosine": "cosine decay",
    "longer": LONGER, "stack": TOGETHER,
}  # fmt: skip


def runs(ds: xr.Dataset, benchmarks: xr.Dataset, methods: Sequence[str] | None = None) -> pd.DataFrame:
    """Return a row per run: its method and remedies, final accuracy, and updates and device seconds to each target.

    The method is the one remedy that a run has, or all of them together. A second is one of a run that has the device
    to itself, by the benchmark of the engine with the run's optimizer, else with SGD; where the device was not
    benchmarked, it is one of the run's own share of the device. What is not reached is nan. ``methods`` keeps those of
    these names, which are the recipe's, and the plain recipe.
    """
    frame = final_accuracy(ds, last=1)
    frame["remedies"] = _remedies(frame)
    count = frame["remedies"].map(len)
    frame["method"] = np.where(count > 1, TOGETHER, [names[0] if names else PLAIN for names in frame["remedies"]])
    frame["epoch_seconds"] = _epoch_seconds(frame, benchmarks)
    series = ds["test_accuracy"].to_numpy()
    for target in TARGETS:
        epochs = np.where((series >= target).any(axis=1), (series >= target).argmax(axis=1) + 1.0, np.nan)
        frame[f"updates_to_{target:.0%}"] = epochs * frame["updates"] / frame["epochs"]
        frame[f"seconds_to_{target:.0%}"] = epochs * frame["epoch_seconds"]
    return frame if methods is None else frame[frame["method"].isin([PLAIN, *(METHODS[name] for name in methods)])]


def _remedies(frame: pd.DataFrame) -> pd.Series:
    """Return what each run has that the plain recipe has not, as a list."""
    adapted = frame["optimizer"].isin(ADAPTED)
    has = pd.DataFrame(
        {
            "Nesterov": frame["optimizer"] == "nesterov",
            "LARS": frame["optimizer"] == "lars",
            "LAMB": frame["optimizer"] == "lamb",
            "LEGW": frame["lr_scaling"] == "sqrt",
            "label smoothing": frame["label_smoothing"] > 0,
            "no decay on norms": (frame["weight_decay_on"] == "filters") & ~adapted,
            "ghost batch norm": frame["bn_workers"] > 1,
            "polynomial decay": frame["decay"].str.startswith("polynomial"),
            "cosine decay": frame["decay"] == "cosine",
            LONGER: frame["epochs"] > frame["epochs"].min(),
        }
    )
    return has.apply(lambda row: [str(name) for name, own in row.items() if own], axis=1)


def _epoch_seconds(frame: pd.DataFrame, benchmarks: xr.Dataset) -> pd.Series:
    """Return the device seconds of an epoch of each run, without evaluation."""
    seconds = frame["device_seconds"] / frame["epochs_done"]
    for values, own in frame.groupby(["device", "arch", "batch_size", "optimizer"]):
        device, arch, size, optimizer = values
        for program in (ENGINE, str(optimizer)):  # the second in place of the first, where it was timed
            speed = speed_at(speeds(benchmarks, str(device), program), str(arch), int(size))  # type: ignore[call-overload]
            if np.isfinite(speed):
                seconds[own.index] = own["training_examples"] / speed
    return seconds


def cells(frame: pd.DataFrame) -> pd.DataFrame:
    """Return accuracy, the gain over the plain recipe in points and the way to each target, by batch size and method.

    Intervals are Student's over seeds, those of gains of pairs; of one seed there is none (nan). Methods are in the
    order of their mean gain. Updates and seconds are means over the seeds, nan unless all of them reach the target.
    """
    rows = []
    for size, group in _winners(frame).groupby("batch_size", sort=True):
        table = _by_seed(group)
        for method in table:
            own = group[group["method"] == method]
            accuracy, gain = student(own["accuracy"]).row(), _gain(table, str(method), PLAIN).row()
            rows.append(
                {
                    "batch_size": size, "method": method, "remedies": ", ".join(own["remedies"].iloc[0]),
                    "accuracy": accuracy.pop("value"), **accuracy,
                    "gain": gain["value"], "gain_low": gain["low"], "gain_high": gain["high"],
                    **{name: own[name].mean(skipna=False) for name in _WAY},
                }
            )  # fmt: skip
    found = pd.DataFrame(rows)
    mean = found.groupby("method")["gain"].transform("mean")
    return found.assign(mean=-mean).sort_values(["mean", "batch_size"], ignore_index=True).drop(columns="mean")


def _winners(frame: pd.DataFrame) -> pd.DataFrame:
    fresh = frame[frame["seed"] != SEARCH_SEED]
    return fresh if len(fresh) else frame.loc[frame.groupby(CELL)["accuracy"].idxmax()]


def _by_seed(group: pd.DataFrame) -> pd.DataFrame:
    return group.pivot_table(index="seed", columns="method", values="accuracy")


def _gain(table: pd.DataFrame, method: str, other: str) -> Estimate:
    """Return what a method gains over another in points, paired by seed."""
    pairs = (table[method] - table[other]).dropna()
    return Estimate(0.0, 0.0, 0.0, len(pairs)) if method == other else student(pairs).points()


def recommended(frame: pd.DataFrame) -> pd.DataFrame:
    """Return for each batch size the method of highest mean accuracy, and those as good within error.

    Longer training is left out. ``as_good`` are methods that it does not beat, paired by seed, by Student's interval.
    """
    fresh = _winners(frame)
    known, rows = cells(frame).set_index(CELL), []
    for size, group in fresh[fresh["method"] != LONGER].groupby("batch_size", sort=True):
        table = _by_seed(group)
        best = str(table.mean().idxmax())
        others = [method for method in METHODS.values() if method in table and method != best and len(table) > 1]
        rows.append(
            {
                "batch_size": size, "method": best, "settings": _settings(group[group["method"] == best].iloc[0]),
                **known.loc[(size, best)].to_dict(),  # type: ignore[index]
                "as_good": [method for method in others if _gain(table, best, method).low <= 0],
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def _settings(run: pd.Series) -> dict[str, object]:
    """Return what has to be set to train as a run did, by the names of a run's config."""
    names = ["optimizer", "lr", "weight_decay", "warmup_epochs", "decay"]
    options = {
        "lr_scaling": "none", "base_batch_size": 256, "label_smoothing": 0.0, "bn_workers": 1, "weight_decay_on": "all",
        "trust": 0.001,
    }  # fmt: skip
    return {name: run[name] for name in [*names, *(name for name, usual in options.items() if run[name] != usual)]}


def recommendation_table(found: pd.DataFrame) -> pd.DataFrame:
    """Return `recommended` for readers, without columns that say nothing yet."""
    rows = found.to_dict("records")
    table = pd.DataFrame(
        {
            "batch size": [f"{row['batch_size']:,}" for row in rows],
            "use": [row["remedies"] or PLAIN for row in rows],
            "with": [", ".join(f"{name} {value}" for name, value in row["settings"].items()) for row in rows],
            "test accuracy": written_rows(".1%", found[["accuracy", "low", "high"]]),
            "points over plain": written_rows("+.1f", found[["gain", "gain_low", "gain_high"]]),
            "as good within error": [", ".join(row["as_good"]) for row in rows],
        }
    )
    return table.loc[:, (table != "").any()]


def accuracy_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracies of `cells` for readers, a row per method and a column per batch size."""
    texts = written_rows(".1%", table[["accuracy", "low", "high"]])
    wide = table.assign(text=texts).pivot_table(index="method", columns="batch_size", values="text", aggfunc="first")
    wide = wide.loc[list(dict.fromkeys(table["method"]))].fillna("")
    return wide.set_axis([f"batch {size:,}" for size in wide], axis=1).rename_axis(None)


def times(table: pd.DataFrame) -> pd.DataFrame:
    """Return `cells` once for each target, with its ``target``, ``updates`` and ``seconds``."""
    parts = []
    for target in TARGETS:
        names = {f"{what}_to_{target:.0%}": what for what in ("updates", "seconds")}
        parts.append(table.rename(columns=names).assign(target=target))
    return pd.concat(parts, ignore_index=True).drop(columns=_WAY)


def time_ratio(frame: pd.DataFrame, target: float) -> Estimate | None:
    """Return time to the target at the batch size of highest throughput over that at the best, paired by seed.

    At each batch size the method is the one that was fastest in the search, and so is the best batch size. A run that
    does not reach the target counts with its whole length.
    """
    to = f"seconds_to_{target:.0%}"
    whole = frame["epochs"] * frame["epoch_seconds"]
    timed = frame.assign(missed=frame[to].isna(), seconds=frame[to].fillna(whole))
    fresh = timed[timed["seed"] != SEARCH_SEED]
    if fresh.empty:
        return None
    tried = timed[timed["seed"] == SEARCH_SEED].merge(fresh[SETTING].drop_duplicates(), on=SETTING)
    fastest = tried.sort_values(["missed", "seconds"], kind="stable").drop_duplicates("batch_size")
    times = fresh.merge(fastest[CELL], on=CELL).pivot_table(index="seed", columns="batch_size", values="seconds")
    throughput = fresh[fresh["method"] == PLAIN].sort_values("epoch_seconds")["batch_size"].iloc[0]
    ratio = (times.dropna()[throughput] / times[fastest["batch_size"].iloc[0]]).dropna()
    return geometric(ratio) if times.shape[1] > 1 else None
