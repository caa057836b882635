"""Which batch size and rate suit a data set of one's own: a search, the noise of the gradient, a check around it.

A fifth of the training set is held out and judges everything; the test set is not looked at. Rates are chosen by the
loss, which is smoother than the accuracy of a few hundred images. What they lead to is told by other seeds than those
of the search: choosing by a seed flatters that seed.
"""

import math
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from dolb import data as datasets
from dolb import own
from dolb.findings import critical_batch, intervals
from dolb.findings.runs import LAST_EPOCHS, final_accuracy
from dolb.training.config import HELD_OUT, NoiseScaleConfig, RunConfig
from dolb.training.device import resolve_device
from dolb.training.noise_scale import measure_all
from dolb.training.schedule import SCALINGS, scale_rate
from dolb.training.sweep import sweep

MARGIN = 1.0  # points of accuracy that a larger batch may cost
_HELD_OUT = 0.2
_FEWEST = 20  # training images
_SEARCH_SEEDS = (0, 1)
_LADDER = (0.25, 0.5, 1.0, 2.0, 4.0)  # times the recipe's rate
_LONGER = 3  # times a ladder of rates is made longer if its end is the best
# The noise scale grows as a network trains. On the page on the critical batch it is below that early, and above late.
_MEASURED_AT = 0.3
_GRADIENTS = 64
_AROUND = (0.25, 0.5, 1.0, 2.0)  # times the critical batch: what is most accurate is far below it there
_FEWEST_UPDATES = 2  # of an epoch


@dataclass(frozen=True, eq=False)
class Recommended:
    """The run of the search at its best rate, and what was checked, a row per batch size.

    ``best`` is the row of the highest accuracy, ``taken`` the one to take, and ``above`` that of the next larger batch.
    """

    run: RunConfig
    checked: pd.DataFrame
    best: dict[Hashable, Any]
    taken: dict[Hashable, Any]
    above: dict[Hashable, Any] | None


def recommend(
    data: datasets.ImageData,
    *,
    arch: str | None = None,
    epochs: int | None = None,
    seeds: int = 5,
    batch_sizes: Sequence[int] | None = None,
    margin: float = MARGIN,
    store: str | Path,
    device: str = "auto",
    data_dir: str | Path | None = None,
    minutes: float | None = None,
    progress: bool = True,
    say: Callable[[str], None] = lambda text: None,
) -> Recommended:
    """Return the largest batch size that loses at most a margin of accuracy, and its rate, training what is lacking.

    The recipe is that of ``own.extractor``. After ``minutes`` a ``TimeoutError`` says what is left; a later call goes
    on from there.
    """
    own.refuse(arch=arch)
    if (n := len(data.train_labels)) < _FEWEST:
        raise ValueError(f"{data.name} has {n} training images, too few to hold some out; accepted: {_FEWEST} or more")
    kept = n - round(_HELD_OUT * n)
    if odd := [size for size in batch_sizes or () if not 1 < size <= kept]:
        raise ValueError(f"batch size {odd[0]} cannot be checked; accepted: 2 to {kept}, what is not held out")
    for size in batch_sizes or ():
        own.check_even(size, [kept])
    end = None if minutes is None else time.monotonic() + 60 * minutes
    seconds: dict[Any, float] = {}  # of an epoch, by batch size, of the run that was disturbed least

    def made(configs: Sequence[RunConfig], make: Callable[..., xr.Dataset] = sweep) -> xr.Dataset:
        left = None if end is None else max(0.0, end - time.monotonic())
        how: dict[str, Any] = {"store": store, "device": device, "data_dir": data_dir, "progress": progress}
        ds = make(configs, time_limit=left, **how)
        if ds.attrs["unfinished"]:
            raise TimeoutError(f"{ds.attrs['unfinished']} runs are left; a later call goes on")
        for size, runs in _accuracies(ds).groupby("batch_size"):
            seconds[size] = min(runs["epoch_seconds"].min(), seconds.get(size, math.inf))
        return ds

    recipe = own.extractor(data, resolve_device(device), arch, epochs, beside=[kept])
    recipe = replace(recipe, subset=f"{HELD_OUT}{_HELD_OUT}")
    say(f"1 of 3: the rate of {recipe.arch} at batch {recipe.batch_size}")
    (run,) = _at_best_rates([[replace(recipe, lr=_rounded(recipe.lr * factor)) for factor in _LADDER]], made)
    say(f"best rate at batch {run.batch_size}, {run.epochs} epochs: {run.lr:g}\n2 of 3: the noise of the gradient")
    repeated = range(len(_SEARCH_SEEDS), len(_SEARCH_SEEDS) + seeds)
    noisy = made([_measured(replace(run, seed=seed)) for seed in repeated], measure_all)
    scales = critical_batch.noise_scales(noisy).to_dict("records")
    if not scales:
        raise ValueError(f"{run.arch} diverges at every rate down to {run.lr:g}; accepted: another network")
    noise = scales[0]
    sizes = sorted(set(batch_sizes or around(noise["value"], run.batch_size, kept // _FEWEST_UPDATES, [kept, n])))
    say(
        f"critical batch, by the noise of the gradient after epoch {noise['epoch']}: {noise['value']:,.0f} "
        f"({noise['low']:,.0f} to {noise['high']:,.0f}, 95%, {noise['n']} seeds)\n"
        f"3 of 3: batches of {', '.join(map(str, sizes))}"
    )
    parts = [noisy] if run.batch_size in sizes else []
    if ladders := [_by_rules(run, size) for size in sizes if size != run.batch_size]:
        rated = _at_best_rates(ladders, made)
        say(f"best rates: {', '.join(f'{one.lr:g} at batch {one.batch_size}' for one in rated)}")
        parts.append(made([replace(one, seed=seed) for one in rated for seed in repeated]))
    checked = _beside_best(pd.concat([_accuracies(part) for part in parts], ignore_index=True))
    checked["epoch_seconds"] = checked["batch_size"].map(seconds)
    rows = checked.to_dict("records")
    place = max(k for k, row in enumerate(rows) if row["below"] <= margin)
    above = rows[place + 1] if place + 1 < len(rows) else None
    return Recommended(run, checked, max(rows, key=lambda row: row["accuracy"]), rows[place], above)


def _at_best_rates(ladders: list[list[RunConfig]], made: Callable[..., xr.Dataset]) -> list[RunConfig]:
    """Return of each ladder, runs by rising rate, the one of the lowest loss; a ladder whose end is best goes on."""
    for _ in range(_LONGER + 1):
        runs = {run: [replace(run, seed=seed) for seed in _SEARCH_SEEDS] for ladder in ladders for run in ladder}
        ds = made([one for repeats in runs.values() for one in repeats])
        losses = np.nan_to_num(ds["test_loss"].to_numpy()[:, -1], nan=np.inf)
        by_key = dict(zip(ds["key"].to_numpy().tolist(), losses, strict=True))
        lost = {run: np.mean([by_key[one.key] for one in repeats]) for run, repeats in runs.items()}
        best = [min(ladder, key=lost.__getitem__) for ladder in ladders]
        longer = [_longer(ladder, one) for ladder, one in zip(ladders, best, strict=True)]
        if longer == ladders:
            break
        ladders = longer
    return best


def _longer(ladder: list[RunConfig], best: RunConfig) -> list[RunConfig]:
    """Return a ladder of rates with one more at the end that is the best, as it is if that is neither."""
    if best == ladder[0]:
        return [replace(best, lr=_rounded(best.lr / 2)), *ladder]
    return [*ladder, replace(best, lr=_rounded(best.lr * 2))] if best == ladder[-1] else ladder


def _by_rules(run: RunConfig, batch_size: int) -> list[RunConfig]:
    """Return runs at another batch size, with the rates that the rules of scaling say."""
    rates = {_rounded(scale_rate(run.lr, rule, batch_size, run.batch_size)) for rule in SCALINGS}
    return [replace(run, batch_size=batch_size, lr=rate) for rate in sorted(rates)]


def _measured(run: RunConfig) -> NoiseScaleConfig:
    """Return a run during which the noise of the gradient is measured once."""
    after, share = max(1, round(_MEASURED_AT * run.epochs)), max(2, run.batch_size)
    how = {"measured_after": str(after), "small_batch": share, "measured_batches": _GRADIENTS}
    return NoiseScaleConfig(**run.as_dict() | how)


def around(critical: float, searched: int, most: int, counts: Sequence[int]) -> list[int]:
    """Return batch sizes around the critical one, and that of the search; none has too few updates.

    They are powers of two, or a little less where that would leave a small last batch on sets of the sizes ``counts``.
    A critical size that could not be measured, as the gradient is all noise, is beyond every batch.
    """
    sizes = [2 ** max(2, round(math.log2(factor * min(critical, most)))) for factor in _AROUND]
    return [searched, *(own.even(size, counts) for size in sizes if size <= most)]


def _accuracies(ds: xr.Dataset) -> pd.DataFrame:
    """Return runs with their accuracy in percent, 0 for one that diverged: of short runs the last epoch's."""
    frame = final_accuracy(ds, last=max(1, min(LAST_EPOCHS, int(ds["epochs"][0]) // 10)))
    accuracy = 100 * frame["accuracy"].mask(frame["diverged"].astype(bool), 0.0)
    return frame.assign(accuracy=accuracy, epoch_seconds=frame["device_seconds"] / frame["epochs_done"])


def _beside_best(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row per batch size: rate, updates, accuracy and how far it is below the best, with intervals.

    What lies between two batch sizes is of runs in pairs, by their seeds.
    """
    wide = frame.pivot_table(index="seed", columns="batch_size", values="accuracy")
    below = wide.rsub(wide[wide.mean().idxmax()], axis="index")
    rows = []
    for size, runs in frame.groupby("batch_size"):
        accuracy, lost = intervals.student(runs["accuracy"]), intervals.student(below[size])
        rows.append(
            {
                "batch_size": size,
                "lr": runs["lr"].iloc[0],
                "updates": runs["updates"].iloc[0],
                "accuracy": accuracy.value,
                "low": accuracy.low,
                "high": min(100.0, accuracy.high),
                "below": lost.value,
                "below_low": lost.low,
                "below_high": lost.high,
            }
        )
    return pd.DataFrame(rows)


def shown(checked: pd.DataFrame) -> pd.DataFrame:
    """Return what was checked as a table for readers."""
    bounds = checked[["accuracy", "low", "high"]].to_numpy()
    lost = [intervals.written(".2f", *row) for row in checked[["below", "below_low", "below_high"]].to_numpy()]
    lost[int(checked["accuracy"].argmax())] = "best"
    return pd.DataFrame(
        {
            "batch": checked["batch_size"],
            "rate": checked["lr"].map("{:g}".format),
            "updates": checked["updates"],
            "held-out accuracy, %": [intervals.written(".2f", *row) for row in bounds],
            "below the best, points": lost,
            "seconds an epoch": checked["epoch_seconds"].map("{:.3g}".format),
        }
    )


def _rounded(rate: float) -> float:
    return float(f"{rate:.3g}")
