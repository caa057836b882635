"""Parts of the book that are made from data: the table of verdicts, the scoreboard, the schema of results."""

import html
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

from dolb import claims, results
from dolb.claims import OUTCOMES, Verdict
from dolb.publishing import panels

NOTICE = "<!-- Made by `make pages` from the claims and the results; edits here are lost. -->"


def made(root: Path) -> dict[Path, str]:
    """Return the text of every part of the book that is made from the claims and results of a checkout, by its path."""
    every_claim = claims.load(root / "book" / "claims.yml")
    published = {path.stem: results.load(path) for path in sorted((root / "results").glob("*.nc"))}
    judged = claims.judge(every_claim, published)
    names = cited((root / "book" / "references.bib").read_text(encoding="utf-8"))
    notebooks = {path.stem[3:]: path.stem for path in (root / "notebooks").glob("[0-9][0-9]-*.ipynb")}
    return {
        root / "book" / "_generated" / "verdicts.md": verdicts(judged, names, notebooks),
        root / "book" / "_generated" / "choices.md": choices(judged, names),
        root / "book" / "_generated" / "scoreboard.md": scoreboard(judged, names),
        root / "book" / "schema.md": schema(),
    }


def cited(bibliography: str) -> dict[str, str]:
    """Return the documents of a BibTeX file as a reader names them, by key."""
    entries = re.findall(r"@\w+\{(\w+),.*?author\s*=\s*\{(.*?)\},.*?year\s*=\s*\{(\d+)\}", bibliography, re.DOTALL)
    families = {key: [name.split(",")[0] for name in authors.split(" and ")] for key, authors, _ in entries}
    return {
        key: (f"{family[0]} et al." if len(family) > 2 else " and ".join(family)) + f" {year}"
        for (key, _, year), family in zip(entries, families.values(), strict=True)
    }


def scoreboard(judged: Mapping[str, Verdict], names: Mapping[str, str]) -> str:
    """Return a square for each claim, by document and verdict, each a link to its row."""
    rows = []
    for source in dict.fromkeys(verdict.claim.source for verdict in judged.values()):
        own = sorted(
            ((name, one) for name, one in judged.items() if one.claim.source == source),
            key=lambda pair: OUTCOMES.index(pair[1].outcome),
        )
        squares = "".join(
            f'<a class="dolb-{one.outcome.replace(" ", "-")}" href="verdicts.html#{name}" '
            f'title="{html.escape(f"{name}: {one.claim.statement} ({one.outcome})")}">{name}</a>'
            for name, one in own
        )
        rows.append(f'<div><p>{html.escape(names[source])}</p><p class="dolb-squares">{squares}</p></div>')
    counts = pd.Series([one.outcome for one in judged.values()]).value_counts()
    legend = " ".join(
        f"<span>{counts[outcome]} {panels.chip(outcome)}</span>" for outcome in OUTCOMES if outcome in counts
    )
    return "\n".join(
        [NOTICE, "", '<div class="dolb-scoreboard">', *rows, f'<p class="dolb-legend">{legend}</p>', "</div>", ""]
    )


def verdicts(judged: Mapping[str, Verdict], names: Mapping[str, str], notebooks: Mapping[str, str]) -> str:
    """Return the table of every claim with what is reported, what we found and the verdict, and a form to filter it.

    ``names`` are those of the documents, ``notebooks`` those of the experiments' pages.
    """
    effects = claims.table(judged)
    rows = [_row(one, effects[effects["claim"] == name], names, notebooks) for name, one in judged.items()]
    sources = {one.claim.source: names[one.claim.source] for one in judged.values()}
    form = [
        _choice("document", "every document", sources),
        _choice("verdict", "every verdict", {outcome: outcome for outcome in OUTCOMES}),
        '<input type="search" name="text" placeholder="text" aria-label="text">',
        "<output></output>",
    ]
    table = panels.of_rows("dolb-verdicts", ("claim", "reported", "ours", "verdict"), rows)
    return "\n".join([NOTICE, "", f'<form class="dolb-filter" hidden>{"".join(form)}</form>', table, ""])


def choices(judged: Mapping[str, Verdict], names: Mapping[str, str]) -> str:
    """Return the table of how each claim's smallest effect was chosen, and when."""
    rows = []
    for name, claim in ((name, one.claim) for name, one in judged.items()):
        effects = [f"{html.escape(effect.measures)}: {panels.smallest(vars(effect))}" for effect in claim.effects]
        cells = [
            f"<strong>{name}</strong>",
            html.escape(f"{names[claim.source]}, {claim.where}"),
            "<br>".join([*effects, f"<small>{html.escape(claim.why)}</small>"]),
            claim.decided,
        ]
        rows.append(_cells(cells))
    columns = ("claim", "where", "smallest effect", "chosen before or after its runs were read")
    return "\n".join([NOTICE, "", panels.of_rows("", columns, rows), ""])


def _cells(cells: Iterable[str], attributes: str = "") -> str:
    return f"<tr{attributes}>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _row(one: Verdict, effects: pd.DataFrame, names: Mapping[str, str], notebooks: Mapping[str, str]) -> str:
    claim = one.claim
    parts = effects.to_dict("records")
    page = notebooks.get(claim.experiment)
    links = [html.escape(names[claim.source])]
    if page:
        links.append(f'<a href="../notebooks/{page}.html">the experiment</a>')
    notes = [claim.caveat, f"not testable here: {claim.not_testable}" if claim.not_testable else ""]
    cells = [
        f"<strong>{claim.id}</strong> {html.escape(claim.statement)}<br><small>{', '.join(links)}</small>",
        html.escape(claim.quoted),
        "<br>".join(
            ": ".join(filter(None, (html.escape(part["effect"]), panels.ours(part))))
            for part in parts
            if part["n"] or claim.kind == "fact"
        ),
        panels.chip(one.outcome) + "".join(f"<br><small>{html.escape(note)}</small>" for note in notes if note),
    ]
    return _cells(cells, f' id="{claim.id}" data-document="{claim.source}" data-verdict="{one.outcome}"')


def _choice(name: str, every: str, options: Mapping[str, str]) -> str:
    items = "".join(f'<option value="{value}">{html.escape(text)}</option>' for value, text in options.items())
    return f'<select name="{name}" aria-label="{name}"><option value="">{every}</option>{items}</select>'


def schema() -> str:
    """Return the page that documents the names allowed in results, from the schema itself."""
    lines = [
        "# The schema of results",
        NOTICE,
        "Results are xarray Datasets, saved as NetCDF4 in `results/`. They are tidy: one entry of `run` is one "
        "training run, every field of its config is a coordinate on `run`, and `ds.to_dataframe()` is a long table. "
        "`dolb.results.validate` refuses a Dataset that has any other name, a wrong dimension or a wrong type. "
        "Runs of fewer epochs than the longest are filled up with NaN, so take their ends by `final_accuracy`.",
        "",
        "```python",
        "from dolb import results",
        "from dolb.findings.runs import final_accuracy",
        "",
        'ds = results.published("batch-size")',
        "runs = final_accuracy(ds)  # a row per run: its config, and the mean accuracy of its last five epochs",
        "```",
        "",
    ]
    titles = {
        "config": "what was asked for",
        "measured": "what was measured",
        "provenance": "where it comes from",
        "benchmark": "benchmarks",
        "scaling": "data-parallel training",
        "storage": "stored images",
        "filter": "maps and masks",
        "planted": "planted faults",
        "landscape": "loss landscapes",
        "start": "first updates",
        "gradient": "noise of the gradient",
        "layer": "layer times",
    }
    groups: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for name, variable in results.SCHEMA.items():
        row = f"| `{name}` | {variable.kind} | {variable.unit} | {variable.meaning} |"
        groups.setdefault((variable.dims, variable.role), []).append(row)
    for (dims, role), rows in groups.items():
        lines += [
            f"## On `{', '.join(dims)}`: {titles[role]}",
            "",
            "| name | type | unit | meaning |",
            "|---|---|---|---|",
        ]
        lines += [*rows, ""]
    return "\n".join(lines)
