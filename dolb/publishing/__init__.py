"""Publish: run notebooks with papermill, pass them through the gate, and build the Jupyter Book of what passed."""

import base64
import hashlib
import html
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import altair as alt
import nbformat
import pandas as pd
import zmq
from altair.utils.html import spec_to_html
from ipykernel.kernelspec import get_kernel_dict
from IPython.display import HTML
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec
from traitlets import default

import dolb
from dolb.publishing.gate import GateError, ParameterError, check_notebook, check_parameters, first_unfinished

__all__ = [
    "BookError", "GateError", "ParameterError", "build_book", "build_pages", "check_notebook", "downloads", "notice",
    "provenance_panel", "run_notebook", "show", "stage", "table",
]  # fmt: skip

# Above this many data rows a chart is drawn on a canvas; below, as SVG, whose marks assistive technology can read.
CANVAS_ROWS = 3000
_JUPYTER_BOOK = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()"]
_chart_numbers = itertools.count(1)


class BookError(RuntimeError):
    """The notebooks passed the gate, but `jupyter-book build` failed or warned."""


class _ThisInterpreter(AsyncKernelManager):
    """Start kernels with the running interpreter and this `dolb`, whatever kernelspecs the machine has installed."""

    @property
    def kernel_spec(self) -> KernelSpec:
        paths = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
        return KernelSpec(**get_kernel_dict(), env={"PYTHONPATH": os.pathsep.join(filter(None, paths))})

    @default("transport_encryption")
    def _encrypt(self) -> str:
        # Kernels listen on TCP ports that everyone on a shared login node can reach.
        return "auto" if zmq.has("curve") else "disabled"


def run_notebook(
    source: Path, target: Path, parameters: Mapping[str, Any], cwd: Path | None = None, progress: bool = True
) -> Path:
    """Run the notebook `source` with `parameters` and write it, executed and gated, to `target`.

    Parameters are checked before anything runs (ParameterError). A cell that raises, a kernel that dies or a cell
    that did not run is a GateError; `target` then holds what was executed so far. `cwd` defaults to the current folder.
    """
    check_parameters(source, parameters)
    import papermill  # takes most of a second, which a notebook that only draws should not pay

    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        papermill.execute_notebook(
            str(source),
            str(target),
            parameters=dict(parameters),
            kernel_name="python3",
            language="python",
            progress_bar=progress,
            kernel_manager_class=_ThisInterpreter,
            # Not papermill's cwd argument: it changes the folder of this whole process, and notebooks run in threads.
            resources={"metadata": {"path": str(cwd or Path.cwd())}},
        )
    except papermill.PapermillExecutionError as error:
        first_line = str(error.source).strip().splitlines()[0]
        raise GateError(
            f"{source}: cell In [{error.exec_count}] (`{first_line}`) raised {error.ename}: {error.evalue}"
        ) from error
    except Exception as error:  # dead kernels and timeouts come as nbclient's, jupyter_client's or plain errors
        raise GateError(
            f"{source}: {type(error).__name__} at {first_unfinished(target)}: {error or 'no message'}"
        ) from error
    check_notebook(target, expected_source=source)
    return target


def stage(
    root: Path, staging: Path, scale: str = "published", only: Iterable[str] | None = None, jobs: int | None = None
) -> list[Path]:
    """Copy the book tree of `root` to `staging` with every notebook executed at `scale`, and return the notebooks.

    Notebooks run in the staging folder, `jobs` at a time (default: one per CPU core). All of them are run before the
    failures are raised, as one GateError that names each. `only` (names such as "01-batch-size") leaves out the others.
    """
    sources = {path.stem: path for path in sorted((root / "notebooks").glob("*.ipynb"))}
    if only is not None:
        wanted = list(only)
        if unknown := sorted(set(wanted) - set(sources)):
            raise ValueError(f"no notebook {unknown}; accepted are: {', '.join(sources)}")
        sources = {name: sources[name] for name in wanted}
    # A parameter equal to its default is not passed, so that the page shows one parameters cell and not two.
    parameters = {}
    for name, source in sources.items():
        defaults = check_parameters(source, {"scale": scale})
        parameters[name] = {} if defaults["scale"] == scale else {"scale": scale}

    _copy_tree(root, staging)
    (staging / "build.json").write_text(json.dumps(_build_info(root, scale), indent=1), encoding="utf-8")

    def execute(name: str) -> Path | GateError:
        target = staging / "notebooks" / sources[name].name
        try:
            run_notebook(sources[name], target, parameters[name], cwd=staging, progress=False)
        except GateError as error:
            return error
        _drop_papermill_metadata(target)
        return target

    with ThreadPoolExecutor(max_workers=jobs or os.cpu_count() or 1) as pool:
        outcomes = list(pool.map(execute, sources))
    if failures := [str(outcome) for outcome in outcomes if isinstance(outcome, GateError)]:
        summary = f"{len(failures)} of {len(sources)} notebooks refused; nothing is published"
        raise GateError("\n".join([summary, *failures]))
    return [outcome for outcome in outcomes if isinstance(outcome, Path)]


def build_book(root: Path, scale: str = "published", jobs: int | None = None, output: Path | None = None) -> Path:
    """Execute, gate and build the book of `root`, all that its table of contents lists, and return its index page.

    The pages go to `output` (default `_build/html`) and replace the previous ones only when everything passed.
    """
    root = root.resolve()
    pages = (output or root / "_build" / "html").resolve()
    staging = pages.parent / "staging"
    stage(root, staging, scale, only=_in_contents(root), jobs=jobs)
    return build_pages(staging, pages)


def build_pages(staging: Path, pages: Path) -> Path:
    """Build the pages of a staged book, whose notebooks have run, put them at `pages`, and return the index page."""
    command = [*_JUPYTER_BOOK, "build", str(staging), "--all", "-W", "--keep-going"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr).splitlines()
        warnings = [line for line in said if "WARNING" in line or "ERROR" in line or "Error" in line]
        summary = f"jupyter-book build {staging} failed; the previous pages stay"
        raise BookError("\n".join([summary, *(warnings or said[-30:])]))
    _replace_folder(staging / "_build" / "html", pages)
    return pages / "index.html"


def _in_contents(root: Path) -> list[str]:
    """Return the notebooks that the table of contents lists: one whose results are not published yet is not there."""
    contents = (root / "_toc.yml").read_text(encoding="utf-8")
    return re.findall(r"^\s*- file: notebooks/(\S+?)(?:\.ipynb)?\s*$", contents, flags=re.MULTILINE)


def show(chart: alt.TopLevelMixin, description: str) -> HTML:
    """Return the interactive chart with `description` as its text alternative.

    In the book the page's own Vega bundle draws it and nothing is fetched; elsewhere altair's loader fetches Vega.
    """
    with alt.data_transformers.disable_max_rows():
        spec = {**chart.to_dict(), "description": description}
    rows = sum(len(values) for values in spec.get("datasets", {}).values())
    # The number keeps a chart that is shown twice apart; the digest, charts of two notebooks on one page.
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True, default=str).encode()).hexdigest()[:10]
    drawing = spec_to_html(
        spec,
        mode="vega-lite",
        vega_version=alt.VEGA_VERSION,
        vegalite_version=alt.VEGALITE_VERSION,
        vegaembed_version=alt.VEGAEMBED_VERSION,
        output_div=f"dolb-chart-{digest}-{next(_chart_numbers)}",
        embed_options={
            "renderer": "canvas" if rows > CANVAS_ROWS else "svg",
            # The Vega editor is a web site; the two other source views repeat the CSV of the provenance panel.
            "actions": {"export": True, "source": False, "compiled": False, "editor": False},
        },
        json_kwds={"cls": _ScriptSafeEncoder},
        fullhtml=False,
        template="universal",
    )
    text = html.escape(description)
    return _Described(
        f'<figure class="dolb-figure" style="margin:0"><div class="dolb-chart" role="img" aria-label="{text}">{drawing}'
        f"</div><details><summary>The figure in words</summary><p>{text}</p></details></figure>",
        description,
    )


def provenance_panel(
    info: Mapping[str, Any],
    command: str,
    csv: str | None = None,
    csv_name: str = "figure.csv",
    others: Mapping[str, str] | None = None,
) -> HTML:
    """Return a folding panel: what was run, the command that runs it again, and the figure's data as a CSV file.

    `info` is shown as a table, `command` with a copy button, `csv` (the file's text) as a link that works from disk,
    and `others`, the files of further figures by name, as more of them.
    """
    rows = "".join(
        f'<tr><th scope="row" style="text-align:left">{html.escape(str(name))}</th>'
        f'<td style="text-align:left">{html.escape(_readable(value))}</td></tr>'
        for name, value in info.items()
    )
    files = ({} if csv is None else {csv_name: csv}) | dict(others or {})
    links = ", ".join(_link(text, name, f"Download the data ({name})", "text/csv") for name, text in files.items())
    link = f"<p>{links}</p>" if files else ""
    return _Described(
        '<details class="dolb-provenance"><summary>What was run</summary>'
        f"<table>{rows}</table>"
        '<p>Run it again:</p><div class="dolb-command"><pre style="white-space:pre-wrap"><code>'
        f'{html.escape(command)}</code></pre><button type="button" onclick="{html.escape(_COPY)}">Copy</button></div>'
        f"{link}</details>",
        f"What was run: {', '.join(f'{name} {_readable(value)}' for name, value in info.items())}\n{command}",
    )


def downloads(files: Mapping[str, str], words: str) -> HTML:
    """Return a sentence and links to files, given as name and text, that a reader can save; the page holds them."""
    links = ", ".join(_link(text, name, name, "application/json") for name, text in files.items())
    return _Described(f'<p class="dolb-downloads">{html.escape(words)} {links}</p>', f"{words} {', '.join(files)}")


def _link(text: str, name: str, words: str, kind: str) -> str:
    data = base64.b64encode(text.encode("utf-8")).decode("ascii")
    return f'<a download="{html.escape(name)}" href="data:{kind};charset=utf-8;base64,{data}">{html.escape(words)}</a>'


def table(frame: pd.DataFrame) -> HTML:
    """Return a table for the text with its cells written out, of which pandas cuts what is long."""
    with pd.option_context("display.max_colwidth", None):
        return _Described(frame.to_html(border=0), frame.to_string())


def notice(text: str) -> HTML:
    """Return a short notice in the place of a figure that cannot be drawn yet."""
    return _Described(f'<div class="dolb-notice" role="note">{html.escape(text)}</div>', text)


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


class _Described(HTML):
    """HTML that also has words, for a terminal or a text-only export of the notebook."""

    def __init__(self, markup: str, words: str) -> None:
        super().__init__(markup)
        self._words = words

    def __repr__(self) -> str:
        return self._words


class _ScriptSafeEncoder(json.JSONEncoder):
    """Write JSON that cannot close the script element it stands in."""

    def encode(self, o: Any) -> str:
        return super().encode(o).replace("</", "<\\/")


def _readable(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple | set) else str(value)


def _copy_tree(root: Path, staging: Path) -> None:
    """Make `staging` a fresh copy of what the book is made of, without notebooks and without old pages."""
    # Only the Vega bundle's cache outlives a build: it depends on package versions alone, and takes seconds to make.
    for old in [*staging.glob("*"), *staging.glob("_build/*")]:
        if old.name not in ("_build", "vega"):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    staging.mkdir(parents=True, exist_ok=True)
    for name in ("_config.yml", "_toc.yml"):
        shutil.copy2(root / name, staging / name)
    skip = shutil.ignore_patterns("*.ipynb", ".ipynb_checkpoints", "__pycache__")
    for name in ("book", "notebooks", "results"):
        if (root / name).is_dir():
            shutil.copytree(root / name, staging / name, ignore=skip)


def _build_info(root: Path, scale: str) -> dict[str, str]:
    """Say which dolb, which commit and which scale the book is made of; every page's footer shows it."""
    git = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--match="]
    try:
        commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:  # no git on this machine
        commit = ""
    return {"version": dolb.__version__, "commit": commit or "unknown", "scale": scale}


def _drop_papermill_metadata(path: Path) -> None:
    """Remove what papermill notes in the notebook: readers can download it, and it names this machine's folders."""
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata.pop("papermill", None)
    for cell in notebook.cells:
        cell.metadata.pop("papermill", None)
    nbformat.write(notebook, path)


def _replace_folder(new: Path, target: Path) -> None:
    """Put the folder `new` in the place of `target`; if that fails, `target` is what it was."""
    previous = target.with_name(target.name + ".previous")
    shutil.rmtree(previous, ignore_errors=True)
    if target.exists():
        target.rename(previous)
    try:
        new.rename(target)
    except OSError:
        if previous.exists():
            previous.rename(target)
        raise
    shutil.rmtree(previous, ignore_errors=True)
