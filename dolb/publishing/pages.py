"""Pages of the book that are made from data: the verdicts and the schema of results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dolb import claims, results
from dolb import findings as summary
from dolb.claims import OUTCOMES, Verdict

NOTICE = "<!-- Made by `make pages` from the claims and the results; edits here are lost. -->"

_MEANINGS = {
    "replicated": "our runs show what the document reports",
    "not replicated": "our runs show something else",
    "mixed": "our runs show it in part, or under some settings only, or cannot tell",
    "not testable here": "it needs what we do not have, and the reason says what",
    "not yet measured": "not run yet, or not in full, and nothing that was run settles it",
}


def made(root: Path) -> dict[Path, str]:
    """Return the text of every page that is made from the claims and results of a checkout, by its path."""
    sources, every_claim = claims.load(root / "book" / "claims.yml")
    published = {path.stem: results.load(path) for path in sorted((root / "results").glob("*.nc"))}
    notebooks = {path.stem[3:]: f"../notebooks/{path.name}" for path in (root / "notebooks").glob("[0-9][0-9]-*.ipynb")}
    judged = claims.judge(every_claim, published)
    return {
        root / "book" / "verdicts.md": verdicts(sources, judged, notebooks),
        root / "book" / "schema.md": schema(),
    }


def verdicts(
    sources: Mapping[str, Mapping[str, Any]], judged: Mapping[str, Verdict], notebooks: Mapping[str, str]
) -> str:
    """Return the page that lists every claim with what was reported, what we found, and the verdict.

    ``notebooks`` gives the path of an experiment's notebook, relative to the page.
    """
    counts = {outcome: sum(verdict.outcome == outcome for verdict in judged.values()) for outcome in OUTCOMES}
    lines = [
        "# Verdicts",
        NOTICE,
        "Every claim of the five documents, what it reports, what our runs show, and a verdict.",
        "",
        "| verdict | meaning | claims |",
        "|---|---|---|",
        *(f"| {_badge(outcome)} | {_MEANINGS[outcome]} | {counts[outcome]} |" for outcome in OUTCOMES),
        "",
        "How a verdict follows from the runs is code, in `dolb/claims`; this page is computed from the published "
        f"results and holds no number that was typed. Intervals are {summary.CONFIDENCE:.0%}. An accuracy is the "
        f"mean over the last {summary.LAST_EPOCHS} epochs of a run.",
        "",
    ]
    for source, about in sources.items():
        rows = [verdict for verdict in judged.values() if verdict.claim.source == source]
        measured = [verdict for verdict in rows if verdict.outcome != "not yet measured"]
        waiting = [verdict for verdict in rows if verdict.outcome == "not yet measured"]
        lines += [f"## {about['title']}", "", f"{{cite:t}}`{source}`. {about['models']} on {about['data']}.", ""]
        for verdict in measured:
            lines += _measured(verdict, notebooks)
        if waiting:
            lines += [f"### {_badge('not yet measured')}", "", "| claim | statement | reported |", "|---|---|---|"]
            lines += [
                f"| {v.claim.id}, {v.claim.where} | {_sentence(v.claim.statement)} | {_reported(v.claim.reported)} |"
                for v in waiting
            ]
            lines += ["", *(f"{v.claim.id} waits: {f'{v.ours} {v.reason}'.strip()}\n" for v in waiting if v.reason)]
    return "\n".join(lines)


def _measured(verdict: Verdict, notebooks: Mapping[str, str]) -> list[str]:
    claim = verdict.claim
    return [
        f"### {claim.id} {_badge(verdict.outcome)}",
        "",
        f"Claim ({claim.where})",
        f": {_sentence(claim.statement)}",
        "",
        *(["Reported", f": {_reported(claim.reported)}", ""] if claim.reported else []),
        "Ours",
        f": {verdict.ours} See [the experiment]({notebooks[claim.experiment]}).",
        "",
        "Why this verdict",
        f": {verdict.reason}",
        "",
    ]


def _badge(outcome: str) -> str:
    return f'<span class="dolb-verdict dolb-{outcome.replace(" ", "-")}">{outcome}</span>'


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


def _reported(value: Any) -> str:
    if value is None:
        return "a trend, no number"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_reported(item)}" for name, item in value.items())
    if isinstance(value, list):
        return "; ".join(_reported(item) for item in value)
    return str(value)


def schema() -> str:
    """Return the page that documents the names allowed in results, from the schema itself."""
    lines = [
        "# The schema of results",
        NOTICE,
        "Results are xarray Datasets, saved as NetCDF4 in `results/`. They are tidy: one entry of `run` is one "
        "training run, every field of its config is a coordinate on `run`, and `ds.to_dataframe()` is a long table. "
        "`dolb.results.validate` refuses a Dataset that has any other name, a wrong dimension or a wrong type.",
        "",
        "```python",
        "from dolb import results",
        "",
        'ds = results.published("batch-size")',
        "ds.test_accuracy.isel(epoch=-1).to_dataframe()",
        "```",
        "",
    ]
    titles = {
        "config": "what was asked for",
        "measured": "what was measured",
        "provenance": "where it comes from",
        "benchmark": "benchmarks",
        "scaling": "data-parallel training",
        "filter": "maps and masks",
        "landscape": "loss landscapes",
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
