"""The critical batch size: from the trade-off between updates and examples, and as the noise of the gradient predicts.

To a given training loss, a batch B needs S updates and E examples. The model of McCandlish et al. (2018) is the
hyperbola (S / S_min - 1) (E / E_min - 1) = 1, which is S = S_min (1 + B_crit / B) with the critical batch size B_crit =
E_min / S_min. A batch of that size needs twice the fewest updates and twice the fewest examples.
"""

import numpy as np
import pandas as pd
import xarray as xr

from dolb.findings import intervals
from dolb.findings.batch_size import CELL, curve_runs, preferred

TARGET = 1.2  # nats of training loss; the lowest, in tenths, that five batch sizes of every network reach
FEWEST_SIZES = 4  # a hyperbola through fewer says nothing
# Of McCandlish et al., Table 1, for CIFAR-10: at the start of training, and on average over it.
REPORTED = {"critical batch size": (300, 900), "noise scale": (400, 2000)}
_TRIED = np.geomspace(1, 1e6, 1201)  # critical batch sizes, 1% apart

# The trade-off


def reached(ds: xr.Dataset, target: float = TARGET) -> pd.DataFrame:
    """Return, for each run of the batch-size curves, the updates and examples after which its training loss is reached.

    The loss of an epoch is a mean over it, and stands at its middle; between epochs the logarithm is interpolated. Runs
    that do not come to the target have NaN.
    """
    runs = curve_runs(ds)
    losses = ds["train_loss"].to_numpy()[runs.index].astype(float)
    epochs = np.array([_epochs_to(row, target) for row in losses])
    updates = epochs * runs["updates"] / runs["epochs"]
    return runs[[*CELL, "seed"]].assign(updates=updates, examples=epochs * runs["training_examples"])


def _epochs_to(losses: np.ndarray, target: float) -> float:
    below = np.flatnonzero(losses <= target)
    if not len(below):
        return float("nan")
    first = int(below[0])
    if first == 0:
        return 0.5
    before, after = np.log(losses[first - 1 : first + 1])
    return float(first - 0.5 + (before - np.log(target)) / (before - after))


def fewest(runs: pd.DataFrame) -> pd.DataFrame:
    """Return, for each network and batch size, the fewest updates over the rates, geometric means over the seeds.

    A rate counts if all its seeds come to the target. ``mean_batch`` is examples by updates, less than the batch size
    where the last batch of an epoch is a small one. ``fitted`` says from which batch on the hyperbola can hold: that
    with the fewest examples. Smaller ones need more, for their batch norm sees few images, or the lowest rate is high.
    """
    missed = runs["updates"].isna().groupby([runs[name] for name in CELL]).transform("any")
    groups = runs[~missed].groupby(list(CELL))
    cells = groups[["updates", "examples"]].agg(intervals.gmean).assign(n=groups.size()).reset_index()
    best = cells.loc[cells.groupby(["arch", "batch_size"])["updates"].idxmin()].reset_index(drop=True)
    least = best["examples"] == best.groupby("arch")["examples"].transform("min")
    first = best["batch_size"].where(least).groupby(best["arch"]).transform("max")
    return best.assign(mean_batch=best["examples"] / best["updates"], fitted=best["batch_size"] >= first)


def critical(points: pd.DataFrame) -> pd.DataFrame:
    """Return the hyperbola of each network that has enough of `fewest`, with an interval of its critical batch size.

    Columns are arch, value, low, high, updates and examples (both the fewest), sizes. The fit is by least squares of
    logarithms; the interval by drawing its residuals anew, made larger for the two numbers that are fitted.
    """
    rng, rows = np.random.default_rng(0), []
    for arch, own in points[points["fitted"]].groupby("arch"):
        if (sizes := len(own)) < FEWEST_SIZES:
            continue
        bends = np.log1p(_TRIED[:, np.newaxis] / own["mean_batch"].to_numpy())
        updates = np.log(own["updates"].to_numpy())
        best = _nearest(bends, updates)
        value, least = float(_TRIED[best]), float((updates - bends[best]).mean())
        left = (updates - least - bends[best]) * np.sqrt(sizes / (sizes - 2))
        drawn = least + bends[best] + rng.choice(left, (intervals.DRAWS, sizes))
        low, high = intervals.quantiles(_TRIED[[_nearest(bends, one) for one in drawn]])
        rows.append((arch, value, low, high, np.exp(least), value * np.exp(least), sizes))
    numbers = ["value", "low", "high", "updates", "examples"]
    return pd.DataFrame(rows, columns=["arch", *numbers, "sizes"]).astype(dict.fromkeys(numbers, float))


def _nearest(bends: np.ndarray, updates: np.ndarray) -> int:
    """Return which of several curves, each free to move up and down, is nearest to the updates; all are logarithms."""
    return int((updates - bends).var(axis=1).argmin())


def hyperbolas(fits: pd.DataFrame, points: pd.DataFrame) -> pd.DataFrame:
    """Return updates and examples along each hyperbola, from the smallest to the largest batch that was run."""
    batch = np.geomspace(points["mean_batch"].min(), points["mean_batch"].max(), 60)
    return _on(fits.merge(pd.DataFrame({"batch": batch}), how="cross"))


def marks(fits: pd.DataFrame, reported: float | None = None) -> pd.DataFrame:
    """Return where on each hyperbola its own critical batch size is, and where the reported one would be."""
    own = fits.assign(what="critical batch size", batch=fits["value"])
    theirs = fits.assign(what="as reported", batch=reported)
    return _on(own if reported is None else pd.concat([own, theirs]))


def _on(batches: pd.DataFrame) -> pd.DataFrame:
    """Return batches, each in a row of its hyperbola, with the updates and examples that they need by it."""
    updates = batches["updates"] * (1 + batches["value"] / batches["batch"])
    return batches.assign(updates=updates, examples=updates * batches["batch"])


# The noise of the gradient


def noise_scales(ds: xr.Dataset) -> pd.DataFrame:
    """Return the noise scale of each network after each phase, over its seeds: arch, epoch, value, low, high, n, loss.

    Of several seeds it is the geometric mean, with Student's interval of the logarithms. Of one seed the interval is
    that of measuring, by leaving out groups of the gradients: of the inverse, the square of the mean gradient in units
    of the variance, which may be near zero or below; then the noise scale, or its upper end, is infinite. ``loss`` is
    the training loss of the epoch before.
    """
    inverse = (ds["gradient_square"] / ds["gradient_variance"]).to_numpy()
    epochs, archs = ds["phase_epoch"].to_numpy(), ds["arch"].to_numpy()
    rows = []
    for arch in dict.fromkeys(archs.tolist()):
        own = np.flatnonzero(archs == arch)
        for epoch in np.unique(epochs[own][np.isfinite(epochs[own])]):
            run, phase = np.nonzero(epochs[own] == epoch)
            values = inverse[own[run], phase]
            known = np.isfinite(values).all(axis=1)
            if known.any():
                loss = float(ds["train_loss"].to_numpy()[own[run][known], int(epoch) - 1].mean())
                rows.append((arch, int(epoch), *_over_seeds(values[known]), int(known.sum()), loss))
    return pd.DataFrame(rows, columns=["arch", "epoch", "value", "low", "high", "n", "loss"])


def _over_seeds(inverse: np.ndarray) -> tuple[float, ...]:
    """Return value, low and high from a row for each seed: the inverse of its noise scale, then without each group."""
    if len(inverse) > 1 and (inverse[:, 0] > 0).all():
        found = intervals.geometric(1 / inverse[:, 0])
        return found.value, found.low, found.high
    found = intervals.jackknife(inverse[:, 0], inverse[:, 1:])
    return tuple(1 / one if one > 0 else float("inf") for one in (found.value, found.high, found.low))


# Beside each other


def compared(fits: pd.DataFrame, noise: pd.DataFrame) -> pd.DataFrame:
    """Return noise scales by phase and the critical batch sizes of the trade-off as one long table, for a figure.

    A noise scale that is infinite is left out; an interval without an end has the largest that was tried.
    """
    phases = noise[np.isfinite(noise["value"])].assign(what=noise["epoch"].map("epoch {}".format))
    table = pd.concat([phases, fits.assign(what="trade-off")], ignore_index=True)
    return table[["arch", "what", "value", "low", "high"]].assign(high=table["high"].clip(upper=_TRIED[-1]))


def beside(fits: pd.DataFrame, noise: pd.DataFrame, ds: xr.Dataset) -> pd.DataFrame:
    """Return, for readers, a row per network: the trade-off, the noise scales, and the batch that is most accurate.

    The last is of the rate at which the network is most accurate, as the page on batch size has it.
    """
    optima = preferred(curve_runs(ds))
    optima = optima.loc[optima.groupby("arch", sort=False)["accuracy"].idxmax()].set_index("arch")
    table = pd.DataFrame(
        {
            "critical batch by the trade-off": fits.set_index("arch").apply(_written, axis=1),
            **{
                f"noise scale after epoch {epoch}": own.set_index("arch").apply(_written, axis=1)
                for epoch, own in noise.groupby("epoch")
            },
            "most accurate batch": optima.apply(_between, axis=1),
        }
    ).reindex(optima.index)
    return table.fillna("").rename_axis("network").reset_index()


def _between(row: pd.Series) -> str:
    """Return a best batch size with its interval, which is open where runs begin or stop: a size beyond may do."""
    low, high = f"{row['smallest']:,}", f"{row['largest']:,}"
    between = f"up to {high}" if row["open_below"] else f"from {low}" if row["open_above"] else f"{low} to {high}"
    return f"{row['batch_size']:,}" + (f" ({between})" if low != high or row["open_below"] or row["open_above"] else "")


def _written(row: pd.Series) -> str:
    value, low, high = (f"{one:,.0f}" if np.isfinite(one) else "∞" for one in row[["value", "low", "high"]])
    return f"{value} ({low} to {high})"
