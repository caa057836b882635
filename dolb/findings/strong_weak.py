"""Strong against weak scaling: updates and time to a target loss, by rule and number of workers.

Updates are those of the runs. A step takes as long as real ranks did, or as a simulation says of more of them: a time
is called measured only where its step is. A run that misses its target counts with its whole length.
"""

import numpy as np
import pandas as pd
import xarray as xr

from dolb.findings import runs as found
from dolb.findings.intervals import geometric

STRONG, WEAK, LINEAR, WARMUP = "strong", "weak", "weak, linear rate", "weak, linear rate, warmup"
RULES = (STRONG, WEAK, LINEAR, WARMUP)
CELL = ["workload", "clock", "rule", "workers"]
CLOCKS = {"cuda": "one GPU a worker", "cpu": "one CPU core a worker"}
VOLUMES = "nodules-"  # begins the names of their data, before the side
TIMED_AS = {"cifar10": "synthetic"}  # random images of its shape take as long


def runs(ds: xr.Dataset) -> pd.DataFrame:
    """Return a row per run: workload, rule, workers, updates until the target or the end, and how it ended.

    ``position`` is the run's place among the runs.
    """
    names = ["data", "subset", "arch", "batch_size", "base_batch_size", "bn_workers", "lr", "lr_scaling", "seed"]
    names += ["warmup_epochs", "target_loss", "training_examples", "diverged"]
    frame = found.table(ds)[names].rename(columns={"bn_workers": "workers"})
    grown = [
        frame["batch_size"] == frame["base_batch_size"],
        frame["lr_scaling"] == "none",
        frame["warmup_epochs"] == 0,
    ]
    done = np.isfinite(ds["train_loss"].to_numpy()).sum(axis=1) + frame["diverged"]
    return frame.assign(
        workload=[_workload(*one) for one in frame[["data", "subset"]].itertuples(index=False)],
        rule=np.select(grown, RULES[:3], WARMUP),
        epoch_updates=found.epoch_updates(frame),
        epochs_done=done,
        updates=done * found.epoch_updates(frame),
        share=np.minimum(frame["batch_size"], frame["training_examples"]) / frame["workers"],
        reached=np.nanmin(ds["test_loss"].to_numpy(), axis=1, initial=np.inf) <= frame["target_loss"],
        position=np.arange(len(frame)),
    )


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
    for (arch, data, workers, share), own in frame.groupby(["arch", "data", "workers", "share"]):
        same = (steps["arch"] == arch) & (steps["data"] == TIMED_AS.get(str(data), data)) & (steps["ranks"] == workers)
        for clock, table in steps[same].groupby("device_kind"):
            measured = table[(table["source"] == "measured") & (table["batch_size_per_rank"] == share)]
            known = measured if len(measured) else table[table["source"] == "simulated"]
            if len(known):  # between two shares that were timed, on a line
                known = known.sort_values("batch_size_per_rank")
                seconds = float(np.interp(own["share"].iloc[0], known["batch_size_per_rank"], known["step_seconds"]))
                source = known["source"].iloc[0]
                parts.append(own.assign(clock=CLOCKS[str(clock)], step_seconds=seconds, source=source))
    timed = pd.concat(parts or [frame[:0].assign(clock="", step_seconds=0.0, source="")], ignore_index=True)
    clocks = pd.Categorical(timed["clock"], list(CLOCKS.values()))
    return timed.assign(clock=clocks, seconds=timed["updates"] * timed["step_seconds"])


def cells(timed: pd.DataFrame) -> pd.DataFrame:
    """Return time and updates to the target by workload, clock, rule and workers, and how many runs reach it.

    One worker is drawn under every rule. Intervals are Student's of logarithms, over seeds; of one seed there is none.
    """
    rows = []
    for cell, own in timed.groupby(CELL, sort=True, observed=True):
        took = geometric(own["seconds"]).row()
        same = own.iloc[0][["step_seconds", "batch_size", "share", "source"]]
        row = dict(zip(CELL, cell, strict=True)) | {
            "seconds": took.pop("value"), **took, "updates": geometric(own["updates"]).value, **same,
            "reached": int(own["reached"].sum()), "diverged": int(own["diverged"].sum()),
        }  # fmt: skip
        rows += [row | {"rule": rule} for rule in (RULES if row["workers"] == 1 else (row["rule"],))]
    return pd.DataFrame(rows)


def curves(ds: xr.Dataset, timed: pd.DataFrame) -> pd.DataFrame:
    """Return test loss after every epoch of the first seed's runs, with updates and seconds so far."""
    parts = []
    for row in timed[timed["seed"] == timed["seed"].min()].sort_values(CELL).to_dict("records"):
        loss = ds["test_loss"].to_numpy()[row["position"], : row["epochs_done"]]
        updates = np.arange(1, len(loss) + 1) * row["epoch_updates"]
        about = {name: row[name] for name in [*CELL, "target_loss"]}
        parts.append(
            pd.DataFrame({"loss": loss, "updates": updates, "seconds": updates * row["step_seconds"], **about})
        )
    return pd.concat(parts, ignore_index=True).dropna(subset="loss")


def outcomes(frame: pd.DataFrame) -> pd.DataFrame:
    """Return for readers how many runs reach the target, by workload, rule and workers, and how many diverge."""

    def counted(of: pd.Series) -> str:
        return f"{of.sum()} of {len(of)}"

    several = frame.assign(rule=pd.Categorical(frame["rule"], RULES)).query("workers > 1")
    by = ["workload", "rule"]
    table = several.pivot_table(index=by, columns="workers", values="reached", aggfunc=counted, observed=True)
    table = table.fillna("").rename(columns="{} workers".format).rename_axis(columns=None)
    return table.assign(diverge=several.groupby(by, observed=True)["diverged"].agg(counted))


def followed(ds: xr.Dataset) -> pd.DataFrame:
    """Return for readers the losses of strong scaling over those of one worker after as many updates, by workers."""
    shown = {"test_loss": "test loss over that of one worker", "train_loss": "training loss over that of one worker"}
    told = {
        title: over_one_worker(ds, name).groupby("workers")["ratio"].agg(lambda one: geometric(one).written(".2f"))
        for name, title in shown.items()
    }
    return pd.DataFrame(told).rename_axis("workers").reset_index()


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
    own = own[(own["workers"] == 1) | (own["workers"] == own.groupby("rule")["workers"].transform("max"))]
    own = own.assign(place=own["rule"].map(RULES.index)).sort_values(["workers", "place"])
    who = np.where(own["workers"] > 1, own["rule"] + ", " + own["workers"].astype(str) + " workers", "one worker")
    return pd.DataFrame(
        {
            "label": who + own["updates"].map(", {:,} updates".format),
            "loss": ds["test_loss"].to_numpy()[own["position"], own["epochs_done"] - 1],
            "picture": ds["picture"].to_numpy()[own["position"]],
        }
    )


def step_table(steps: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """Return for readers the milliseconds of a step that workers share, by workload, measured where it was."""
    loads = frame["workload"].str.partition(",")[0]
    named = dict(zip(frame["data"].replace(TIMED_AS), loads, strict=True))
    own = steps[steps["data"].isin(list(named))]
    whole = own.groupby("data")["batch_size_per_rank"].transform("max")
    own = own[own["batch_size_per_rank"] == whole // own["ranks"]].sort_values("source", kind="stable")
    own = own.drop_duplicates(["arch", "data", "device_kind", "ranks"])
    table = (1000 * own.assign(network=own["data"].map(named), clock=own["device_kind"].map(CLOCKS)).pivot_table(
        index=["network", "clock"], columns="ranks", values="step_seconds"
    )).map("{:.3g}".format)  # fmt: skip
    table.columns = ["one worker" if str(ranks) == "1" else f"{ranks} workers" for ranks in table.columns]
    return table.rename_axis(["network", "a worker is"])


def volumes(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of the 3-D generator, of the largest volumes that there are."""
    return largest(frame[frame["data"].str.startswith(VOLUMES)])


def over_one_worker(ds: xr.Dataset, loss: str = "test_loss") -> pd.DataFrame:
    """Return by seed and workers a loss under strong scaling over one worker's, the mean over epochs of both."""
    own = volumes(runs(ds)).query("rule == @STRONG")
    pairs = own.merge(own.query("workers == 1")[["seed", "position"]], on="seed", suffixes=("", "_alone"))
    pairs = pairs[pairs["workers"] > 1].sort_values(["seed", "position"], ignore_index=True)
    losses = np.log(ds[loss].to_numpy())
    ratio = np.exp(np.nanmean(losses[pairs["position"]] - losses[pairs["position_alone"]], axis=1))
    return pairs[["seed", "workers"]].assign(ratio=ratio)
