"""Strong against weak scaling: updates and time to a target loss, by rule and number of workers.

Updates are those of the runs. A step takes as long as real ranks did, or as a simulation says of more of them: a time
is called measured only where its step is. A run that misses its target counts with its whole length.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr

from dolb.findings.intervals import Estimate, geometric, student

STRONG, WEAK, LINEAR, WARMUP = "strong", "weak", "weak, linear rate", "weak, linear rate, warmup"
RULES = (STRONG, WEAK, LINEAR, WARMUP)
CELL = ["workload", "clock", "rule", "workers"]
CLOCKS = {"cuda": "one GPU a worker", "cpu": "one CPU core a worker"}
VOLUMES = "nodules-"  # begins the names of their data, before the side
MANY = 8  # workers, from which on claim C1 is judged
TIMED_AS = {"cifar10": "synthetic"}  # random images of its shape take as long


def runs(ds: xr.Dataset) -> pd.DataFrame:
    """Return a row per run: workload, rule, workers, updates until the target or the end, and how it ended."""
    names = ["data", "subset", "arch", "batch_size", "base_batch_size", "bn_workers", "lr", "lr_scaling", "seed"]
    names += ["warmup_epochs", "target_loss", "training_examples", "diverged", "parameters"]
    frame = pd.DataFrame({name: ds[name].to_numpy() for name in names})
    losses = ds["test_loss"].to_numpy()
    frame["workload"] = [_workload(*one) for one in frame[["data", "subset"]].itertuples(index=False)]
    grown = [
        frame["batch_size"] == frame["base_batch_size"],
        frame["lr_scaling"] == "none",
        frame["warmup_epochs"] == 0,
    ]
    frame["rule"] = np.select(grown, RULES[:3], WARMUP)
    frame["workers"] = frame["bn_workers"]
    full, rest = frame["training_examples"] // frame["batch_size"], frame["training_examples"] % frame["batch_size"]
    frame["epoch_updates"] = full + (rest > 1)
    frame["epochs_done"] = np.isfinite(ds["train_loss"].to_numpy()).sum(axis=1) + frame["diverged"]
    frame["updates"] = frame["epochs_done"] * frame["epoch_updates"]
    frame["share"] = np.minimum(frame["batch_size"], frame["training_examples"]) / frame["workers"]
    frame["reached"] = np.nanmin(losses, axis=1, initial=np.inf) <= frame["target_loss"]
    return frame


def _workload(data: str, subset: str) -> str:
    if data.startswith(VOLUMES):
        side = data.rpartition("-")[2]
        return f"3-D generator, {side} x {side} x {side}"
    share = float(subset.rpartition("-")[2]) if subset.startswith("share-") else 1.0
    return f"ResNet-18, {share:.0%} of CIFAR-10"


def largest(frame: pd.DataFrame) -> pd.DataFrame:
    """Return runs without those of smaller volumes, which stand for the largest where these take too long."""
    sides = frame["data"].str.removeprefix(VOLUMES).where(frame["data"].str.startswith(VOLUMES), "0").astype(int)
    return frame[(sides == 0) | (sides == sides.max())]


def step_times(steps: xr.Dataset) -> pd.DataFrame:
    """Return the seconds of a step by what is trained, clock, ranks and share: the median of what was repeated."""
    names = ["arch", "data", "device_kind", "ranks", "batch_size_per_rank", "source", "step_seconds"]
    frame = steps[names].to_dataframe().reset_index(drop=True)
    return frame.groupby(names[:6])["step_seconds"].median().reset_index()


def times(frame: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Return runs once for every clock that has their steps, with seconds, and whether their step is measured."""
    parts = []
    for values, own in frame.groupby(["arch", "data", "workers", "share"]):
        arch, data, workers, share = values
        same = (steps["arch"] == arch) & (steps["data"] == TIMED_AS.get(str(data), data)) & (steps["ranks"] == workers)
        for clock, table in steps[same].groupby("device_kind"):
            measured = table[(table["source"] == "measured") & (table["batch_size_per_rank"] == share)]
            source = "measured" if len(measured) else "simulated"
            known = measured if len(measured) else table[table["source"] == source]
            if len(known):  # between two shares that were timed, on a line
                known = known.sort_values("batch_size_per_rank")
                at, took = (known[name].to_numpy(float) for name in ("batch_size_per_rank", "step_seconds"))
                seconds = float(np.interp(float(own["share"].iloc[0]), at, took))
                parts.append(own.assign(clock=CLOCKS[str(clock)], step_seconds=seconds, source=source))
    columns = [*frame.columns, "clock", "step_seconds", "source"]
    found = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)
    return found.assign(seconds=found["updates"] * found["step_seconds"])


def cells(timed: pd.DataFrame) -> pd.DataFrame:
    """Return time and updates to the target by workload, clock, rule and workers, and how many runs reach it.

    One worker is drawn under every rule. Intervals are Student's of logarithms, over seeds; of one seed there is none.
    """
    rows = []
    timed = timed.assign(clock=pd.Categorical(timed["clock"], list(CLOCKS.values())))
    for cell, own in timed.groupby(CELL, sort=True, observed=True):
        took = geometric(own["seconds"])
        low, high = (took.low, took.high) if took.n > 1 else (np.nan, np.nan)
        first = own.iloc[0]
        row = dict(zip(CELL, cell, strict=True)) | {
            "seconds": took.value, "low": low, "high": high,
            "updates": geometric(own["updates"]).value, "step_seconds": first["step_seconds"],
            "batch_size": first["batch_size"], "share": first["share"], "source": first["source"], "n": took.n,
            "reached": int(own["reached"].sum()), "diverged": int(own["diverged"].sum()),
        }  # fmt: skip
        rows += [row | {"rule": rule} for rule in (RULES if row["workers"] == 1 else (row["rule"],))]
    return pd.DataFrame(rows)


def curves(ds: xr.Dataset, timed: pd.DataFrame, seed: int | None = None) -> pd.DataFrame:
    """Return test loss after every epoch of one seed's runs, with updates and seconds so far."""
    seed = int(timed["seed"].min()) if seed is None else seed
    frame, losses = runs(ds), ds["test_loss"].to_numpy()
    parts = []
    drawn = timed.assign(clock=pd.Categorical(timed["clock"], list(CLOCKS.values()))).sort_values(CELL)
    for row in drawn[drawn["seed"] == seed].to_dict("records"):
        same = frame[["workload", "rule", "workers", "seed"]] == [row["workload"], row["rule"], row["workers"], seed]
        loss = losses[np.flatnonzero(same.all(axis=1))[0]][: row["epochs_done"]]
        updates = np.arange(1, len(loss) + 1) * row["epoch_updates"]
        about = {name: row[name] for name in [*CELL, "target_loss"]}
        parts.append(
            pd.DataFrame({"loss": loss, "updates": updates, "seconds": updates * row["step_seconds"], **about})
        )
    return pd.concat(parts, ignore_index=True).dropna(subset="loss")


def outcomes(frame: pd.DataFrame) -> pd.DataFrame:
    """Return for readers how many runs reach the target, by workload, rule and workers, and how many diverge."""
    rows = []
    for (load, rule), own in frame[frame["workers"] > 1].groupby(["workload", "rule"], sort=True):
        row = {"workload": load, "rule": rule}
        for workers, group in own.groupby("workers"):
            row[f"{workers} workers"] = f"{int(group['reached'].sum())} of {len(group)}"
        rows.append(row | {"diverge": f"{int(own['diverged'].sum())} of {len(own)}"})
    found = pd.DataFrame(rows).fillna("")
    order = found["rule"].map(RULES.index)
    return found.iloc[np.lexsort((order, found["workload"]))].set_index(["workload", "rule"])


def followed(ds: xr.Dataset) -> pd.DataFrame:
    """Return for readers the losses of strong scaling over those of one worker after as many updates, by workers."""
    told = {}
    for name in ("test_loss", "train_loss"):
        found = {workers: geometric(own["ratio"]) for workers, own in _over_one_worker(ds, name).groupby("workers")}
        told[name] = {workers: f"{one.value:.2f} ({one.low:.2f} to {one.high:.2f})" for workers, one in found.items()}
    return pd.DataFrame(
        {
            "workers": list(told["test_loss"]), "test loss over that of one worker": list(told["test_loss"].values()),
            "training loss over that of one worker": list(told["train_loss"].values()),
        }
    )  # fmt: skip


def fastest(table: pd.DataFrame) -> pd.DataFrame:
    """Return for readers, by workload, clock and workers, the rule that reaches the target first, and its speed-up."""
    rows = {}
    for (load, clock), own in table.groupby(["workload", "clock"], sort=False):
        alone = own[own["workers"] == 1]["seconds"].min()  # one worker's, or none
        found = {}
        for workers, group in own[own["workers"] > 1].groupby("workers"):
            whole = group[group["reached"] == group["n"]].sort_values("seconds")
            first = whole.iloc[0] if len(whole) else None
            found[f"{workers} workers"] = "none" if first is None else f"{first.rule}: {alone / first.seconds:.1f}"
        rows[load, clock] = found
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["workload", "a worker is"])


def pictures(ds: xr.Dataset, frame: pd.DataFrame) -> pd.DataFrame:
    """Return what the first seed's generators make, of one worker and of the most workers by every rule, by a label."""
    own = volumes(frame)
    own = own[own["seed"] == own["seed"].min()]
    most = own.groupby("rule")["workers"].transform("max")
    own = own[(own["workers"] == 1) | (own["workers"] == most)]
    own = own.assign(place=own["rule"].map(RULES.index)).sort_values(["workers", "place"])
    losses = ds["test_loss"].to_numpy()
    rows = [
        {
            "label": (f"{row.rule}, {row.workers} workers" if row.workers > 1 else "one worker")
            + f", {row.updates:,} updates",
            "loss": losses[row.Index][row.epochs_done - 1],
            "picture": str(ds["picture"].to_numpy()[row.Index]),
        }
        for row in own.itertuples()
    ]
    return pd.DataFrame(rows)


def step_table(steps: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """Return for readers the milliseconds of a step that workers share, of the workloads that runs are of.

    Of more than one worker it is simulated: a measured one on this machine has neighbours that slow it down.
    """
    loads = frame["workload"].str.partition(",")[0]
    named = dict(zip(frame["data"].replace(TIMED_AS), loads, strict=True))
    own = steps[steps["data"].isin(list(named))]
    own = own[own["source"] == np.where(own["ranks"] == 1, "measured", "simulated")]
    whole = own.groupby("data")["batch_size_per_rank"].transform("max")
    own = own[own["batch_size_per_rank"] == whole // own["ranks"]]
    table = (1000 * own.assign(network=own["data"].map(named), clock=own["device_kind"].map(CLOCKS)).pivot_table(
        index=["network", "clock"], columns="ranks", values="step_seconds"
    )).map("{:.3g}".format)  # fmt: skip
    table.columns = ["one worker" if str(ranks) == "1" else f"{ranks} workers" for ranks in table.columns]
    return table.rename_axis(["network", "a worker is"])


# -- what the claims need ---------------------------------------------------------------------------------------------


def volumes(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of the 3-D generator, of the largest volumes that there are."""
    return largest(frame[frame["data"].str.startswith(VOLUMES)])


def time_ratio(timed: pd.DataFrame, rule: str) -> Estimate | None:
    """Return time to the target by a rule over that by strong scaling, with many workers, each seed by its mean.

    Where both miss it, neither has such a time, and the two are left out.
    """
    clocks = [clock for clock in CLOCKS.values() if (timed["clock"] == clock).any()]
    many = timed[(timed["clock"] == (clocks or [""])[0]) & (timed["workers"] >= MANY)]
    both = many.pivot_table(index=["seed", "workers"], columns="rule", values=["seconds", "reached"], aggfunc="mean")
    if both.empty:
        return None
    table, reached = both["seconds"], both["reached"]
    if not {rule, STRONG} <= set(table.columns):
        return None
    ratio = (table[rule] / table[STRONG])[(reached[rule] > 0) | (reached[STRONG] > 0)]
    logs = ratio.dropna().map(np.log).groupby("seed").mean()
    return geometric(np.exp(logs)) if len(logs) > 1 else None


def follows(ds: xr.Dataset) -> Estimate | None:
    """Return the loss of strong scaling over that of one worker after as many updates, each seed by its mean."""
    ratios = _over_one_worker(ds)
    means = ratios["ratio"].map(np.log).groupby(ratios["seed"]).mean()
    return geometric(np.exp(means)) if len(means) > 1 else None


def _over_one_worker(ds: xr.Dataset, loss: str = "test_loss") -> pd.DataFrame:
    """Return by seed and workers a loss under strong scaling over one worker's, the mean over epochs of both."""
    own = volumes(runs(ds))
    own = own[own["rule"] == STRONG]
    losses, rows = ds[loss].to_numpy(), []
    for seed, group in own.groupby("seed"):
        alone, several = group[group["workers"] == 1], group[group["workers"] > 1]
        for position in several.index if len(alone) else ():
            logs = np.log(losses[position] / losses[alone.index[0]])
            rows.append((seed, several.loc[position, "workers"], float(np.exp(np.nanmean(logs)))))
    return pd.DataFrame(rows, columns=["seed", "workers", "ratio"])


def missed_more(frame: pd.DataFrame) -> Estimate | None:
    """Return the share of weak runs that miss the target less that of strong ones, with as many workers, by seed."""
    several = frame[frame["workers"] > 1]
    whole = several.groupby(["seed", "workers"])["rule"].transform("nunique") == len(RULES)
    several = several[whole]
    missed = several.assign(missed=~several["reached"], strong=several["rule"] == STRONG)
    table = missed.pivot_table(index="seed", columns="strong", values="missed", aggfunc="mean")
    if len(table.columns) < 2 or len(table.dropna()) < 2:
        return None
    return student((table[False] - table[True]).dropna())


def strong_limit(frame: pd.DataFrame) -> bool | None:
    """Return whether strong runs kept batch and rate, with at most as many workers as a batch has examples."""
    own = frame[frame["rule"] == STRONG]
    if own["workers"].nunique() < 2:
        return None
    kept = (own["batch_size"].nunique(), own["lr"].nunique(), own["lr_scaling"].nunique()) == (1, 1, 1)
    return bool(kept and (own["workers"] <= own["batch_size"]).all())
