"""What runs cost in device time: a price for each network and batch size, what a price can buy, and a grid's total.

Speeds are tables of arch, batch_size and images_per_second, as `engine_speeds` and `eager_speeds` make them. They are
taken between the benchmarked batch sizes of a network, on logarithmic scales, and never beyond them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import xarray as xr

SIZE = ("arch", "batch_size")
EAGER = "plain eager loop"  # the benchmark program whose speed the grid's time is compared with
ENGINE = "dolb, "  # how the benchmark programs begin that are the engine's, one run or several at once
EVAL_BATCH = 5000  # of the engine, whatever the batch size of training
FORWARD = 1 / 3  # of the arithmetic of a training step: the backward pass has two products for each of the forward's
WITHIN = {"resnet34": "resnet18", "resnet101": "resnet50", "resnet152": "resnet101"}  # all its blocks, and no others
BENCHMARK, RUNS, BOUND = "benchmark", "runs", "bound"  # what a price may be of


def priced(cells: pd.DataFrame, runs: pd.DataFrame, speeds: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return the cells with ``run_seconds``, the device time of one run of that network and batch size.

    ``speeds`` are those of the engine (`engine_speeds`). Where they reach a size, the price is the time of a run's
    images at that speed, that of a full pack of like runs, and ``priced_by`` is "benchmark". Counted with it is an
    evaluation after every epoch, which was not timed: forward passes alone, at the speed of the benchmarked size that
    comes nearest to the batch of evaluation. For CIFAR-10 this adds a fifteenth at most; setting up is left out.

    Elsewhere it is the median over all runs of that size, evaluation included, and ``priced_by`` is "runs"; one that
    diverged counts with the time that all its epochs would have taken. The rate and the seed change nothing about the
    time of a step, but what else had the device meanwhile does: a large run beside small ones counts with too little.
    Where the price by runs is thus below that of a network whose blocks are all in this one, and which cannot cost
    more, it is that network's price, and ``priced_by`` is "bound". ``runs`` may be of more networks than the cells.
    """
    return cells.merge(_prices(runs, speeds), on=list(SIZE))


def with_alone(cells: pd.DataFrame, runs: pd.DataFrame, speeds: pd.DataFrame) -> pd.DataFrame:
    """Return cells of `priced` with ``alone_seconds``, the time of a run that has the device to itself.

    ``speeds`` are those of one run (`engine_speeds`), and nothing is known beyond them; without any, as on a CPU, where
    a run has its core to itself, it is ``run_seconds``.
    """
    if speeds.empty:
        return cells.assign(alone_seconds=cells["run_seconds"])
    prices = _prices(runs, speeds)
    prices = prices[prices["priced_by"] == BENCHMARK].rename(columns={"run_seconds": "alone_seconds"})
    return cells.merge(prices.drop(columns="priced_by"), on=list(SIZE), how="left")


def unevenness(runs: pd.DataFrame) -> float:
    """Return by how much the device times of one network and batch size differ, at most, as a share of their median."""
    seconds = _whole(runs).groupby([runs[name] for name in SIZE])
    return float(((seconds.max() - seconds.min()) / seconds.median()).max())


def pricing_in_words(cells: pd.DataFrame, runs: pd.DataFrame) -> str:
    """Say how many cells of `priced` are priced by the benchmark, by a bound and by runs, and what to expect of it."""
    by_runs, at_bound = (cells[cells["priced_by"] == kind] for kind in (RUNS, BOUND))
    said = []
    if by_benchmark := int((cells["priced_by"] == BENCHMARK).sum()):
        said.append(
            f"{by_benchmark:,} of {len(cells):,} points are priced by the benchmark: the images of a run at the speed "
            "of the engine with as many like runs at once as suit the device, and evaluations counted as forward "
            "passes. Speeds between benchmarked batch sizes are interpolated."
        )
    if len(at_bound):
        archs = sorted(set(at_bound["arch"]), key=lambda arch: (len(arch), arch))
        which = ", ".join(f"{arch} at the price of {WITHIN[arch]}" for arch in archs)
        said.append(
            f"{len(at_bound):,} of {len(cells):,} points have a bound for a price: their runs had the device with "
            "others and were charged less than a smaller network at that batch size, of which theirs has every block "
            f"and more. That network's price stands there, as the least that theirs can be: {which}."
        )
    if by_runs.empty:
        return " ".join(said)
    own = runs.merge(by_runs[list(SIZE)].drop_duplicates(), on=list(SIZE))
    said.append(
        f"{len(by_runs):,} of {len(cells):,} points are priced by the runs themselves, by the median over those of the "
        "network and batch size."
    )
    shared = own.loc[own["concurrent_runs"] > 1, list(SIZE)].drop_duplicates()
    if len(shared):
        points = len(by_runs.merge(shared, on=list(SIZE)))
        which = "all" if points == len(by_runs) else f"{points:,}"
        said.append(
            f"For {which} of these points runs shared the device with others; "
            "where unlike runs shared it, the price may be off, because a run's part of the device is then an estimate."
        )
    if uneven := unevenness(own):
        said.append(
            "Who else had the device, and which version of the engine, differs from run to run: among points priced by "
            f"runs the times of one batch size differ by up to {uneven:.0%}, and smaller differences between batch "
            "sizes mean nothing there."
        )
    return " ".join(said)


def _whole(runs: pd.DataFrame) -> pd.Series:
    """Return the device seconds of each run, of one that diverged those that all its epochs would have taken."""
    return runs["device_seconds"] * runs["epochs"] / runs["epochs_done"]


def _prices(runs: pd.DataFrame, speeds: pd.DataFrame | None) -> pd.DataFrame:
    """Return a row per network and batch size, with ``run_seconds`` and ``priced_by``, none below its bound."""
    training = runs["training_examples"] / _speeds(speeds, runs["arch"], runs["batch_size"])
    evaluated = pd.Series(EVAL_BATCH, index=runs.index)
    evaluation = FORWARD * runs["test_examples"] / _speeds(speeds, runs["arch"], evaluated, beyond=True)
    by_benchmark = runs["epochs"] * (training + evaluation)
    each = runs[list(SIZE)].assign(
        run_seconds=by_benchmark.fillna(_whole(runs)),
        priced_by=by_benchmark.notna().map({True: BENCHMARK, False: RUNS}),
    )
    prices = each.groupby(list(SIZE), as_index=False).agg({"run_seconds": "median", "priced_by": "first"})
    for arch, smaller in WITHIN.items():  # from the smallest on, as a bound may rest on a bound
        known = prices[prices["arch"] == smaller].set_index("batch_size")["run_seconds"]
        bound = prices["batch_size"].map(known).where(prices["arch"] == arch)
        short = (prices["priced_by"] == RUNS) & (prices["run_seconds"] < bound)
        prices.loc[short, "run_seconds"] = bound[short]
        prices.loc[short, "priced_by"] = BOUND
    return prices


def pareto(cells: pd.DataFrame, price: str = "run_seconds") -> pd.DataFrame:
    """Return the cells of `priced` that are best for their time: no other of the network is as cheap and as accurate.

    By network and price; the last row within a time limit is the one to take.
    """
    cells = cells[cells[price].notna()]
    ordered = cells.sort_values(["arch", price, "accuracy"], ascending=[True, True, False])
    so_far = ordered.groupby("arch")["accuracy"].cummax()
    before = so_far.groupby(ordered["arch"]).shift()
    best = ordered[~(ordered["accuracy"] <= before)]
    return best.sort_values("arch", key=lambda names: names.str.len(), kind="stable", ignore_index=True)


def device_time(
    runs: pd.DataFrame,
    eager: pd.DataFrame | None = None,
    speeds: pd.DataFrame | None = None,
    known: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return, for each network and batch size, the runs made, the price of one as `priced` has it, and all their time.

    ``known`` are the runs by which they are priced, if there are more than those made.

    The last, ``seconds``, is what the runs were charged: their parts of the device, which sum up to the time it was
    busy. Of runs that shared it with no record of their part only the sum is known, and they have parts by their price.

    With ``eager``, the speeds of a plain eager loop on the same device, also what the same training would have taken
    at that speed, evaluation left out: ``eager_seconds`` of all runs, with the epochs that each did, and
    ``eager_run_seconds`` of one that does all. Where the speeds do not reach a size, both are nan.
    """
    prices = _prices(runs if known is None else known, speeds)
    runs = runs.assign(device_seconds=_charged(runs, prices))
    examples = runs["training_examples"]
    runs = runs.assign(images=runs["epochs_done"] * examples, images_of_one=runs["epochs"] * examples)
    table = runs.groupby(list(SIZE), as_index=False, sort=True).agg(
        runs=("device_seconds", "size"),
        seconds=("device_seconds", "sum"),
        images=("images", "sum"),
        images_of_one=("images_of_one", "median"),
    )
    # Left: what has no price was paid for all the same.
    table = table.merge(prices, on=list(SIZE), how="left")
    speed = _speeds(eager, table["arch"], table["batch_size"])
    eager_time = {"eager_seconds": table["images"] / speed, "eager_run_seconds": table["images_of_one"] / speed}
    return table.drop(columns=["images", "images_of_one"]).assign(**eager_time)


def _charged(runs: pd.DataFrame, prices: pd.DataFrame) -> pd.Series:
    """Return the device seconds of each run; where its part was not recorded, by its price, with the same sum."""
    price = runs[list(SIZE)].merge(prices, on=list(SIZE), how="left")["run_seconds"].set_axis(runs.index)
    price = price * runs["epochs_done"] / runs["epochs"]
    estimated = _share_unknown(runs) & price.notna()
    seconds = runs["device_seconds"].astype(float)
    scale = seconds[estimated].sum() / price[estimated].sum() if estimated.any() else 1.0
    return seconds.where(~estimated, price * scale)


def _share_unknown(runs: pd.DataFrame) -> pd.Series:
    """Return which runs shared the device with no record of their part."""
    return (runs["concurrent_runs"] > 1) & (runs["device_share"].isna() if "device_share" in runs else True)


def in_all(times: pd.DataFrame) -> dict[str, float]:
    """Return the runs and minutes of `device_time` in all, and of those whose time at eager speed is known."""
    known = times[times["eager_seconds"].notna()]
    return {
        "runs": int(times["runs"].sum()),
        "minutes": float(times["seconds"].sum()) / 60,
        "known_runs": int(known["runs"].sum()),
        "known_minutes": float(known["seconds"].sum()) / 60,
        "eager_minutes": float(known["eager_seconds"].sum()) / 60,
    }


def charged_in_words(runs: pd.DataFrame) -> str:
    """Say in a clause what the charged time of runs, rows of ``summary.final_accuracy``, leaves out or estimates."""
    unknown = _share_unknown(runs)
    estimated = f"divided by price among {unknown.sum():,} that shared the device with no record of their part, and "
    return f"{estimated if unknown.any() else ''}without setting up (capture and compilation), which is not timed"


def eager_in_words(total: Mapping[str, float]) -> str:
    """Say what the runs of `in_all` would have taken at eager speed, for all of them or for those where it is known."""
    if not total["known_runs"]:
        return (
            "What the same runs would take in a plain eager loop cannot be told yet: its speed on this device is not "
            "published."
        )
    which = "these runs" if total["known_runs"] == total["runs"] else f"{total['known_runs']:,} of these runs"
    return (
        f"At the speed of a plain eager loop {which} would take {total['eager_minutes']:,.1f} minutes instead of "
        f"{total['known_minutes']:,.1f}; evaluation is in the latter alone. Speeds between benchmarked batch sizes are "
        "interpolated, and no speed is taken beyond them; some were timed beside the engine, where the loop is slower, "
        "and some alone."
    )


def in_words(cells: pd.DataFrame) -> pd.DataFrame:
    """Return cells of `with_alone` as a table for readers, a row per cell, with the network as its index."""
    return (
        pd.DataFrame(
            {
                "network": cells["arch"],
                "seconds alone": cells["alone_seconds"].map("{:,.1f}".format),
                "device seconds among many": cells["run_seconds"].map("{:,.1f}".format),
                "batch size": cells["batch_size"].map("{:,}".format),
                "learning rate": cells["lr"].map("{:g}".format),
                "test accuracy": cells["accuracy"].map("{:.1%}".format),
            }
        )
        .set_index("network")
        .rename_axis(index=None, columns="network")
    )


def eager_speeds(benchmarks: xr.Dataset, device: str, program: str = EAGER) -> pd.DataFrame:
    """Return images per second of one benchmark program on one device, median over repetitions; maybe no rows."""
    rows = _timed_on(benchmarks, device)
    return rows[rows["program"] == program].groupby(list(SIZE))["images_per_second"].median().reset_index()


def engine_speeds(benchmarks: xr.Dataset, device: str, alone: bool = False) -> pd.DataFrame:
    """Return images per second of the engine on one device, all runs of a pack together, median; maybe no rows.

    Where it was timed with several numbers of runs at once, the largest is taken: that is the full pack; or with
    ``alone`` one run. All were timed in bfloat16, which is what the studies train in.
    """
    rows = _timed_on(benchmarks, device)
    packs = rows[rows["program"].str.startswith(ENGINE)].groupby([*SIZE, "runs_at_once"], sort=True)
    timed = packs["images_per_second"].median().reset_index()
    timed = timed[timed["runs_at_once"] == 1] if alone else timed
    fullest = timed.drop_duplicates(list(SIZE), keep="last")
    return fullest.drop(columns="runs_at_once").reset_index(drop=True)


def _timed_on(benchmarks: xr.Dataset, device: str) -> pd.DataFrame:
    names = ("device", "program", *SIZE, "runs_at_once", "images_per_second")
    rows = pd.DataFrame({name: benchmarks[name].to_numpy() for name in names})
    return rows[rows["device"] == device]


def _speeds(speeds: pd.DataFrame | None, archs: pd.Series, sizes: pd.Series, beyond: bool = False) -> np.ndarray:
    return np.array([_speed(speeds, arch, size, beyond) for arch, size in zip(archs, sizes, strict=True)])


def _speed(speeds: pd.DataFrame | None, arch: str, batch_size: int, beyond: bool) -> float:
    """Return the speed at a batch size; beyond the benchmarked ones nan or, if asked for, that of the nearest."""
    known = speeds[speeds["arch"] == arch].sort_values("batch_size") if speeds is not None else pd.DataFrame()
    if known.empty or not (beyond or known["batch_size"].min() <= batch_size <= known["batch_size"].max()):
        return float("nan")
    logs = np.log(known[["batch_size", "images_per_second"]].to_numpy(dtype=float))
    return float(np.exp(np.interp(np.log(batch_size), logs[:, 0], logs[:, 1])))
