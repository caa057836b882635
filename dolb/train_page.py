"""The page of `dolb train`: accuracies and gains as charts and tables, how it was run, and from what."""

import html
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import xarray as xr

from dolb import own
from dolb.figures import filtered as figures
from dolb.findings import filtered
from dolb.findings.intervals import written
from dolb.publishing import panels

_TOLD = ("arch", "epochs", "batch_size", "lr", "decay", "weight_decay", "momentum", "augment", "precision")


def write(ds: xr.Dataset, path: Path, command: str, lines: Sequence[str] = ()) -> list[Path]:
    """Write what `own.compare` made as a page that fetches nothing, and a CSV of its runs beside it; return both.

    ``command`` is how it was asked for, and ``lines`` are what the command said of it.
    """
    runs, sets = filtered.runs(ds), own.accuracies(ds)
    gains = filtered.gains(ds).query("equal == 'epochs'")
    size, decay = int(runs["batch_size"].iloc[0]), float(runs["weight_decay"].iloc[0])
    shares = sets[["accuracy", "low", "high"]] / 100
    cells = sets.rename(columns={"seeds": "n"}).assign(**shares, equal="epochs", batch_size=size, weight_decay=decay)
    cells["updates"] = cells["set"].map(runs.groupby("set")["updates"].first())
    parts: list[str | panels.HTML] = [
        "".join(f"<p>{html.escape(line)}</p>" for line in lines),
        panels.show(figures.accuracy_by_set(cells, pd.DataFrame()), _alt_text(cells, "accuracy"), "Test accuracy."),
    ]
    if len(gains):
        drawn = figures.gains(gains, pd.DataFrame())
        parts.append(panels.show(drawn, _alt_text(gains, "points"), "What filtered data gain at equal epochs."))
    accuracy = [written(".2f", *row) for row in sets[["accuracy", "low", "high"]].to_numpy()]
    table = sets[["set", "images", "seeds"]].assign(**{"test accuracy, %": accuracy})
    told = [(name.replace("_", " "), str(ds[name].to_numpy()[0])) for name in _TOLD]
    parts += [
        panels.table(table, "Bars and brackets are 95% intervals over seeds."),
        panels.table(pd.DataFrame(told, columns=["training", ""]), "How it was run"),
        panels.what_was_run(ds, "", "", "", {"accuracies": sets, "gains": gains}, again=command),
    ]
    path.write_text(panels.page(f"Trained on {ds['data'].to_numpy()[0]}", *parts), encoding="utf-8")
    names = ["set", "seed", "accuracy", "training_examples", "updates", "device_seconds", "diverged", "key"]
    runs[names].to_csv(path.with_suffix(".csv"), index=False)
    return [path, path.with_suffix(".csv")]


def _alt_text(table: pd.DataFrame, what: str) -> str:
    """Return the values of a chart, for people who cannot see it."""
    rows = table[["set" if what == "accuracy" else "other", what, "low", "high"]].itertuples(index=False)
    form = ".2%" if what == "accuracy" else "+.2f"
    told = [f"{name}: {written(form, value, low, high)}" for name, value, low, high in rows]
    return f"Dots with 95% intervals. {'; '.join(told)}."
