"""What notebooks put on a page: charts, tables, verdicts, numbers for the text, and what was run."""

import base64
import hashlib
import html
import itertools
import json
import math
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import xarray as xr
import yaml
from altair.utils.html import spec_to_html
from IPython.display import HTML, display

from dolb import results
from dolb.publishing import parameters

# Above this many data rows a chart is drawn on a canvas; below, as SVG, whose marks assistive technology can read.
CANVAS_ROWS = 3000
LEAST_FONT_SIZE = 12  # pixels
MOST_CHARACTERS = 100_000  # of a file that the page itself holds
_chart_numbers = itertools.count(1)
_VEGA = {f"{name}_version": getattr(alt, f"{name.upper()}_VERSION") for name in ("vega", "vegalite", "vegaembed")}

# A Jupyter server sets this for the kernel of a notebook that somebody has open; papermill and the book do not.
_OPEN_NOTEBOOK = "JPY_SESSION_NAME"
# The newest Vega-Lite that JupyterLab 4 can draw. The figures' charts mean the same in it as in altair's own.
_LAB_TYPE, _LAB_SCHEMA = "application/vnd.vegalite.v5+json", "https://vega.github.io/schema/vega-lite/v5.json"
# JupyterLab draws before the cell has a width. A padded logarithmic axis without one never ends, and freezes the page.
_LAB_WIDTH = 700  # pixels
_PHONE_WIDTH = 600  # pixels, under which panels stand in one column
_NOT_OF_SWEEPS = ("keep", "surface_seed", "target", "steps")  # parameters of notebooks that are no option of a sweep

# Charts lie on the page itself, and take the colour of its text: a theme, light or dark, is then theirs too. A canvas
# does not know that colour; a grey reads on both.
_TEXT, _CANVAS_TEXT, _FAINT = "currentColor", "#767b83", "rgba(128, 128, 128, 0.3)"
_GUIDE = {"labelColor": _TEXT, "titleColor": _TEXT, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": 600}
CONFIG: dict[str, dict[str, Any]] = {
    "axis": {**_GUIDE, "domainColor": _TEXT, "tickColor": _TEXT, "gridColor": _FAINT},
    "legend": {**_GUIDE, "labelLimit": 400, "titleLimit": 400},
    "header": {**_GUIDE, "labelFontSize": 13},
    "title": {"color": _TEXT, "subtitleColor": _TEXT, "fontSize": 14, "subtitleFontSize": 12, "anchor": "start"},
    "text": {"color": _TEXT, "fontSize": 12},
    "rule": {"color": _TEXT},
    "view": {"stroke": _FAINT},
}


def banner() -> HTML | None:
    """Return what a page says of itself if its runs are made live, or are a part of the published ones."""
    if scale := parameters.live_scale():
        return notice(parameters.LIVE[scale])
    return notice(parameters.NARROWED) if parameters.narrowed() else None


def _labelled(caption: str, published: bool) -> str:
    """Return a caption that says, on a page whose runs are made live, of which runs a chart or table is."""
    if scale := parameters.live_scale():
        made = "Not of this run" if published else {"demo": "Demo", "paper": "Run live"}[scale]
        return f"{made}. {caption}".strip()
    return caption


def show(chart: alt.TopLevelMixin, alt_text: str, caption: str = "", *, published: bool = False) -> HTML:
    """Return the interactive chart with its caption, and a text for people who cannot see it.

    ``published`` is one that shows published results even where a page's runs are made live. In the book the page's own
    Vega bundle draws it, in JupyterLab the Vega that comes with that; nothing is fetched. Elsewhere altair's loader
    fetches Vega.
    """
    with alt.data_transformers.disable_max_rows():
        spec = {**chart.to_dict(), "description": alt_text}
    on_canvas = sum(len(values) for values in spec.get("datasets", {}).values()) > CANVAS_ROWS
    spec = _themed(spec, _CANVAS_TEXT if on_canvas else _TEXT)
    options: dict[str, Any] = {
        "renderer": "canvas" if on_canvas else "svg",
        # The Vega editor is a web site; the two other source views repeat the CSV of the panel.
        "actions": {"export": True, "source": False, "compiled": False, "editor": False},
    }
    if (columns := spec.get("columns", 1)) > 1:
        across = {"signal": f"windowSize()[0] < {_PHONE_WIDTH} ? 1 : {columns}"}
        options["patch"] = [{"op": "replace", "path": "/layout/columns", "value": across}]
    caption = _labelled(caption, published)
    below = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    if os.environ.get(_OPEN_NOTEBOOK):
        lab = {**spec, "$schema": _LAB_SCHEMA}
        if spec.get("width") == "container":
            lab["width"] = _LAB_WIDTH
        display({_LAB_TYPE: lab, "text/plain": alt_text}, metadata={_LAB_TYPE: {"embed_options": options}}, raw=True)
        return HTML(f'<figure class="dolb-figure">{below}</figure>')
    # The number keeps a chart that is shown twice apart; the digest, charts of two notebooks on one page.
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True, default=str).encode()).hexdigest()[:10]
    drawing = spec_to_html(
        spec,
        mode="vega-lite",
        **_VEGA,
        output_div=f"dolb-chart-{digest}-{next(_chart_numbers)}",
        embed_options=options,
        json_kwds={"cls": _ScriptSafeEncoder},
        fullhtml=False,
        template="universal",
    )
    return HTML(
        f'<figure class="dolb-figure"><div class="dolb-chart" role="img" aria-label="{html.escape(alt_text)}">{drawing}'
        f"</div>{below}</figure>"
    )


def vega_script() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script, for a page whose charts are to fetch nothing."""
    import vl_convert  # takes a moment, which notebooks should not pay

    # Bare, the bundle's top-level names collide with a theme's scripts. VEGA_DEBUG tells altair's loader which versions
    # are on the page, so that it fetches none.
    bundle = vl_convert.javascript_bundle(  # type: ignore[call-arg]  # its stub lacks the default
        vl_version=".".join(alt.VEGALITE_VERSION.split(".")[:2])
    )
    return f"(function(){{{bundle}\n}})();\nwindow.VEGA_DEBUG={json.dumps(_VEGA)};\n"


def page(title: str, *parts: str | HTML) -> str:
    """Return a page that stands alone: a title, and what other functions here return, or markup, below it."""
    body = "\n".join(part if isinstance(part, str) else str(part.data) for part in parts)
    template = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")
    script = vega_script().replace("</script", "<\\/script")
    return Template(template).substitute(title=html.escape(title), script=script, body=body)


def picture(chart: alt.TopLevelMixin) -> bytes:
    """Return the chart as a PNG without a ground, whose text reads in both themes."""
    import vl_convert  # takes a moment, which notebooks should not pay

    return vl_convert.vegalite_to_png(_themed(chart.to_dict(), _CANVAS_TEXT), scale=1.5)


def _themed(spec: dict[str, Any], colour: str) -> dict[str, Any]:
    """Return the specification on the page's own ground, its text of a colour, with no letters too small to read."""
    own = spec.get("config", {})
    merged = own | {name: {**ours, **own.get(name, {})} for name, ours in CONFIG.items()}
    return _legible({**spec, "background": None, "config": {**merged, "background": None}}, colour)


def _legible(part: Any, colour: str, name: str = "") -> Any:
    """Return a part of a specification in which black is the text's colour and letters are as large as they must be."""
    if isinstance(part, dict):
        # Rows are not to be touched, nor the ends of a scale between whose colours Vega reckons.
        kept = ("data", "datasets", "scale") if part.get("type") == "quantitative" else ("data", "datasets")
        return {key: value if key in kept else _legible(value, colour, key) for key, value in part.items()}
    if isinstance(part, list):
        return [_legible(item, colour, name) for item in part]
    if part in ("black", "#000", "#000000", _TEXT):
        return colour
    if name.lower().endswith("fontsize") and isinstance(part, int | float):
        return max(part, LEAST_FONT_SIZE)
    return part


def table(frame: pd.DataFrame, caption: str = "", *, published: bool = False) -> HTML:
    """Return a table for the text, its cells in full, with a caption over it; ``published`` is as in `show`."""
    caption = _labelled(caption, published)
    with pd.option_context("display.max_colwidth", None):
        markup = frame.to_html(border=0, index=not isinstance(frame.index, pd.RangeIndex))
    if caption:
        markup = markup.replace("<thead>", f"<caption>{html.escape(caption)}</caption><thead>", 1)
    return HTML(f'<div class="dolb-table">{markup}</div>')


def chips(verdicts: Mapping[str, Any]) -> HTML | None:
    """Return a chip for each verdict, by claim, each a link to its row on the page of verdicts; a demo has none."""
    if parameters.live_scale() == "demo":
        return banner()
    items = [
        f'<a href="../book/verdicts.html#{name}" class="dolb-chip">{name} {chip(one.outcome)}</a>'
        for name, one in verdicts.items()
    ]
    live = banner()
    return HTML((str(live.data) if live else "") + f'<p class="dolb-chips">{" ".join(items)}</p>')


def chip(outcome: str) -> str:
    """Return the markup of an outcome."""
    return f'<span class="dolb-verdict dolb-{outcome.replace(" ", "-")}">{outcome}</span>'


def claims_table(effects: pd.DataFrame) -> HTML | None:
    """Return the claims of a page as one table, from ``claims.table``: claim, reported, ours with interval, verdict.

    A demo decides nothing, and has none.
    """
    if parameters.live_scale() == "demo":
        return None
    rows = []
    for name, parts in effects.groupby("claim", sort=False):
        for number, row in enumerate(parts.to_dict("records")):
            claim = [f"<strong>{name}</strong> {html.escape(row['statement'])}", html.escape(row["reported"])]
            part = [
                html.escape(row["effect"]) + (f"<br>{ours(row)}" if row["n"] else ""),
                chip(row["verdict"] if row["verdict"] == "not testable here" else row["part"]),
            ]
            cells = [f'<td rowspan="{len(parts)}">{cell}</td>' for cell in claim] if number == 0 else []
            rows.append("<tr>" + "".join([*cells, *(f"<td>{cell}</td>" for cell in part)]) + "</tr>")
    return HTML(of_rows("dolb-claims", ("claim", "reported", "ours", "verdict"), rows))


def of_rows(kind: str, columns: Sequence[str], rows: Sequence[str]) -> str:
    """Return a table of rows that are markup already."""
    head = "".join(f"<th>{name}</th>" for name in columns)
    start = f'<div class="dolb-table"><table class="dataframe {kind}"><thead><tr>{head}</tr></thead><tbody>'
    return "\n".join([start, *rows, "</tbody></table></div>"])


def ours(row: Mapping[Any, Any]) -> str:
    """Return an effect with its interval, unit, number of repetitions and the smallest that counts, for a cell."""
    if not row["n"]:
        return ""
    width = row["high"] - row["low"]
    digits = 2 if width < 2 else 1 if width < 20 else 0  # no more than its error bears
    value, low, high = (written(row[name], row["unit"], digits) for name in ("ours", "low", "high"))
    unit = {"points": " points", "exponent": "", "share": "", "ratio": ""}[row["unit"]]
    repeated = row["repeated"] if row["n"] > 1 else {"launches": "launch"}.get(row["repeated"], row["repeated"][:-1])
    measured = f"<strong>{value}</strong>{unit} ({low} to {high}; {row['n']} {repeated})"
    return f"{measured} <small>smallest: {smallest(row)}</small>"


def smallest(effect: Mapping[Any, Any]) -> str:
    """Return the smallest effect that still is a claim's, or between what it must lie."""
    value, unit = effect["smallest"], effect["unit"]
    text = written(value, unit) + (" points" if unit == "points" else "")
    if not effect["no_difference"]:
        return text
    return f"within {1 / value:.2f}× and {value:.2f}×" if unit == "ratio" else f"within ±{text.lstrip('+')}"


def written(value: float, unit: str, digits: int = 2) -> str:
    """Return a number of an effect as it is written in its unit."""
    if not math.isfinite(value):
        return "−∞" if value < 0 else "∞"
    if unit == "ratio":
        return f"{value:.2f}×"
    text = f"{value:+.0%}" if unit == "share" else f"{value:+.{digits}f}"
    # What rounds to nothing has no sign: it would hang on the last bit of a float.
    return text.replace("-", "−") if re.search("[1-9]", text) else text[1:]


def what_was_run(
    ds: xr.Dataset,
    slug: str,
    notebook: str,
    scale: str,
    files: Mapping[str, pd.DataFrame],
    needs: str = "",
    again: str = "",
) -> HTML:
    """Return a folding panel: what was run, the commands that run and draw it again, and the figures' data as CSV.

    ``files`` are tables by name; ``needs`` says what the run needs besides a GPU, such as 16 cores; ``again`` is the
    command that runs it, where that is no sweep of ``slug``. What is of no notebook has neither that nor a scale.
    """
    info = ({"scale": scale} if scale else {}) | results.provenance_of(ds)
    commits = pd.Series(ds["commit"].to_numpy().astype(str))
    shown = {name: html.escape(value) for name, value in info.items()} | {"commit": _most_first(commits)}
    if changed := commits.str.endswith("+changes").sum():
        shown["not in a commit"] = f"{changed} of the runs: their code had changes"
    rows = "".join(f'<tr><th scope="row">{name}</th><td>{value}</td></tr>' for name, value in shown.items())
    fits = not again or not parameters.narrowed()  # a command of the page's own is of the whole grid
    again = again or _sweep(ds, slug, scale) + _options()
    minutes = float(np.nansum(results.device_seconds(ds))) / 60 if "concurrent_runs" in ds else 0.0
    cost = ", ".join(filter(None, [f"{max(minutes, 1):,.0f} device minutes" if minutes else "", html.escape(needs)]))
    links = _links({f"{name}.csv": frame.to_csv(index=False) for name, frame in files.items()}, notebook)
    given = {name: value for name, value in parameters.injected().items() if name != "scale"}
    draw = f"papermill notebooks/{notebook}.ipynb out.ipynb -p scale {scale}"
    if given:
        draw += f" -y {shlex.quote(yaml.safe_dump(given, default_flow_style=True, sort_keys=False, width=1e9).strip())}"
    if given and parameters.live_scale():
        fits = False  # the notebook alone makes the same runs
    run = _command(again) if fits else ""
    return HTML(
        '<details class="dolb-provenance"><summary>What was run, and how to run it again</summary>'
        f'<div class="dolb-table"><table>{rows}</table></div>'
        + (f"<p>Run it again{f' ({cost})' if cost else ''}:</p>{run}" if run else "")
        + (f"<p>Draw it again:</p>{_command(draw)}" if notebook else "")
        + (f"<p>Data of the figures: {links}</p>" if links else "")
        + "</details>"
    )


def _sweep(ds: xr.Dataset, slug: str, scale: str) -> str:
    """Return the command that runs an experiment again."""
    on_gpu = "concurrent_runs" in ds and ds["device"].astype(str).str.contains("NVIDIA").all()
    paper = scale in ("published", "paper")
    return f"dolb sweep {slug} --scale {'paper' if paper else scale}" + (" --device cuda" if paper and on_gpu else "")


def _options() -> str:
    """Return as options of a sweep what papermill has put in that says which runs."""
    named = {name: value for name, value in parameters.narrowed().items() if name not in _NOT_OF_SWEEPS}
    written = {name: ",".join(map(str, value)) if isinstance(value, list) else value for name, value in named.items()}
    return "".join(f" --{name.replace('_', '-')} {shlex.quote(str(value))}" for name, value in written.items())


def _command(text: str) -> str:
    return (
        f'<div class="dolb-command"><pre><code>{html.escape(text)}</code></pre>'
        f'<button type="button" onclick="{html.escape(_COPY)}">Copy</button></div>'
    )


def _most_first(commits: pd.Series) -> str:
    """Return the commits of runs, short, that of the most runs first and the others folded."""
    first, *others = commits.str[:12].value_counts().index
    return first + (f"<details><summary>{len(others)} more</summary>{', '.join(others)}</details>" if others else "")


def downloads(files: Mapping[str, str], words: str, notebook: str) -> HTML:
    """Return words and links to files, given as name and text, that a reader can save."""
    return HTML(f'<p class="dolb-downloads">{html.escape(words)} {_links(files, notebook)}</p>')


def _links(files: Mapping[str, str], notebook: str) -> str:
    """Return links to files, given as name and text: in the page, or where they are large in a folder beside it."""
    links = []
    for name, text in files.items():
        if len(text) <= MOST_CHARACTERS:
            data = base64.b64encode(text.encode("utf-8")).decode("ascii")
            target = f"data:text/plain;charset=utf-8;base64,{data}"
        else:
            folder = Path(f"{notebook}-files")  # the book publishes it beside the page
            folder.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
            target = f"{folder.name}/{name}"
        links.append(f'<a download="{html.escape(name)}" href="{html.escape(target)}">{html.escape(name)}</a>')
    return ", ".join(links)


def notice(text: str) -> HTML:
    """Return a short notice in the place of a figure that cannot be drawn yet."""
    return HTML(f'<div class="dolb-notice" role="note">{html.escape(text)}</div>')


# Pages opened from disk may have no navigator.clipboard, or one that refuses; a selected text area always copies.
_COPY = """
(function (button) {
  var text = button.parentNode.querySelector("code").textContent;
  function done() { button.textContent = "Copied"; setTimeout(function () { button.textContent = "Copy"; }, 1500); }
  function select() {
    var area = document.createElement("textarea");
    area.value = text; document.body.appendChild(area); area.select();
    if (document.execCommand("copy")) done();
    area.remove();
  }
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, select); else select();
})(this)
""".strip()


class _ScriptSafeEncoder(json.JSONEncoder):
    """Write JSON that cannot close the script element it stands in."""

    def encode(self, o: Any) -> str:
        return super().encode(o).replace("</", "<\\/")
